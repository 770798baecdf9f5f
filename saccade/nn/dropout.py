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

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        dropped: Tensor = _CpuDropout.apply(x, self.rate)  # type: ignore[no-untyped-call]
        return dropped

    def extra_repr(self) -> str:
        return f"{self.rate}"


class _CpuDropout(torch.autograd.Function):
    """The mask holds what values are multiplied with, so that each way takes one pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        seed = int(torch.randint(1 << 62, ()))
        raw: NDArray[np.uint64] = np.random.SFC64(seed).random_raw(-(-x.numel() // 4))
        drawn = raw.view(np.uint16)[: x.numel()]  # four values of 16 bits a draw
        kept = np.multiply(drawn >= round(rate * LEVELS), np.float32(1.0 / (1.0 - rate)), dtype=np.float32)
        mask = torch.from_numpy(kept).view(x.shape).to(x.dtype)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask, None
