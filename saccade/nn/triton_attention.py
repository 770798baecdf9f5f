"""Attention over packed sentences, made for short ones: a whole sentence's tile stays in registers, nothing is padding.

Flash attention's tiles are 64 to 128 rows high, and a sentence of some 25 tokens fills a fraction of them. Here a
program takes one sentence and one head in the smallest tile that holds it; a kernel is launched for each size of tile
that the batch may need; what is longer than all tiles is walked tile by tile with the online softmax (Dao et al. 2022,
algorithm 1). No atomics: the same input gives the same bits.

Shapes: B sentences, Q packed rows of queries, S of keys, H heads, K head width. A packed tensor holds the sentences in
ascending order; rows that belong to no sentence get zeros, in the output and in every gradient.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

import math
from typing import Any

import torch
from torch import Tensor

from saccade.nn.triton_residual import constexpr, drop_level, jit, kept, tl, works
from saccade.types import Layout

HEAD_WIDTHS = (16, 32, 64, 128)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TILES = (32, 64)  # and 16, where all sentences are as short as that
WALK_TILE_BYTES = 8192
SHARED_BY = 4  # sentences a program of the larger tiles looks at: most are not for it
ENOUGH_PROGRAMS = 1024  # below this, long sentences are split among programs
LOG2_E = math.log2(math.e)


def available(q_QHK: Tensor, queries: Layout, keys: Layout) -> bool:
    """Whether these kernels take such a call; of `attend_self`, the fused projection stands for the queries."""
    packed = queries.offsets_B is not None and keys.offsets_B is not None
    return packed and q_QHK.is_cuda and q_QHK.dtype in DTYPES and q_QHK.shape[-1] in HEAD_WIDTHS and works()


def attend(
    q_QHK: Tensor, k_SHK: Tensor, v_SHK: Tensor, queries: Layout, keys: Layout, *,
    causal: bool = False, dropout: float = 0.0, seed: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """softmax(q·k/√K) v within each sentence: (Q, H, K). The tensors may be views with any strides of rows and heads.

    `causal`: query i sees keys 0 … i of its sentence. `seed`: an int64 on the device that keys the dropped weights,
    needed where `dropout` is above 0; the backward draws the same ones again.
    """
    out: Tensor = _Attend.apply(q_QHK, k_SHK, v_SHK, queries, keys, causal, dropout, seed)
    return out


def attend_self(
    qkv_N3HK: Tensor, layout: Layout, *, causal: bool = False, dropout: float = 0.0, seed: Tensor | None = None
) -> Tensor:
    """`attend` on one fused projection, whose gradient is written as one: nothing is put together from three."""
    out: Tensor = _Attend.apply(qkv_N3HK, None, None, layout, layout, causal, dropout, seed)
    return out


def attend_cross(
    q_QHK: Tensor, kv_S2HK: Tensor, queries: Layout, keys: Layout, *, dropout: float = 0.0, seed: Tensor | None = None
) -> Tensor:
    """`attend` on the memory's fused projection."""
    out: Tensor = _Attend.apply(q_QHK, kv_S2HK, None, queries, keys, False, dropout, seed)
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, first: Tensor, second: Tensor | None, third: Tensor | None, queries: Layout, keys: Layout,
        causal: bool, dropout: float, seed: Tensor | None,
    ) -> Tensor:  # fmt: skip
        drop = drop_level(dropout, seed)
        parts = [None if each is None else _whole_rows(each) for each in (first, second, third)]
        assert queries.offsets_B is not None
        assert keys.offsets_B is not None
        where = (queries.offsets_B, queries.lengths_B, keys.offsets_B, keys.lengths_B)
        longest = max(queries.longest, keys.longest)
        q, k, v = _split(*parts)
        out, lse_HQ = attention_forward(q, k, v, *where, seed, longest, causal, drop)
        ctx.save_for_backward(*parts, out, lse_HQ, *where, seed)
        ctx.options = (longest, causal, drop)
        return out

    @staticmethod
    def backward(ctx: Any, dout_QHK: Tensor) -> Any:
        first, second, third, out, lse, *where, seed = ctx.saved_tensors
        parts = (first, second, third)
        gradients = [None if each is None else torch.empty_like(each) for each in parts]
        q, k, v = _split(*parts)
        dq, dk, dv = _split(*gradients)
        longest, causal, drop = ctx.options
        q_offsets, q_lengths, k_offsets, k_lengths = where
        attention_backward(
            q, k, v, out, lse, q_offsets, q_lengths, k_offsets, k_lengths, seed,
            _whole_rows(dout_QHK), dq, dk, dv, longest, causal, drop,
        )  # fmt: skip
        return (*gradients, None, None, None, None, None)


