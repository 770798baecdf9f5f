"""The Triton kernels = the formulas in float64, with every gradient: on a GPU where there is one, else interpreted."""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.errors import UsageError
from saccade.nn import triton_attention, triton_embedding, triton_loss, triton_residual
from saccade.types import Layout
from tests.support.on_triton import DEVICE, MARKS, needs_to_run, on_gpu_only

needs_to_run(triton_attention._forward)
pytestmark = MARKS
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype).requires_grad_()


def seed_of(number: int) -> Tensor:
    return torch.tensor(number, device=DEVICE)


def packed(lengths: list[int]) -> Layout:
    return Layout.padded(lengths).packed().map(lambda x: x.to(DEVICE))


def assert_same(
    fast: Callable[..., Sequence[Tensor]], twin: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor]
) -> None:
    """Outputs and the gradients of all inputs; the twin computes in float64 from the same numbers."""
    exact = [each.detach().double().requires_grad_() for each in inputs]
    outs, expected = fast(*inputs), twin(*exact)
    slopes = [random(*out.shape, seed=7 + n).detach() for n, out in enumerate(outs)]
    slopes = [slope.to(out.dtype) for slope, out in zip(slopes, outs, strict=True)]
    gradients = torch.autograd.grad(outs, inputs, slopes, materialize_grads=True)
    exact_slopes = [slope.double() for slope in slopes]
    exact_gradients = torch.autograd.grad(expected, exact, exact_slopes, materialize_grads=True)
    tolerance = TOLERANCE[max((each.dtype for each in inputs), key=lambda dtype: TOLERANCE[dtype])]
    for actual, wanted in zip([*outs, *gradients], [*expected, *exact_gradients], strict=True):
        size = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
        assert_close(actual.double(), wanted.double(), rtol=tolerance, atol=tolerance * max(1.0, size))


# Attention


def attention(
    q: Tensor, k: Tensor, v: Tensor, lengths: list[tuple[int, int]], causal: bool, keep: Tensor | None = None
) -> Tensor:
    """Sentence by sentence; `keep` (B, H, T, S) says which weights dropout left, with their factor."""
    out, i, j = [], 0, 0
    for b, (queries, keys) in enumerate(lengths):
        scores = torch.einsum("ihk,jhk->hij", q[i : i + queries], k[j : j + keys]) * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf)
        weights = scores.softmax(-1)
        if keep is not None:
            weights = weights * keep[b, :, :queries, :keys]
        out.append(torch.einsum("hij,jhk->ihk", weights, v[j : j + keys]))
        i, j = i + queries, j + keys
    rest = torch.zeros_like(q[i:]) * q[i:]
    return torch.cat([*out, rest])


def attention_of(qkv: Tensor, lengths: list[tuple[int, int]], causal: bool, keep: Tensor | None = None) -> Tensor:
    return attention(qkv[:, 0], qkv[:, 1], qkv[:, 2], lengths, causal, keep)


SELF = {
    "very short": ([3, 0, 16, 1], 16, 2),
    "one tile": ([0, 1, 2, 25, 31, 32], 16, 2),
    "two tiles' sizes": ([33, 0, 5, 64], 32, 1),
    "walked": ([2, 100, 33], 16, 1),
    "wide heads": ([25, 3], 64, 1),
    "widest heads": ([7, 65], 128, 1),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SELF)
def test_self_attention(name: str, causal: bool) -> None:
    lengths, K, H = SELF[name]
    behind = 3  # rows that belong to no sentence
    qkv = random(sum(lengths) + behind, 3, H, K)
    pairs = [(length, length) for length in lengths]
    assert_same(
        lambda qkv: [triton_attention.attend_self(qkv, packed(lengths), causal=causal)],
        lambda qkv: [attention_of(qkv, pairs, causal)],
        [qkv],
    )


CROSS = {
    "within a tile": [(3, 0), (0, 4), (0, 0), (25, 31), (32, 1)],
    "beyond it": [(70, 10), (0, 3), (10, 70), (66, 0)],
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", CROSS)
def test_cross_attention(name: str, causal: bool) -> None:
    """Different lengths, sentences without queries or keys; separate tensors, whose heads lie apart in memory."""
    pairs = CROSS[name]
    queries, keys = ([pair[side] for pair in pairs] for side in (0, 1))
    q, k, v = (random(2, sum(lengths), 16, seed=n) for n, lengths in enumerate((queries, keys, keys)))
    assert_same(
        lambda q, k, v: [
            triton_attention.attend(
                q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), packed(queries), packed(keys), causal=causal
            )
        ],
        lambda q, k, v: [attention(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), pairs, causal)],
        [q, k, v],
    )


