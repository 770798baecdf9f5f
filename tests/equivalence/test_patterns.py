"""Windows and BigBird: blocks = dense attention with the same mask; wide enough they are full attention."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from saccade.nn import kernels
from saccade.nn.attention import SelfAttention
from saccade.nn.masks import pack, valid_BT
from saccade.nn.patterns import BigBird, Pattern, Window
from saccade.nn.positions import Alibi, NoPlaces, Relative, Rotary
from saccade.nn.watch import Watch
from saccade.types import Layout

H, K = 2, 4
causals = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
Kind = Literal["none", "alibi", "rotary", "relative"]


def bird(block: int, *, reach: int = 1, begins: int = 1, drawn: int = 2, seed: int = 0, layer: int = 0) -> BigBird:
    return BigBird(H, block, reach, begins, drawn, seed, layer)


def attention(pattern: Pattern | None, kind: Kind = "none", width: int = K) -> SelfAttention:
    torch.manual_seed(0)
    places: dict[Kind, NoPlaces] = {
        "none": NoPlaces(),
        "alibi": Alibi(H),
        "rotary": Rotary(width),
        "relative": Relative(H, width, distance=3, per_head=True),
    }
    return SelfAttention(H * width, H, places=places[kind], pattern=pattern).double()


def sentences(lengths: Sequence[int], width: int = H * K) -> tuple[Tensor, Layout]:
    torch.manual_seed(len(lengths))
    return torch.randn(len(lengths), max(lengths), width, dtype=torch.float64), Layout.padded(list(lengths))


def assert_blocks_equal_mask(multi: SelfAttention, lengths: Sequence[int], causal: bool) -> None:
    """Outputs at real tokens, and gradients, padded and packed, against the readable path."""
    weight = multi.of_input.weight
    x_BTD, layout = sentences(lengths, weight.shape[1])
    packed, layout = layout.packed().to(weight.device), layout.to(weight.device)
    x_BTD = x_BTD.to(weight).requires_grad_()
    valid, tolerance = valid_BT(layout), 1e-7 if weight.dtype == torch.float64 else 2e-4
    expected = multi.look(multi.project(x_BTD), layout, causal=causal, watch=Watch())[valid]
    blocks = multi.look(multi.project(x_BTD), layout, causal=causal)[valid]
    of_packed = multi.look(multi.project(pack(x_BTD, packed)), packed, causal=causal)
    inputs = [x_BTD, *(p for n, p in multi.named_parameters() if not n.startswith("heads."))]
    upstream = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, inputs, upstream)
    for out in (blocks, of_packed):
        assert_close(out, expected, rtol=tolerance, atol=tolerance)
        for mine, theirs in zip(torch.autograd.grad(out, inputs, upstream), wanted, strict=True):
            largest = max(1.0, float(theirs.abs().max()))
            assert_close(mine / largest, theirs / largest, rtol=tolerance, atol=tolerance)


PATTERNS: dict[str, Pattern] = {
    "window of 1": Window(1),
    "window of 7": Window(7),
    "window of 16": Window(16),
    "window of 20": Window(20),
    "bigbird": bird(4),
    "bigbird, two global": bird(3, begins=2, drawn=3),
    "bigbird, none drawn": bird(5, drawn=0),
    "bigbird, none global": bird(4, begins=0),
    "bigbird, banded": bird(4, begins=0, drawn=0),
    "bigbird, sees itself and no neighbours": bird(4, reach=0, drawn=1),
    "bigbird, wide": bird(2, reach=3, drawn=4),
}
patterns = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())


@causals
@pytest.mark.parametrize("kind", ["none", "alibi", "rotary"])
@patterns
def test_blocks_equal_a_mask(pattern: Pattern, kind: Kind, causal: bool) -> None:
    assert_blocks_equal_mask(attention(pattern, kind), [37, 70, 1, 12, 64], causal)
    assert_blocks_equal_mask(attention(pattern, kind), [48, 48], causal)  # nothing is padding


@causals
@pytest.mark.parametrize("width", [1, 7, 20])
def test_blocks_equal_a_mask_with_relative_positions(width: int, causal: bool) -> None:
    assert_blocks_equal_mask(attention(Window(width), "relative"), [37, 70, 1, 12], causal)


@pytest.mark.gpu
@causals
@pytest.mark.parametrize("kind", ["none", "alibi", "rotary"])
@pytest.mark.parametrize("pattern", [Window(20), Window(64), bird(16), bird(64, begins=2, drawn=3)], ids=str)
def test_kernels_equal_a_mask(pattern: Pattern, kind: Kind, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, and what computes them is the kernel, not the dense ones."""
    monkeypatch.setattr(kernels, "by_blocks", None)
    multi = attention(pattern, kind, width=16).float().cuda()
    assert_blocks_equal_mask(multi, [370, 700, 1, 12, 640], causal)
    assert_blocks_equal_mask(multi, [480, 480], causal)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    block=st.integers(1, 6),
    reach=st.integers(0, 3),
    begins=st.integers(0, 3),
    drawn=st.integers(0, 4),
    seed=st.integers(0, 9),
    causal=st.booleans(),
)
def test_blocks_equal_a_mask_whatever_the_sizes(
    lengths: list[int], block: int, reach: int, begins: int, drawn: int, seed: int, causal: bool
) -> None:
    pattern = bird(block, reach=reach, begins=begins, drawn=drawn, seed=seed)
    assert_blocks_equal_mask(attention(pattern), lengths, causal)


