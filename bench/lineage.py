"""A row as a picture: the score of every setting against the year of its paper, and against what its training costs.

python -m bench.lineage ROW [--results docs/results] [--out docs/pictures/lineage-ROW.png]
"""

import argparse
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ledger import Ledger
from bench.results_page import minutes_alone
from bench.row import read_row
from saccade.view.files import write_atomically
from saccade.view.sheet import FAINT, INK, encode, fonts, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): a colour for each year, told apart by every eye.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_RULE = "#e6eaee"


@dataclass(frozen=True)
class Rung:
    """One setting: its score with every seed, and the minutes of its training with the machine to itself."""

    name: str
    year: int
    scores: tuple[float, ...]
    minutes: float | None

    @property
    def mean(self) -> float:
        return statistics.mean(self.scores)


def rungs(ledger: Ledger) -> tuple[str, list[Rung]]:
    """The name of the first metric, and every setting that has been trained and has a year, oldest first."""
    found, metric = [], ""
    for setting in ledger.row.settings:
        runs = ledger.runs(setting)
        if runs and setting.year:
            alone = ledger.alone(setting)
            minutes = minutes_alone(runs, alone["target_tokens_per_second"]) if alone else None
            metric = runs[0]["scores"][0]["name"]
            scores = tuple(run["scores"][0]["value"] for run in runs)
            found.append(Rung(setting.name, setting.year, scores, minutes))
    for ensemble in ledger.row.ensembles:
        if (runs := ledger.joint_runs(ensemble)) and ensemble.year:
            costs = [rung.minutes for rung in found if rung.name in ensemble.members]
            known = [cost for cost in costs if cost is not None]
            minutes = sum(known) if len(known) == len(ensemble.members) else None
            scores = tuple(run["scores"][0]["value"] for run in runs)
            found.append(Rung(ensemble.name, ensemble.year, scores, minutes))
    return metric, sorted(found, key=lambda rung: rung.year)


def draw(found: list[Rung], *, metric: str, title: str) -> "Figure":
    """Left: a line for each setting, oldest above, a dot for each seed. Right: the numbered settings over cost.

    Where no cost is known, the left alone.
    """
    figure = new_figure()
    height = 1.75 + 0.27 * len(found)
    figure.set_size_inches(11.0, height)
    priced = [rung for rung in found if rung.minutes is not None]
    left, *right = figure.subplots(1, 2 if priced else 1, squeeze=False)[0]
    years = sorted({rung.year for rung in found})
    colours = {year: _COLOURS[place % len(_COLOURS)] for place, year in enumerate(years)}
    _ladder(left, found, colours, metric)
    for axes in right:
        _costs(axes, found, colours, metric)
    names = max(label.get_window_extent().width for label in left.get_yticklabels()) / figure.dpi  # inches
    margin = max(0.31, (names + 0.35) / 11.0)
    figure.subplots_adjust(left=margin, right=0.975, top=1 - 0.85 / height, bottom=0.62 / height, wspace=0.16)
    for axes in right:
        _number(axes, found, colours)
    seeds = sorted({len(rung.scores) for rung in found})
    told = f"{metric}; small dots are seeds ({' or '.join(map(str, seeds))} each), large ones their mean."
    for inches, text, size, weight, colour in ((0.2, title, 12, "bold", INK), (0.45, told, 9, "normal", FAINT)):
        figure.text(
            0.02, 1 - inches / height, text, fontsize=size, fontweight=weight, color=colour, va="top",
            family=fonts(), parse_math=False,
        )  # fmt: skip
    return figure


def _ladder(axes: "Axes", found: list[Rung], colours: dict[int, str], metric: str) -> None:
    for place, rung in enumerate(found):
        colour = colours[rung.year]
        axes.plot(rung.scores, [place] * len(rung.scores), "o", color=colour, markersize=3.5, alpha=0.5)
        axes.plot([rung.mean], [place], "o", color=colour, markersize=7)
    numbers = [str(number).rjust(2, "\u2007") for number in range(1, len(found) + 1)]  # a space as wide as a digit
    names = [f"{rung.name}   {rung.year}   {number}" for rung, number in zip(found, numbers, strict=True)]
    axes.set_yticks(range(len(found)), names)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlabel(metric, fontsize=8.5, color=FAINT, family=fonts())
    _plain(axes)
    axes.grid(axis="both", color=_RULE, linewidth=0.8)


