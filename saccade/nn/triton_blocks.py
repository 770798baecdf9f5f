"""Attention to a window or to BigBird's blocks: flash attention that visits only the tiles which are seen, both ways.

Which tiles a tile of queries sees is arithmetic: a run of first ones, a run of near ones; only drawn blocks need a
table, and the backward its inverse (nn/triton_draw.py). BigBird's global tokens see every key, and their keys are seen
by every query: such long walks are cut into chunks, whose programs start first and leave partial results to be merged,
so that none is the last to end. No atomics: the same input gives the same bits.

Shapes: N rows of all sentences, H heads, K head width. Sentence b of a padded batch begins at row b × longest. Rows
behind a sentence's end get zeros, in the output and in every gradient.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.nn import triton_walks
from saccade.nn.patterns import BigBird, Pattern, Window
from saccade.nn.triton_attention import DTYPES, HEAD_WIDTHS
from saccade.nn.triton_draw import draw, drawn_by, power_of_2
from saccade.nn.triton_residual import works
from saccade.types import Layout

TILES = (64, 32, 16)
TILE_BYTES = {2: 16384, 4: 8192}  # by bytes of a number: what fits beside its accumulators in registers
NARROW = 32  # up to so wide a window tiles of 32 see less that is masked
CHUNK_TOKENS = 1024  # of the global tokens' walk: two or three times as long as an ordinary one
SLAB, TOGETHER = 4, 16  # rows that a program merges, out of so many chunks at a time
FORWARD_STAGES, BACKWARD_STAGES = 3, 2
LOG2_E = math.log2(math.e)


def takes(pattern: Pattern, width: int) -> bool:
    """Whether there is a kernel for such a pattern and heads as wide, on a GPU."""
    return width in HEAD_WIDTHS and (isinstance(pattern, Window) or pattern.block % TILES[-1] == 0)


def available(qkv: Tensor, pattern: Pattern) -> bool:
    return qkv.is_cuda and qkv.dtype in DTYPES and takes(pattern, qkv.shape[-1]) and works()


def attend(
    qkv: Tensor, layout: Layout, pattern: Pattern, *, causal: bool = False, slopes_H: Tensor | None = None
) -> Tensor:
    """softmax(q·k/√K) v over what the pattern shows of each sentence: (…, 3, H, K) -> (…, H, K), padded or packed.

    `slopes_H`: ALiBi's; the distance of query and key times the head's slope is taken from the score.
    """
    rows = qkv.reshape(-1, *qkv.shape[-3:])
    out: Tensor = _Attend.apply(rows, layout, pattern, causal, slopes_H)
    return out.view(*qkv.shape[:-3], *qkv.shape[-2:])


@dataclass(frozen=True)
class _Tiles:
    """A pattern in tiles: a block is SUB of them, the FIRST are seen by all, REACH is counted in blocks."""

    size: int
    sub: int
    reach: int
    first: int
    drawn: int
    band: int

    @staticmethod
    def of(pattern: Pattern, row_bytes: int, number_bytes: int) -> "_Tiles":
        most = TILE_BYTES[number_bytes] // row_bytes
        match pattern:
            case Window(width=width):
                size = min(most, TILES[0] if width > NARROW else TILES[1])
                size = next(tile for tile in TILES if tile <= size)
                return _Tiles(size, 1, -(-width // size), 0, 0, width)
            case BigBird(block=block):
                size = next(tile for tile in TILES if tile <= most and block % tile == 0)
                sub = block // size
                return _Tiles(size, sub, pattern.reach, pattern.begins * sub, pattern.drawn, -1)


@dataclass(frozen=True)
class _Call:
    """What all kernels of a call share: where sentences lie, and sizes known on the host, for CUDA graphs."""

    layout: Layout
    tiles: _Tiles
    causal: bool
    rows: int
    heads: int
    width: int
    number_bytes: int
    sloped: bool

    @property
    def sentences(self) -> int:
        return len(self.layout.lengths_B)

    @property
    def count(self) -> int:
        """Tiles of the longest sentence."""
        return -(-self.layout.longest // self.tiles.size)

    @property
    def first(self) -> int:
        return min(self.tiles.first, self.count)

    @property
    def chunk(self) -> int:
        return CHUNK_TOKENS // self.tiles.size

    @property
    def chunks(self) -> int:
        return max(1, -(-self.count // self.chunk))

    def walks(self, split: int) -> int:
        """Programs that take a chunk of one of the tiles which are split."""
        return self.sentences * self.heads * split * self.chunks

    def programs(self, split: int) -> tuple[int]:
        return (self.walks(split) + self.sentences * self.heads * (self.count - split),)

    def scratch(self, split: int, like: Tensor) -> Tensor:
        return like.new_empty(self.walks(split), self.tiles.size, self.width, dtype=torch.float32)

    def constants(self, split: int) -> dict[str, Any]:
        size, row_bytes = self.tiles.size, self.width * self.number_bytes
        return {
            "PACKED": self.layout.offsets_B is not None, "EVEN": self.layout.even, "CAUSAL": self.causal,
            "BAND": self.tiles.band, "SLOPED": self.sloped, "FIRST": self.first, "SPLIT": split,
            "REACH": self.tiles.reach, "DRAWN": self.tiles.drawn, "WIDE": power_of_2(self.tiles.drawn),
            "SUB": self.tiles.sub, "CHUNK": self.chunk, "TILE": size, "H": self.heads, "K": self.width,
            "num_warps": min(8, max(size // 16, size * row_bytes // 2048)),
        }  # fmt: skip


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, layout: Layout, pattern: Pattern, causal: bool, slopes_H: Tensor | None
    ) -> Tensor:
        qkv = qkv if qkv.stride(-1) == 1 else qkv.contiguous()
        N, _, H, K = qkv.shape
        tiles = _Tiles.of(pattern, K * qkv.element_size(), qkv.element_size())
        call = _Call(layout, tiles, causal, N, H, K, qkv.element_size(), slopes_H is not None)
        drawn = draw(pattern, layout, causal=causal) if isinstance(pattern, BigBird) and pattern.drawn else None
        out, lse_HN = blocks_forward(qkv, drawn, slopes_H, call)
        ctx.save_for_backward(qkv, out, lse_HN, drawn, slopes_H)
        ctx.call = call
        return out

    @staticmethod
    def backward(ctx: Any, dout_NHK: Tensor) -> Any:
        qkv, out, lse_HN, drawn, slopes_H = ctx.saved_tensors
        dout_NHK = dout_NHK if dout_NHK.stride(-1) == 1 else dout_NHK.contiguous()
        return blocks_backward(qkv, out, lse_HN, dout_NHK, drawn, slopes_H, ctx.call), None, None, None, None


def _new(like: Tensor, shape: tuple[int, ...], call: _Call) -> Tensor:
    """Of a packed tensor no program may own the rows that belong to no sentence."""
    return like.new_zeros(shape) if call.layout.offsets_B is not None else like.new_empty(shape)


def blocks_forward(qkv: Tensor, drawn: Tensor | None, slopes_H: Tensor | None, call: _Call) -> tuple[Tensor, Tensor]:
    """The output (N, H, K), and of each row the logarithm to base 2 of its sum of exponentials (H, N)."""
    N, H, K = call.rows, call.heads, call.width
    split = 0 if call.causal else call.first
    out, lse_HN = _new(qkv, (N, H, K), call), qkv.new_empty(H, N, dtype=torch.float32)
    if min(call.sentences, call.count) == 0:
        return out, lse_HN
    parts = call.scratch(split, qkv)
    parts_lse = parts.new_empty(parts.shape[:2])
    where = (call.layout.offsets_B, call.layout.lengths_B)
    sizes = (call.sentences, call.layout.longest, N, call.count, call.chunks)
    constants = call.constants(split)
    triton_walks.forward[call.programs(split)](
        *qkv.unbind(1), out, lse_HN, parts, parts_lse, drawn, slopes_H, *where, qkv.stride(0), qkv.stride(2),
        *sizes, K**-0.5 * LOG2_E, **constants, num_stages=FORWARD_STAGES,
    )  # fmt: skip
    _merged(parts, parts_lse, out, lse_HN, call, split)
    return out, lse_HN


def blocks_backward(
    qkv: Tensor, out: Tensor, lse_HN: Tensor, dout: Tensor, drawn: Tensor | None, slopes_H: Tensor | None, call: _Call
) -> Tensor:
    """The gradient of the fused projection."""
    dqkv, mean_slope_HN = _new(qkv, qkv.shape, call), torch.empty_like(lse_HN)
    if min(call.sentences, call.count) == 0:
        return dqkv
    q, k, v = qkv.unbind(1)
    dq, dk, dv = dqkv.unbind(1)
    where = (slopes_H, call.layout.offsets_B, call.layout.lengths_B)
    strides = (qkv.stride(0), qkv.stride(2), dout.stride(0), dout.stride(1), dqkv.stride(0), dqkv.stride(2))
    sizes = (call.sentences, call.layout.longest, call.rows, call.count, call.chunks)
    scale = call.width**-0.5
    split = 0 if call.causal else call.first
    parts = call.scratch(split, qkv)
    triton_walks.queries_backward[call.programs(split)](
        q, k, v, out, lse_HN, dout, mean_slope_HN, dq, parts, drawn, *where, *strides, *sizes, scale, scale * LOG2_E,
        **call.constants(split), num_stages=BACKWARD_STAGES,
    )  # fmt: skip
    _merged(parts, None, dq, None, call, split)
    by, starts = (None, None) if drawn is None else drawn_by(drawn)
    split = call.first
    of_keys, of_values = call.scratch(split, qkv), call.scratch(split, qkv)
    triton_walks.keys_backward[call.programs(split)](
        q, k, v, lse_HN, dout, mean_slope_HN, dk, dv, of_keys, of_values, by, starts, *where, *strides, *sizes,
        scale, scale * LOG2_E, **call.constants(split), num_stages=BACKWARD_STAGES,
    )  # fmt: skip
    _merged(of_keys, None, dk, None, call, split)
    _merged(of_values, None, dv, None, call, split)
    return dqkv


def _merged(
    parts: Tensor, parts_lse: Tensor | None, whole: Tensor, lse_HN: Tensor | None, call: _Call, split: int
) -> None:
    """Into the rows of the first tiles: means by their weights where there are logarithms of them, else sums."""
    if split == 0:
        return
    triton_walks.merge[(call.sentences * call.heads * split, call.tiles.size // SLAB)](
        parts, parts_lse, whole, lse_HN, call.layout.offsets_B, call.layout.lengths_B, whole.stride(0),
        whole.stride(1), call.layout.longest, call.rows, call.chunks, PACKED=call.layout.offsets_B is not None,
        WEIGHED=parts_lse is not None, SPLIT=split, CHUNK=call.chunk, TILE=call.tiles.size, SLAB=SLAB,
        TOGETHER=TOGETHER, H=call.heads, K=call.width, num_warps=4,
    )  # fmt: skip
