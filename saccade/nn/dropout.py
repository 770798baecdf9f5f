"""Dropout (Srivastava et al. 2014) whose masks cost little on a CPU.

torch draws a CPU's Bernoulli numbers one by one, which takes a tenth of a training step of a small Transformer. Here
numpy's SFC64 draws 16 bits a value in bulk, seeded from torch's generator: keyed seeding governs both.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16  # the rate is rounded to the nearest of these


class Dropout(nn.Module):
    """In training, each value becomes 0 with the given rate and is divided by 1 − rate else."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    @property
    def acts(self) -> bool:
        return self.training and self.rate > 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.acts:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped: Tensor = _CpuDropout.apply(x, self.rate)  # type: ignore[no-untyped-call]
        return dropped

    def extra_repr(self) -> str:
        return f"{self.rate}"


def _mask(x: Tensor, rate: float) -> Tensor:
    """What each value is multiplied with: 0 or 1 / (1 − rate)."""
    seed = int(torch.randint(1 << 62, ()))
    raw: NDArray[np.uint64] = np.random.SFC64(seed).random_raw(-(-x.numel() // 4))
    drawn = raw.view(np.uint16)[: x.numel()]  # four values of 16 bits a draw
    kept = np.multiply(drawn >= round(rate * LEVELS), np.float32(1.0 / (1.0 - rate)), dtype=np.float32)
    return torch.from_numpy(kept).view(x.shape).to(x.dtype)


class _CpuDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        mask = _mask(x, rate)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask, None


def relu_dropout(x: Tensor, rate: float) -> Tensor:
    """Dropout of max(x, 0), in the place of x, on a CPU: what is left above zero says all that the way back asks."""
    out: Tensor = _CpuReluDropout.apply(x, rate)  # type: ignore[no-untyped-call]
    return out


class _CpuReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        out = x.clamp_(min=0.0).mul_(_mask(x, rate))
        ctx.mark_dirty(x)
        ctx.save_for_backward(out)
        ctx.scale = 1.0 / (1.0 - rate)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, out, 0.0).mul_(ctx.scale), None
