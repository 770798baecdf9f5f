"""What a comparison came to: numbers by system and metric, in plain values and as tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from saccade.errors import UsageError
from saccade.metrics.score import Score, digits
from saccade.metrics.significance import Paired
from saccade.view.numbers import p_value, signed, span

Format = Literal["text", "tsv", "markdown", "latex"]


@dataclass(frozen=True)
class System:
    """One of those that are compared."""

    name: str
    origin: str
    """The run folder or file it came from."""
    kind: Literal["run", "file", "lines"]
    group: str | None = None
    """Of runs that differ in their seed alone: what they have in common."""
    model: str | None = None
    seed: int | None = None
    parameters: int | None = None
    updates: int | None = None
    trained_seconds: float | None = None
    trained_tokens: int | None = None
    trained_on: str | None = None
    seconds: float | None = None
    """To write all outputs, measured here behind a warm-up, in the same process as those of the others."""
    lines_per_second: float | None = None
    tokens_per_second: float | None = None
    decode: dict[str, Any] | None = None


@dataclass(frozen=True)
class Cell:
    """One system by one metric."""

    score: Score
    paired: Paired | None
    """Against the first system; None of that one itself."""
    p_holm: float
    """p, raised for as many comparisons as there are with this metric (Holm 1979); NaN where there is no p."""


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in their seed alone, by one metric."""

    group: str
    metric: str
    systems: tuple[str, ...]
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def deviation(self) -> float:
        """Standard deviation of a sample (n − 1)."""
        mean = self.mean
        return math.sqrt(sum((value - mean) ** 2 for value in self.values) / (len(self.values) - 1))


@dataclass(frozen=True)
class BucketTable:
    """A metric by groups of lines or words: a row for each group, a value for each system."""

    title: str
    column: str
    """What the groups are of, in a word or two."""
    metric: str
    unit: str
    """What there are so many of in each group."""
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Example:
    """A line where a system and the baseline differ much."""

    line: int
    """Counted from 1."""
    source: str
    references: tuple[str, ...]
    baseline: str
    output: str
    baseline_score: float
    score: float


@dataclass(frozen=True)
class Differences:
    """Where one system is most unlike the baseline."""

    system: str
    metric: str
    """What single lines are scored by."""
    wins: int
    """Lines that the system does better, worse, and alike."""
    losses: int
    ties: int
    better: tuple[Example, ...]
    worse: tuple[Example, ...]
    ngrams_better: tuple[tuple[str, int, int], ...]
    """n-grams that the system gets right more often: how often it does, and the baseline."""
    ngrams_worse: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Comparison:
    """A fair comparison: one test set, paired tests against the first system, costs beside scores."""

    task: str
    test_set: str
    lines: int
    metrics: tuple[str, ...]
    """The first of them is what the verdict, the groups and the pictures speak of."""
    less_is_better: tuple[str, ...]
    systems: tuple[System, ...]
    cells: tuple[tuple[Cell, ...], ...]
    """By metric, then by system."""
    seeds: tuple[Seeds, ...]
    buckets: tuple[BucketTable, ...]
    differences: tuple[Differences, ...]
    settings: dict[str, tuple[Any, ...]]
    """What is not the same in all recipes: a value for each system."""
    remarks: tuple[str, ...]
    environment: dict[str, Any]
    command: str
    outputs: tuple[tuple[str, ...], ...]
    """What each system wrote, line by line."""
    verdict: str

    def cell(self, system: str, metric: str) -> Cell:
        """The numbers of one system by one metric."""
        names = [each.name for each in self.systems]
        if metric not in self.metrics or system not in names:
            raise UsageError(
                f"there is no {metric!r} of {system!r}; there are {', '.join(self.metrics)} of {', '.join(names)}."
            )
        return self.cells[self.metrics.index(metric)][names.index(system)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, which has no NaN: what is not known is None. Outputs are not part of it."""
        told: dict[str, Any] = {
            "verdict": self.verdict,
            "task": self.task,
            "test_set": self.test_set,
            "lines": self.lines,
            "metrics": list(self.metrics),
            "less_is_better": list(self.less_is_better),
            "systems": [asdict(system) for system in self.systems],
            "scores": {
                metric: [_cell_dict(system, cell) for system, cell in zip(self.systems, row, strict=True)]
                for metric, row in zip(self.metrics, self.cells, strict=True)
            },
            "seeds": [
                asdict(each) | {"mean": each.mean, "deviation": each.deviation} for each in self.seeds
            ],
            "buckets": [asdict(each) for each in self.buckets],
            "differences": [asdict(each) for each in self.differences],
            "settings": {name: list(values) for name, values in self.settings.items()},
            "remarks": list(self.remarks),
            "environment": self.environment,
            "command": self.command,
        }  # fmt: skip
        plain: dict[str, Any] = _finite(told)
        return plain

    def rows(self) -> list[dict[str, str]]:
        """A row for each metric and system, in the words of people."""
        return [
            {"system": system.name} | _words(cell)
            for row in self.cells
            for system, cell in zip(self.systems, row, strict=True)
        ]

    def table(self, format: Format = "text") -> str:
        """Scores, differences and p-values; with `text` also seeds, costs and what must be known to read them."""
        from saccade.compare.told import as_latex, as_markdown, as_text, as_tsv

        match format:
            case "text":
                return as_text(self)
            case "markdown":
                return as_markdown(self)
            case "tsv":
                return as_tsv(self)
            case "latex":
                return as_latex(self)
        raise UsageError(f"format is {format!r}; it must be one of text, markdown, tsv, latex.")

    def report(self, path: Path | str) -> None:
        """One page with everything, that opens anywhere and asks nothing of any network."""
        from saccade.view.compare import save_html

        save_html(self.to_dict(), path)


def _cell_dict(system: System, cell: Cell) -> dict[str, Any]:
    paired = None if cell.paired is None else asdict(cell.paired) | {"p_holm": cell.p_holm}
    return {"system": system.name, **cell.score.to_dict(), "places": cell.score.places, "paired": paired}


def _words(cell: Cell) -> dict[str, str]:
    score, paired = cell.score, cell.paired
    told = {"metric": score.name, "value": digits(score), "95 % interval": span(score.low, score.high, score.places)}
    if paired is None:
        return told
    return told | {
        "difference": signed(paired.difference, score.places),
        "its interval": span(paired.low, paired.high, score.places, sign=True),
        "p": p_value(paired.p),
    }


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(each) for key, each in value.items()}
        case str():
            return value
        case Sequence():
            return [_finite(each) for each in value]
        case _:
            return value
