"""What stands below a comparison: what its numbers do and do not cover, and what was odd."""

import os
from collections.abc import Sequence
from pathlib import Path

from saccade.compare.names import Given, visible
from saccade.compare.result import System
from saccade.compare.systems import Produced
from saccade.compare.testset import broken_lines
from saccade.compare.verdict import tested_by
from saccade.metrics.significance import Paired
from saccade.view.numbers import lines_told


def remarks_of(systems: Sequence[System], lines: int, tested: Paired | None, more: Sequence[str]) -> list[str]:
    """What the numbers do and do not cover."""
    these = "this test line" if lines == 1 else f"these {lines:,} test lines"
    told = [
        f"Intervals of 95 % and p speak of the choice of {these} alone: another training of the "
        "same model, with another seed, is not covered. Train several seeds to know."
    ]
    if tested is not None:
        told.append(f"p: {tested_by(tested)}, each system against {systems[0].name}.")
    if len(systems) > 2:
        told.append(
            f"There are {len(systems) - 1} comparisons for each metric, and each may mislead by chance: the verdict "
            "takes p as raised by Holm's method; the table shows it as it is."
        )
    if any(system.seconds is not None for system in systems):
        told.append(
            "Speed: measured while the outputs were made, one system after the other in one process, behind a warm-up "
            "(the median of three passes where one takes less than a second); a busy machine changes it."
        )
    return [*told, *more]


def of_what_was_made(
    task: str, titles: Sequence[str], outputs: Sequence[list[str]], made: Sequence[Produced | None]
) -> list[str]:
    return [*_same(titles, outputs), *_more(task, made), *_cut(titles, made)]


def _same(titles: Sequence[str], outputs: Sequence[list[str]]) -> list[str]:
    return [
        f"{title} and {titles[0]} wrote the same outputs."
        for title, each in zip(titles[1:], outputs[1:], strict=True)
        if each and each == outputs[0]
    ]


def _more(task: str, made: Sequence[Produced | None]) -> list[str]:
    told = []
    ways = {str(each.decode) for each in made if each is not None and each.decode is not None}
    if len(ways) > 1:
        told.append(
            "The runs decode each as its own recipe says, not all alike: --beam and --decode set one way for all."
        )
    if task == "language-model":
        told.append("Each line was read by itself; `saccade evaluate` reads a text from one end to the other.")
    return told


def _cut(titles: Sequence[str], made: Sequence[Produced | None]) -> list[str]:
    return [
        f"{title}: {lines_told(each.cut)} longer than it reads; the rest of each was not read."
        for title, each in zip(titles, made, strict=True)
        if each is not None and each.cut
    ]


def of_bytes(given: Sequence[Given]) -> list[str]:
    """Files with bytes that are no text."""
    files = [Path(each) for each in given if isinstance(each, str | os.PathLike) and Path(each).is_file()]
    counts = {file: broken_lines(file) for file in dict.fromkeys(files)}
    return [
        f"{visible(str(file))}: {lines_told(count)} with bytes that are no UTF-8, which were read as U+FFFD."
        for file, count in counts.items()
        if count
    ]
