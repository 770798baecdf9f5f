"""What searches of many widths find, as curves: a metric, length, search errors and log-probability over the beam."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.errors import UsageError
from saccade.view.files import write_atomically
from saccade.view.sheet import FAINT, INK, encode, fonts, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): told apart by every eye; and each has a mark of its own.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class SearchCurve:
    """One length rule: a value for each beam, and behind them that of exact search."""

    name: str
    metric: Sequence[float]
    length_ratio: Sequence[float]
    log_probability: Sequence[float]
    errors: Sequence[float] | None
    """In percent of the lines whose mode is proved; None where none is. Exact search has none, by definition."""
    proved: float
    """The share of lines whose mode is proved; where it is less than 1, exact search is drawn hollow."""


def save_search_png(
    curves: Sequence[SearchCurve], beams: Sequence[int], path: Path | str, *, metric: str, title: str, detail: str
) -> None:
    figure = draw_search(curves, beams, metric=metric, title=title, detail=detail)
    write_atomically(Path(path), encode(figure))


def draw_search(
    curves: Sequence[SearchCurve], beams: Sequence[int], *, metric: str, title: str, detail: str
) -> "Figure":
    """Four panels over one axis: the beams, evenly spaced, and exact search set apart behind them."""
    if not curves or any(len(curve.metric) != len(beams) + 1 for curve in curves):
        raise UsageError(
            "curves: there must be one at least, each with a value for every beam and one for exact search."
        )
    if len(curves) > len(_COLOURS):
        raise UsageError(f"curves: at most {len(_COLOURS)} can be told apart; got {len(curves)}.")
    figure = new_figure()
    figure.set_size_inches(9.0, 6.9)
    panels = figure.subplots(2, 2)
    figure.subplots_adjust(left=0.085, right=0.975, top=0.8, bottom=0.075, hspace=0.36, wspace=0.24)
    told: list[tuple[str, list[Sequence[float] | None]]] = [
        (metric, [curve.metric for curve in curves]),
        ("length of outputs ÷ references", [curve.length_ratio for curve in curves]),
        ("search errors, % of proved modes", [curve.errors for curve in curves]),
        ("mean log-probability of an output", [curve.log_probability for curve in curves]),
    ]
    for axes, (name, values) in zip(panels.flat, told, strict=True):
        _panel(axes, name, curves, values, beams)
    panels.flat[1].axhline(1.0, color="#c9d1d9", linewidth=1, zorder=0)
    most = max([5.0, *(value for curve in curves for value in curve.errors or ())])
    panels.flat[2].set_ylim(-0.04 * most, 1.06 * most)
    handles, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="upper left", bbox_to_anchor=(0.078, 0.895), ncols=len(curves), frameon=False,
        prop={"family": fonts(), "size": 9}, labelcolor=INK, handletextpad=0.5, columnspacing=1.6,
    )  # fmt: skip
    for y, text, size, weight, colour in ((0.975, title, 12, "bold", INK), (0.93, detail, 9, "normal", FAINT)):
        figure.text(
            0.085, y, text, fontsize=size, fontweight=weight, color=colour, va="top", family=fonts(), parse_math=False
        )
    return figure


def _panel(
    axes: "Axes",
    name: str,
    curves: Sequence[SearchCurve],
    values: Sequence[Sequence[float] | None],
    beams: Sequence[int],
) -> None:
    places, exact = list(range(len(beams))), len(beams) + 0.4
    for number, (curve, each) in enumerate(zip(curves, values, strict=True)):
        colour, mark = _COLOURS[number], _MARKS[number]
        drawn = [float("nan")] * len(beams) if each is None else list(each[: len(beams)])
        size = 4.5 + 1.5 * (len(curves) - 1 - number)  # where curves lie on each other, each mark is still seen
        axes.plot(places, drawn, color=colour, marker=mark, markersize=size, linewidth=1.6, label=curve.name, alpha=0.9)
        if each is not None and len(each) > len(beams):
            axes.plot([places[-1], exact], [drawn[-1], each[-1]], color=colour, linewidth=1, linestyle=":", alpha=0.9)
            inside = colour if curve.proved == 1.0 else "white"
            axes.plot([exact], [each[-1]], color=colour, marker=mark, markersize=size + 1.5, markerfacecolor=inside)
    axes.set_title(name, fontsize=10, color=INK, loc="left", family=fonts(), pad=6)
    axes.set_xticks([*places, exact], [*map(str, beams), "exact"])
    axes.set_xlim(-0.3, exact + 0.3)
    axes.set_xlabel("beam", fontsize=8.5, color=FAINT, family=fonts())
    axes.tick_params(labelsize=8.5, labelcolor=FAINT, length=0, labelfontfamily="DejaVu Sans")
    axes.grid(axis="y", color="#e6eaee", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c9d1d9")
