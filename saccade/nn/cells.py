"""Recurrent cells: Elman (1990), LSTM (Hochreiter & Schmidhuber 1997, Gers et al. 2000), GRU (Cho et al. 2014).

Each cell is written out in `step` as its equations, for every variant of it; `run` is the fused twin over all steps,
for the variants that torch's kernels can compute (`fused`). Weights are laid out as in torch.nn (gate order i, f, g, o
and r, z, n; two biases), so that they can be copied in either direction.
Shapes: B sentences, T steps, I input width, D hidden width, G gates × D.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn import kernels, masks
from saccade.types import Layout

Memory = dict[str, Tensor]  # a cell's state between steps: `h`, and `c` for the LSTM; each (B, D)
Activation = Literal["tanh", "logistic", "identity", "relu"]
ResetPlace = Literal["after", "before"]
Polarity = Literal["keep", "update"]


@dataclass(frozen=True)
class Variant:
    """Which of the published forms a cell has; a kind reads what concerns it."""

    activation: Activation = "tanh"
    identity: bool = False
    forget_gate: bool = True
    forget_bias: float = 1.0
    peepholes: bool = False
    reset: ResetPlace = "after"
    polarity: Polarity = "keep"
    layer_norm: bool = False
    last_read: bool = True


STANDARD = Variant()


class GateNorm(nn.Module):
    """Layer norm (Ba et al. 2016) over groups of gates, each group with its own mean and variance.

    It has a gain and no bias: the cell adds one behind it.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.gain = nn.Parameter(torch.ones(sum(widths)))

    def forward(self, x: Tensor) -> Tensor:
        parts = x.split_with_sizes(self.widths, dim=-1)
        return torch.cat([self.of(group, part) for group, part in enumerate(parts)], dim=-1)

    def of(self, group: int, part: Tensor) -> Tensor:
        gain = self.gain.split_with_sizes(self.widths)[group]
        return F.layer_norm(part, gain.shape, gain)


def affine(x: Tensor, weight: Tensor, bias: Tensor, norm: Callable[[Tensor], Tensor] | None) -> Tensor:
    """W x + b, or LN(W x) + b."""
    return F.linear(x, weight, bias) if norm is None else norm(F.linear(x, weight)) + bias


class Gated(nn.Module):
    """The weights every cell has: W (`weight_ih`) of what comes in and U (`weight_hh`) of what is carried on."""

    def __init__(self, input_width: int, width: int, gates: int, further: int = 0) -> None:
        """`further`: rows of W beyond the gates, as many times the width."""
        super().__init__()
        self.width = width
        self.normed = False
        self.norm_ih: GateNorm | None = None
        self.weight_ih = nn.Parameter(torch.empty((gates + further) * width, input_width))
        self.weight_hh = nn.Parameter(torch.empty(gates * width, width))
        self.bias_ih = nn.Parameter(torch.zeros((gates + further) * width))
        self.bias_hh = nn.Parameter(torch.zeros(gates * width))
        for weight in self.weight_ih.data.chunk(gates + further):
            nn.init.xavier_uniform_(weight)
        for weight in self.weight_hh.data.chunk(gates):
            nn.init.orthogonal_(weight)  # keeps the norm of what is carried from step to step (Saxe et al. 2014)

    def project(self, x: Tensor) -> Tensor:
        """The part of the gates that needs no state, W x + b, for any leading dimensions."""
        return self.complete(self.partial(x))

    def partial(self, x: Tensor) -> Tensor:
        """What `x`, the first part of the input, gives to the gates: made at once for all steps."""
        of_x = self.weight_ih[:, : x.shape[-1]]
        return F.linear(x, of_x, None if self.normed else self.bias_ih)

    def complete(self, total: Tensor) -> Tensor:
        """`project`, given the sum of what all parts of the input give: with layer norm it is normed as a whole."""
        return total if self.norm_ih is None else self.norm_ih(total) + self.bias_ih

    def squash(self, x: Tensor) -> Tensor:
        """Into the range that `h` has."""
        return torch.tanh(x)

    @property
    def unfused(self) -> str:
        """What of it torch's kernels cannot compute, in words; empty where they can."""
        return ""

    @property
    def fused(self) -> bool:
        return not self.unfused


