"""Recurrent layers on one another, in one direction or both, over sentences of unequal length.

Shapes: B sentences, T steps, I input width, D hidden width, G gates × D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn import masks
from saccade.nn.cells import STANDARD, Elman, Gru, Lstm, Memory, Variant
from saccade.nn.dropout import Dropout
from saccade.nn.locked import LockedDropout
from saccade.nn.lstmn import Lstmn, Source
from saccade.nn.watch import Watch
from saccade.types import Layout

CellKind = Literal["elman", "lstm", "gru", "lstmn"]
StackKind = Literal["plain", "residual", "dense"]
Cell = Elman | Lstm | Gru | Lstmn  # one direction of one layer

TAPES = ("tape", "keys")  # states that a step writes into at one place, instead of replacing them


def make_cell(
    kind: CellKind, input_width: int, width: int, variant: Variant = STANDARD, source_width: int | None = None
) -> Cell:
    match kind:
        case "elman":
            return Elman(input_width, width, variant)
        case "lstm":
            return Lstm(input_width, width, variant)
        case "gru":
            return Gru(input_width, width, variant)
        case "lstmn":
            return Lstmn(input_width, width, variant, source_width)


def no_memory(cell: Cell, like: Tensor) -> Memory:
    """The state to begin with where none is given: zeros."""
    return {name: like.new_zeros(len(like), cell.width) for name in cell.states}


def opened(cell: Cell, memory: Memory, steps: int) -> Memory:
    """A state with room for so many steps, where the cell keeps them all."""
    return cell.open(memory, steps) if isinstance(cell, Lstmn) else memory


@dataclass(frozen=True)
class Held:
    """What a cell has the same at all steps of a pass."""

    U: Tensor
    """Its recurrent weights; with weight dropout, what is left of them."""
    source: Source | None = None
    """What deep fusion reads."""
    looks: Watch | None = None
    """Where attention inside the cell is noted, a step at a time."""


@dataclass(frozen=True)
class Pass:
    """What is the same at all steps of a pass through the layers: drawn by chance in training, or given."""

    between: tuple[Tensor | None, ...]
    """With locked dropout, the mask (B, D) of what goes into each layer from below."""
    forwards: tuple[Held, ...]
    backwards: tuple[Held, ...]
    of_rest: Tensor | None = None
    """Weights of that part of the input which is known only step by step."""


def step_of(cell: Cell, projected_BG: Tensor, before: Memory, held: Held) -> Memory:
    match cell:
        case Lstmn():
            return cell.step(projected_BG, before, held.U, held.source, held.looks)
        case _:
            return cell.step(projected_BG, before, held.U)


class Ran(NamedTuple):
    """One cell over all steps."""

    out_BTD: Tensor
    final: Memory
    cells_BTD: Tensor | None = None
    """`c` at every step, where it is known."""


def run_readable(
    cell: Cell,
    x_BTI: Tensor,
    before: Memory,
    layout: Layout,
    watch: Watch | None = None,
    held: Held | None = None,
) -> Ran:
    """`cell.run` as a plain loop over `cell.step`; on padding the state is kept."""
    valid = masks.valid_BT(layout)
    held = Held(cell.weight_hh) if held is None else held
    memory, steps = before, []
    for t, projected_BG in enumerate(cell.project(x_BTI).unbind(1)):
        after = step_of(cell, projected_BG, memory, held)
        memory = {
            name: new if name in TAPES else torch.where(valid[:, t, None], new, memory[name])
            for name, new in after.items()
        }
        steps.append(memory)
    traces = {name: torch.stack([memory[name] for memory in steps], dim=1) for name in cell.states}
    if watch is not None:
        for name, values_BTD in traces.items():
            watch.saw_states(name, values_BTD)
    return Ran(traces["h"], memory, traces.get("c"))


def run(cell: Cell, x_BTI: Tensor, before: Memory, layout: Layout, watch: Watch | None, held: Held) -> Ran:
    """By the fused twin where there is one and nobody looks."""
    if watch is None and not isinstance(cell, Lstmn) and cell.fused:
        return Ran(*cell.run(x_BTI, before, layout, held.U))
    return run_readable(cell, x_BTI, before, layout, watch, held)


class Walked(NamedTuple):
    """All layers over all steps."""

    out: Tensor
    """Of the top layer, laid out as the input."""
    finals: tuple[Memory, ...]
    """Each layer's state at the sentence's end."""
    cells_BTD: Tensor | None
    """The top layer's `c` at every step, where it is known: not by the fused kernels."""