def _costs(axes: "Axes", found: list[Rung], colours: dict[int, str], metric: str) -> None:
    priced = [(rung, rung.minutes) for rung in found if rung.minutes is not None]
    for rung, minutes in priced:
        axes.plot([minutes], [rung.mean], "o", color=colours[rung.year], markersize=7)
    axes.set_xscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    costs = [minutes for _, minutes in priced]
    axes.set_xlim(min(costs) / 1.4, max(costs) * 1.4)
    axes.set_xticks([tick for tick in ticks if min(costs) / 1.4 <= tick <= max(costs) * 1.4])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel("minutes of training, the machine to itself", fontsize=8.5, color=FAINT, family=fonts())
    axes.margins(y=0.12)
    axes.set_ylabel(metric, fontsize=8.5, color=FAINT, family=fonts())
    _plain(axes)
    axes.grid(color=_RULE, linewidth=0.8)


def _number(axes: "Axes", found: list[Rung], colours: dict[int, str]) -> None:
    """Once the layout stands: where numbers cover nothing is a question of the paper."""
    axes.figure.canvas.draw()
    priced = [(number, rung, rung.minutes) for number, rung in enumerate(found, 1) if rung.minutes is not None]
    places = [axes.transData.transform((minutes, rung.mean)) * 72 / axes.figure.dpi for _, rung, minutes in priced]
    for (number, rung, minutes), aside in zip(priced, beside([(x, y) for x, y in places]), strict=True):
        axes.annotate(
            str(number), (minutes, rung.mean), aside, textcoords="offset points", color=colours[rung.year],
            fontsize=8, fontweight="bold", ha="center", va="center", family=fonts(),
        )  # fmt: skip


def beside(dots: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where the number of each dot stands, seen from it, all in points: the place that is farthest from all else."""
    numbers: list[tuple[float, float]] = []
    asides: list[tuple[float, float]] = []
    for dot in dots:
        best, most = (0.0, 0.0), -1.0
        for turn in range(16):
            angle = math.pi / 2 - turn * math.pi / 8  # above it, and on to the right
            aside = (10 * math.cos(angle), 9 * math.sin(angle))
            spot = (dot[0] + aside[0], dot[1] + aside[1])
            free = min((math.dist(spot, other) for other in (*dots, *numbers) if other != dot), default=math.inf)
            if min(free, 14.0) > most + 1e-9:  # farther than that is all the same
                best, most = aside, min(free, 14.0)
        asides.append(best)
        numbers.append((dot[0] + best[0], dot[1] + best[1]))
    return asides


def _plain(axes: "Axes") -> None:
    axes.tick_params(labelsize=8.5, labelcolor=INK, length=0, labelfontfamily="DejaVu Sans")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c9d1d9")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lineage")
    parser.add_argument("row", help="a name in bench/rows")
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    row = read_row(options.row)
    if not options.results.is_dir():
        parser.error(f"--results is {options.results}, which is no folder. Name the one with the JSON files.")
    metric, found = rungs(Ledger(row, options.results))
    if not any([*(each.year for each in row.settings), *(each.year for each in row.ensembles)]):
        parser.error(f"{options.row}: no setting of it has a year, by which they are drawn. Give them one.")
    if not found:
        lacks = f"{options.results}: nothing of {options.row} is trained to its end there"
        parser.error(f"{lacks}. Train it: make results ROW={options.row}")
    path = options.out or Path(f"docs/pictures/lineage-{options.row}.png")
    write_atomically(path, encode(draw(found, metric=metric, title=row.title)))
    print(path)


if __name__ == "__main__":
    main()