@causals
@pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize(
    "pattern",
    [Window(40), Window(39), bird(4, reach=10, drawn=0), bird(4, reach=9), bird(4, begins=10), bird(1, drawn=40)],
    ids=["window", "window just so", "bigbird", "bigbird just so", "all global", "all drawn"],
)
@torch.no_grad()
def test_wide_enough_is_full(pattern: Pattern, watched: bool, causal: bool) -> None:
    x_BTD, layout = sentences([40, 23])
    watch, valid = Watch() if watched else None, valid_BT(layout)
    some, full = attention(pattern), attention(None)
    expected = full.look(full.project(x_BTD), layout, causal=causal)
    assert_close(some.look(some.project(x_BTD), layout, causal=causal, watch=watch)[valid], expected[valid])
    narrow = attention(Window(3))
    assert not torch.allclose(narrow.look(narrow.project(x_BTD), layout, causal=causal)[valid], expected[valid])


# ---- the masks


def mask_of(pattern: Pattern, tokens: int, causal: bool = False) -> Tensor:
    """(H or 1, T, T)."""
    place = torch.arange(tokens)
    may_look = pattern.may_look(place[None], place[None], torch.tensor([tokens]), causal=causal)[0]
    return may_look & (place <= place[:, None]) if causal else may_look


