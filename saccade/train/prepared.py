"""Tokenizers and tokens that were made once, for every training that would make the same.

`data/made-from.json` says what they were made of: each setting that they depend on and, where it names a file, the
checksum of its content. It is written when tokenizers and tokens are, if the data are then as they were just before; a
run whose tokens were made again later has none, since its tokenizers may be of other data.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import saccade
from saccade import disk
from saccade.checkpoint import DATA, FORMAT, MADE_FROM
from saccade.config import Names, Tree
from saccade.data.columns import STORE
from saccade.data.files import locate
from saccade.errors import SaccadeError, UsageError
from saccade.text.pair import SOURCE_FILE, TARGET_FILE
from saccade.train.environment import version
from saccade.train.task import Content, Task

_OTHERS = ("text", "init_from")
_SUM, _FILE = "sha256", "file"
_LIBRARIES = ("tokenizers", "babel")
"""They decide what a tokenizer learns and how dates are written: another version may make something else."""
_READING = ("data", "text", "tasks")
"""What of this package decides the same."""


def made_from(task: Task, recipe: Mapping[str, Any], named: Mapping[str, Names], base: Path) -> Tree:
    """Every setting that tokenizers and tokens depend on, by its name; of those that name a file the content."""
    data = recipe["data"]
    if not isinstance(data.get("test"), int):  # files, of which training reads nothing
        data = {name: value for name, value in data.items() if name != "test"}
    tree = {"format": FORMAT, "task": task.name, "data": data}
    tree |= {name: recipe.get(name) for name in _OTHERS}
    tree |= task.tokens_depend_on
    leaves = {name: value for name, value in _leaves(tree) if named.get(name) is not Names.PLACE}
    return {name: _with_content(value, named.get(name), base) for name, value in leaves.items()}


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


def _with_content(value: Any, names: Names | None, base: Path) -> Any:
    """What names a file, a folder or a run with a checksum; any other value as it is."""
    match value:
        case Content():
            name, path = value.called, value.path
        case str() if names is not None:
            try:
                name, path = value, locate(value, base).path
            except UsageError:  # no SACCADE_DATA
                name, path = value, None
        case _:
            return value
    try:
        found = None if path is None else _tokenizers(path) if names is Names.RUN else _checksum(path)
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror or error} ({path}).") from None
    return {_FILE: name} if found is None else {_FILE: name, _SUM: found}


def _tokenizers(run: Path) -> str | None:
    files = [run / name for name in (SOURCE_FILE, TARGET_FILE) if (run / name).is_file()]
    return _together(run, files) if files else None


def _checksum(path: Path) -> str | None:
    """Of a file; of a folder with the files in it, and their names: no data lie deeper, but runs may."""
    if path.is_file():
        return disk.checksum(path)
    if not path.is_dir():
        return None
    return _together(path, sorted(each for each in path.iterdir() if each.is_file() and each.name[0] != "."))


def _together(folder: Path, files: list[Path]) -> str:
    total = hashlib.sha256()
    for each in files:
        total.update(f"{each.relative_to(folder).as_posix()}\n{disk.checksum(each)}\n".encode())
    return total.hexdigest()


def note(folder: Path, made: Tree, seed: int, files: tuple[str, ...]) -> None:
    """Say beside the tokens what they and the tokenizers were made of, and by what. `files`: the task's."""
    stores = sorted(path.relative_to(folder).parent.as_posix() for path in (folder / DATA).glob(f"*/{STORE}"))
    names = [*files, *(f"{store}/{name}" for store in stores for name in (STORE, disk.MANIFEST))]
    sums = {name: disk.checksum(folder / name) for name in names}
    record = {"settings": made, "seed": seed, "by": makers(), "files": sums}
    disk.write_file(folder / MADE_FROM, disk.sealed_json(record))


def makers() -> dict[str, str | None]:
    """What decides, beside settings and data, which tokens are made."""
    return {"saccade": saccade.__version__, "code": _code()} | {name: version(name) for name in _LIBRARIES}


@cache
def _code() -> str:
    """Of the files of this package that read data and cut text: versions are few, and changes many."""
    package = Path(__file__).parent.parent
    return _together(package, [each for part in _READING for each in sorted((package / part).rglob("*.py"))])[:12]


@dataclass(frozen=True)
class Taken:
    """What is noted of tokens that were made of what is asked for."""

    seed: int
    by: Mapping[str, Any]
    files: Mapping[str, Any]
    unseen: tuple[str, ...]
    """Settings whose files are not here, so that their names alone were compared."""

    def told(self, folder: Path, seed: int) -> str:
        """A sentence for the run that takes them."""
        drawn = "" if seed == self.seed else f", learnt with seed {self.seed}"
        here = makers()
        others = [f"{name} {self.by.get(name)} (here {here[name]})" for name in here if self.by.get(name) != here[name]]
        made = f", made by {', '.join(others)}" if others else ""
        named = f"; not here, and known by name alone: {', '.join(self.unseen)}" if self.unseen else ""
        return f"tokenizers and tokens of {folder}{drawn}{made}{named}"


