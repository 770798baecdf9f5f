"""Tokenizers and tokens that were made once, for every training that would make the same.

`data/made-from.json` says what they were made of: each setting that they depend on and, where it names a file, the
checksum of its content. It is written when tokenizers and tokens are, from the data as they were just before; a run
whose tokens were made again later has none, since its tokenizers may be of other data.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import disk
from saccade.checkpoint import DATA, FORMAT, MADE_FROM
from saccade.config import Tree
from saccade.data.files import locate
from saccade.errors import SaccadeError, UsageError
from saccade.text.pair import SOURCE_FILE, TARGET_FILE
from saccade.train.task import Task

AGAIN = "Prepare the data again, or leave --prepared out."
_OTHERS = ("text", "init_from")
_SUM, _FILE = "sha256", "file"


def made_from(task: Task, recipe: Mapping[str, Any], base: Path) -> Tree:
    """Every setting that tokenizers and tokens depend on, by its name; of files their content counts."""
    data = recipe["data"]
    if not isinstance(data.get("test"), int):  # files, of which training reads nothing
        data = {name: value for name, value in data.items() if name != "test"}
    tree = {"format": FORMAT, "task": task.name, "data": data}
    tree |= {name: recipe.get(name) for name in _OTHERS}
    tree |= task.tokens_depend_on
    return {name: _with_content(value, base) for name, value in _leaves(tree)}


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case Mapping() if value:
            for key, each in value.items():
                yield from _leaves(each, f"{name}.{key}" if name else str(key))
        case list() if value:
            for number, each in enumerate(value):
                yield from _leaves(each, f"{name}[{number}]")
        case _:
            yield name, value


def _with_content(value: Any, base: Path) -> Any:
    """A setting that names a file, or a run whose tokenizer is taken, with a checksum; any other as it is."""
    if not isinstance(value, str):
        return value
    try:
        path = locate(value, base).path
        parts = [path] if path.is_file() else [path / name for name in (SOURCE_FILE, TARGET_FILE)]
        sums = [disk.checksum(part) for part in parts if part.is_file()]
    except (UsageError, OSError, ValueError):  # no SACCADE_DATA; a text too long for a name, or with a NUL
        return value
    return {_FILE: value, _SUM: "+".join(sums)} if sums else value


def note(folder: Path, made: Tree, seed: int, files: tuple[str, ...]) -> None:
    """Say beside the tokens what they and the tokenizers were made of."""
    sums = {name: disk.checksum(folder / name) for name in files}
    record = {"settings": made, "seed": seed, "files": sums}
    disk.write_file(folder / MADE_FROM, disk.sealed_json(record))


@dataclass(frozen=True)
class Prepared:
    """A folder with tokenizers and tokens: what `saccade data prepare` made, or a run."""

    folder: Path

    def check(self, task: Task, recipe: Mapping[str, Any], base: Path) -> Tree:
        """Refuse what was made of something else than this training would make them of; else what is noted there."""
        record = self._record()
        there, here = record["settings"], made_from(task, recipe, base)
        told = [
            f"  {name}: {_shown(there.get(name))} there, {_shown(here.get(name))} here"
            for name in dict.fromkeys([*there, *here])
            if not _alike(there.get(name), here.get(name))
        ]
        if told:
            differing = "\n".join(told)
            raise UsageError(
                f"--prepared is {self.folder}, whose tokens were made of something else:\n{differing}\n"
                "Prepare these data by `saccade data prepare`, or leave --prepared out."
            )
        return record

    def verify(self, record: Tree, files: tuple[str, ...]) -> None:
        """Refuse tokenizers that are not those that were made."""
        for name in files:
            path = self.folder / name
            if not path.is_file() or disk.checksum(path) != record["files"].get(name):
                raise SaccadeError(f"{path}: is missing or not the file that was made (its checksum differs). {AGAIN}")

    def give(self, record: Tree, seed: int, files: tuple[str, ...], to: Path) -> str:
        """Put what was checked into a run that is to begin; a sentence that tells of it. `files`: the task's."""
        try:
            for name in files:
                shutil.copyfile(self.folder / name, to / name)
            shutil.rmtree(to / DATA, ignore_errors=True)
            hidden = shutil.ignore_patterns(".*")  # what a preparation that was killed left
            shutil.copytree(self.folder / DATA, to / DATA, copy_function=_link_or_copy, ignore=hidden)
        except OSError as error:
            raise SaccadeError(f"{to}: cannot be given the tokens of {self.folder}: {error}.") from None
        drawn = "" if seed == record["seed"] else f", learnt with seed {record['seed']}"
        return f"tokenizers and tokens of {self.folder}{drawn}"

    def _record(self) -> Tree:
        path = self.folder / MADE_FROM
        if not path.is_file():
            raise UsageError(
                f"--prepared is {self.folder}, which does not tell what its tokens were made of ({MADE_FROM} is "
                "missing). Make them by `saccade data prepare RECIPE --out FOLDER`, or leave --prepared out."
            )
        record = disk.read_sealed_json(path)
        if not all(isinstance(record.get(name), dict) for name in ("settings", "files")):
            raise UsageError(f"{path}: is not as it is written. {AGAIN}")
        return record


def _alike(there: Any, here: Any) -> bool:
    """Of files the content counts, not the name; of one that is there no more, which its tokens outlive, the name."""
    if isinstance(there, dict) and isinstance(here, dict):
        return bool(there.get(_SUM) == here.get(_SUM))
    names = (each.get(_FILE) if isinstance(each, dict) else each for each in (there, here))
    return next(names) == next(names)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get(_FILE)} ({_SUM} {str(value.get(_SUM))[:8]}…)"
    return "nothing" if value is None else repr(value)


def _link_or_copy(source: str, to: str) -> None:
    """Stores are never changed in place, so that several runs may have one on the disk."""
    try:
        os.link(source, to)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, to)
