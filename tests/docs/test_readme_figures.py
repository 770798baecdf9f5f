"""The figures of README's table of results are those of the trainings that are recorded beside it."""

import re
import statistics
from pathlib import Path

import pytest

from bench.ledger import Ledger
from bench.row import read_row

ROOT = Path(__file__).parents[2]
_LINE = re.compile(r"^\| \[[^]]+\]\(docs/results/([\w-]+)\.md\)")
_FIGURE = re.compile(r"(\d+\.(\d+))(?: ± (\d+\.\d+)|(‡))")
LINES = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if _LINE.match(line)]


def recorded(row: str, digits: int) -> set[tuple[str, str, int]]:
    """Mean, standard deviation and number of seeds of every setting, in the row's score, with so many digits."""
    ledger, found = Ledger(read_row(row), ROOT / "docs" / "results"), set()
    for setting in ledger.row.settings:
        if values := [run["scores"][0]["value"] for run in ledger.runs(setting)]:
            spread = f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            found.add((f"{statistics.mean(values):.{digits}f}", spread, len(values)))
    return found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("]")[0].removeprefix("| ["))
def test_the_figures_of_a_line_are_recorded(line: str) -> None:
    row = _LINE.match(line)
    assert row
    ours = line.rpartition(" | ")[0]  # the last cell is what others have published
    figures = _FIGURE.findall(ours)
    assert figures
    seeds = 2 if ")†," in line else 3
    for value, digits, spread, _ in figures:
        assert (value, spread, seeds if spread else 1) in recorded(row[1], len(digits)), f"{row[1]}: {value} ± {spread}"


def test_there_are_lines() -> None:
    assert len(LINES) > 5