def test_fused_memory_and_strides() -> None:
    """Keys and values in one projection = apart; also where the head width is not the fastest dimension."""
    queries, keys = [5, 9], [12, 4]
    q, kv = random(14, 2, 16), random(16, 2, 2, 16, seed=1)
    layouts = packed(queries), packed(keys)
    fused = triton_attention.attend_cross(q, kv, *layouts)
    apart = triton_attention.attend(q.mT.contiguous().mT, kv[:, 0], kv[:, 1], *layouts)
    assert_close(fused, apart, rtol=0, atol=0)
    slope = random(*fused.shape, seed=2).detach()
    one, other = (torch.autograd.grad(out, [q, kv], slope) for out in (fused, apart))
    assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=on_gpu_only)])  # not interpreted
def test_attention_in_half_precision(dtype: torch.dtype) -> None:
    lengths = [25, 40]
    pairs = [(length, length) for length in lengths]
    assert_same(
        lambda qkv: [triton_attention.attend_self(qkv, packed(lengths), causal=True)],
        lambda qkv: [attention_of(qkv, pairs, True)],
        [random(65, 3, 1, 32, dtype=dtype)],
    )


def test_rows_between_sentences_are_zero() -> None:
    """A padded batch seen as packed: sentence b begins at b × 6."""
    lengths = torch.tensor([4, 2], device=DEVICE)
    layout = Layout(lengths, 6, offsets_B=torch.tensor([0, 6], device=DEVICE))
    qkv = random(12, 3, 1, 16)
    out = triton_attention.attend_self(qkv, layout)
    (gradient,) = torch.autograd.grad(out.sum(), qkv)
    real = torch.tensor([0, 1, 2, 3, 6, 7], device=DEVICE)
    expected = attention_of(qkv[real], [(4, 4), (2, 2)], False)
    assert_close(out[real], expected, rtol=1e-5, atol=1e-5)
    rest = torch.tensor([4, 5, 8, 9, 10, 11], device=DEVICE)
    assert (out[rest] == 0).all()
    assert (gradient[rest] == 0).all()


def kept_weights(lengths: list[int], heads: int, seed: Tensor, dropout: float) -> Tensor:
    """Even weights over values that are unit vectors show what dropout left: (B, H, T, S), with the factor."""
    K = 128
    v = torch.zeros(sum(lengths), heads, K)
    at = torch.cat([torch.arange(length) for length in lengths])
    v[torch.arange(len(at)), :, at] = 1.0
    v, nothing = v.to(DEVICE), torch.zeros_like(v).to(DEVICE)
    shown = triton_attention.attend(nothing, nothing, v, packed(lengths), packed(lengths), dropout=dropout, seed=seed)
    keep = torch.zeros(len(lengths), heads, max(lengths), max(lengths), device=DEVICE)
    for b, (length, end) in enumerate(zip(lengths, itertools.accumulate(lengths), strict=True)):
        keep[b, :, :length, :length] = shown[end - length : end].transpose(0, 1)[:, :, :length] * length
    return keep


@pytest.mark.parametrize("lengths", [[20, 27], [66, 3]], ids=["one tile", "walked"])
def test_attention_dropout(lengths: list[int]) -> None:
    """The share that is dropped is right, the rest is scaled up, and the backward draws what the forward drew."""
    dropout, seed, H = 0.3, seed_of(11), 2
    keep = kept_weights(lengths, H, seed, dropout)
    count = H * sum(length**2 for length in lengths)
    share = float((keep > 0).sum()) / count
    assert abs(share - (1 - dropout)) < 4 * (dropout * (1 - dropout) / count) ** 0.5
    assert_close(keep[keep > 0], torch.full_like(keep[keep > 0], 1 / (1 - dropout)), rtol=1e-4, atol=1e-4)
    assert not torch.equal(keep[0, 0, :3, :3], keep[0, 1, :3, :3])  # heads
    assert not torch.equal(keep[0, :, :3, :3], keep[1, :, :3, :3])  # sentences
    assert not torch.equal(kept_weights([5], H, seed, dropout), kept_weights([5], H, seed_of(12), dropout))
    pairs = [(length, length) for length in lengths]
    assert_same(
        lambda qkv: [triton_attention.attend_self(qkv, packed(lengths), causal=True, dropout=dropout, seed=seed)],
        lambda qkv: [attention_of(qkv, pairs, True, keep.double().round(decimals=6))],
        [random(sum(lengths), 3, H, 16)],
    )


