"""What stands around a Transformer's matrix products, in one pass over memory: sum, dropout, norm; bias, activation.

The mask of dropout is never stored: Philox (Salmon et al. 2011) draws it again in the backward from the same seed.
Gradients of weights are summed per program, then over programs: no atomics, so the same input gives the same bits.

Shapes: N rows, D width, F inner width. Any leading dimensions are taken as rows.
"""
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False
# mypy: disallow-untyped-decorators=False, check-untyped-defs=False

import importlib.util
import warnings
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.errors import UsageError

TRITON_IS_HERE = importlib.util.find_spec("triton") is not None
if TRITON_IS_HERE:
    import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from triton import jit  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from triton.language import constexpr  # type: ignore[import-not-found,import-untyped,unused-ignore]
else:  # `available` says no, and no kernel is called
    tl, constexpr = None, int

    def jit(kernel: Any) -> Any:
        return kernel


WIDEST = 2048
FORWARD_SHARE, BACKWARD_SHARE = 1024, 512  # values of a tile for each warp: a row within one warp needs no barrier
WARPS = 2048  # of a backward in all; each program leaves one row of partial sums
INNER = 1024  # inner columns at a time
Activation = Literal["relu", "gelu"]
__all__ = ["activate", "available", "constexpr", "drop_level", "jit", "kept", "residual_norm", "tl", "works"]


@cache
def works() -> bool:
    """Whether kernels can be built and run here, which also takes a C compiler; tried once."""
    if not torch.cuda.is_available():
        return False
    try:
        if not TRITON_IS_HERE:
            raise ImportError("triton is not installed")
        activate_forward(torch.zeros(1, 8, device="cuda"), None, None, 0, False)
    except Exception as error:  # whatever the compiler, the driver or Triton raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        told = f"Triton's kernels do not run here ({reason}): torch's are used, which are slower."
        warnings.warn(told, RuntimeWarning, stacklevel=2)
        return False
    return True


def available(x: Tensor) -> bool:
    """Whether `activate` takes such a call; `residual_norm` also has a `WIDEST`."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16, torch.float32) and works()


def drop_level(dropout: float, seed: Tensor | None) -> int:
    """Dropout in 65,536ths: what is dropped, and what the rest is scaled up by, are both exactly this share."""
    if not 0.0 <= dropout < 1.0:
        raise UsageError(f"dropout must be at least 0 and below 1, not {dropout}.")
    level = min(round(dropout * 65536), 65535)
    if level > 0 and (seed is None or seed.dtype != torch.int64 or seed.numel() != 1):
        raise UsageError("dropout needs `seed`, a tensor of one int64 on the device of the data.")
    return level


def residual_norm(
    x: Tensor, r: Tensor, weight_D: Tensor, bias_D: Tensor, *,
    r_bias_D: Tensor | None = None, dropout: float = 0.0, seed: Tensor | None = None, epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Y = x + Drop(r + r_bias) and z = LayerNorm(y), twice: y in x's precision, z in r's; statistics in float32.

    Pre-norm goes on with y and z. Post-norm goes on with z, which two read: given to each as a tensor of its own, their
    gradients are added within the backward's one pass. `r_bias_D` is the bias of the product that made r: added here,
    its gradient costs no pass of its own.
    """
    drop = drop_level(dropout, seed)
    y, z, again = _ResidualNorm.apply(x, r, weight_D, bias_D, r_bias_D, drop, seed, epsilon)
    return y, z, again


def activate(
    x: Tensor, bias_F: Tensor | None, *,
    activation: Activation = "relu", dropout: float = 0.0, seed: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Drop(activation(x + bias)): the inside of the feed-forward layer. GELU is the exact one, as torch's default."""
    out: Tensor = _Activate.apply(x, bias_F, activation, drop_level(dropout, seed), seed)
    return out


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]).contiguous()