def _split(first: Any, second: Any, third: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys, values out of (qkv), (q, kv) or (q, k, v)."""
    q, k, v = (
        first.unbind(1) if second is None else (first, *second.unbind(1)) if third is None else (first, second, third)
    )
    return q, k, v


def _whole_rows(x: Tensor) -> Tensor:
    """The kernels want each head's row in one piece; the other strides are free."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _launches(q: Tensor, B: int, longest: int) -> list[tuple[tuple[int, int], dict[str, Any]]]:
    """Grid and constants of each kernel to launch: known on the host, so that CUDA graphs can hold them.

    Heads of one sentence stand side by side in the grid, since their rows lie side by side in memory.
    """
    H, K, row_bytes = q.shape[1], q.shape[2], q.shape[2] * q.element_size()
    one = longest <= TILES[0] or q.element_size() > 2  # in float32 a larger tile would spill
    tiles = (16,) if longest <= 16 else TILES[:1] if one else TILES
    shared = -(-B // SHARED_BY)
    # tile, the length above which sentences are this kernel's, whether it walks, sentences side by side, splits
    plans = [(tile, above, False, shared if above else B, 1) for above, tile in zip((0, *tiles), tiles, strict=False)]
    if longest > tiles[-1]:
        tile = min(64, max(16, WALK_TILE_BYTES // row_bytes))
        plans.append((tile, tiles[-1], True, shared, 1 if B * H >= ENOUGH_PROGRAMS else -(-longest // tile)))
    launches = []
    for tile, above, walk, sentences, splits in plans:
        warps = 4 if walk else min(8, max(1, tile // 32, tile * row_bytes // 2048))  # 64 bytes of a tile a thread
        constants = {"ABOVE": above, "WALK": walk, "TILE": tile, "H": H, "K": K, "num_warps": warps, "num_stages": 1}
        launches.append(((sentences * H, splits), constants))
    return launches


def attention_forward(
    q: Tensor, k: Tensor, v: Tensor, q_offsets: Tensor, q_lengths: Tensor, k_offsets: Tensor, k_lengths: Tensor,
    seed: Tensor | None, longest: int, causal: bool, drop: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The output, and of each row the logarithm to base 2 of its sum of exponentials (H, Q)."""
    (Q, H, K), B = q.shape, len(q_lengths)
    out, lse = q.new_empty(Q, H, K), q.new_empty(H, Q, dtype=torch.float32)
    strides = [step for x in (q, k, v) for step in x.stride()[:2]]
    where = (q_offsets, q_lengths, k_offsets, k_lengths)
    for grid, constants in _launches(q, B, longest) if B * Q > 0 else []:
        _forward[grid](
            q, k, v, out, lse, *where, seed, *strides, B, Q, K**-0.5 * LOG2_E, CAUSAL=causal, DROP=drop, **constants
        )
    return out, lse


def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    q_offsets: Tensor, q_lengths: Tensor, k_offsets: Tensor, k_lengths: Tensor, seed: Tensor | None,
    dout: Tensor, dq: Tensor, dk: Tensor, dv: Tensor, longest: int, causal: bool, drop: int,
) -> None:  # fmt: skip
    """Writes all of dq, dk, dv."""
    B, scale = len(q_lengths), q.shape[2] ** -0.5
    strides = [step for x in (q, k, v, dout, dq, dk, dv) for step in x.stride()[:2]]
    where = (q_offsets, q_lengths, k_offsets, k_lengths)
    sizes = (B, len(q), len(k), scale, scale * LOG2_E)
    for grid, constants in _launches(q, B, longest) if B > 0 else []:
        _backward[grid](
            q, k, v, out, lse, dout, dq, dk, dv, *where, seed, *strides, *sizes, CAUSAL=causal, DROP=drop, **constants
        )


# Pointers are moved to their sentence and head with 64-bit offsets; within a sentence 32 bits are enough.
@jit
def _place(offsets, lengths, b, B, rows):
    """Where a sentence begins, its length, and the distance to the next one."""
    begin = tl.load(offsets + b).to(tl.int64)
    following = tl.load(offsets + b + 1, mask=b + 1 < B, other=rows)
    return begin, tl.load(lengths + b).to(tl.int32), (following - begin).to(tl.int32)


# A length shifted right by 30 is 0, which the compiler cannot know: else it would compute the offsets of all tiles
# ahead of the loop over sentences, and hold them in registers that would have held a further program's tiles.
@jit
def _read(pointer, stride, first, length, TILE: constexpr, K: constexpr):
    rows = first + (length >> 30) + tl.arange(0, TILE)
    at = rows[:, None] * stride + tl.arange(0, K)[None, :]
    return tl.load(pointer + at, mask=rows[:, None] < length, other=0.0)


@jit
def _write(pointer, stride, first, length, value, TILE: constexpr, K: constexpr):
    rows = first + (length >> 30) + tl.arange(0, TILE)
    at = rows[:, None] * stride + tl.arange(0, K)[None, :]
    tl.store(pointer + at, value.to(pointer.dtype.element_ty), mask=rows[:, None] < length)


@jit
def _clear(pointer, stride, first, end, TILE: constexpr, K: constexpr):
    """Zeros in the rows between two sentences, or behind the last."""
    for start in range(first, end, TILE):
        _write(pointer, stride, start, end, tl.zeros((TILE, K), tl.float32), TILE, K)


@jit
def _scores(q, k, i, j, k_length, scale2, CAUSAL: constexpr, TILE: constexpr):
    """q·k K^-½ log₂e (the GPU's own exponential is of base 2), -inf where a query i … may not look at a key j …."""
    scores = tl.dot(q, tl.trans(k), input_precision="tf32x3") * scale2
    rows, columns = i + tl.arange(0, TILE)[:, None], j + tl.arange(0, TILE)[None, :]
    may_look = (columns < k_length) & (columns <= rows) if CAUSAL else columns < k_length
    return tl.where(may_look, scores, float("-inf"))


@jit
def _forward(
    q, k, v, out, lse, q_offsets, q_lengths, k_offsets, k_lengths, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, B, Q, scale2,
    CAUSAL: constexpr, DROP: constexpr, ABOVE: constexpr, WALK: constexpr, TILE: constexpr, H: constexpr, K: constexpr,
):  # fmt: skip
    """Every sentence longer than ABOVE, and, but for the WALK, not longer than TILE."""
    b0, h = tl.program_id(0) // H, tl.program_id(0) % H
    split, splits = tl.program_id(1) if WALK else 0, tl.num_programs(1) if WALK else 1
    for b in range(b0, b0 + 1 if ABOVE == 0 else B, 1 if ABOVE == 0 else tl.num_programs(0) // H):
        q_begin, q_length, q_distance = _place(q_offsets, q_lengths, b, B, Q)
        k_begin, k_length, _ = _place(k_offsets, k_lengths, b, B, 0)
        here = out + (q_begin * H + h) * K
        if ABOVE == 0:
            _clear(here, H * K, q_length, q_distance, TILE, K)
        longer = tl.maximum(q_length, k_length)
        if (longer > ABOVE) & (WALK | (longer <= TILE)):
            for i in range(split * TILE, q_length if WALK else TILE, splits * TILE):
                mean, normaliser = _look(
                    _read(q + q_begin * q_row + h * q_head, q_row, i, q_length, TILE, K),
                    k + k_begin * k_row + h * k_head, v + k_begin * v_row + h * v_head, k_row, v_row, i, k_length,
                    b * H + h, seed, scale2, CAUSAL, DROP, WALK, TILE, K,
                )  # fmt: skip
                _write(here, H * K, i, q_length, mean, TILE, K)
                rows = i + tl.arange(0, TILE)
                tl.store(lse + h.to(tl.int64) * Q + q_begin + rows, normaliser, mask=rows < q_length)


@jit
def _look(
    q, k, v, k_row, v_row, i, k_length, stream, seed, scale2,
    CAUSAL: constexpr, DROP: constexpr, WALK: constexpr, TILE: constexpr, K: constexpr,
):  # fmt: skip
    """What a tile of queries sees: the weighted mean of values, and the logarithm of the weights' sum."""
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mean = tl.zeros((TILE, K), tl.float32)
    seen = tl.minimum(k_length, i + TILE) if CAUSAL else k_length
    for j in range(0, seen if WALK else TILE, TILE):  # a loop of one turn is none to the compiler
        k_tile, v_tile = _read(k, k_row, j, k_length, TILE, K), _read(v, v_row, j, k_length, TILE, K)
        scores = _scores(q, k_tile, i, j, k_length, scale2, CAUSAL, TILE)
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # no keys at all: no NaN
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        if DROP > 0:
            keep = kept(tl.load(seed), i, j // 8, stream, TILE, TILE // 8, DROP)
            weights = tl.where(keep, weights * (65536 / (65536 - DROP)), 0.0)
        mean = mean * shrink[:, None] + tl.dot(weights.to(v_tile.dtype), v_tile, input_precision="tf32x3")
        highest = higher
    some = tl.where(total == 0.0, 1.0, total)
    return mean / some[:, None], tl.where(total == 0.0, 0.0, highest + tl.log2(some))


@jit
def _slopes(
    q, k, v, dout, lse, i, j, k_length, stream, seed, scale2, CAUSAL: constexpr, DROP: constexpr, TILE: constexpr
):
    """Of one tile: the weights, what dropout left of them, and the slopes of the loss by the weights."""
    scores = _scores(q, k, i, j, k_length, scale2, CAUSAL, TILE)
    weights = tl.exp2(scores - lse[:, None])
    slopes = tl.dot(dout, tl.trans(v), input_precision="tf32x3")
    left = weights
    if DROP > 0:
        keep = kept(tl.load(seed), i, j // 8, stream, TILE, TILE // 8, DROP)
        left = tl.where(keep, weights * (65536 / (65536 - DROP)), 0.0)
        slopes = tl.where(keep, slopes * (65536 / (65536 - DROP)), 0.0)
    return weights, left.to(q.dtype), slopes


@jit
def _backward(
    q, k, v, out, lse, dout, dq, dk, dv, q_offsets, q_lengths, k_offsets, k_lengths, seed,
    q_row, q_head, k_row, k_head, v_row, v_head, o_row, o_head, dq_row, dq_head, dk_row, dk_head, dv_row, dv_head,
    B, Q, S, scale, scale2,
    CAUSAL: constexpr, DROP: constexpr, ABOVE: constexpr, WALK: constexpr, TILE: constexpr, H: constexpr, K: constexpr,
):  # fmt: skip
    """As `_forward`. A sentence of one tile takes each product once, a longer one is walked by keys and by queries."""
    b0, h = tl.program_id(0) // H, tl.program_id(0) % H
    for b in range(b0, b0 + 1 if ABOVE == 0 else B, 1 if ABOVE == 0 else tl.num_programs(0) // H):
        q_begin, q_length, q_distance = _place(q_offsets, q_lengths, b, B, Q)
        k_begin, k_length, k_distance = _place(k_offsets, k_lengths, b, B, S)
        dq_here, dk_here = dq + q_begin * dq_row + h * dq_head, dk + k_begin * dk_row + h * dk_head
        dv_here = dv + k_begin * dv_row + h * dv_head
        if ABOVE == 0:
            _clear(dq_here, dq_row, q_length, q_distance, TILE, K)
            _clear(dk_here, dk_row, k_length, k_distance, TILE, K)
            _clear(dv_here, dv_row, k_length, k_distance, TILE, K)
        longer = tl.maximum(q_length, k_length)
        if (longer > ABOVE) & (WALK | (longer <= TILE)):
            _descend(
                q + q_begin * q_row + h * q_head, k + k_begin * k_row + h * k_head, v + k_begin * v_row + h * v_head,
                out + (q_begin * H + h) * K, lse + h.to(tl.int64) * Q + q_begin, dout + q_begin * o_row + h * o_head,
                dq_here, dk_here, dv_here, q_row, k_row, v_row, H * K, o_row, dq_row, dk_row, dv_row,
                q_length, k_length, b * H + h, seed, scale, scale2, CAUSAL, DROP, WALK, TILE, K,
            )  # fmt: skip


@jit
def _descend(
    q, k, v, out, lse, dout, dq, dk, dv, q_row, k_row, v_row, out_row, o_row, dq_row, dk_row, dv_row,
    q_length, k_length, stream, seed, scale, scale2,
    CAUSAL: constexpr, DROP: constexpr, WALK: constexpr, TILE: constexpr, K: constexpr,
):  # fmt: skip
    """One sentence and head; the walk by keys gives dk and dv, the walk by queries dq, one tile all three."""
    split, splits = tl.program_id(1) if WALK else 0, tl.num_programs(1) if WALK else 1
    for j in range(split * TILE, k_length if WALK else TILE, splits * TILE):
        k_tile, v_tile = _read(k, k_row, j, k_length, TILE, K), _read(v, v_row, j, k_length, TILE, K)
        dk_tile, dv_tile = tl.zeros((TILE, K), tl.float32), tl.zeros((TILE, K), tl.float32)
        # Causal: queries before these keys do not see them.
        for i in range(j if CAUSAL and WALK else 0, q_length if WALK else TILE, TILE):
            q_tile, dout_tile = _read(q, q_row, i, q_length, TILE, K), _read(dout, o_row, i, q_length, TILE, K)
            rows = i + tl.arange(0, TILE)
            lse_tile = tl.load(lse + rows, mask=rows < q_length, other=0.0)
            weights, left, slopes = _slopes(
                q_tile, k_tile, v_tile, dout_tile, lse_tile, i, j, k_length, stream, seed, scale2, CAUSAL, DROP, TILE
            )
            if WALK:  # the mean slope of a row is Σ dout × out (Dao et al. 2022, equation 4)
                out_tile = _read(out, out_row, i, q_length, TILE, K)
                mean_slope = tl.sum(dout_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
            else:
                mean_slope = tl.sum(weights * slopes, 1)  # the same, and `out` need not be read
            dscores = (weights * (slopes - mean_slope[:, None]) * scale).to(q_tile.dtype)
            dv_tile += tl.dot(tl.trans(left), dout_tile, input_precision="tf32x3")
            dk_tile += tl.dot(tl.trans(dscores), q_tile, input_precision="tf32x3")
            if not WALK:
                _write(dq, dq_row, i, q_length, tl.dot(dscores, k_tile, input_precision="tf32x3"), TILE, K)
        _write(dk, dk_row, j, k_length, dk_tile, TILE, K)
        _write(dv, dv_row, j, k_length, dv_tile, TILE, K)
    for i in range(split * TILE, q_length if WALK else 0, splits * TILE):
        q_tile, dout_tile = _read(q, q_row, i, q_length, TILE, K), _read(dout, o_row, i, q_length, TILE, K)
        out_tile = _read(out, out_row, i, q_length, TILE, K)
        mean_slope = tl.sum(dout_tile.to(tl.float32) * out_tile.to(tl.float32), 1)
        rows = i + tl.arange(0, TILE)
        lse_tile = tl.load(lse + rows, mask=rows < q_length, other=0.0)
        dq_tile = tl.zeros((TILE, K), tl.float32)
        for j in range(0, tl.minimum(k_length, i + TILE) if CAUSAL else k_length, TILE):
            k_tile, v_tile = _read(k, k_row, j, k_length, TILE, K), _read(v, v_row, j, k_length, TILE, K)
            weights, _, slopes = _slopes(
                q_tile, k_tile, v_tile, dout_tile, lse_tile, i, j, k_length, stream, seed, scale2, CAUSAL, DROP, TILE
            )
            dscores = (weights * (slopes - mean_slope[:, None]) * scale).to(q_tile.dtype)
            dq_tile += tl.dot(dscores, k_tile, input_precision="tf32x3")
        _write(dq, dq_row, i, q_length, dq_tile, TILE, K)