def test_a_window_is_a_band() -> None:
    place = torch.arange(30)
    expected = (place - place[:, None]).abs() <= 4
    assert torch.equal(mask_of(Window(4), 30)[0], expected)
    assert torch.equal(mask_of(Window(4), 30, causal=True)[0], expected.tril())
    banded = mask_of(bird(3, begins=0, drawn=0), 30)
    assert torch.equal(banded[0], ((place // 3) - (place // 3)[:, None]).abs() <= 1)


@pytest.mark.parametrize("begins", [1, 2, 3])
@pytest.mark.parametrize("drawn", [0, 1, 3])
def test_bigbird_sees_first_near_and_drawn_blocks(begins: int, drawn: int) -> None:
    """g full rows and columns, every diagonal block, and exactly r further blocks in each other row, none twice."""
    block, n = 2, 12
    mask_HTT = mask_of(bird(block, begins=begins, drawn=drawn), block * n)
    blocks_Hnn = mask_HTT.view(H, n, block, n, block).transpose(2, 3).flatten(3)
    assert torch.equal(blocks_Hnn.any(-1), blocks_Hnn.all(-1))  # blocks are seen whole
    seen_Hnn = blocks_Hnn.all(-1)
    assert seen_Hnn[:, :begins].all()
    assert seen_Hnn[:, :, :begins].all()
    place = torch.arange(n)
    near_nn = (place - place[:, None]).abs() <= 1
    assert seen_Hnn[:, near_nn].all()
    further_Hn = (seen_Hnn & ~near_nn)[:, begins:, begins:].sum(-1)
    assert (further_Hn == drawn).all()


def test_a_causal_bigbird_draws_among_earlier_blocks() -> None:
    n, drawn, pattern = 12, 2, bird(1)
    mask_Hnn = mask_of(pattern, n, causal=True)
    place = torch.arange(n)
    near_nn = (place[:, None] - place <= 1) & (place <= place[:, None])
    further_Hn = (mask_Hnn & ~near_nn)[:, :, 1:].sum(-1)
    assert further_Hn.tolist() == [[min(drawn, max(0, i - 2)) for i in range(n)]] * H
    longer = mask_of(pattern, 20, causal=True)[:, :n, :n]
    assert torch.equal(longer, mask_Hnn)  # what is still to be written changes nothing


def test_the_draw_depends_on_seed_layer_head_and_length_alone() -> None:
    pattern = bird(2, drawn=2)
    torch.manual_seed(1)
    first = mask_of(pattern, 60)
    torch.manual_seed(2)
    assert torch.equal(mask_of(pattern, 60), first)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(mask_of(replace(pattern, seed=1), 60), first)
    assert not torch.equal(mask_of(replace(pattern, layer=1), 60), first)
    place = torch.arange(60)
    lengths = torch.tensor([60, 41])
    together = pattern.may_look(place[None], place[None], lengths, causal=False)
    assert torch.equal(together[1, :, :41, :41], mask_of(pattern, 41))


def test_every_block_is_drawn_about_as_often() -> None:
    counts = torch.zeros(64)
    for seed in range(60):
        drawn = bird(1, begins=0, reach=0, drawn=3, seed=seed).draw(torch.arange(64)[None], torch.tensor([[64]]))
        counts += torch.bincount(drawn.flatten(), minlength=64)
    expected = 60 * H * 64 * 3 / 64
    assert (counts - expected).abs().max() < 5 * expected**0.5


# ---- the cost


@pytest.mark.parametrize("pattern", [Window(16), bird(16)], ids=["window", "bigbird"])
@causals
@torch.no_grad()
def test_twice_the_tokens_cost_twice_as_much(pattern: Pattern, causal: bool) -> None:
    multi = attention(pattern)

    def products(tokens: int) -> int:
        x_BTD, layout = sentences([tokens])
        qkv = multi.project(x_BTD)
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:  # it counts no fused kernel
            multi.look(qkv, layout, causal=causal)
        return int(counter.get_total_flops())

    short, long = products(1024), products(2048)
    assert short > 0
    assert long / short == pytest.approx(2.0, rel=0.05)


@causals
@pytest.mark.parametrize("pattern", [Window(3), bird(2)], ids=["window", "bigbird"])
@torch.no_grad()
def test_what_is_out_of_sight_changes_nothing(pattern: Pattern, causal: bool) -> None:
    """And the gradient to it is exactly zero: on the path of blocks."""
    multi = attention(pattern)
    x_BTD, layout = sentences([50])
    seen_TT = mask_of(pattern, 50, causal).any(0)
    with torch.enable_grad():
        x_BTD.requires_grad_()
        out_BTHK = multi.look(multi.project(x_BTD), layout, causal=causal)
        for t in (0, 17, 33, 49):
            (gradient,) = torch.autograd.grad(out_BTHK[:, t].square().sum(), x_BTD, retain_graph=True)
            assert torch.equal(gradient[0].abs().amax(-1) > 0, seen_TT[t]), t
