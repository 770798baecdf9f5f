"""Dropout of attention weights: the equation with the mask that was drawn, on every path; and the draw is fair.

Values that are unit vectors show the weights that a path has taken them with, and so what it has dropped.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.nn.attention import CrossAttention, SelfAttention
from saccade.nn.dropout import Dropout
from saccade.nn.linformer import Linformer
from saccade.nn.masks import pack, pad, valid_BT
from saccade.nn.patterns import BigBird, Pattern, Window
from saccade.nn.positions import Alibi, NoPlaces, Relative, Rotary
from saccade.nn.scores import attend
from saccade.nn.tree import RelativeStructure
from saccade.nn.watch import Watch
from saccade.types import Layout

H, K, RATE = 2, 64, 0.3
paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
layouts = pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
devices = pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("cpu", torch.float64),
        pytest.param("cuda", torch.float32, marks=pytest.mark.gpu),
        pytest.param("cuda", torch.bfloat16, marks=pytest.mark.gpu),
    ],
    ids=["cpu", "cuda", "cuda, half"],
)
TOLERANCE = {torch.float64: 1e-7, torch.float32: 3e-3, torch.bfloat16: 6e-2}  # a mask's factor is in float32


@dataclass(frozen=True)
class Kind:
    build: Callable[[], SelfAttention]
    causal: bool = False
    lengths: tuple[int, ...] = (50, 33, 1, 64)


def of(places: Callable[[], NoPlaces] = NoPlaces, pattern: Pattern | None = None) -> Callable[[], SelfAttention]:
    return lambda: SelfAttention(H * K, H, dropout=RATE, places=places(), pattern=pattern)


def slots() -> SelfAttention:
    """As many sums as tokens; those of the values are the tokens themselves, so that they show the weights, too."""
    linformer = Linformer(64, 64, H, "none")
    with torch.no_grad():
        linformer.of_values_HML.copy_(torch.eye(64))
    return SelfAttention(H * K, H, dropout=RATE, slots=linformer)


def relative() -> Relative:
    return Relative(H, K, distance=3)


BIRD = BigBird(H, 8, reach=1, begins=1, drawn=2, seed=0, layer=0)
KINDS = {
    "full": Kind(of()),
    "causal": Kind(of(), causal=True),
    "even": Kind(of(), lengths=(64, 64)),
    "causal, even": Kind(of(), causal=True, lengths=(64, 64)),
    "rotary": Kind(of(lambda: Rotary(K))),
    "alibi": Kind(of(lambda: Alibi(H))),
    "alibi, causal": Kind(of(lambda: Alibi(H)), causal=True),
    "relative": Kind(of(relative)),
    "relative, causal": Kind(of(relative), causal=True),
    "relative, keys": Kind(of(lambda: Relative(H, K, distance=3, values=False))),
    "tree": Kind(of(lambda: RelativeStructure(H, K, distance=2, tree_distance=2))),
    "window": Kind(of(pattern=Window(9))),
    "window, causal": Kind(of(pattern=Window(9)), causal=True),
    "window, alibi": Kind(of(lambda: Alibi(H), Window(9)), causal=True),
    "window, relative": Kind(of(relative, Window(9))),
    "bigbird": Kind(of(pattern=BIRD)),
    "bigbird, causal": Kind(of(pattern=BIRD), causal=True),
    "linformer": Kind(slots, lengths=(64, 64)),
}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


class Fixed(Dropout):
    """Drops what the mask says."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__(RATE)
        self.mask = mask

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask.to(x.dtype)


def made(kind: Kind, device: str, dtype: torch.dtype, *, packed: bool) -> tuple[SelfAttention, Tensor, Layout]:
    """An attention in training, random queries, keys and values (…, 3, H, K), and where they lie."""
    torch.manual_seed(0)
    multi = kind.build().to(device, dtype).train()
    layout = Layout.padded(list(kind.lengths), device=torch.device(device))
    layout = layout.packed() if packed else layout
    return multi, pack(torch.randn(len(kind.lengths), layout.longest, 3, H, K).to(device, dtype), layout), layout


