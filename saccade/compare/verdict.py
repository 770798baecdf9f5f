"""A comparison in sentences: what was found, and what must be known to read it."""

import math
from collections.abc import Sequence

from saccade.compare.result import Cell, Seeds, System
from saccade.metrics.score import digits
from saccade.metrics.significance import Paired
from saccade.view.numbers import lines_told, p_value, signed, span

LEVEL = 0.05
MOST_NAMED = 4


def verdict_of(
    systems: Sequence[System], cells: Sequence[Cell], seeds: Sequence[Seeds], *, less_is_better: bool
) -> str:
    """By the first metric: the best, all others against the first, and whether seeds say the same."""
    score = cells[0].score
    if len(systems) == 1:
        interval = span(score.low, score.high, score.places)
        of = f" (95 % interval {interval})" if interval else ""
        return f"{systems[0].name} has {score.name} {digits(score)}{of} on {lines_told(score.count)}."
    told: list[str] = []
    if len(systems) > 2:
        best = (min if less_is_better else max)(range(len(cells)), key=lambda i: cells[i].score.value)
        told.append(
            f"Of {len(systems)} systems {systems[best].name} has the best {score.name}, {digits(cells[best].score)}."
        )
    others = zip(systems[1:], cells[1:], strict=True)
    told += _against(systems[0], [each for each in others if not _kin(systems[0], each[0])], less_is_better)
    return " ".join([*told, *_of_seeds(seeds, score.name, score.places, less_is_better)])


def _kin(one: System, other: System) -> bool:
    """Two seeds of one recipe: what is between them is no merit of either."""
    return one.group is not None and one.group == other.group


def _against(first: System, others: Sequence[tuple[System, Cell]], less_is_better: bool) -> list[str]:
    same, open_, ahead, behind = list[str](), list[str](), list[str](), list[str]()
    for system, cell in others:
        paired, places = cell.paired, cell.score.places
        assert paired is not None
        if paired.p == 1.0 and paired.difference == paired.low == paired.high == 0:
            same.append(system.name)
        elif cell.p_holm < LEVEL:
            better = (paired.difference < 0) == less_is_better
            size = f"{_size(paired.difference, places)} {cell.score.name}"
            (ahead if better else behind).append(f"{system.name} by {size} ({_p(cell)})")
        else:
            p = "" if math.isnan(cell.p_holm) else f", {_p(cell)}"
            open_.append(f"{system.name} ({signed(paired.difference, places)} {cell.score.name}{p})")
    told = [
        (f"Better than {first.name}", ahead),
        (f"Worse than {first.name}", behind),
        (f"No difference from {first.name} is shown", open_),
        (f"The same as {first.name} on every line", same),
    ]
    return [f"{what}: {_few(names)}." for what, names in told if names]


def _size(difference: float, places: int) -> str:
    """With as many digits more as it takes to tell it from nothing."""
    for more in range(places, places + 4):
        if float(shown := f"{abs(difference):.{more}f}") > 0:
            return shown
    return f"less than {10.0**-more:.{more}f}"


def _few(names: Sequence[str]) -> str:
    left = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {left} more" if left > 0 else "")


def _p(cell: Cell) -> str:
    told = p_value(cell.p_holm)
    return f"p {told}" if told.startswith("<") else f"p = {told}"


def _of_seeds(seeds: Sequence[Seeds], metric: str, places: int, less_is_better: bool) -> list[str]:
    """Whether the seeds of two groups lie apart."""
    if len(seeds) < 2:
        return [f"The seed alone moves {metric} of {each.group} by {_width(each, places)}." for each in seeds]
    ordered = sorted(seeds, key=lambda each: each.mean, reverse=not less_is_better)
    first, second = ordered[:2]
    worst, best = (max(first.values), min(second.values)) if less_is_better else (min(first.values), max(second.values))
    if (worst < best) if less_is_better else (worst > best):
        return [
            f"Every seed of {first.group} ({_range(first, places)}) is better than every seed of {second.group} "
            f"({_range(second, places)})."
        ]
    return [
        f"The seeds of {first.group} ({_range(first, places)}) and {second.group} ({_range(second, places)}) overlap: "
        "which of them is better these runs do not settle."
    ]


def _width(seeds: Seeds, places: int) -> str:
    return f"{max(seeds.values) - min(seeds.values):.{places}f}"


def _range(seeds: Seeds, places: int) -> str:
    return span(min(seeds.values), max(seeds.values), places)


def tested_by(paired: Paired) -> str:
    """`paired randomisation, 10,000 trials, seed 12345`."""
    trials = "resamples" if paired.test == "bootstrap" else "trials"
    return f"paired {paired.test}, {paired.resamples:,} {trials}, seed {paired.seed}"
