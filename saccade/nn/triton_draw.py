"""Which blocks BigBird draws, in one kernel instead of some eighty (the numbers of `BigBird.draw`), and who drew each.

Shapes: B sentences, or 1 where all are as long, H heads, N blocks of queries, R blocks drawn for each.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

import torch
from torch import Tensor

from saccade.nn.patterns import BigBird
from saccade.nn.triton_residual import constexpr, jit, tl
from saccade.types import Layout

ROWS = 64  # blocks of queries that a program draws for


def power_of_2(count: int) -> int:
    """The next one: ranges of kernels are so wide."""
    return 1 << max(0, count - 1).bit_length()


def draw(pattern: BigBird, layout: Layout, *, causal: bool) -> Tensor:
    """(B or 1, H, N, R), int32; −1 where none is left, for the first blocks, which see all, and behind the end."""
    lengths_B = layout.lengths_B[:1] if layout.even else layout.lengths_B
    B, H, N, R = len(lengths_B), pattern.heads, -(-layout.longest // pattern.block), pattern.drawn
    drawn_BHNR = torch.empty(B, H, N, R, dtype=torch.int32, device=lengths_B.device)
    if drawn_BHNR.numel():
        _draw[(B * H, -(-N // ROWS))](
            drawn_BHNR, lengths_B, pattern.key, N, CAUSAL=causal, BEGINS=pattern.begins, REACH=pattern.reach, DRAWN=R,
            WIDE=power_of_2(R), BLOCK=pattern.block, ROWS=ROWS, H=H, num_warps=2,
        )  # fmt: skip
    return drawn_BHNR


def drawn_by(drawn_BHNR: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse: sorted by the block that was drawn, n·R + r (B, H, NR), and where each block's begin (B, H, N + 1).

    Sorted, not counted: so that the order, and with it every bit of the sums, is the same each time.
    """
    B, H, N, _ = drawn_BHNR.shape
    blocks_BHE, by_BHE = drawn_BHNR.flatten(2).sort(dim=-1, stable=True)
    every_BHN = torch.arange(N + 1, dtype=torch.int32, device=drawn_BHNR.device).expand(B, H, -1).contiguous()
    return by_BHE, torch.searchsorted(blocks_BHE, every_BHN, out_int32=True)


@jit
def _mixed(mixed, part):
    """A step of `patterns._scrambled`; in 64 bits, so that no product overflows."""
    mixed = (mixed * 31 + part + 0x2545F491) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    return mixed ^ (mixed >> 16)


@jit
def _draw(
    drawn, lengths, key, N, CAUSAL: constexpr, BEGINS: constexpr, REACH: constexpr, DRAWN: constexpr, WIDE: constexpr,
    BLOCK: constexpr, ROWS: constexpr, H: constexpr,
):  # fmt: skip
    row, h = tl.program_id(0).to(tl.int64), tl.program_id(0) % H
    mine = tl.program_id(1) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    first = tl.maximum(mine - REACH, BEGINS)
    last, left = first, first - BEGINS
    length = tl.load(lengths + row // H).to(tl.int64)
    if not CAUSAL:
        end = tl.maximum(length // BLOCK, BEGINS)
        first = tl.minimum(first, end)
        last = tl.minimum(tl.maximum(mine + REACH + 1, BEGINS), end)
        left = end - BEGINS - (last - first)
    of_row = _mixed(0, _mixed(_mixed(mine * 0 + key, h), mine))
    turns = tl.arange(0, WIDE)[None, :]
    taken = tl.full((ROWS, WIDE), 1 << 40, tl.int64)
    for turn in range(0, DRAWN):
        rank = _mixed(of_row, turn) % tl.maximum(left - turn, 1)  # among those not taken yet
        pick = rank
        for _ in range(0, turn):  # at most so often it meets further ones that are taken
            pick = rank + tl.sum((taken <= pick[:, None]).to(tl.int64), 1)
        taken = tl.where(turns == turn, pick[:, None], taken)
    picks = taken + BEGINS  # counted without those that are near
    picks = tl.where(picks >= first[:, None], picks + (last - first)[:, None], picks)
    left = tl.where((mine >= BEGINS) & (mine * BLOCK < length), left, 0)
    picks = tl.where(turns < left[:, None], picks, -1)
    at = (row * N + mine[:, None]) * DRAWN + turns
    tl.store(drawn + at, picks.to(tl.int32), mask=(mine[:, None] < N) & (turns < DRAWN))