def between(layout: Layout) -> Tensor:
    place = torch.arange(layout.longest, device=layout.lengths_B.device)
    return ((place[:, None] * 7 + place * 3) % 9 - 4).expand(len(layout.lengths_B), -1, -1)


def looked(multi: SelfAttention, qkv: Tensor, layout: Layout, kind: Kind, watch: Watch | None) -> Tensor:
    """With the randomness of one seed."""
    torch.manual_seed(7)
    related = between(layout) if multi.places.kind == "tree" else None
    return multi.look(qkv, layout, causal=kind.causal, watch=watch, kind="seen", between_BTT=related)


def shown(multi: SelfAttention, qkv: Tensor, layout: Layout, kind: Kind, watch: Watch | None) -> Tensor:
    """The weights that the values were taken with, (B, H, T, S)."""
    tables = [table for name, table in multi.places.named_parameters() if "of_values" in name]
    before = [table.detach().clone() for table in tables]
    T = layout.longest
    units_BTHK = torch.eye(T, K, device=qkv.device, dtype=qkv.dtype)[None, :, None].expand(
        len(layout.lengths_B), T, H, K
    )
    q, k, _ = qkv.detach().unbind(-3)
    # With gradients: torch chooses among its kernels by what needs one, and each draws its own mask.
    given = torch.stack([q, k, pack(units_BTHK, layout)], -3).requires_grad_()
    with torch.no_grad():
        for table in tables:
            table.zero_()
    weights = looked(multi, given, layout, kind, watch).detach()
    with torch.no_grad():
        for table, old in zip(tables, before, strict=True):
            table.copy_(old)
    return pad(weights, layout).transpose(1, 2)[..., :T]


def real_rows(layout: Layout) -> Tensor:
    return valid_BT(layout)[:, None, :, None]


@devices
@layouts
@paths
@kinds
def test_a_path_is_the_equation_with_the_mask_it_has_drawn(
    kind: Kind, watched: bool, packed: bool, device: str, dtype: torch.dtype
) -> None:
    """Outputs and gradients; the share that is dropped is right, and the rest is scaled up."""
    multi, qkv, layout = made(kind, device, dtype, packed=packed)
    watch = Watch() if watched else None
    left, real = shown(multi, qkv, layout, kind, watch), real_rows(layout)
    whole = shown(multi.eval(), qkv, layout, kind, None)
    seen = (whole > 0) & real
    share, count = float((left[seen] == 0).double().mean()), int(seen.sum())
    assert abs(share - RATE) < 4.5 * math.sqrt(RATE * (1 - RATE) / count)
    kept = seen & (left > 0)
    assert (left[~kept & real.expand_as(left)] == 0).all()
    tolerance = TOLERANCE[dtype]
    assert_close(left[kept], whole[kept] / (1 - RATE), rtol=tolerance, atol=tolerance)

    inputs = [qkv.requires_grad_(), *multi.places.parameters()]
    out = looked(multi.train(), qkv, layout, kind, watch)
    multi.heads.dropout = Fixed(kept.double() / (1 - RATE))
    expected = looked(multi, qkv, layout, kind, Watch())  # its Watch takes the way of the equation
    valid = torch.ones(len(qkv), dtype=torch.bool, device=device) if packed else valid_BT(layout)
    assert_close(out[valid], expected[valid], rtol=tolerance, atol=tolerance)
    slope = torch.randn_like(out[valid])
    for mine, theirs in zip(
        torch.autograd.grad(out[valid], inputs, slope), torch.autograd.grad(expected[valid], inputs, slope), strict=True
    ):
        scale = max(1.0, float(theirs.abs().max()))
        assert_close(mine, theirs, rtol=tolerance, atol=tolerance * scale)


