"""Walks through sentences that sum over paths of tags, each in one kernel: the fast twin of the loops in crf_sums.py.

A word's step is a product of a row by a small matrix, so that a loop of kernels takes the time to start them. Here one
program walks through one sentence, with the matrix in its registers, by the same formula in double precision.
Shapes: B sentences, T words, K tags.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

import torch
from torch import Tensor

from saccade.nn.triton_residual import constexpr, jit, tl, works

MOST_TAGS = 64
"""A program's registers hold the matrix of all pairs."""


def available(P_BTK: Tensor) -> bool:
    """Whether `walk` takes such a call."""
    return P_BTK.is_cuda and P_BTK.dtype == torch.float64 and P_BTK.shape[-1] <= MOST_TAGS and works()


def walk(
    P_BTK: Tensor, edge_K: Tensor, step_KK: Tensor, shift_K: Tensor, lengths_B: Tensor, *, left: bool, tiny: float
) -> Tensor:
    """From the left α, from the right β, of every word (B, T, K); `crf_sums._Sums` says what they are.

    `edge_K`: what a sentence begins or ends with. `step_KK`: [where a step is walked from, where to], as exponentials
    over the largest that leads there, whose logarithm is `shift_K`. `tiny`: sums that are less count as that much.
    """
    rows, longest, tags = P_BTK.shape
    out_BTK = torch.empty_like(P_BTK, memory_format=torch.contiguous_format)
    block = max(2, 1 << (tags - 1).bit_length())
    lengths_B = lengths_B.clone()  # a part of a batch may begin anywhere: kernels would be built for either alignment
    if out_BTK.numel() > 0:
        _walk[(rows,)](
            P_BTK.contiguous(), edge_K.contiguous(), step_KK.contiguous(), shift_K.contiguous(), lengths_B, out_BTK,
            longest, TINY=tiny, K=tags, BLOCK=block, LEFT=left, num_warps=4 if block <= 32 else 8,
        )  # fmt: skip
    return out_BTK


@jit
def _walk(
    P, edge, step, shift, lengths, out, T,
    TINY: constexpr, K: constexpr, BLOCK: constexpr, LEFT: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + row)
    k = tl.arange(0, BLOCK)
    inside = k < K
    matrix = tl.load(step + k[:, None] * K + k[None, :], mask=inside[:, None] & inside[None, :], other=0.0)
    more = tl.load(shift + k, mask=inside, other=0.0)
    state = tl.load(edge + k, mask=inside, other=-float("inf"))
    P += row * T * K + k
    out += row * T * K + k
    if LEFT:
        state += tl.load(P, mask=inside, other=0.0)
    tl.store(out if LEFT else out + (T - 1) * K, state, mask=inside)
    for done in range(1, T):
        word = done if LEFT else T - done
        own = tl.load(P + word * K, mask=inside, other=0.0)
        before = state if LEFT else state + own
        largest = tl.max(before, 0)
        total = tl.sum(tl.exp(before - largest)[:, None] * matrix, 0)
        total = tl.where(total < TINY, TINY, total)  # what is not a number must be seen
        after = tl.log(total) + largest + more
        after = after + own if LEFT else after
        state = tl.where(inside & (word < length), after, state)
        tl.store(out + (word if LEFT else word - 1) * K, state, mask=inside)
