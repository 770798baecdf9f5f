"""Recurrent layers: Elman (1990), LSTM (Hochreiter & Schmidhuber 1997, Gers et al. 2000), GRU (Cho et al. 2014).

Each cell is written out in `step` as its equations; `run` is the fused twin over all steps. Weights are laid out as in
torch.nn (gate order i, f, g, o and r, z, n; two biases), so that they can be copied in either direction.
Shapes: B sentences, T steps, I input width, D hidden width, G gates × D.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn import kernels, masks
from saccade.nn.dropout import Dropout
from saccade.nn.watch import Watch
from saccade.types import Layout

Memory = dict[str, Tensor]  # a cell's state between steps: `h`, and `c` for the LSTM; each (B, D)
CellKind = Literal["elman", "lstm", "gru"]


class _Gated(nn.Module):
    """The weights every cell has."""

    def __init__(self, input_width: int, width: int, gates: int) -> None:
        super().__init__()
        self.width = width
        self.weight_ih = nn.Parameter(torch.empty(gates * width, input_width))
        self.weight_hh = nn.Parameter(torch.empty(gates * width, width))
        self.bias_ih = nn.Parameter(torch.zeros(gates * width))
        self.bias_hh = nn.Parameter(torch.zeros(gates * width))
        for weight in self.weight_ih.data.chunk(gates):
            nn.init.xavier_uniform_(weight)
        for weight in self.weight_hh.data.chunk(gates):
            nn.init.orthogonal_(weight)  # keeps the norm of what is carried from step to step (Saxe et al. 2014)

    def project(self, x: Tensor) -> Tensor:
        """The part of the gates that needs no state: W x + b, for any leading dimensions."""
        return F.linear(x, self.weight_ih, self.bias_ih)

    def weights(self, dtype: torch.dtype) -> kernels.Weights:
        return (
            self.weight_ih.to(dtype),
            self.weight_hh.to(dtype),
            self.bias_ih.to(dtype),
            self.bias_hh.to(dtype),
        )


class Elman(_Gated):
    """h' = φ(W x + b + U h + b')."""

    states = ("h",)

    def __init__(self, input_width: int, width: int, activation: Literal["tanh", "relu"] = "tanh") -> None:
        super().__init__(input_width, width, gates=1)
        self.activation: Literal["tanh", "relu"] = activation

    def step(self, projected_BG: Tensor, before: Memory) -> Memory:
        total_BD = projected_BG + F.linear(before["h"], self.weight_hh, self.bias_hh)
        return {"h": torch.tanh(total_BD) if self.activation == "tanh" else torch.relu(total_BD)}

    def run(self, x_BTI: Tensor, before: Memory, layout: Layout) -> tuple[Tensor, Memory]:
        x_BTI = x_BTI.to(kernels.of_recurrence(x_BTI))
        h_BD = before["h"].to(x_BTI.dtype)
        out_BTD = kernels.elman(x_BTI, h_BD, self.weights(x_BTI.dtype), self.activation)
        return out_BTD, {"h": masks.last(out_BTD, layout)}


class Lstm(_Gated):
    """c' = f⊙c + i⊙g, h' = o⊙tanh(c'); the forget gate's bias begins at 1 (Jozefowicz et al. 2015)."""

    states = ("h", "c")

    def __init__(self, input_width: int, width: int, forget_bias: float = 1.0) -> None:
        super().__init__(input_width, width, gates=4)
        nn.init.constant_(self.bias_ih.data[width : 2 * width], forget_bias)

    def step(self, projected_BG: Tensor, before: Memory) -> Memory:
        total_BG = projected_BG + F.linear(before["h"], self.weight_hh, self.bias_hh)
        i, f, g, o = total_BG.chunk(4, dim=-1)
        c_BD = f.sigmoid() * before["c"] + i.sigmoid() * g.tanh()
        return {"h": o.sigmoid() * c_BD.tanh(), "c": c_BD}

    def run(self, x_BTI: Tensor, before: Memory, layout: Layout) -> tuple[Tensor, Memory]:
        valid = None if layout.even else masks.valid_BT(layout)
        x_BTI = x_BTI.to(kernels.of_recurrence(x_BTI))
        h_BD, c_BD = (before[name].to(x_BTI.dtype) for name in self.states)
        out_BTD, c_BD = kernels.lstm(x_BTI, h_BD, c_BD, self.weights(x_BTI.dtype), valid)
        return out_BTD, {"h": masks.last(out_BTD, layout), "c": c_BD}


class Gru(_Gated):
    """h' = (1−z)⊙n + z⊙h with n = tanh(W x + b + r⊙(U h + b')): reset after the product, as in torch and cuDNN."""

    states = ("h",)

    def __init__(self, input_width: int, width: int) -> None:
        super().__init__(input_width, width, gates=3)

    def step(self, projected_BG: Tensor, before: Memory) -> Memory:
        x_r, x_z, x_n = projected_BG.chunk(3, dim=-1)
        h_r, h_z, h_n = F.linear(before["h"], self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
        n = (x_n + r * h_n).tanh()
        return {"h": (1 - z) * n + z * before["h"]}

    def run(self, x_BTI: Tensor, before: Memory, layout: Layout) -> tuple[Tensor, Memory]:
        x_BTI = x_BTI.to(kernels.of_recurrence(x_BTI))
        out_BTD = kernels.gru(x_BTI, before["h"].to(x_BTI.dtype), self.weights(x_BTI.dtype))
        return out_BTD, {"h": masks.last(out_BTD, layout)}


Cell = Elman | Lstm | Gru  # one direction of one layer


def make_cell(kind: CellKind, input_width: int, width: int) -> Cell:
    match kind:
        case "elman":
            return Elman(input_width, width)
        case "lstm":
            return Lstm(input_width, width)
        case "gru":
            return Gru(input_width, width)


def run_readable(
    cell: Cell, x_BTI: Tensor, before: Memory, layout: Layout, watch: Watch | None = None
) -> tuple[Tensor, Memory]:
    """`cell.run` as a plain loop over `cell.step`; on padding the state is kept."""
    valid = masks.valid_BT(layout)
    memory, steps = before, []
    for t, projected_BG in enumerate(cell.project(x_BTI).unbind(1)):
        after = cell.step(projected_BG, memory)
        memory = {name: torch.where(valid[:, t, None], after[name], memory[name]) for name in cell.states}
        steps.append(memory)
    traces = {name: torch.stack([memory[name] for memory in steps], dim=1) for name in cell.states}
    if watch is not None:
        for name, values_BTD in traces.items():
            watch.saw_states(name, values_BTD)
    return traces["h"], memory


def no_memory(cell: Cell, like: Tensor) -> Memory:
    return {name: like.new_zeros(len(like), cell.width) for name in cell.states}


class RecurrentLayers(nn.Module):
    """A stack of layers, each in one direction or both; dropout between layers, never on the recurrent path.

    `width` is the width of each layer's output: with two directions each has half of it.
    """

    def __init__(
        self, kind: CellKind, input_width: int, width: int, layers: int, *, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        each = width // 2 if bidirectional else width
        widths = [input_width] + [width] * (layers - 1)
        self.forwards = nn.ModuleList(make_cell(kind, wide, each) for wide in widths)
        self.backwards = nn.ModuleList(make_cell(kind, wide, each) for wide in widths if bidirectional)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, layout: Layout, before: tuple[Memory, ...] | None = None, watch: Watch | None = None
    ) -> tuple[Tensor, tuple[Memory, ...]]:
        """Outputs of the top layer, laid out as `x`, and each layer's state at the sentence's end."""
        x_BTD = masks.pad(x, layout)
        finals: list[Memory] = []
        for level, cell in enumerate(_cells(self.forwards)):
            x_BTD = self.dropout(x_BTD) if level else x_BTD
            start = before[level] if before else no_memory(cell, x_BTD)
            out_BTD, final = _run(cell, x_BTD, start, layout, watch)
            if self.backwards:
                mirrored = masks.reverse(x_BTD, layout)
                back = _cells(self.backwards)[level]
                back_BTD, back_final = _run(back, mirrored, no_memory(back, x_BTD), layout, watch)
                out_BTD = torch.cat([out_BTD, masks.reverse(back_BTD, layout)], dim=-1)
                final = {name: torch.cat([final[name], back_final[name]], dim=-1) for name in final}
            x_BTD = out_BTD
            finals.append(final)
        return masks.pack(x_BTD, layout), tuple(finals)

    def step(self, projected_BG: Tensor, before: tuple[Memory, ...]) -> tuple[Tensor, tuple[Memory, ...]]:
        """One step of every layer (forwards alone), given W x + b of the first: the top output and the new state."""
        after: list[Memory] = []
        for level, cell in enumerate(_cells(self.forwards)):
            if level:
                projected_BG = cell.project(self.dropout(after[-1]["h"]))
            after.append(cell.step(projected_BG, before[level]))
        return after[-1]["h"], tuple(after)

    @property
    def first(self) -> Cell:
        return _cells(self.forwards)[0]


def _cells(modules: nn.ModuleList) -> list[Cell]:
    return [module for module in modules if isinstance(module, Cell)]


def _run(cell: Cell, x_BTD: Tensor, before: Memory, layout: Layout, watch: Watch | None) -> tuple[Tensor, Memory]:
    return cell.run(x_BTD, before, layout) if watch is None else run_readable(cell, x_BTD, before, layout, watch)