@devices
@layouts
@paths
def test_cross_attention_is_the_equation_with_the_mask_it_has_drawn(
    watched: bool, packed: bool, device: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    multi = CrossAttention(H * K, H, 5, dropout=RATE).to(device, dtype).train()
    queries, keys = (Layout.padded(each, device=torch.device(device)) for each in ([20, 7, 3], [64, 30, 41]))
    queries, keys = (queries.packed(), keys.packed()) if packed else (queries, keys)
    q = pack(torch.randn(3, 20, H, K).to(device, dtype), queries).requires_grad_()
    kv = pack(torch.randn(3, 64, 2, H, K).to(device, dtype), keys).requires_grad_()

    def look(kv: Tensor, watch: Watch | None) -> Tensor:
        torch.manual_seed(7)
        return multi.look(q, kv, queries, keys, watch)

    units = pack(torch.eye(64, device=device, dtype=dtype)[None, :, None].expand(3, 64, H, K), keys)
    watch = Watch() if watched else None
    with torch.no_grad():
        left = pad(look(torch.stack([kv[..., 0, :, :], units], -3), watch), queries).transpose(1, 2)
    out = look(kv, watch)
    count = H * (20 * 64 + 7 * 30 + 3 * 41)
    kept = (left > 0) & real_rows(queries)
    assert abs(float(kept.sum()) / count - (1 - RATE)) < 4.5 * math.sqrt(RATE * (1 - RATE) / count)
    multi.heads.dropout = Fixed(kept.double() / (1 - RATE))
    expected = look(kv, Watch())
    tolerance, valid = TOLERANCE[dtype], slice(None) if packed else valid_BT(queries)
    assert_close(out[valid], expected[valid], rtol=tolerance, atol=tolerance)
    slope = torch.randn_like(out[valid])
    for mine, theirs in zip(
        torch.autograd.grad(out[valid], [q, kv], slope),
        torch.autograd.grad(expected[valid], [q, kv], slope),
        strict=True,
    ):
        assert_close(mine, theirs, rtol=tolerance, atol=tolerance * max(1.0, float(theirs.abs().max())))


# ---- the readable path by itself


def test_dropped_weights_by_hand() -> None:
    """Scores 0, ln 3 and a blocked one: weights ¼, ¾, 0; at rate ½ what is left counts twice."""
    scores, values = torch.tensor([[0.0, math.log(3), 9.0]]), torch.tensor([[4.0, 0.0], [0.0, 8.0], [100.0, 100.0]])
    may_look = torch.tensor([[True, True, False]])
    for mask, left, mean in (
        ([2.0, 0.0, 2.0], [0.5, 0.0, 0.0], [2.0, 0.0]),
        ([0.0, 2.0, 0.0], [0.0, 1.5, 0.0], [0.0, 12.0]),
        ([2.0, 2.0, 2.0], [0.5, 1.5, 0.0], [2.0, 12.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0]),
    ):
        context, weights = attend(scores, values, may_look, Fixed(torch.tensor([mask])))
        assert_close(weights, torch.tensor([left]))
        assert_close(context, torch.tensor([mean]))


def test_torchs_own_with_the_same_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.nn.MultiheadAttention in training, its dropout in the place of ours: outputs and weights."""
    torch.manual_seed(0)
    ours = SelfAttention(6, 2, dropout=RATE).train()
    twin = nn.MultiheadAttention(6, 2, dropout=RATE, batch_first=True).train()
    with torch.no_grad():
        twin.in_proj_weight.copy_(ours.of_input.weight)
        twin.in_proj_bias.copy_(ours.of_input.bias)
        twin.out_proj.load_state_dict(ours.heads.out.state_dict())
    x_BTD, watch = torch.randn(3, 5, 6), Watch()
    torch.manual_seed(1)
    expected, weights = twin(x_BTD, x_BTD, x_BTD, average_attn_weights=False)
    assert (weights == 0).any()
    monkeypatch.setattr(Dropout, "forward", lambda self, x: nn.functional.dropout(x.flatten(0, 1), RATE).view_as(x))
    torch.manual_seed(1)
    mixed = ours.look(ours.project(x_BTD), Layout.padded([5] * 3), causal=False, watch=watch, kind="encoder")
    assert_close(watch.attention["encoder"][0], weights)
    assert_close(ours.heads.join(mixed).whole(), expected)


def test_relative_vectors_of_values_are_taken_with_the_weights_that_are_left() -> None:
    """z_i = Σ_j m_ij α_ij (v_j + a_clip(j−i)), m the mask: pair by pair, as Tensor2Tensor has it."""
    kind = Kind(of(relative), causal=True, lengths=(6,))
    multi, qkv, layout = made(kind, "cpu", torch.float64, packed=False)
    mask = (torch.rand(1, H, 6, 6, dtype=torch.float64) > RATE) / (1 - RATE)
    multi.heads.dropout = Fixed(mask)
    assert isinstance(multi.places, Relative)
    assert multi.places.of_values_HRK is not None
    (of_keys,), (of_values,) = multi.places.of_keys_HRK, multi.places.of_values_HRK
    out = looked(multi, qkv, layout, kind, None)[0]
    q, k, v = qkv[0].unbind(1)
    for h in range(H):
        for i in range(6):
            row = [max(-3, j - i) + 3 for j in range(i + 1)]
            scores = torch.stack([q[i, h] @ (k[j, h] + of_keys[row[j]]) / math.sqrt(K) for j in range(i + 1)])
            left = scores.softmax(0) * mask[0, h, i, : i + 1]
            assert_close(out[i, h], sum(left[j] * (v[j, h] + of_values[row[j]]) for j in range(i + 1)))


# ---- the draw


@devices
@paths
def test_the_mean_over_many_draws_is_what_it_is_without(watched: bool, device: str, dtype: torch.dtype) -> None:
    """One sentence, four thousand times: each weight's mean, and no two weights, heads or sentences draw together."""
    B, T = 4000, 5
    kind = Kind(of(), lengths=(T,) * B)
    multi, qkv, layout = made(kind, device, dtype, packed=True)
    qkv = qkv[:T].repeat(B, 1, 1, 1)
    left = shown(multi, qkv, layout, kind, Watch() if watched else None).double()
    whole = shown(multi.eval(), qkv, layout, kind, None).double()[0]
    deviation = whole * math.sqrt(RATE / (1 - RATE) / B)
    assert ((left.mean(0) - whole).abs() < 4.5 * deviation + TOLERANCE[dtype] * 1e-2).all()
    kept = (left > 0).double().flatten(1)  # (B, H · T · T)
    together = torch.corrcoef(kept.T) - torch.eye(kept.shape[1], device=device, dtype=torch.float64)
    assert float(together.abs().max()) < 5.5 / math.sqrt(B)
    following = ((kept[1:] - kept.mean()) * (kept[:-1] - kept.mean())).mean() / (RATE * (1 - RATE))
    assert abs(float(following)) < 4.5 / math.sqrt(kept.numel())


@devices
@layouts
@paths
@kinds
def test_torchs_seed_governs_it_and_evaluation_and_rate_zero_drop_nothing(
    kind: Kind, watched: bool, packed: bool, device: str, dtype: torch.dtype
) -> None:
    multi, qkv, layout = made(kind, device, dtype, packed=packed)
    watch = Watch() if watched else None
    first, again = (looked(multi, qkv, layout, kind, watch) for _ in range(2))
    # A GPU adds up what relative positions give to the values in no fixed order.
    same = functools.partial(assert_close, rtol=0.0, atol=0.0 if device == "cpu" else 1e-2)
    same(first, again)
    related = between(layout) if multi.places.kind == "tree" else None
    other = multi.look(qkv, layout, causal=kind.causal, watch=watch, between_BTT=related)  # the seed has moved on
    assert not torch.allclose(other, first)
    state = torch.get_rng_state()
    evaluated = multi.eval().look(qkv, layout, causal=kind.causal, watch=watch, between_BTT=related)
    multi.train().heads.dropout = Dropout(0.0)
    plain = multi.look(qkv, layout, causal=kind.causal, watch=watch, between_BTT=related)
    same(evaluated, plain)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.allclose(plain, first)