class Elman(Gated):
    """h' = φ(W x + b + U h + b'); Elman's own φ was logistic.

    With layer norm h' = φ(LN(W x + U h) + b + b'), as in Ba et al. (2016), equation 4. With `identity` U begins as the
    identity matrix, so that ReLU or identity units begin as integrators (Le et al. 2015).
    """

    states = ("h",)

    def __init__(self, input_width: int, width: int, variant: Variant = STANDARD) -> None:
        super().__init__(input_width, width, gates=1)
        self.activation: Activation = variant.activation
        self.normed = variant.layer_norm
        self.norm = GateNorm([width]) if variant.layer_norm else None
        if variant.identity:
            nn.init.eye_(self.weight_hh)

    def squash(self, x: Tensor) -> Tensor:
        match self.activation:
            case "tanh":
                return torch.tanh(x)
            case "logistic":
                return torch.sigmoid(x)
            case "relu":
                return torch.relu(x)
            case "identity":
                return x

    def step(self, projected_BG: Tensor, before: Memory, U: Tensor | None = None) -> Memory:
        U = self.weight_hh if U is None else U
        if self.norm is None:
            return {"h": self.squash(projected_BG + F.linear(before["h"], U, self.bias_hh))}
        return {"h": self.squash(self.norm(projected_BG + F.linear(before["h"], U)) + self.bias_ih + self.bias_hh)}

    @property
    def unfused(self) -> str:
        if self.norm is not None:
            return "elman with layer norm"
        return "" if self.activation in ("tanh", "relu") else f"elman with activation {self.activation}"

    def run(self, x_BTI: Tensor, before: Memory, layout: Layout, U: Tensor | None = None) -> tuple[Tensor, Memory]:
        x_BTI = x_BTI.to(kernels.of_recurrence(x_BTI))
        weights = kernels.cast(self.weight_ih, self.weight_hh if U is None else U, self.bias_ih, self.bias_hh, x_BTI)
        out_BTD = kernels.elman(x_BTI, before["h"].to(x_BTI.dtype), weights, self.activation)
        return out_BTD, {"h": masks.last(out_BTD, layout)}


class Lstm(Gated):
    """c' = f⊙c + i⊙g, h' = o⊙tanh(c'); the forget gate's bias begins at 1 (Jozefowicz et al. 2015) or as given.

    Without its forget gate it is the constant error carousel of 1997, c' = c + i⊙g (with tanh for that paper's two
    squashers). Peepholes (Gers & Schmidhuber 2000), one weight a cell, show c to i and f and c' to o; they begin at 0.
    With layer norm (Ba et al. 2016, equations 20 to 22) the gates are LN(W x) + b + LN(U h) + b', each norm over all
    gates together, and h' = o⊙tanh(LN(c')); c' itself is carried on, and seen through peepholes, as it is.
    """

    states = ("h", "c")

    def __init__(self, input_width: int, width: int, variant: Variant = STANDARD) -> None:
        gates = 4 if variant.forget_gate else 3
        super().__init__(input_width, width, gates)
        self.forgets = variant.forget_gate
        if self.forgets:
            nn.init.constant_(self.bias_ih.data[width : 2 * width], variant.forget_bias)
        self.peephole = nn.Parameter(torch.zeros((gates - 1) * width)) if variant.peepholes else None
        self.normed = variant.layer_norm
        self.norm_ih = GateNorm([gates * width]) if variant.layer_norm else None
        self.norm_hh = GateNorm([gates * width]) if variant.layer_norm else None
        self.norm_c = nn.LayerNorm(width) if variant.layer_norm else None

    def step(self, projected_BG: Tensor, before: Memory, U: Tensor | None = None) -> Memory:
        c_BD = before["c"]
        U = self.weight_hh if U is None else U
        total_BG = projected_BG + affine(before["h"], U, self.bias_hh, self.norm_hh)
        *inner, g, o = total_BG.chunk(4 if self.forgets else 3, dim=-1)  # inner: i, and f where there is one
        peepholes = () if self.peephole is None else self.peephole.chunk(len(inner) + 1)
        if peepholes:
            inner = [gate + p * c_BD for gate, p in zip(inner, peepholes[:-1], strict=True)]
        i, *f = (gate.sigmoid() for gate in inner)
        c_BD = (f[0] * c_BD if f else c_BD) + i * g.tanh()
        if peepholes:
            o = o + peepholes[-1] * c_BD
        shown_BD = c_BD if self.norm_c is None else self.norm_c(c_BD)
        return {"h": o.sigmoid() * shown_BD.tanh(), "c": c_BD}

    @property
    def unfused(self) -> str:
        if self.normed:
            return "lstm with layer norm"
        return "" if self.peephole is None else "lstm with peepholes"

    def run(self, x_BTI: Tensor, before: Memory, layout: Layout, U: Tensor | None = None) -> tuple[Tensor, Memory]:
        valid = None if layout.even else masks.valid_BT(layout)
        x_BTI = x_BTI.to(kernels.of_recurrence(x_BTI))
        h_BD, c_BD = (before[name].to(x_BTI.dtype) for name in self.states)
        weights = kernels.cast(self.weight_ih, self.weight_hh if U is None else U, self.bias_ih, self.bias_hh, x_BTI)
        weights = weights if self.forgets else kernels.never_forgetting(weights)
        out_BTD, c_BD = kernels.lstm(x_BTI, h_BD, c_BD, weights, valid)
        return out_BTD, {"h": masks.last(out_BTD, layout), "c": c_BD}


