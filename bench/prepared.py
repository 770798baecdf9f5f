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
from contextlib import contextmanager
from pathlib import Path

import saccade
from bench.row import read_row
from saccade.errors import SaccadeError
from saccade.recipe import Recipe, load_recipe
from saccade.train.prepared import Prepared
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
    known = hashlib.blake2b(json.dumps(made, sort_keys=True).encode(), digest_size=6).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / f".{known}.lock"):
        for there in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            try:
                Prepared(there).check(made)
            except SaccadeError:
                continue
            try:
                checked(job, Prepared(there))
            except SaccadeError as error:
                raise SaccadeError(f"{error} Or remove {there}: it is then made again.") from None
            return there
        return saccade.prepare(recipe, folder / f"{recipe.task}-{known}", base=base).path


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