@dataclass(frozen=True)
class PreparedTokens:
    """A folder with tokenizers and tokens: what `saccade data prepare` made, or a run."""

    folder: Path
    begins: Path | None = None
    """The run that was killed before it had begun with them, where that goes on; else they are asked for."""

    @property
    def _which(self) -> str:
        return f"{self.begins}: was to begin with {self.folder}" if self.begins else f"--prepared is {self.folder}"

    @property
    def again(self) -> str:
        """What to do where they cannot be taken."""
        if self.begins:
            return f"Begin it anew: saccade train RECIPE --out {self.begins} --overwrite"
        return "Prepare the data again by `saccade data prepare`, or leave --prepared out."

    def refuse_as_run(self, path: Path) -> None:
        """A run that takes its own tokens would be gone before it has them."""
        if self.folder.resolve() == path.resolve():
            raise UsageError(f"--prepared and --out are both {path}: name another folder for the new run with --out.")

    def check(self, here: Tree) -> Taken:
        """Refuse what was made of something else than this training would make them of (`made_from`)."""
        record = self._record()
        there = record["settings"]
        told = [
            f"  {name}: {_shown(there.get(name))} there, {_shown(here.get(name))} here"
            for name in dict.fromkeys([*there, *here])
            if not _alike(there.get(name), here.get(name))
        ]
        if told:
            differing = "\n".join(told)
            raise UsageError(f"{self._which}, whose tokens were made of something else:\n{differing}\n{self.again}")
        unseen = tuple(name for name, value in here.items() if isinstance(value, dict) and _SUM not in value)
        return Taken(record["seed"], record["by"], record["files"], unseen)

    def verify(self, taken: Taken) -> None:
        """Refuse tokenizers and stores that are not those that were made; tokens are compared with their stores."""
        for name, known in taken.files.items():
            if not (self.folder / name).is_file():
                raise UsageError(f"{self._which}, which lacks {name}. {self.again}")
            if disk.checksum(self.folder / name) != known:
                raise SaccadeError(
                    f"{self.folder / name}: is not the file that was made (its checksum differs). {self.again}"
                )

    def give(self, files: tuple[str, ...], to: Path) -> None:
        """Put what was checked into a run that is to begin. `files`: the task's."""
        try:
            for name in files:
                shutil.copyfile(self.folder / name, to / name)
            shutil.rmtree(to / DATA, ignore_errors=True)
            _give_folder(self.folder / DATA, to / DATA)
        except OSError as error:
            raise SaccadeError(f"{to}: cannot be given the tokens of {self.folder}: {error}.") from None

    def _record(self) -> Tree:
        path = self.folder / MADE_FROM
        if not path.is_file():
            raise UsageError(
                f"{self._which}, which does not tell what its tokens were made of ({MADE_FROM} is missing). "
                f"{self.again}"
            )
        try:
            record = disk.read_sealed_json(path)
        except SaccadeError as error:
            raise SaccadeError(f"{error} {self.again}") from None
        kinds = {"settings": dict, "seed": int, "by": dict, "files": dict}
        if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
            raise UsageError(f"{path}: is not as it is written. {self.again}")
        return record


def _alike(there: Any, here: Any) -> bool:
    """Of files the content counts, not the name; of one that is there no more, which its tokens outlive, the name."""
    if not (isinstance(there, dict) and isinstance(here, dict)):
        return bool(there == here)
    by = _SUM if _SUM in there and _SUM in here else _FILE
    return bool(there.get(by) == here.get(by))


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case {"sha256": str(found)}:
            return f"{value.get(_FILE)} ({_SUM} {found[:8]}…)"
        case dict():
            return f"{value.get(_FILE)} (not there)"
        case _:
            return repr(value)


def _give_folder(source: Path, to: Path) -> None:
    """Its folders made anew, since those that others may only read could not be written to or removed."""
    to.mkdir()
    for each in sorted(source.iterdir()):
        if each.name.startswith("."):  # what a preparation that was killed left
            continue
        if each.is_dir():
            _give_folder(each, to / each.name)
        else:
            _link_or_copy(each.resolve(), to / each.name)


def _link_or_copy(source: Path, to: Path) -> None:
    """Stores are never changed in place, so that several runs may have one on the disk."""
    try:
        os.link(source, to)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, to)