class Gru(Gated):
    """h' = z⊙h + (1−z)⊙n with n = tanh(W x + b + r⊙(U h + b')): reset after the product, as in torch and cuDNN.

    Reset before the product: n = tanh(W x + b + U(r⊙h) + b') (Cho et al. 2014 as published, Chung et al. 2014).
    Polarity: z keeps the old state (Cho, torch) or lets the new one in, h' = (1−z)⊙h + z⊙n (Chung, Bahdanau).
    With layer norm (Ba et al. 2016, equations 23 to 26) LN stands around W x and around U h or U(r⊙h), in each over r
    and z together and over n by itself; the biases are added behind it.
    """

    states = ("h",)

    def __init__(self, input_width: int, width: int, variant: Variant = STANDARD) -> None:
        super().__init__(input_width, width, gates=3)
        self.reset: ResetPlace = variant.reset
        self.polarity: Polarity = variant.polarity
        self.normed = variant.layer_norm
        self.norm_ih = GateNorm([2 * width, width]) if variant.layer_norm else None
        self.norm_hh = GateNorm([2 * width, width]) if variant.layer_norm else None

    def step(self, projected_BG: Tensor, before: Memory, U: Tensor | None = None) -> Memory:
        h_BD, parts = before["h"], [2 * self.width, self.width]
        U = self.weight_hh if U is None else U
        x_rz, x_n = projected_BG.split_with_sizes(parts, dim=-1)
        if self.reset == "after":
            h_rz, h_n = affine(h_BD, U, self.bias_hh, self.norm_hh).split_with_sizes(parts, dim=-1)
            r, z = (x_rz + h_rz).sigmoid().chunk(2, dim=-1)
            n = (x_n + r * h_n).tanh()
        else:
            (U_rz, U_n), (b_rz, b_n) = U.split_with_sizes(parts), self.bias_hh.split_with_sizes(parts)
            norm = self.norm_hh
            h_rz = affine(h_BD, U_rz, b_rz, None if norm is None else lambda x: norm.of(0, x))
            r, z = (x_rz + h_rz).sigmoid().chunk(2, dim=-1)
            n = (x_n + affine(r * h_BD, U_n, b_n, None if norm is None else lambda x: norm.of(1, x))).tanh()
        return {"h": (1 - z) * n + z * h_BD if self.polarity == "keep" else (1 - z) * h_BD + z * n}

    @property
    def unfused(self) -> str:
        if self.normed:
            return "gru with layer norm"
        return "" if self.reset == "after" else f"gru with reset {self.reset}"

    def run(self, x_BTI: Tensor, before: Memory, layout: Layout, U: Tensor | None = None) -> tuple[Tensor, Memory]:
        x_BTI = x_BTI.to(kernels.of_recurrence(x_BTI))
        weights = kernels.cast(self.weight_ih, self.weight_hh if U is None else U, self.bias_ih, self.bias_hh, x_BTI)
        weights = weights if self.polarity == "keep" else kernels.with_z_turned(weights)
        out_BTD = kernels.gru(x_BTI, before["h"].to(x_BTI.dtype), weights)
        return out_BTD, {"h": masks.last(out_BTD, layout)}
