"""The figures of README's table of results are those of the trainings that are recorded beside it."""

import re
import statistics
from pathlib import Path

import pytest

from bench.ledger import Ledger
from bench.row import read_row

ROOT = Path(__file__).parents[2]
_LINE = re.compile(r"^\| \[[^]]+\]\(docs/results/([\w-]+)\.md\)")
_FIGURE = re.compile(r"(\d+\.(\d+))(?: ± (\d+\.\d+)|(‡))$")
LINES = [line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if _LINE.match(line)]


def recorded(row: str, label: str, digits: int) -> set[tuple[str, str, int]]:
    """Mean, standard deviation and number of seeds of every setting whose name has all words of the label."""
    ledger, found = Ledger(read_row(row), ROOT / "docs" / "results"), set()
    words = set(re.findall(r"[\w×-]+", label.replace("'s", "").lower()))
    for setting in ledger.row.settings:
        values = [run["scores"][0]["value"] for run in ledger.runs(setting)]
        if values and words <= set(re.findall(r"[\w×-]+", setting.name.lower())):
            spread = f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            found.add((f"{statistics.mean(values):.{digits}f}", spread, len(values)))
    return found


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split("]")[0].removeprefix("| ["))
def test_the_figures_of_a_line_are_recorded(line: str) -> None:
    row = _LINE.match(line)
    assert row
    # Between the first cell, which names the data, and the last, which is what others have published.
    cells = [cell.strip() for cell in line.split(" | ")[1:-1]]
    assert any(cells)
    seeds = 2 if ")†," in line else 3
    for cell in filter(None, cells):
        figure = _FIGURE.search(cell)
        assert figure, cell
        value, digits, spread, _ = figure.groups()
        told = (value, spread or "", seeds if spread else 1)
        assert told in recorded(row[1], cell[: figure.start()], len(digits)), cell


def test_a_figure_of_another_setting_is_found() -> None:
    swapped = next(line for line in LINES if "ewt" in line).replace("Elman 90.9 ± 0.0", "Elman 94.2 ± 0.1")
    with pytest.raises(AssertionError, match="Elman"):
        test_the_figures_of_a_line_are_recorded(swapped)


def test_there_are_lines() -> None:
    assert len(LINES) > 5