def test_walked_equals_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence's result does not depend on the tile, with dropout neither."""
    qkv, slope = random(30, 3, 1, 16), random(30, 1, 16, seed=1).detach()

    def run() -> tuple[Tensor, Tensor]:
        out = triton_attention.attend_self(qkv, packed([30]), causal=True, dropout=0.2, seed=seed_of(5))
        return out, torch.autograd.grad(out, qkv, slope)[0]

    whole = run()
    monkeypatch.setattr(triton_attention, "TILES", (16,))
    monkeypatch.setattr(triton_attention, "WALK_TILE_BYTES", 16 * 64)
    assert_close(run(), whole, rtol=1e-5, atol=1e-5)


# Sum, dropout, norm


def residual_twin(
    x: Tensor, r: Tensor, weight: Tensor, bias: Tensor, r_bias: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    y = x + (r + r_bias) * keep
    normed = F.layer_norm(y, x.shape[-1:], weight, bias)
    return y, normed, normed


def kept_values(shape: tuple[int, ...], dropout: float, seed: Tensor) -> Tensor:
    """What dropout multiplies each value with."""
    zero, one = torch.zeros(shape, device=DEVICE), torch.ones(shape, device=DEVICE)
    weight = torch.ones(shape[-1], device=DEVICE)
    y, *_ = triton_residual.residual_norm(zero, one, weight, weight, dropout=dropout, seed=seed)
    return y.double()


@pytest.mark.parametrize("used", ["both", "norm", "norm twice", "norm again", "sum"])
@pytest.mark.parametrize(("shape", "dropout"), [((9, 40), 0.0), ((2, 4, 64), 0.25), ((1, 600), 0.1)])
def test_residual_norm(shape: tuple[int, ...], dropout: float, used: str) -> None:
    """Pre-norm goes on with sum and norm, post-norm with the norm twice."""
    D, seed = shape[-1], seed_of(3)
    keep = kept_values(shape, dropout, seed)
    pick = {"both": (0, 1), "norm": (1,), "norm twice": (1, 2), "norm again": (2,), "sum": (0,)}[used]
    inputs = [random(*shape), random(*shape, seed=1), *(random(D, seed=n) for n in (2, 3, 4))]

    def fast(x: Tensor, r: Tensor, weight: Tensor, bias: Tensor, r_bias: Tensor) -> list[Tensor]:
        both = triton_residual.residual_norm(x, r, weight, bias, r_bias_D=r_bias, dropout=dropout, seed=seed)
        return [both[n] for n in pick]

    def twin(x: Tensor, r: Tensor, weight: Tensor, bias: Tensor, r_bias: Tensor) -> list[Tensor]:
        both = residual_twin(x, r, weight, bias, r_bias, keep)
        return [both[n] for n in pick]

    assert_same(fast, twin, inputs)


def test_residual_norm_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 rows, float32 weights, no bias of r; few programs, so that each walks several rows."""
    monkeypatch.setattr(triton_residual, "WARPS", 2)
    seed = seed_of(3)
    keep = kept_values((7, 256), 0.1, seed)
    rows = [random(7, 256, dtype=torch.bfloat16, seed=n) for n in (0, 1)]
    assert_same(
        lambda x, r, weight, bias: triton_residual.residual_norm(x, r, weight, bias, dropout=0.1, seed=seed),
        lambda x, r, weight, bias: residual_twin(x, r, weight, bias, torch.zeros_like(bias), keep),
        [*rows, random(256, seed=2), random(256, seed=3)],
    )


def test_residual_norm_of_mixed_precision() -> None:
    """A float32 stream beside a bfloat16 branch: each result and gradient in its own precision."""
    x, r = random(3, 32), random(3, 32, dtype=torch.bfloat16, seed=1)
    weight, bias = random(32, seed=2), random(32, seed=3)
    y, z, _ = triton_residual.residual_norm(x, r, weight, bias)
    assert (y.dtype, z.dtype) == (torch.float32, torch.bfloat16)
    dx, dr = torch.autograd.grad([y, z], [x, r], [torch.ones_like(y), torch.ones_like(z)])
    assert (dx.dtype, dr.dtype) == (torch.float32, torch.bfloat16)
    assert_close(dr, dx.bfloat16())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_what_is_not_a_number_stays_so(activation: triton_residual.Activation) -> None:
    """Else an update whose loss is not finite would not be skipped."""
    x = random(2, 16).detach()
    x[0, 3] = float("nan")
    out = triton_residual.activate(x, None, activation=activation)
    assert out.isnan().nonzero().tolist() == [[0, 3]]
    y, z, _ = triton_residual.residual_norm(x, torch.ones_like(x), torch.ones_like(x[0]), torch.zeros_like(x[0]))
    assert y[0, 3].isnan()
    assert z[0].isnan().all()
    assert z[1].isfinite().all()


def test_dropout_of_values() -> None:
    """The share is right in every column of eight that one draw decides, and rows, seeds and columns differ."""
    keep = kept_values((32, 256), 0.25, seed_of(9)) > 0
    expected, count = 0.75, 32 * 32
    shares = keep.double().view(-1, 8).mean(0)
    assert float((shares - expected).abs().max()) < 4.5 * (expected * (1 - expected) / count) ** 0.5
    together = torch.corrcoef(keep.double().view(-1, 8).T) - torch.eye(8, device=DEVICE)
    assert float(together.abs().max()) < 4.5 / count**0.5
    assert not torch.equal(keep[0], keep[1])
    assert not torch.equal(keep, kept_values((32, 256), 0.25, seed_of(10)) > 0)
    assert torch.equal(keep, kept_values((32, 256), 0.25, seed_of(9)) > 0)


# Bias, activation, dropout


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize(("with_bias", "dropout"), [(True, 0.0), (True, 0.25), (False, 0.25)])
def test_activate(
    activation: triton_residual.Activation, with_bias: bool, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few programs and narrow blocks: several rows each, and a last block that is not full."""
    monkeypatch.setattr(triton_residual, "WARPS", 6)
    monkeypatch.setattr(triton_residual, "INNER", 16)
    monkeypatch.setattr(triton_residual, "FORWARD_SHARE", 32)
    seed = seed_of(21)
    far = torch.full((7, 40), 50.0, device=DEVICE)  # where both activations are the identity
    keep = triton_residual.activate(far, None, activation=activation, dropout=dropout, seed=seed).double() / 50
    inputs = [random(7, 40), *([random(40, seed=1)] if with_bias else [])]
    assert_same(
        lambda x, bias=None: [triton_residual.activate(x, bias, activation=activation, dropout=dropout, seed=seed)],
        lambda x, bias=0.0: [(F.relu if activation == "relu" else F.gelu)(x + bias) * keep],
        inputs,
    )
    assert ((keep == 0) | (keep == keep.max())).all()
    assert_close(float(keep.max()), 1 / (1 - dropout), rtol=1e-4, atol=0)


# Loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("V", [5, 64, 150])
def test_cross_entropy(V: int, smoothing: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of the vocabulary, rows to ignore, rows that lie apart in memory."""
    monkeypatch.setattr(triton_loss, "BLOCK", 64)
    wide = (random(6, V + 3).detach() * 5).to(dtype)
    wide[2] += 80  # far from zero: no overflow
    target = torch.tensor([1, 0, V - 1, 2, 0, 3], device=DEVICE)
    exact = wide[:, :V].double().requires_grad_()
    expected = F.cross_entropy(exact, target, ignore_index=0, reduction="none", label_smoothing=smoothing)
    nll = F.cross_entropy(exact, target, ignore_index=0, reduction="none")
    (gradient,) = torch.autograd.grad(expected.sum() * 0.5, exact)
    untouched = wide[:, V:].clone()
    logits = wide[:, :V]
    scale = torch.tensor(0.5, device=DEVICE)
    actual, actual_nll = triton_loss.cross_entropy_inplace(logits, target, scale, smoothing=smoothing)
    assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)
    assert_close(actual_nll.double(), nll, rtol=1e-5, atol=1e-5)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-3
    assert_close(logits.double(), gradient, rtol=tolerance, atol=tolerance)
    assert torch.equal(wide[:, V:], untouched)


# Token vectors


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("with_places", [False, True])
@pytest.mark.parametrize("D", [6, 64, 1100])
def test_embedding(D: int, with_places: bool, dropout: float) -> None:
    """Token vectors, with what dropout leaves; the gradient sums the rows of a token that comes again."""
    ids = torch.tensor([3, 1, 3, 0, 4, 3, 1], device=DEVICE)
    place = torch.tensor([0, 1, 2, 0, 1, 0, 3], device=DEVICE) if with_places else None
    table, positions = random(5, D), random(4, D, seed=1).detach() if with_places else None
    seed = seed_of(4)
    ones = torch.ones(5, D, device=DEVICE)
    keep = triton_embedding.embed(ids, ones, None, None, dropout=dropout, seed=seed).double()

    def twin(table: Tensor) -> list[Tensor]:
        x = table[ids] * 1.7
        return [(x if positions is None or place is None else x + positions.double()[place]) * keep]

    def fast(table: Tensor) -> list[Tensor]:
        return [triton_embedding.embed(ids, table, place, positions, scale=1.7, dropout=dropout, seed=seed)]

    assert_same(fast, twin, [table])
    assert dropout == 0.0 or 0.1 < float((keep == 0).double().mean()) < 0.5


# Range and use


def test_where_kernels_cannot_be_built_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler.\nPlease specify one.")

    monkeypatch.setattr(triton_residual, "activate_forward", no_compiler)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: torch.empty(0))
    triton_residual.works.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=r"do not run here \(Failed to find C compiler\.\): torch's are used"):
            assert not triton_residual.works()
        assert not triton_residual.works()
    finally:
        triton_residual.works.cache_clear()


def test_what_is_out_of_range_is_said() -> None:
    layout, x = packed([2]), torch.zeros(2, 3, 1, 16)
    assert not triton_attention.available(x, layout, layout)  # not on a GPU
    assert not triton_residual.available(x)
    assert not triton_loss.available(x, 5)
    with pytest.raises(UsageError, match=r"below 1, not 1\.5"):
        triton_residual.activate(x, None, dropout=1.5)
    with pytest.raises(UsageError, match="needs `seed`"):
        triton_attention.attend_self(x, layout, dropout=0.1)
    with pytest.raises(UsageError, match=r"below 1, not 1\.0"):
        triton_loss.cross_entropy_inplace(x[:, 0, 0], torch.tensor([1, 2]), torch.tensor(1.0), smoothing=1.0)
    with pytest.raises(UsageError, match="each row in one piece"):
        triton_loss.cross_entropy_inplace(x[:, 0, 0].T, torch.tensor([1, 2]), torch.tensor(1.0))


@on_gpu_only
def test_range_on_the_gpu() -> None:
    layout = packed([2])
    assert triton_attention.available(random(2, 3, 1, 64, dtype=torch.bfloat16), layout, layout)
    assert not triton_attention.available(random(2, 3, 1, 48), layout, layout)
    assert not triton_attention.available(random(2, 3, 1, 64), layout, layout.unpacked())
    assert triton_residual.available(random(2, 2048))
    assert not triton_residual.available(random(2, 2048).double())
    assert triton_loss.available(random(2, 9), 32_000)
    assert not triton_loss.available(random(2, 9), triton_loss.LARGEST + 1)


@on_gpu_only
def test_graph_with_new_lengths_equals_eager_and_repeats() -> None:
    """One captured graph serves every batch of the same shapes; twice the same bits."""
    lengths = torch.tensor([30, 0, 70, 5], device=DEVICE)
    layout = Layout(lengths, 128, offsets_B=lengths.cumsum(0) - lengths)
    qkv = random(128, 3, 8, 64, dtype=torch.bfloat16)
    seed = seed_of(1)

    def step() -> tuple[Tensor, Tensor]:
        out = triton_attention.attend_self(qkv, layout, causal=True, dropout=0.1, seed=seed)
        return out.detach(), torch.autograd.grad(out.float().square().sum(), qkv)[0]

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    lengths.copy_(torch.tensor([100, 1, 0, 27]))
    assert layout.offsets_B is not None
    layout.offsets_B.copy_(lengths.cumsum(0) - lengths)
    seed.fill_(2)
    graph.replay()
    assert_close(captured, step(), rtol=0, atol=0)
