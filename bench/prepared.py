"""Tokenizers and tokens of rows, made once for all trainings that would make the same.

    python -m bench.prepared ROW… --out FOLDER [--set NAME=VALUE]…

`bench.results` and `bench.together` take them by `--prepared FOLDER`, and make there what they miss. So a machine with
a GPU need not cut text that another has cut, and the seeds of a setting not each for itself. What is made is what each
would make, but for text of more lines than tokenizers are learnt from: a seed draws those, here the first one to come.
"""

import argparse
import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import saccade
from bench.row import read_row
from saccade import disk
from saccade.checkpoint import MADE_FROM
from saccade.config import Tree
from saccade.errors import SaccadeError
from saccade.recipe import Recipe, load_recipe
from saccade.train.prepared import PreparedTokens, makers
from saccade.train.ready import checked, made_of


def main() -> None:
    options = _options()
    try:
        for name, changes in _wanted(options.rows, options.set):
            recipe, base = load_recipe(name, changes)
            print(f"{name}: {prepared(recipe, base, options.out)}", file=sys.stderr, flush=True)
    except SaccadeError as error:  # its words are enough
        sys.exit(str(error))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.prepared")
    parser.add_argument("rows", nargs="+", metavar="ROW", help="names in bench/rows")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for every training")
    return parser.parse_args()


def _wanted(rows: list[str], extra: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Recipes and changes of all trainings; those that begin with another run know its tokenizer only then."""
    for row in map(read_row, rows):
        for setting in row.settings:
            if setting.first is not None:
                yield setting.first.recipe, (*setting.first.changes, *extra)
            elif setting.recipe is not None:
                yield from ((setting.recipe, (*setting.changes, *point, *extra)) for point in setting.points)


def prepared(recipe: Recipe, base: Path, folder: Path) -> Path:
    """The folder in `folder` whose tokens are those of the recipe; made there if there is none."""
    job = recipe.job(base)
    made = made_of(job)
    known = _digest(made)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / f".{known}.lock"):
        if (there := _there(made, folder)) is not None:
            try:
                checked(job, PreparedTokens(there))
            except SaccadeError as error:
                raise SaccadeError(f"{error} Or remove {there}: it is then made again.") from None
            return there
        place = folder / f"{recipe.task}-{known}"
        if place.exists():
            raise SaccadeError(f"{place}: does not tell what it was made of. Remove it: it is then made again.")
        return saccade.prepare(recipe, place, base=base).path


def _digest(made: Tree) -> str:
    """Of what decides the tokens: of files that are here the content, wherever they lie."""
    contents = {name: value.get("sha256", value) if isinstance(value, dict) else value for name, value in made.items()}
    text = json.dumps([contents, makers()["code"]], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _there(made: Tree, folder: Path) -> Path | None:
    """What was made of just that, by the code as it is; if but names can be compared, the only one there is."""
    fitting = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        with suppress(SaccadeError):
            taken = PreparedTokens(path).check(made)
            if taken.by.get("code") == makers()["code"]:
                fitting.append((path, taken))
    for path, taken in fitting:
        if not taken.unseen:
            return path
    if len(fitting) > 1:
        raise SaccadeError(
            f"{folder}: {' and '.join(path.name for path, _ in fitting)} were made of files of the same names, which "
            f"are not here to be compared ({', '.join(fitting[0][1].unseen)}). Remove those that are not meant."
        )
    return fitting[0][0] if fitting else None


def made_by(folder: Path) -> dict[str, Any]:
    """What a run, or prepared tokens, note of how their tokens were made: for a trial's record."""
    if not (folder / MADE_FROM).exists():  # the data changed while they were read
        return {}
    record = disk.read_sealed_json(folder / MADE_FROM)
    return {"tokens_made": {"seed": record["seed"], "by": record["by"]}}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Of all that want the same, one makes it, and the others wait."""
    lock = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


if __name__ == "__main__":
    main()
