"""What systems are given as, and the names they go by."""

import os
from collections.abc import Sequence
from pathlib import Path

from saccade.errors import UsageError
from saccade.run_paths import is_run, located, no_checkpoint

PathLike = str | os.PathLike[str]
Given = PathLike | Sequence[str]
"""A path, or a list of lines."""


def place_of(given: Given) -> Path | Sequence[str]:
    if not isinstance(given, str | os.PathLike):
        return given
    path = Path(given)
    at = located(path)
    if at.step is not None and not path.is_dir():
        raise no_checkpoint(path)
    if path.is_dir() and not is_run(at.run):
        raise UsageError(
            f"{path}: is a folder, but no run (it lacks train.yaml or checkpoints/). Name a run or a file."
        )
    if not path.exists():
        raise UsageError(f"{path}: is not there. Name a run folder, or a file with one output a line.")
    return path


def names_of(given: Sequence[Path | Sequence[str]], names: Sequence[str] | None) -> list[str]:
    """Those that are given; else of a path its last part, and more of it where two would be alike."""
    if names is not None:
        if len(names) != len(given) or len(set(names)) < len(names) or not all(each.strip() for each in names):
            raise UsageError(
                f"names is {', '.join(names)!r}; there must be {len(given)}, one for each system, and no two alike."
            )
        return list(names)
    paths = [each if isinstance(each, Path) else None for each in given]
    found = [
        f"system {number}" if path is None else visible(_last_part(path)) for number, path in enumerate(paths, start=1)
    ]
    for count in range(2, 6):
        twice = {name for name in found if found.count(name) > 1}
        found = [
            visible("/".join(path.parts[-count:])) if path is not None and name in twice else name
            for name, path in zip(found, paths, strict=True)
        ]
    return _numbered(found)


def _last_part(path: Path) -> str:
    """Of a checkpoint, its run's with the checkpoint's."""
    at = located(path)
    return path.name if at.step is None else f"{at.run.name}/{at.weights.name}"


def _numbered(names: Sequence[str]) -> list[str]:
    """Repeated names with a number behind them that makes no other of the names."""
    taken, told = set(names), list[str]()
    for place, name in enumerate(names):
        number, mine = 2, name
        while name in names[:place] and mine in taken:
            mine, number = f"{name} ({number})", number + 1
        taken.add(mine)
        told.append(mine)
    return told


def visible(name: str) -> str:
    """Signs that would act on a terminal, or cannot be shown at all, as Python writes them."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name)
