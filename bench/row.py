"""A row of the results table: the file of bench/rows that says what is trained, with which seeds and which choices."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROWS = Path(__file__).parent / "rows"


@dataclass(frozen=True)
class First:
    """What is trained before a setting, with its seed; `{first}` in the setting's changes becomes that run's folder."""

    recipe: str
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """One line of the row: a recipe with changes, or a `program` (`python -m …`) that answers as `bench.trial` does."""

    name: str
    recipe: str | None
    program: str | None
    first: First | None
    year: int | None
    published: str
    """What others found with such a model, and who; the anchor says under which conditions, the cell where the score
    is not the row's first or the number is from memory."""
    seeds: tuple[int, ...]
    changes: tuple[str, ...]
    """NAME=VALUE, the row's own first."""
    points: tuple[tuple[str, ...], ...]
    """The grid: further changes, one of which validation chooses. One empty point where nothing is chosen."""


@dataclass(frozen=True)
class Ensemble:
    """Settings that translate together, each with its chosen point and the seed of the ensemble."""

    name: str
    year: int | None
    seeds: tuple[int, ...]
    members: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    anchor: str
    """Published numbers and how their conditions differ."""
    findings: str
    """What was found where a setting stays below its anchor."""
    metrics: tuple[str, ...] | None
    score: str | None
    """The name of the score that stands first, in tables and pictures; the first of a trial's, where it is not said."""
    beside: tuple[str, ...]
    """Names of other scores that stand in the first table as well, where not all of them fit."""
    tests: dict[str, tuple[str, ...]]
    """Further test sets: name → source file, target file."""
    settings: tuple[Setting, ...]
    ensembles: tuple[Ensemble, ...]
    alone: bool
    """Whether its trainings are to have the machine to themselves, one after the other: where the clock ends them."""

    def setting(self, name: str) -> Setting:
        return next(each for each in self.settings if each.name == name)


def row_names(folder: Path = ROWS) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.yaml"))


def read_row(name: str, folder: Path = ROWS) -> Row:
    if name not in row_names(folder):
        sys.exit(f"ROW is {name!r}; bench/rows has {', '.join(row_names(folder))}.")
    content: dict[str, Any] = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    points = tuple(tuple(point) for point in content.pop("tune", [[]]) or ())
    if not points:
        sys.exit(f"bench/rows/{name}.yaml: tune has no point. Give one, or leave tune out.")
    changes = tuple(content.pop("set", ()))
    row = Row(
        name=name,
        title=content.pop("title"),
        anchor=content.pop("anchor", ""),
        findings=content.pop("findings", ""),
        metrics=tuple(content.pop("metrics")) if "metrics" in content else None,
        score=content.pop("score", None),
        beside=tuple(content.pop("beside", ())),
        tests={test: tuple(files) for test, files in content.pop("tests", {}).items()},
        settings=tuple(_setting(dict(each), changes, points) for each in content.pop("settings")),
        ensembles=tuple(_ensemble(dict(each)) for each in content.pop("ensembles", ())),
        alone=content.pop("alone", False),
    )
    _nothing_left(content, f"bench/rows/{name}.yaml")
    return row


def _setting(content: dict[str, Any], changes: tuple[str, ...], points: tuple[tuple[str, ...], ...]) -> Setting:
    setting = Setting(
        name=content.pop("name"),
        recipe=content.pop("recipe", None),
        program=content.pop("program", None),
        first=_first(content.pop("first")) if "first" in content else None,
        year=content.pop("year", None),
        published=str(content.pop("published", "")),
        seeds=tuple(content.pop("seeds")),
        changes=(*changes, *content.pop("set", ())),
        points=points,
    )
    _nothing_left(content, setting.name)
    return setting


def _first(content: dict[str, Any]) -> First:
    first = First(recipe=content.pop("recipe"), changes=tuple(content.pop("set", ())))
    _nothing_left(content, f"first: {first.recipe}")
    return first


def _ensemble(content: dict[str, Any]) -> Ensemble:
    made = Ensemble(
        name=content.pop("name"),
        year=content.pop("year", None),
        seeds=tuple(content.pop("seeds")),
        members=tuple(content.pop("members")),
    )
    _nothing_left(content, made.name)
    return made


def _nothing_left(content: dict[str, Any], where: str) -> None:
    if content:
        sys.exit(f"{where}: {', '.join(content)} is no part of a row; a row has the fields of bench.row.Row.")