def _tile(width: int, share: int) -> dict[str, int]:
    """Rows at a time, their width as a power of two (eight at least: one draw decides eight values), and warps."""
    block = max(8, 1 << (width - 1).bit_length())
    return {"ROWS": max(1, share // block), "BLOCK": block, "num_warps": max(1, block // share)}


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, r: Tensor, weight_D: Tensor, bias_D: Tensor, r_bias_D: Tensor | None,
        drop: int, seed: Tensor | None, epsilon: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        y_ND, z_ND, mean_N, spread_N = residual_forward(
            _flat(x), _flat(r), weight_D, bias_D, r_bias_D, seed, drop, epsilon
        )
        ctx.save_for_backward(y_ND, weight_D, mean_N, spread_N, seed)
        ctx.options, ctx.shape = (drop, r_bias_D is not None), x.shape
        ctx.dtypes = (r.dtype, bias_D.dtype, None if r_bias_D is None else r_bias_D.dtype)
        ctx.set_materialize_grads(False)
        return y_ND.view(x.shape), z_ND.view(x.shape), z_ND.detach().view(x.shape)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, dz: Tensor | None, again: Tensor | None) -> Any:
        y_ND, weight_D, mean_N, spread_N, seed = ctx.saved_tensors
        r_dtype, bias_dtype, r_bias_dtype = ctx.dtypes
        dz, again = (dz, again) if dz is not None else (again, None)
        dz_ND = torch.zeros_like(y_ND) if dz is None else _flat(dz)
        drop, r_bias = ctx.options
        dx, dr, sums = residual_backward(
            None if dy is None else _flat(dy), dz_ND, None if again is None else _flat(again),
            y_ND, weight_D, mean_N, spread_N, seed, drop, r_bias, r_dtype,
        )  # fmt: skip
        dx = dx.view(ctx.shape)
        dr = dx if dr.numel() == 0 else dr.view(ctx.shape)
        dr_bias = sums[2].to(r_bias_dtype) if r_bias_dtype is not None else None
        return dx, dr, sums[0].to(weight_D.dtype), sums[1].to(bias_dtype), dr_bias, None, None, None


def residual_forward(
    x: Tensor, r: Tensor, weight: Tensor, bias: Tensor, r_bias: Tensor | None,
    seed: Tensor | None, drop: int, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y, z, and of each row the mean and one over the standard deviation."""
    N, D = x.shape
    y, z = torch.empty_like(x), torch.empty_like(r)
    mean, spread = (x.new_empty(N, dtype=torch.float32) for _ in range(2))
    tile = _tile(D, FORWARD_SHARE)
    if N > 0:
        _residual_forward[(-(-N // tile["ROWS"]),)](
            x, r, weight, bias, r_bias, seed, y, z, mean, spread, N, epsilon, D=D, DROP=drop, **tile
        )
    return y, z, mean, spread


def residual_backward(
    dy: Tensor | None, dz: Tensor, again: Tensor | None, y: Tensor, weight: Tensor, mean: Tensor, spread: Tensor,
    seed: Tensor | None, drop: int, r_bias: bool, r_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dx, dr (nothing where it is dx), and the gradients of weight, bias and r's bias (2 or 3, D) in float32."""
    N, D = y.shape
    tile = _tile(D, BACKWARD_SHARE)
    programs = max(1, min(WARPS // tile["num_warps"], -(-N // tile["ROWS"])))
    dx = torch.empty_like(y)
    dr = torch.empty_like(y, dtype=r_dtype) if drop > 0 or r_dtype != y.dtype else y.new_empty(0)
    sums = y.new_empty(programs, 3 if r_bias else 2, D, dtype=torch.float32)
    _residual_backward[(programs,)](
        dy, dz, again, y, weight, mean, spread, seed, dx, dr if len(dr) else None, sums, N,
        D=D, DROP=drop, R_BIAS=r_bias, **tile,
    )  # fmt: skip
    return dx, dr, sums.sum(0)


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias_F: Tensor | None, activation: Activation, drop: int, seed: Tensor | None
    ) -> Tensor:
        out_NF: Tensor = activate_forward(_flat(x), bias_F, seed, drop, activation == "gelu")
        # What ReLU and dropout leave above zero says all that their backward asks: no input is kept, nothing drawn.
        kept_NF = out_NF if activation == "relu" else _flat(x)
        ctx.save_for_backward(kept_NF, bias_F, seed)
        ctx.options = (drop, activation == "gelu")
        return out_NF.view(x.shape)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> Any:
        kept_NF, bias_F, seed = ctx.saved_tensors
        dx_NF, sums_F = activate_backward(_flat(dout), kept_NF, bias_F, seed, *ctx.options)
        dbias_F = None if bias_F is None else sums_F.to(bias_F.dtype)
        return dx_NF.view(dout.shape), dbias_F, None, None, None


def activate_forward(x: Tensor, bias: Tensor | None, seed: Tensor | None, drop: int, gelu: bool) -> Tensor:
    N, F = x.shape
    out = torch.empty_like(x)
    tile = _tile(min(F, INNER), FORWARD_SHARE)
    if N > 0:
        _activate_forward[(-(-N // tile["ROWS"]), -(-F // tile["BLOCK"]))](
            x, bias, seed, out, N, F=F, DROP=drop, GELU=gelu, **tile
        )
    return out


def activate_backward(
    dout: Tensor, saved: Tensor, bias: Tensor | None, seed: Tensor | None, drop: int, gelu: bool
) -> tuple[Tensor, Tensor]:
    """dx, and its sum over rows in float32 (zeros without a bias). `saved`: the output of ReLU, GELU's input."""
    N, F = dout.shape
    tile = _tile(min(F, INNER), FORWARD_SHARE)
    columns = -(-F // tile["BLOCK"])
    programs = max(1, min(WARPS // columns, -(-N // tile["ROWS"])))
    dx, sums = torch.empty_like(dout), dout.new_empty(0 if bias is None else programs, F, dtype=torch.float32)
    _activate_backward[(programs, columns)](dout, saved, bias, seed, dx, sums, N, F=F, DROP=drop, GELU=gelu, **tile)
    return dx, sums.sum(0)


@jit
def kept(seed, row, group, stream, ROWS: constexpr, GROUPS: constexpr, DROP: constexpr):
    """Which values of a tile dropout leaves (ROWS, 8 GROUPS): sixteen bits decide one, so each draw decides eight.

    A value's draw depends on its row, column and `stream` alone, not on the tile. Seven rounds pass every test of the
    paper; the integer arithmetic, not memory, would be the bound with a draw of ten rounds for each value.
    """
    column = group + tl.arange(0, GROUPS)[None, :] + tl.zeros((ROWS, 1), tl.int32)
    rows = row + tl.arange(0, ROWS)[:, None] + tl.zeros((1, GROUPS), tl.int32)
    zero = tl.zeros((ROWS, GROUPS), tl.int32)
    a, b, c, d = tl.philox(seed, column, rows, zero + stream, zero, 7)
    words = tl.interleave(tl.interleave(a, b), tl.interleave(c, d))
    return tl.interleave(words & 0xFFFF, words >> 16) >= DROP


@jit
def _residual_forward(
    x, r, weight, bias, r_bias, seed, y, z, mean, spread, N, epsilon,
    D: constexpr, DROP: constexpr, ROWS: constexpr, BLOCK: constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS
    rows, columns = row + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (columns < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D + columns[None, :]
    added = tl.load(r + at, mask=inside, other=0.0).to(tl.float32)
    if r_bias is not None:
        added += tl.load(r_bias + columns, mask=columns < D, other=0.0).to(tl.float32)[None, :]
    if DROP > 0:
        keep = kept(tl.load(seed), row, 0, 0, ROWS, BLOCK // 8, DROP)
        added = tl.where(keep, added * (65536 / (65536 - DROP)), 0.0)
    total = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + added
    total = total.to(y.dtype.element_ty)
    tl.store(y + at, total, mask=inside)
    total = tl.where(inside, total.to(tl.float32), 0.0)  # the norm of what is stored, as the backward will read it
    centre = tl.sum(total, 1) / D
    apart = tl.where(inside, total - centre[:, None], 0.0)
    steep = 1.0 / tl.sqrt(tl.sum(apart * apart, 1) / D + epsilon)
    w = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    shift = tl.load(bias + columns, mask=columns < D, other=0.0).to(tl.float32)
    normal = apart * steep[:, None] * w[None, :] + shift[None, :]
    tl.store(z + at, normal.to(z.dtype.element_ty), mask=inside)
    tl.store(mean + rows, centre, mask=rows < N)
    tl.store(spread + rows, steep, mask=rows < N)


@jit
def _residual_backward(
    dy, dz, again, y, weight, mean, spread, seed, dx, dr, sums, N,
    D: constexpr, DROP: constexpr, R_BIAS: constexpr, ROWS: constexpr, BLOCK: constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    w = tl.load(weight + columns, mask=columns < D, other=0.0).to(tl.float32)
    dweight, dbias = tl.zeros((ROWS, BLOCK), tl.float32), tl.zeros((ROWS, BLOCK), tl.float32)
    dr_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for row in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < D)[None, :]
        at = rows.to(tl.int64)[:, None] * D + columns[None, :]
        slope = tl.load(dz + at, mask=inside, other=0.0).to(tl.float32)
        if again is not None:
            slope += tl.load(again + at, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        centre = tl.load(mean + rows, mask=rows < N, other=0.0)
        steep = tl.load(spread + rows, mask=rows < N, other=0.0)
        normal = tl.where(inside, (value - centre[:, None]) * steep[:, None], 0.0)
        dweight += slope * normal
        dbias += slope
        slope = slope * w[None, :]
        along = tl.sum(slope * normal, 1) / D
        level = tl.sum(slope, 1) / D
        total = (slope - normal * along[:, None] - level[:, None]) * steep[:, None]
        if dy is not None:
            total += tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx + at, total.to(dx.dtype.element_ty), mask=inside)
        if DROP > 0:
            keep = kept(tl.load(seed), row, 0, 0, ROWS, BLOCK // 8, DROP)
            total = tl.where(keep, total * (65536 / (65536 - DROP)), 0.0)
        if dr is not None:
            tl.store(dr + at, total.to(dr.dtype.element_ty), mask=inside)
        if R_BIAS:
            dr_bias += tl.where(inside, total, 0.0)
    sums += tl.program_id(0) * (3 if R_BIAS else 2) * D + columns
    tl.store(sums, tl.sum(dweight, 0), mask=columns < D)
    tl.store(sums + D, tl.sum(dbias, 0), mask=columns < D)
    if R_BIAS:
        tl.store(sums + 2 * D, tl.sum(dr_bias, 0), mask=columns < D)


@jit
def _activate_forward(
    x, bias, seed, out, N, F: constexpr, DROP: constexpr, GELU: constexpr, ROWS: constexpr, BLOCK: constexpr
):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * BLOCK
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, BLOCK)
    inside = (rows < N)[:, None] & (columns < F)[None, :]
    at = rows.to(tl.int64)[:, None] * F + columns[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if bias is not None:
        value += tl.load(bias + columns, mask=columns < F, other=0.0).to(tl.float32)[None, :]
    value = value * 0.5 * (1.0 + tl.erf(value * 0.7071067811865476)) if GELU else tl.where(value < 0.0, 0.0, value)
    if DROP > 0:
        keep = kept(tl.load(seed), row, column // 8, 0, ROWS, BLOCK // 8, DROP)
        value = tl.where(keep, value * (65536 / (65536 - DROP)), 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@jit
def _activate_backward(
    dout, saved, bias, seed, dx, sums, N,
    F: constexpr, DROP: constexpr, GELU: constexpr, ROWS: constexpr, BLOCK: constexpr,
):  # fmt: skip
    column = tl.program_id(1) * BLOCK
    columns = column + tl.arange(0, BLOCK)
    dbias = tl.zeros((ROWS, BLOCK), tl.float32)
    for row in range(tl.program_id(0) * ROWS, N, tl.num_programs(0) * ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (columns < F)[None, :]
        at = rows.to(tl.int64)[:, None] * F + columns[None, :]
        slope = tl.load(dout + at, mask=inside, other=0.0).to(tl.float32) * (65536 / (65536 - DROP))
        value = tl.load(saved + at, mask=inside, other=0.0).to(tl.float32)
        if GELU:
            if bias is not None:
                value += tl.load(bias + columns, mask=columns < F, other=0.0).to(tl.float32)[None, :]
            below = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
            slope *= below + value * tl.exp(-0.5 * value * value) * 0.3989422804014327
            if DROP > 0:
                slope = tl.where(kept(tl.load(seed), row, column // 8, 0, ROWS, BLOCK // 8, DROP), slope, 0.0)
        else:
            slope = tl.where(value == 0.0, 0.0, slope)  # it is above 0 else, or not a number, which must be seen
        tl.store(dx + at, slope.to(dx.dtype.element_ty), mask=inside)
        dbias += slope
    if bias is not None:
        tl.store(sums + tl.program_id(0) * F + columns, tl.sum(dbias, 0), mask=columns < F)
