"""The kernels of windows, BigBird and long sentences = softmax under the mask in float64, with every gradient.

On a GPU where there is one, else interpreted.
"""

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.nn import kernels, triton_attention, triton_blocks, triton_draw, triton_walks
from saccade.nn.dropout import Dropout
from saccade.nn.masks import valid_BT
from saccade.nn.patterns import BigBird, Pattern, Window
from saccade.nn.positions import slopes
from saccade.types import Layout
from tests.support.on_triton import DEVICE, MARKS, ON_GPU, needs_to_run, on_gpu_only

needs_to_run(triton_walks.forward)
pytestmark = MARKS
causals = pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def bird(block: int = 16, *, reach: int = 1, begins: int = 1, drawn: int = 1, heads: int = 1, seed: int = 0) -> BigBird:
    return BigBird(heads, block, reach, begins, drawn, seed, layer=1)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def masked(qkv: Tensor, layout: Layout, pattern: Pattern, *, causal: bool, slopes_H: Tensor | None) -> Tensor:
    """(B, T, 3, H, K) -> (B, T, H, K): all scores at once, under the mask; zeros behind the end."""
    q, k, v = qkv.unbind(2)
    place, valid = torch.arange(layout.longest, device=qkv.device), valid_BT(layout)
    scores = torch.einsum("bihk,bjhk->bhij", q, k) * q.shape[-1] ** -0.5
    if slopes_H is not None:
        scores = scores - slopes_H.double()[:, None, None] * (place - place[:, None]).abs()
    may_look = pattern.may_look(place[None], place[None], layout.lengths_B, causal=causal) & valid[:, None, None]
    may_look = may_look & (place <= place[:, None]) if causal else may_look
    weights = scores.masked_fill(~may_look, -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhij,bjhk->bihk", weights, v) * valid[:, :, None, None]


def assert_equals_mask(
    pattern: Pattern,
    lengths: list[int],
    *,
    causal: bool,
    packed: bool = False,
    longest: int | None = None,
    sloped: bool = False,
    shape: tuple[int, int] = (1, 16),
    dtype: torch.dtype = torch.float32,
) -> None:
    """Output and gradient; what comes from above is not zero on padding, and yet nothing of it arrives."""
    layout = Layout.padded(lengths, longest).to(DEVICE)
    slopes_H = torch.tensor(slopes(shape[0]), device=DEVICE) if sloped else None
    qkv, valid = random(len(lengths), layout.longest, 3, *shape, dtype=dtype), valid_BT(layout)
    exact = qkv.double().requires_grad_()
    wanted = masked(exact, layout, pattern, causal=causal, slopes_H=slopes_H)
    above = random(*wanted.shape, dtype=dtype, seed=1)
    (wanted_slope,) = torch.autograd.grad(wanted, exact, above.double())
    if packed:
        layout = Layout.padded(lengths, longest).packed().to(DEVICE)
        behind = 3  # rows that belong to no sentence
        qkv, above, wanted, wanted_slope = (
            torch.cat([x[valid], x[valid][:behind] * (x is qkv or x is above)])
            for x in (qkv, above, wanted.detach(), wanted_slope)
        )
    qkv.requires_grad_()
    out = triton_blocks.attend(qkv, layout, pattern, causal=causal, slopes_H=slopes_H)
    (slope,) = torch.autograd.grad(out, qkv, above)
    tolerance, size = TOLERANCE[dtype], float(F.pad(wanted_slope.abs().flatten(), (0, 1), value=1.0).max())
    assert_close(out.double(), wanted.detach(), rtol=tolerance, atol=tolerance)
    assert_close(slope.double(), wanted_slope, rtol=tolerance, atol=tolerance * size)
    nothing = (wanted == 0).all(-1)
    assert (out[nothing] == 0).all()
    assert (slope.movedim(-3, -2)[nothing] == 0).all()


# Few tiles each: a visit to a tile takes the interpreter some 30 ms.
CASES: dict[str, tuple[Pattern, list[int]]] = {
    "window of 1": (Window(1), [37, 1, 0]),
    "window of 16": (Window(16), [40, 33]),
    "window of 40": (Window(40), [130, 7]),
    "window of 70": (Window(70), [200]),
    "window, even": (Window(20), [70, 70]),
    "bigbird": (bird(), [70, 5]),
    "bigbird, even": (bird(), [48, 48]),
    "bigbird, two global": (bird(begins=2, reach=0), [60, 0]),
    "bigbird, several drawn": (bird(drawn=3, reach=0), [75]),
    "bigbird, none drawn": (bird(drawn=0), [50, 16]),
    "bigbird, none global": (bird(begins=0), [60, 20]),
    "bigbird, banded": (bird(begins=0, drawn=0), [70, 3]),
    "bigbird, wide": (bird(reach=2, begins=0), [75]),
    "bigbird, more drawn than there are": (bird(drawn=5, reach=0), [70]),
    "bigbird, three tiles a block": (bird(48, reach=0, begins=0), [100]),
    "bigbird, a larger tile": (bird(32, reach=0), [140]),
}


@causals
@pytest.mark.parametrize("name", CASES)
def test_equals_the_mask(name: str, causal: bool) -> None:
    """One in two of them packed; on a GPU all."""
    pattern, lengths = CASES[name]
    for packed in (False, True):
        if ON_GPU or packed == ((list(CASES).index(name) % 2 == 0) == causal):
            assert_equals_mask(pattern, lengths, causal=causal, packed=packed)


@causals
@pytest.mark.parametrize("pattern", [Window(20), bird(heads=2, reach=0)], ids=["window", "bigbird"])
def test_alibi(pattern: Pattern, causal: bool) -> None:
    assert_equals_mask(pattern, [60], causal=causal, sloped=True, shape=(2, 16))


@causals
@pytest.mark.parametrize("packed", [False, True])
def test_walks_in_chunks(packed: bool, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks of the global tokens' walk; sentences that end before the last of them begins."""
    monkeypatch.setattr(triton_blocks, "CHUNK_TOKENS", 16)
    assert_equals_mask(bird(reach=0), [50, 10], causal=causal, packed=packed)


@pytest.mark.parametrize(("heads", "width"), [(2, 32), (1, 64), (1, 128)])
def test_head_widths(heads: int, width: int) -> None:
    assert_equals_mask(bird(heads=heads, reach=0), [40], causal=False, shape=(heads, width))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("pattern", "causal"), [(bird(), False), (Window(16), True)], ids=["bigbird", "window"])
def test_longer_than_all(pattern: Pattern, causal: bool, packed: bool) -> None:
    """A batch filled up: no sentence is as long as `longest` says."""
    assert_equals_mask(pattern, [5, 36], causal=causal, longest=65, packed=packed)


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=on_gpu_only)])  # not interpreted
@causals
@pytest.mark.parametrize("pattern", [Window(40), bird(64)], ids=["window", "bigbird"])
def test_half_precision(pattern: Pattern, causal: bool, dtype: torch.dtype) -> None:
    assert_equals_mask(pattern, [300], causal=causal, shape=(1, 32), dtype=dtype)


