"""Attention as a still picture: one matrix, or every layer and head side by side. Rows look at columns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.errors import UsageError
from saccade.types import Trace
from saccade.view.files import write_atomically
from saccade.view.matrix import Attention, Gold, Head, Kind, attention_of, check_gold, one_matrix
from saccade.view.palette import GOLD, LIGHT, ramp
from saccade.view.sheet import INK, Box, Room, compose, encode, fonts, new_figure, room_for_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LONGEST_LABEL = 24


def save_png(
    trace: Trace,
    path: Path | str,
    *,
    kind: Kind = "cross",
    layer: int = -1,
    head: Head = "mean",
    gold: Gold | None = None,
) -> None:
    """One attention matrix: rows are who looks, columns where to, colours from 0 to 1; `gold` is outlined."""
    write_atomically(Path(path), encode(draw_matrix(trace, kind=kind, layer=layer, head=head, gold=gold)))


def save_grid_png(trace: Trace, path: Path | str, *, kind: Kind = "cross") -> None:
    """Every layer (a row of pictures) and head (a column of pictures) of one kind of attention."""
    write_atomically(Path(path), encode(draw_grid(trace, kind=kind)))


def draw_matrix(
    trace: Trace, *, kind: Kind = "cross", layer: int = -1, head: Head = "mean", gold: Gold | None = None
) -> "Figure":
    """The figure of `save_png`; its first axes hold the cells, the centre of cell (q, k) at x = k, y = q."""
    attention = attention_of(trace, kind)
    weights_QK, place = one_matrix(attention, layer, head)
    if gold is not None:
        if kind != "cross":
            raise UsageError(f"gold: an alignment belongs to cross-attention; got kind={kind!r}. Leave gold out.")
        check_gold(gold, trace)
    figure = new_figure()
    axes = figure.add_axes((0, 0, 1, 1))
    image = _cells(axes, weights_QK)
    rows, columns = weights_QK.shape
    # Roomy for a short sentence, never too small to read the label beside it.
    cell = float(np.clip(6.5 / max(rows, columns), 0.2, 0.42))
    _label_tokens(axes, attention, font_size=min(10.5, cell * 72 * 0.62))
    if gold is not None:
        _outline(axes, gold, line_width=max(1.0, 4.5 * cell))
    box = Box(0.0, 0.0, columns * cell, rows * cell)
    room = room_for_labels(figure, axes, box.width, box.height)
    detail = f"{attention.name}, {place}" + (", outlined: known alignment" if gold is not None else "")
    compose(figure, [(axes, box)], room, image, title=trace.title, detail=detail[0].upper() + detail[1:])
    return figure


def draw_grid(trace: Trace, *, kind: Kind = "cross") -> "Figure":
    """The figure of `save_grid_png`; its first axes are the heads of layer 1, then those of layer 2, and so on."""
    attention = attention_of(trace, kind)
    layers, heads, rows, columns = attention.weights_LHQK.shape
    side = float(np.clip(12 / heads, 1.0, 2.4))  # the longer side of one picture
    # 120 tokens against 3 make a strip, not a hair.
    width, height = (max(0.25, n / max(rows, columns)) * side for n in (columns, rows))
    gap, placed = 0.14, []
    figure = new_figure()
    for layer in range(layers):
        for head in range(heads):
            axes = figure.add_axes((0, 0, 1, 1), label=f"{layer},{head}")
            image = _cells(axes, attention.weights_LHQK[layer, head])
            axes.set(xticks=[], yticks=[])
            if layer == 0:
                axes.set_title(f"head {head + 1}", fontsize=9, color=INK, pad=5)
            if head == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=9, color=INK, labelpad=6)
            placed.append((axes, Box(head * (width + gap), layer * (height + gap), width, height)))
    detail = f"{attention.name}, every layer and head; rows look at columns"
    room = Room(left=0.3, top=0.27, right=0.0)
    compose(figure, placed, room, image, title=trace.title, detail=detail[0].upper() + detail[1:])
    return figure


def _cells(axes: "Axes", weights_QK: np.ndarray[Any, Any]) -> Any:
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(ramp(LIGHT) / 255.0)
    image = axes.imshow(weights_QK, cmap=colours, vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    for side in axes.spines.values():
        side.set(color="#c9d1d9", linewidth=0.8)
    return image


def _label_tokens(axes: "Axes", attention: Attention, font_size: float) -> None:
    rows, columns = attention.rows, attention.columns
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), [_shortened(token) for token in columns])
    axes.set_yticks(range(len(rows)), [_shortened(token) for token in rows])
    axes.set_xticks(np.arange(0.5, len(columns) - 1), minor=True)
    axes.set_yticks(np.arange(0.5, len(rows) - 1), minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)  # a thin gap, so that cells can be counted
    axes.tick_params(which="both", length=0, pad=4)
    slanted = max(map(len, columns)) > 2
    family = fonts()
    for label in axes.get_xticklabels():
        label.set(rotation=45 if slanted else 0, ha="left" if slanted else "center", rotation_mode="anchor")
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        # A dollar sign in a token does not begin a formula.
        label.set(fontsize=font_size, color=INK, family=family, parse_math=False)


def _outline(axes: "Axes", gold: Gold, line_width: float) -> None:
    from matplotlib.patches import Rectangle

    inset = 0.05  # inside the cell, so that the outlines of neighbours stay apart
    for t, positions in enumerate(gold):
        for s in sorted(set(positions)):
            corner, size = (s - 0.5 + inset, t - 0.5 + inset), 1 - 2 * inset
            axes.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=GOLD, linewidth=line_width))


def _shortened(token: str) -> str:
    return token if len(token) <= _LONGEST_LABEL else token[: _LONGEST_LABEL - 1] + "…"
