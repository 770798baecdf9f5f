"""Places within attention = the papers' equations written out, in double precision; and what holds of each."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.nn.attention import SelfAttention
from saccade.nn.patterns import Window
from saccade.nn.positions import Alibi, NoPlaces, Pairs, Relative, Rotary, slopes
from saccade.nn.transformer import Block
from saccade.nn.watch import Watch
from saccade.types import Layout

paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
causals = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
pairings = pytest.mark.parametrize("pairs", ["interleaved", "halves"])
T, H, K = 6, 3, 4


def attention(places: NoPlaces) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(H * K, H, places=places).double()


def looked(multi: SelfAttention, x_BTD: Tensor, causal: bool, watched: bool = False) -> Tensor:
    """(B, T, H, K), before heads are joined."""
    layout = Layout.padded([x_BTD.shape[1]] * len(x_BTD))
    return multi.look(multi.project(x_BTD), layout, causal=causal, watch=Watch() if watched else None)


def sentences() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(2, T, H * K, dtype=torch.float64)


# ---- relative (Shaw et al. 2018)


def shaw(multi: SelfAttention, x_BTD: Tensor, distance: int, causal: bool) -> Tensor:
    """Equations 3 and 4, one pair of tokens at a time."""
    places = multi.places
    assert isinstance(places, Relative)
    out, qkv = torch.zeros(len(x_BTD), T, H, K, dtype=torch.float64), multi.project(x_BTD)
    for b, h in ((b, h) for b in range(len(x_BTD)) for h in range(H)):
        q, k, v = (part[:, h] for part in qkv[b].unbind(1))
        table = 0 if len(places.of_keys_HRK) == 1 else h
        for i in range(T):
            keys = range(i + 1) if causal else range(T)
            row = [min(max(j - i, -distance), distance) + distance for j in keys]
            e = [q[i] @ (k[j] + places.of_keys_HRK[table, r]) / math.sqrt(K) for j, r in zip(keys, row, strict=True)]
            alpha = torch.stack(e).softmax(0)
            for weight, j, r in zip(alpha, keys, row, strict=True):
                more = 0.0 if places.of_values_HRK is None else places.of_values_HRK[table, r]
                out[b, i, h] += weight * (v[j] + more)
    return out


@paths
@causals
@pytest.mark.parametrize("distance", [0, 2, 40])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
@torch.no_grad()
def test_relative_equals_the_equations(
    distance: int, values: bool, per_head: bool, causal: bool, watched: bool
) -> None:
    multi = attention(Relative(H, K, distance=distance, values=values, per_head=per_head))
    x_BTD = sentences()
    assert_close(looked(multi, x_BTD, causal, watched), shaw(multi, x_BTD, distance, causal))


def test_relative_gradients_are_right() -> None:
    relative = Relative(2, 3, distance=1, per_head=True).double()
    q, w = (torch.randn(1, 2, 4, n, dtype=torch.float64, requires_grad=True) for n in (3, 4))
    distance = torch.arange(4) - torch.arange(4)[:, None]
    assert torch.autograd.gradcheck(lambda q: relative.bias(q, distance), (q,))

    def of_values(w: Tensor) -> Tensor:
        out = relative.of_values(w, distance)
        assert out is not None
        return out

    assert torch.autograd.gradcheck(of_values, (w,))


@causals
@torch.no_grad()
def test_relative_vectors_that_say_nothing(causal: bool) -> None:
    """Zeros: plain attention. The same for all distances: on keys no effect, on values that vector is added."""
    multi, plain, x_BTD = attention(Relative(H, K, distance=2)), attention(NoPlaces()), sentences()
    assert isinstance(multi.places, Relative)
    assert multi.places.of_values_HRK is not None
    plain.load_state_dict({name: w for name, w in multi.state_dict().items() if "places" not in name})
    expected = looked(plain, x_BTD, causal)
    multi.places.of_values_HRK.zero_()
    assert not torch.allclose(looked(multi, x_BTD, causal), expected, atol=1e-3)
    multi.places.of_keys_HRK.copy_(torch.randn(K))
    assert_close(looked(multi, x_BTD, causal), expected)
    constant = torch.randn(K, dtype=torch.float64)
    multi.places.of_values_HRK.copy_(constant)
    assert_close(looked(multi, x_BTD, causal), expected + constant)


@torch.no_grad()
def test_relative_with_no_distance_is_permutation_equivariant() -> None:
    order, x_BTD = torch.tensor([3, 0, 5, 2, 1, 4]), sentences()
    for distance, same in ((0, True), (1, False)):
        multi = attention(Relative(H, K, distance=distance))
        moved = looked(multi, x_BTD[:, order], False)
        assert torch.allclose(moved, looked(multi, x_BTD, False)[:, order], atol=1e-9) == same


@torch.no_grad()
def test_beyond_the_clipping_distance_nothing_is_told_apart() -> None:
    """Tokens that are all k or further back may change places."""
    multi, x_BTD = attention(Relative(H, K, distance=2)), sentences()
    last = looked(multi, x_BTD, True)[:, 5]
    assert_close(looked(multi, x_BTD[:, [2, 3, 1, 0, 4, 5]], True)[:, 5], last)
    assert not torch.allclose(looked(multi, x_BTD[:, [0, 1, 2, 4, 3, 5]], True)[:, 5], last, atol=1e-4)


def test_relative_tables_are_as_large_as_the_paper_says() -> None:
    for per_head, tables in ((False, 1), (True, H)):
        for values, both in ((False, 1), (True, 2)):
            relative = Relative(H, K, distance=5, values=values, per_head=per_head)
            assert sum(p.numel() for p in relative.parameters()) == both * tables * 11 * K


# ---- rotary (Su et al. 2021)


@pairings
def test_rotary_is_a_turn_of_each_pair(pairs: Pairs) -> None:
    """As a product with e^(i · place · θ) of the complex number that a pair is; θ = base^(−2i/K)."""
    rotary = Rotary(6, pairs=pairs, base=100.0).double()
    x, place = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 7, 300])
    one, other = (x[:, 0::2], x[:, 1::2]) if pairs == "interleaved" else (x[:, :3], x[:, 3:])
    theta = 100.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    turned = torch.complex(one, other) * torch.exp(1j * place[:, None] * theta)
    out = rotary.turned(x, place)
    mine = (out[:, 0::2], out[:, 1::2]) if pairs == "interleaved" else (out[:, :3], out[:, 3:])
    assert_close(mine[0], turned.real, rtol=1e-4, atol=1e-4)  # the rates are kept in single precision
    assert_close(mine[1], turned.imag, rtol=1e-4, atol=1e-4)
    assert_close(out.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(out[0], x[0])


@pairings
def test_a_product_of_turned_vectors_knows_the_distance_alone(pairs: Pairs) -> None:
    rotary = Rotary(8, pairs=pairs).double()
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    q_T, k_T = (rotary.turned(x.expand(50, 8), torch.arange(50)) for x in (q, k))
    products = q_T @ k_T.T
    for away in (-7, 0, 3):
        assert_close(products.diagonal(away), products.diagonal(away)[:1].expand(50 - abs(away)), rtol=1e-5, atol=1e-5)


def test_the_two_pairings_are_the_same_up_to_a_permutation() -> None:
    x, place = torch.randn(4, 6), torch.arange(4)
    order = torch.tensor([0, 2, 4, 1, 3, 5])  # from neighbours to halves
    turned = Rotary(6).turned(x, place)[:, order]
    assert_close(turned, Rotary(6, pairs="halves").turned(x[:, order], place))


@paths
@causals
@pairings
@torch.no_grad()
def test_rotary_turns_queries_and_keys_and_leaves_values(pairs: Pairs, causal: bool, watched: bool) -> None:
    multi, x_BTD = attention(Rotary(K, pairs=pairs)), sentences()
    assert isinstance(multi.places, Rotary)
    q, k, v = multi.project(x_BTD).unbind(2)
    q, k = (torch.stack([multi.places.turned(x[:, t], torch.tensor(t)) for t in range(T)], dim=1) for x in (q, k))
    e_BHTT = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(K)
    if causal:
        e_BHTT = e_BHTT + torch.full((T, T), -torch.inf).triu(1)
    expected = torch.einsum("bhts,bshk->bthk", e_BHTT.softmax(-1), v)
    assert_close(looked(multi, x_BTD, causal, watched), expected)


def test_rotary_in_half_precision_turns_precisely() -> None:
    x, place = torch.randn(3, 8).bfloat16(), torch.tensor([0, 511, 40_000])
    out = Rotary(8).turned(x, place)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), Rotary(8).turned(x.float(), place), rtol=1e-2, atol=1e-2)


# ---- ALiBi (Press et al. 2022)


def test_slopes_as_printed() -> None:
    assert slopes(8) == [2.0**-i for i in range(1, 9)]
    assert slopes(16) == pytest.approx([2.0 ** (-i / 2) for i in range(1, 17)])
    assert slopes(1) == [2.0**-8]


@pytest.mark.parametrize("heads", [3, 5, 12, 20])
def test_slopes_between_powers_of_two(heads: int) -> None:
    """Those of the power below, then every other one of the power above: all unlike, none made up."""
    lower = 2 ** int(math.log2(heads))
    got = slopes(heads)
    assert len(got) == len(set(got)) == heads
    assert got[:lower] == slopes(lower)
    assert got[lower:] == slopes(2 * lower)[::2][: heads - lower]


@paths
@causals
@torch.no_grad()
def test_alibi_equals_the_equation(causal: bool, watched: bool) -> None:
    multi, x_BTD = attention(Alibi(H)), sentences()
    q, k, v = multi.project(x_BTD).unbind(2)
    e_BHTT = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(K)
    for h, slope in enumerate(slopes(H)):
        for i in range(T):
            for j in range(T):
                e_BHTT[:, h, i, j] += -torch.inf if causal and j > i else -slope * abs(i - j)
    expected = torch.einsum("bhts,bshk->bthk", e_BHTT.softmax(-1), v)
    assert_close(looked(multi, x_BTD, causal, watched), expected)


# ---- of all three


def placed(kind: str) -> NoPlaces:
    match kind:
        case "relative":
            return Relative(H, K, distance=2)
        case "rotary":
            return Rotary(K)
        case _:
            return Alibi(H)


kinds = pytest.mark.parametrize("kind", ["relative", "rotary", "alibi"])


@kinds
@torch.no_grad()
def test_a_shift_changes_nothing(kind: Literal["relative", "rotary", "alibi"]) -> None:
    """The same tokens further on, with all before them out of sight: the same outputs."""
    torch.manual_seed(0)
    block = Block(
        H * K, H, 7, dropout=0.0, norm="pre", activation="relu", memory_width=None, causal=True,
        places=placed(kind), pattern=Window(3),
    ).double()  # fmt: skip
    tokens, before = torch.randn(1, 5, H * K, dtype=torch.float64), torch.randn(1, 40, H * K, dtype=torch.float64)
    here = block(tokens, Layout.padded([5]))
    for shift in (1, 13, 40):
        further = block(torch.cat([before[:, :shift], tokens], dim=1), Layout.padded([shift + 5]))
        assert_close(further[:, -2:], here[:, -2:], rtol=1e-6, atol=1e-6)  # they see the last four tokens alone


@kinds
@torch.no_grad()
def test_order_matters_where_there_are_places(kind: str) -> None:
    order, x_BTD = torch.tensor([3, 0, 5, 2, 1, 4]), sentences()
    multi = attention(placed(kind))
    assert not torch.allclose(looked(multi, x_BTD[:, order], False), looked(multi, x_BTD, False)[:, order], atol=1e-4)


@kinds
@torch.no_grad()
def test_the_memory_of_a_decoder_has_no_places(kind: str) -> None:
    torch.manual_seed(0)
    block = Block(
        H * K, H, 7, dropout=0.0, norm="pre", activation="relu", memory_width=5, causal=True, places=placed(kind)
    )
    x_BTD, layout, memory, source = torch.randn(2, 4, H * K), Layout.padded([4, 4]), torch.randn(2, 6, 5), [6, 6]
    straight = block(x_BTD, layout, memory=block.remember(memory, Layout.padded(source)))
    mirrored = block(x_BTD, layout, memory=block.remember(memory.flip(1), Layout.padded(source)))
    assert_close(straight, mirrored)


@torch.no_grad()
def test_rotary_is_that_of_llama() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    q, k = torch.randn(2, H, T, K), torch.randn(2, H, T, K)
    rotary = Rotary(K, pairs="halves")
    angle = torch.arange(T)[:, None] * rotary.rates
    angle = torch.cat([angle, angle], dim=-1)[None]
    theirs = llama.apply_rotary_pos_emb(q, k, angle.cos(), angle.sin())
    for mine, their in zip((q, k), theirs, strict=True):
        assert_close(rotary.turned(mine, torch.arange(T)), their)
