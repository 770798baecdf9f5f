"""Token vectors, their scale, their places and dropout in one pass over memory.

As the kernels of triton_residual.py: no mask is stored, nothing is atomic, the same input gives the same bits. Torch's
own backward of a lookup sorts the tokens and sums each one's rows in order.

Shapes: N tokens, V vocabulary, P places, D width.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

from typing import Any

import torch
from torch import Tensor

from saccade.nn.triton_residual import constexpr, drop_level, jit, kept, tl, works

BLOCK = 1024  # values of a row at a time, at most


def available(ids: Tensor, table_VD: Tensor) -> bool:
    """Whether `embed` takes such a call."""
    return ids.is_cuda and ids.dim() == 1 and table_VD.dtype == torch.float32 and works()


def embed(
    ids_N: Tensor, table_VD: Tensor, place_N: Tensor | None, positions_PD: Tensor | None, *,
    scale: float = 1.0, dropout: float = 0.0, seed: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Drop(table[ids] · scale + positions[place]); the gradient reaches the table alone."""
    out: Tensor = _Embed.apply(ids_N, table_VD, place_N, positions_PD, scale, drop_level(dropout, seed), seed)
    return out


class _Embed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, ids_N: Tensor, table_VD: Tensor, place_N: Tensor | None, positions_PD: Tensor | None,
        scale: float, drop: int, seed: Tensor | None,
    ) -> Tensor:  # fmt: skip
        N, (V, D) = len(ids_N), table_VD.shape
        out_ND = table_VD.new_empty(N, D)
        if N > 0:
            _forward[_grid(N, D)](
                ids_N, table_VD, place_N, positions_PD, seed, out_ND, N, scale, D=D, DROP=drop, **_tile(D)
            )
        ctx.save_for_backward(ids_N, seed)
        ctx.options = (V, scale, drop)
        return out_ND

    @staticmethod
    def backward(ctx: Any, dout_ND: Tensor) -> Any:
        ids_N, seed = ctx.saved_tensors
        V, scale, drop = ctx.options
        N, D = dout_ND.shape
        dx_ND = torch.empty_like(dout_ND, memory_format=torch.contiguous_format)
        if N > 0:
            _backward[_grid(N, D)](dout_ND.contiguous(), seed, dx_ND, N, scale, D=D, DROP=drop, **_tile(D))
        dtable_VD = torch.ops.aten.embedding_dense_backward(dx_ND, ids_N, V, -1, False)
        return None, dtable_VD, None, None, None, None, None


def _tile(D: int) -> dict[str, int]:
    block = min(BLOCK, max(8, 1 << (D - 1).bit_length()))
    return {"ROWS": BLOCK // block, "BLOCK": block, "num_warps": 4}


def _grid(N: int, D: int) -> tuple[int, int]:
    tile = _tile(D)
    return -(-N // tile["ROWS"]), -(-D // tile["BLOCK"])


@jit
def _forward(
    ids, table, place, positions, seed, out, N, scale,
    D: constexpr, DROP: constexpr, ROWS: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * BLOCK
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (columns < D)[None, :]
    id = tl.load(ids + rows, mask=rows < N, other=0)
    value = tl.load(table + id[:, None] * D + columns[None, :], mask=inside, other=0.0) * scale
    if positions is not None:
        at = tl.load(place + rows, mask=rows < N, other=0)
        value += tl.load(positions + at[:, None] * D + columns[None, :], mask=inside, other=0.0)
    if DROP > 0:
        keep = kept(tl.load(seed), row, column // 8, 0, ROWS, BLOCK // 8, DROP)
        value = tl.where(keep, value * (65536 / (65536 - DROP)), 0.0)
    tl.store(out + rows.to(tl.int64)[:, None] * D + columns[None, :], value, mask=inside)


@jit
def _backward(dout, seed, dx, N, scale, D: constexpr, DROP: constexpr, ROWS: constexpr, BLOCK: constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * BLOCK
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (columns < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D + columns[None, :]
    slope = tl.load(dout + at, mask=inside, other=0.0) * scale
    if DROP > 0:
        keep = kept(tl.load(seed), row, column // 8, 0, ROWS, BLOCK // 8, DROP)
        slope = tl.where(keep, slope * (65536 / (65536 - DROP)), 0.0)
    tl.store(dx + at, slope, mask=inside)