class RecurrentLayers(nn.Module):
    """A stack of layers, each in one direction or both; dropout between layers, never on the recurrent path.

    `width` is the width of each layer's output: with two directions each has half of it. With x¹ the input and hˡ what
    layer l makes of Drop(xˡ), the next layer reads, and the top one hands out:
    plain xˡ⁺¹ = hˡ; residual xˡ⁺¹ = hˡ + xˡ; dense xˡ⁺¹ = hˡ + x¹ + … + xˡ (Res and ResD of Britz et al. 2017). As in
    their code, an input of another width than the layers' is mapped to it first, where it is part of a sum.

    `locked`: the dropout between layers is the same at every step. `weight_dropout`: DropConnect (Merity et al. 2018),
    a part of U is 0 for a whole pass. `source_width`: deep fusion of LSTMN layers with a source of that width.
    `last_width`: that of the top layer, where it is another one, which no sum of layers allows.
    """

    def __init__(
        self,
        kind: CellKind,
        input_width: int,
        width: int,
        layers: int,
        *,
        bidirectional: bool,
        dropout: float,
        variant: Variant = STANDARD,
        stack: StackKind = "plain",
        locked: bool = False,
        weight_dropout: float = 0.0,
        source_width: int | None = None,
        last_width: int | None = None,
        role: Literal["encoder", "decoder"] = "encoder",
    ) -> None:
        super().__init__()
        self.stack: StackKind = stack
        self.role = role
        self.enter = nn.Linear(input_width, width) if stack != "plain" and input_width != width else None
        outs = [width] * (layers - 1) + [width if last_width is None else last_width]
        first = input_width if self.enter is None else width

        def direction() -> nn.ModuleList:
            ways = 2 if bidirectional else 1
            pairs = zip([first, *outs[:-1]], outs, strict=True)
            return nn.ModuleList(make_cell(kind, wide, out // ways, variant, source_width) for wide, out in pairs)

        self.forwards = direction()
        self.backwards = direction() if bidirectional else nn.ModuleList()
        self.dropout = Dropout(0.0 if locked else dropout)
        self.locked = LockedDropout(dropout if locked else 0.0)
        self.weight_dropout = Dropout(weight_dropout)

    @property
    def first(self) -> Cell:
        return _cells(self.forwards)[0]

    @property
    def levels(self) -> list[list[nn.Module]]:
        """Layer by layer from the bottom, its cells of either direction."""
        both = [list(cells) for cells in (self.forwards, self.backwards) if len(cells)]
        layers: list[list[nn.Module]] = [list(cells) for cells in zip(*both, strict=True)]
        if self.enter is not None:
            layers[0].append(self.enter)
        return layers

    @property
    def fused(self) -> bool:
        """Whether torch has kernels for these cells; else they run step by step."""
        return self.first.fused

    def without_twin(self, device: torch.device) -> list[str]:
        """What torch fuses it fuses everywhere."""
        return [] if self.fused else [f"{self.first.unfused} runs step by step"]

    def prepare(self, memory_BSE: Tensor, cells_BSE: Tensor, layout: Layout) -> tuple[Source, ...]:
        """What deep fusion reads of the source, layer by layer."""
        readers = [cell.source for cell in _cells(self.forwards) if isinstance(cell, Lstmn)]
        return tuple(reader.prepare(memory_BSE, cells_BSE, layout) for reader in readers if reader is not None)

    def nothing_yet(self, like: Tensor) -> tuple[Memory, ...]:
        """The state to begin with where none is given, for as many rows as `like` has."""
        return tuple(no_memory(cell, like) for cell in _cells(self.forwards))

    def open(self, before: Sequence[Memory], steps: int) -> tuple[Memory, ...]:
        """The state to begin with, with room for so many steps where a layer keeps them all."""
        pairs = zip(_cells(self.forwards), before, strict=True)
        return tuple(opened(cell, memory, steps) for cell, memory in pairs)

    def begin(self, like: Tensor, source: Sequence[Source] = (), *, watching: bool = False) -> Pass:
        """Draw what is drawn once a pass; `like` is the input, or that part of it which is known at once."""
        width = self.first.width * (2 if self.backwards else 1)
        levels = range(len(self.forwards))

        def held(modules: nn.ModuleList) -> tuple[Held, ...]:
            return tuple(
                Held(
                    self.weight_dropout(cell.weight_hh),
                    source[level] if source else None,
                    Watch() if watching else None,
                )
                for level, cell in enumerate(_cells(modules))
            )

        between = tuple(self.locked.mask_BD(width, like) if level else None for level in levels)
        weight, known = self._entrance(), like.shape[-1]
        of_rest = weight[:, known:] if known < weight.shape[1] else None
        return Pass(between, held(self.forwards), held(self.backwards), of_rest)

    def _entrance(self) -> Tensor:
        return self.first.weight_ih if self.enter is None else self.enter.weight

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        before: Sequence[Memory] = (),
        watch: Watch | None = None,
        source: Sequence[Source] = (),
    ) -> tuple[Tensor, tuple[Memory, ...]]:
        """Outputs of the top layer, laid out as `x`, and each layer's state at the sentence's end."""
        walked = self.walk(x, layout, before, watch, source)
        return walked.out, walked.finals

    def walk(
        self,
        x: Tensor,
        layout: Layout,
        before: Sequence[Memory] = (),
        watch: Watch | None = None,
        source: Sequence[Source] = (),
    ) -> Walked:
        x_BTD = masks.pad(x, layout)
        during = self.begin(x_BTD, source, watching=watch is not None)
        x_BTD = x_BTD if self.enter is None else self.enter(x_BTD)
        skip_BTD, finals, cells_BTD = x_BTD, [], None
        for level in range(len(self.forwards)):
            given = before[level] if before else None
            out_BTD, final, cells_BTD = self._layer(
                level, self._dropped(x_BTD, level, during), given, layout, watch, during
            )
            x_BTD, skip_BTD = self._above(out_BTD, skip_BTD)
            finals.append(final)
        if watch is not None:
            self.note(during, watch, layout)
        return Walked(masks.pack(x_BTD, layout), tuple(finals), cells_BTD)

    def _layer(
        self,
        level: int,
        x_BTD: Tensor,
        before: Memory | None,
        layout: Layout,
        watch: Watch | None,
        during: Pass,
    ) -> Ran:
        """One layer, the outputs and final states of its directions side by side."""

        def direction(cell: Cell, x_BTD: Tensor, before: Memory | None, held: Held) -> Ran:
            start = opened(cell, no_memory(cell, x_BTD), layout.longest) if before is None else before
            return run(cell, x_BTD, start, layout, watch, held)

        ahead = direction(_cells(self.forwards)[level], x_BTD, before, during.forwards[level])
        if not self.backwards:
            return ahead
        cell = _cells(self.backwards)[level]
        back = direction(cell, masks.reverse(x_BTD, layout), None, during.backwards[level])
        both_c = None
        if ahead.cells_BTD is not None and back.cells_BTD is not None:
            both_c = torch.cat([ahead.cells_BTD, masks.reverse(back.cells_BTD, layout)], dim=-1)
        return Ran(
            torch.cat([ahead.out_BTD, masks.reverse(back.out_BTD, layout)], dim=-1),
            {name: torch.cat([ahead.final[name], back.final[name]], dim=-1) for name in cell.states},
            both_c,
        )

    def hoist(self, x: Tensor) -> Tensor:
        """What can be made for all steps at once of the input x, or of x in [x; rest] whose rest comes step by step."""
        if self.enter is not None:
            return F.linear(x, self.enter.weight[:, : x.shape[-1]], self.enter.bias)
        return self.first.partial(x) if self.stack == "plain" else x

    def step(
        self, hoisted: Tensor, before: Sequence[Memory], rest: Tensor | None = None, during: Pass | None = None
    ) -> tuple[Tensor, tuple[Memory, ...]]:
        """One step of every layer (forwards alone), given `hoist` of its input: the top output and the new state.

        Several steps of one pass share what `begin` gave.
        """
        if during is None:
            known = self._entrance().shape[1] - (0 if rest is None else rest.shape[-1])
            during = self.begin(hoisted.new_empty(len(hoisted), known))
        x_BD = hoisted
        if rest is not None and during.of_rest is not None:
            x_BD = x_BD + F.linear(rest, during.of_rest)
        skip_BD, after = x_BD, list[Memory]()
        for level, cell in enumerate(_cells(self.forwards)):
            if level == 0 and self.stack == "plain":
                projected_BG = cell.complete(x_BD)
            else:
                projected_BG = cell.project(self._dropped(x_BD, level, during))
            after.append(step_of(cell, projected_BG, before[level], during.forwards[level]))
            x_BD, skip_BD = self._above(after[-1]["h"], skip_BD)
        return x_BD, tuple(after)

    def note(self, during: Pass, watch: Watch, layout: Layout) -> None:
        """Attention inside the cells over a whole pass, from a note a step: the two directions are two heads.

        Of a tape, column j is the state before token j was read (from the other end: behind it).
        """
        for level, ahead in enumerate(during.forwards):
            assert ahead.looks is not None  # begun with `watching`
            if "source" in ahead.looks.attention:
                watch.saw_attention("cross", torch.cat(ahead.looks.attention["source"], dim=2))
            if "tape" not in ahead.looks.attention:
                continue
            heads = [_tape_weights(ahead, layout)]
            if self.backwards:
                mirrored_BTT = masks.reverse(_tape_weights(during.backwards[level], layout), layout)
                heads.append(masks.reverse(mirrored_BTT.transpose(1, 2), layout).transpose(1, 2))
            watch.saw_attention(self.role, torch.stack(heads, dim=1))

    def _dropped(self, x: Tensor, level: int, during: Pass) -> Tensor:
        """What layer `level` reads; what goes into the lowest is dropped, if at all, by whoever made it."""
        if level == 0:
            return x
        mask_BD = during.between[level]
        if mask_BD is not None:
            return x * (mask_BD if x.ndim == 2 else mask_BD[:, None])
        dropped: Tensor = self.dropout(x)
        return dropped

    def _above(self, out: Tensor, skip: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer above reads, and what its own output will be added to."""
        match self.stack:
            case "plain":
                return out, out
            case "residual":
                above = out + skip
                return above, above
            case "dense":
                above = out + skip
                return above, skip + above


def _cells(modules: nn.ModuleList) -> list[Cell]:
    return [module for module in modules if isinstance(module, Cell)]


def _tape_weights(held: Held, layout: Layout) -> Tensor:
    """(B, T, T) of a whole pass; on padding as at the last token, since the state is kept there."""
    assert held.looks is not None
    weights_BTM = torch.cat(held.looks.attention["tape"], dim=2)[:, 0]
    steps = weights_BTM.shape[1]
    weights_BTT = weights_BTM[:, :, :steps]  # what the last step writes is never read
    place_T = torch.arange(steps, device=weights_BTT.device)
    at_BT = torch.minimum(place_T, (layout.lengths_B - 1).clamp(min=0)[:, None])
    return weights_BTT.gather(1, at_BT[:, :, None].expand_as(weights_BTT))
