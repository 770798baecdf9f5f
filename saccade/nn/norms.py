"""What holds the values between the parts of a block in range.

Shapes: … any leading dimensions, D width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import masks
from saccade.types import Layout

NormKind = Literal["layer", "rms", "detached", "batch", "none"]


class RmsNorm(nn.Module):
    """x / √(mean x² + ε) · γ over the width: without the mean, without a bias (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        return precise * (precise.square().mean(-1, keepdim=True) + self.epsilon).rsqrt() * self.weight


class DetachedNorm(nn.Module):
    """Layer norm whose mean and variance are taken for constants on the way back (DetachNorm, Xu et al. 2019).

    What is computed is layer norm, with its γ and β; only the gradient differs, which shows what that of the
    statistics is worth.
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        variance, mean = torch.var_mean(precise.detach(), -1, correction=0, keepdim=True)
        return (precise - mean) * (variance + self.epsilon).rsqrt() * self.weight + self.bias


class BatchNorm(nn.Module):
    """Batch norm (Ioffe and Szegedy 2015) of each feature over the real tokens of a batch, as torch.nn.BatchNorm1d.

    In evaluation the running statistics are used, so that a token then depends on no other. They are weights that are
    not trained: saved and loaded as all weights. A batch whose statistics are not finite leaves them as they are, and
    so does a pass without gradients.
    """

    def __init__(self, width: int, epsilon: float, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.running_variance = nn.Parameter(torch.ones(width), requires_grad=False)
        self.epsilon, self.momentum = epsilon, momentum

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        running = self.running_mean, self.running_variance
        mean_D, variance_D = self._measured(precise, layout) if self.training else running
        return (precise - mean_D) * (variance_D + self.epsilon).rsqrt() * self.weight + self.bias

    def _measured(self, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        padded = not layout.is_packed and not layout.even
        real = masks.valid_BT(layout)[..., None].to(x.dtype) if padded else x.new_ones(*x.shape[:-1], 1)
        over = tuple(range(x.ndim - 1))
        count = real.sum().clamp(min=1.0)
        mean_D = (x * real).sum(over) / count
        variance_D = ((x - mean_D).square() * real).sum(over) / count
        if torch.is_grad_enabled():
            with torch.no_grad():
                self._follow(self.running_mean, mean_D)
                self._follow(self.running_variance, variance_D * (count / (count - 1.0).clamp(min=1.0)))
        return mean_D, variance_D

    def _follow(self, running_D: Tensor, seen_D: Tensor) -> None:
        running_D.lerp_(torch.where(seen_D.isfinite(), seen_D.to(running_D.dtype), running_D), self.momentum)


Norm = nn.LayerNorm | RmsNorm | DetachedNorm | BatchNorm | nn.Identity


def make_norm(kind: NormKind, width: int, epsilon: float = 1e-5) -> Norm:
    match kind:
        case "layer":
            return nn.LayerNorm(width, epsilon)
        case "rms":
            return RmsNorm(width, epsilon)
        case "detached":
            return DetachedNorm(width, epsilon)
        case "batch":
            return BatchNorm(width, epsilon)
        case "none":
            return nn.Identity()


def normed(norm: Norm, x: Tensor, layout: Layout) -> Tensor:
    """Only batch norm asks where the real tokens are."""
    out: Tensor = norm(x, layout) if isinstance(norm, BatchNorm) else norm(x)
    return out
