"""Cross-entropy with label smoothing, row by row, that overwrites the logits with their own gradient.

For an output layer taken in chunks of rows: the logits of a chunk live only between its two matrix products, and the
gradient needs no memory of its own. Two walks over the vocabulary: log-sum-exp online (Milakov and Gimelshein 2018),
then the gradient; the second finds the row in the GPU's cache.

Shapes: N rows, V vocabulary.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.nn.triton_residual import constexpr, jit, tl, works
from saccade.types import PAD

LARGEST = 2**18
BLOCK = 4096  # values of the vocabulary at a time: 16 for each thread of 8 warps


def available(x: Tensor, vocabulary: int) -> bool:
    """Whether `cross_entropy_inplace` takes logits on this device, in this precision, of such a vocabulary."""
    half_or_single = x.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return x.is_cuda and half_or_single and vocabulary <= LARGEST and works()


def cross_entropy_inplace(
    logits_NV: Tensor, target_N: Tensor, scale: Tensor, *, smoothing: float = 0.0, ignore: int = PAD
) -> tuple[Tensor, Tensor]:
    """Each row's smoothed loss and plain negative log-likelihood (N,), float32; `logits_NV` becomes the gradient.

    The gradient is that of Σ loss, times `scale`: one float32 on the device. Smoothing moves the mass ε evenly onto all
    V tokens, as torch does (Szegedy et al. 2016). Rows whose target is `ignore` have loss and gradient 0.
    """
    if not 0.0 <= smoothing < 1.0:
        raise UsageError(f"smoothing must be at least 0 and below 1, not {smoothing}.")
    if logits_NV.dim() != 2 or logits_NV.stride(-1) != 1:
        raise UsageError(
            f"logits must be (rows, vocabulary), each row in one piece; these have shape {tuple(logits_NV.shape)} and "
            f"strides {logits_NV.stride()}. Pass a contiguous tensor."
        )
    loss_N, nll_N = cross_entropy_gradient(logits_NV, target_N, scale, smoothing, ignore)
    return loss_N, nll_N


def cross_entropy_gradient(
    logits: Tensor, target: Tensor, scale: Tensor, smoothing: float, ignore: int
) -> tuple[Tensor, Tensor]:
    N, V = logits.shape
    loss, nll = (logits.new_empty(N, dtype=torch.float32) for _ in range(2))
    block = min(BLOCK, max(16, 1 << (V - 1).bit_length()))
    if N > 0:
        _gradient[(N,)](
            logits, target, scale, loss, nll, logits.stride(0), target.stride(0), smoothing, ignore,
            V=V, BLOCK=block, num_warps=8 if block == BLOCK else 4,
        )  # fmt: skip
    return loss, nll


@jit
def _gradient(
    logits, target, scale, loss, nll, row_stride, target_stride, smoothing, ignore, V: constexpr, BLOCK: constexpr
):
    row = tl.program_id(0)
    logits += row.to(tl.int64) * row_stride
    wanted = tl.load(target + row * target_stride).to(tl.int32)
    columns = tl.arange(0, BLOCK)
    if wanted == ignore:
        for start in range(0, V, BLOCK):
            zero = tl.zeros((BLOCK,), logits.dtype.element_ty)
            tl.store(logits + start + columns, zero, mask=start + columns < V)
        tl.store(loss + row, 0.0)
        tl.store(nll + row, 0.0)
        return

    # One running maximum for the row, but sums for each of BLOCK columns: one exponential and one addition a value.
    top = float("-inf")
    total = tl.zeros((BLOCK,), tl.float32)
    together = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        inside = start + columns < V
        value = tl.load(logits + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.exp(value - higher)
        together += tl.where(inside, value, 0.0)
        top = higher
    normaliser = top + tl.log(tl.sum(total, 0))
    plain = normaliser - tl.load(logits + wanted).to(tl.float32)
    smooth = (1.0 - smoothing) * plain + smoothing * (normaliser - tl.sum(together, 0) / V)
    tl.store(loss + row, smooth)
    tl.store(nll + row, plain)
    tl.debug_barrier()  # the target's logit is read before any thread overwrites it

    factor = tl.load(scale).to(tl.float32)
    for start in range(0, V, BLOCK):
        inside = start + columns < V
        value = tl.load(logits + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        share = tl.exp(value - normaliser) - smoothing / V
        share = tl.where(start + columns == wanted, share - (1.0 - smoothing), share)
        tl.store(logits + start + columns, (share * factor).to(logits.dtype.element_ty), mask=inside)