@settings(deadline=None, max_examples=40 if ON_GPU else 3)
@given(
    lengths=st.lists(st.integers(0, 300 if ON_GPU else 40), min_size=1, max_size=3 if ON_GPU else 2),
    reach=st.integers(0, 2),
    begins=st.integers(0, 3),
    drawn=st.integers(0, 4),
    seed=st.integers(0, 9),
    causal=st.booleans(),
    packed=st.booleans(),
)
@example(lengths=[0, 0], reach=1, begins=1, drawn=1, seed=0, causal=False, packed=True)  # no row at all
def test_whatever_the_sizes(
    lengths: list[int], reach: int, begins: int, drawn: int, seed: int, causal: bool, packed: bool
) -> None:
    pattern = bird(reach=reach, begins=begins, drawn=drawn, seed=seed)
    assert_equals_mask(pattern, lengths, longest=max(1, *lengths), causal=causal, packed=packed)


@causals
@pytest.mark.parametrize("lengths", [[37, 300, 1, 12], [96, 96]], ids=["uneven", "even"])
@pytest.mark.parametrize("pattern", [bird(4, drawn=5, heads=2), bird(2, reach=2, begins=0, drawn=3), bird(3, begins=4)])
def test_draws_what_the_pattern_draws(pattern: BigBird, lengths: list[int], causal: bool) -> None:
    """And the inverse holds each of them once, under the block that was drawn."""
    layout = Layout.padded(lengths).to(DEVICE)
    lengths_B = layout.lengths_B[:1] if layout.even else layout.lengths_B
    drawn_BHNR = triton_draw.draw(pattern, layout, causal=causal)
    blocks = torch.arange(drawn_BHNR.shape[2], device=DEVICE)
    expected = pattern.draw(blocks[None], None if causal else lengths_B[:, None] // pattern.block)
    draws = (blocks >= pattern.begins) & (blocks * pattern.block < lengths_B[:, None])
    assert torch.equal(drawn_BHNR.long(), expected.where(draws[:, None, :, None], -1))
    by_BHE, starts_BHN = triton_draw.drawn_by(drawn_BHNR)
    for b, h in np.ndindex(*drawn_BHNR.shape[:2]):
        drawn, by, starts = drawn_BHNR[b, h].flatten().tolist(), by_BHE[b, h].tolist(), starts_BHN[b, h].tolist()
        for block in range(len(blocks)):
            mine = by[starts[block] : starts[block + 1]]
            assert mine == [n for n, each in enumerate(drawn) if each == block]


def test_strides() -> None:
    """Where the head width is not the fastest dimension of what is given, or of what comes back."""
    layout, pattern = Layout.padded([20]).to(DEVICE), bird()
    qkv, above = random(1, 20, 3, 1, 16).requires_grad_(), random(1, 20, 1, 16, seed=1)
    out = triton_blocks.attend(qkv, layout, pattern)
    other = triton_blocks.attend(qkv.mT.contiguous().mT, layout, pattern)
    assert_close(other, out, rtol=0, atol=0)
    one, two = (torch.autograd.grad(each, qkv, above) for each in (out, other))
    assert_close(two, one, rtol=0, atol=0)
    again = triton_blocks.attend(qkv, layout, pattern)
    assert_close(torch.autograd.grad(again, qkv, above.mT.contiguous().mT), one, rtol=0, atol=0)


def test_range() -> None:
    assert triton_blocks.takes(Window(3), 64)
    assert triton_blocks.takes(bird(48), 16)
    assert not triton_blocks.takes(Window(3), 48)
    assert not triton_blocks.takes(bird(8), 64)
    qkv = torch.zeros(1, 4, 3, 1, 16)
    assert not triton_blocks.available(qkv, Window(3))  # not on a GPU
    if ON_GPU:
        assert triton_blocks.available(qkv.cuda(), Window(3))
        assert not triton_blocks.available(qkv.cuda().double(), Window(3))


@on_gpu_only
@causals
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("pattern", [Window(192), bird(64, begins=2, drawn=3, heads=2), bird(128, heads=2)], ids=str)
def test_long_sentences(pattern: Pattern, width: int, dtype: torch.dtype, causal: bool) -> None:
    for packed in (False, True):
        assert_equals_mask(pattern, [2500, 1100, 64], causal=causal, packed=packed, shape=(2, width), dtype=dtype)
        assert_equals_mask(pattern, [2048, 2048], causal=causal, packed=packed, shape=(2, width), dtype=dtype)


@on_gpu_only
@causals
@pytest.mark.parametrize("pattern", [Window(192), bird(64, begins=2, drawn=3, heads=2)], ids=["window", "bigbird"])
def test_graph_with_new_lengths_equals_eager_and_repeats(pattern: Pattern, causal: bool) -> None:
    """One captured graph serves every batch of the same shapes; twice the same bits."""
    lengths = torch.tensor([3000, 0, 700, 5], device=DEVICE)
    qkv = random(4, 3000, 3, 2, 64, dtype=torch.bfloat16).requires_grad_()
    layout = Layout(lengths, 3000)

    def step() -> Any:
        out = triton_blocks.attend(qkv, layout, pattern, causal=causal)
        return out.detach(), torch.autograd.grad(out.float().square().sum(), qkv)[0]

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    lengths.copy_(torch.tensor([1, 2999, 64, 1500]))
    graph.replay()
    assert_close(captured, step(), rtol=0, atol=0)
    assert_close(step(), step(), rtol=0, atol=0)


# Long sentences without a pattern


def of_each(q: Tensor, k: Tensor, v: Tensor, ends: Tensor, causal: bool) -> Tensor:
    """Sentence by sentence, in float64."""
    each = []
    for begin, end in itertools.pairwise(ends.tolist()):
        mine, keys, values = (x[begin:end].transpose(0, 1).double() for x in (q, k, v))
        each.append(F.scaled_dot_product_attention(mine, keys, values, is_causal=causal).transpose(0, 1))
    return torch.cat(each)


@causals
@pytest.mark.parametrize("lengths", [[20, 0, 31], [16, 16]], ids=["uneven", "even"])
def test_long_sentences_go_to_flash_attention(
    lengths: list[int], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in that takes what `varlen_attn` takes: it has no kernel for a CPU."""
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    parameters = inspect.signature(varlen.varlen_attn)
    calls = []

    def stand_in(*given: Any, **named: Any) -> Tensor:
        bound = parameters.bind(*given, **named).arguments
        calls.append(bound)
        assert bound["cu_seq_q"].dtype == torch.int32
        assert (bound["max_q"], bound["max_k"]) == (max(lengths), max(lengths))
        told = bound.get("window_size", (-1, -1)) == (-1, 0) or bound.get("is_causal", False)
        return of_each(bound["query"], bound["key"], bound["value"], bound["cu_seq_q"], told).float()

    flash = kernels._varlen()
    assert flash is not None
    monkeypatch.setattr(kernels, "_varlen", lambda: (stand_in, flash[1]))
    monkeypatch.setattr(kernels, "is_long", lambda *_: True)
    layout = Layout.padded(lengths).packed()
    qkv = torch.randn(sum(lengths), 3, 2, 16)
    ends = F.pad(layout.lengths_B.cumsum(0), (1, 0))
    expected = of_each(qkv[:, 0], qkv[:, 1], qkv[:, 2], ends, causal).float()
    assert_close(kernels.self_attention(qkv, layout, Dropout(0.0), causal=causal), expected)
    if not causal:
        assert_close(kernels.cross_attention(qkv[:, 0], qkv[:, 1:], layout, layout, Dropout(0.0)), expected)
    assert bool(calls) != layout.even


@on_gpu_only
@causals
@pytest.mark.parametrize("lengths", [[700, 300, 5], [512, 512]], ids=["uneven", "even"])
def test_long_sentences_on_the_gpu(lengths: list[int], causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_attention, "available", None)
    layout = Layout.padded(lengths).packed().to(DEVICE)
    qkv = random(sum(lengths), 3, 2, 64, dtype=torch.bfloat16).requires_grad_()
    exact, above = qkv.detach().double().requires_grad_(), random(sum(lengths), 2, 64, seed=1)
    ends = F.pad(layout.lengths_B.cumsum(0), (1, 0))
    out = kernels.self_attention(qkv, layout, Dropout(0.0), causal=causal)
    expected = of_each(exact[:, 0], exact[:, 1], exact[:, 2], ends, causal)
    assert_close(out.double(), expected, rtol=2e-2, atol=2e-2)
    (slope,) = torch.autograd.grad(out, qkv, above.bfloat16())
    (wanted,) = torch.autograd.grad(expected, exact, above.bfloat16().double())
    assert_close(slope.double(), wanted, rtol=3e-2, atol=3e-2)


@on_gpu_only
def test_what_is_long() -> None:
    """On average, in half precision, and every row belongs to a sentence."""

    def long(lengths: list[int], more: int = 0, dtype: torch.dtype = torch.bfloat16) -> bool:
        rows = torch.zeros(sum(lengths) + more, 3, 1, 64, dtype=dtype, device=DEVICE)
        return kernels.is_long(rows, Layout.padded(lengths).packed().to(DEVICE))

    assert long([300, 400])
    assert long([512, 512])
    assert not long([256, 256])
    assert not long([600, 20, 20])
    assert not long([300, 400], more=1)
    assert not long([300, 400], dtype=torch.float32)
