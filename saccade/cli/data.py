"""`data`: what is in the files of a recipe and what is wrong with them; and data sets to fetch."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli.streams import count, say, tell, to_json
from saccade.errors import SaccadeError, UsageError

if TYPE_CHECKING:
    from saccade.data.check import Side, SplitReport


def check(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="A .yaml file or a recipe that comes with Saccade.", show_default=False),
    ],
    trim: Annotated[bool, typer.Option("--trim", help="Read files of unequal length up to the shorter's end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Read all data of a recipe and tell what is there.

    Status 2: something must be mended before training.
    """
    from saccade.data.check import check as check_files
    from saccade.data.dates import DatesData
    from saccade.recipe import load_recipe
    from saccade.tasks.translate import TranslateRecipe

    loaded, base = load_recipe(recipe, ("data.trim=true",) if trim and _has_files(recipe) else ())
    data = loaded.data
    if not isinstance(loaded, TranslateRecipe):
        _tell(loaded.checked(base), as_json=as_json)
        return
    if isinstance(data, DatesData):
        facts = data.model_dump()
        say(to_json({"generated": facts, "usable": True}, indent=2) if as_json else _generated(facts))
        return
    report = check_files(data, base)
    if as_json:
        say(to_json(report.to_dict(), indent=2))
    else:
        for name, split in report.splits.items():
            for line in _told(name, split):
                say(line)
    if report.problems:
        raise UsageError("\n".join(report.problems))


def _tell(found: dict[str, list[str]], *, as_json: bool) -> None:
    if as_json:
        say(to_json({"splits": found, "usable": True}, indent=2))
        return
    for split, lines in found.items():
        for number, line in enumerate(lines):
            say(f"  {line}" if number else f"{split}: {line}")


def _has_files(recipe: str) -> bool:
    from saccade.recipe import read_tree

    data = read_tree(recipe)[0].get("data")
    return isinstance(data, dict) and data.get("kind") == "files"


def _generated(facts: dict[str, int | str]) -> str:
    sizes = ", ".join(f"{split} {facts[split]:,}" for split in ("train", "valid", "test"))
    return f"{facts['kind']}: generated, there are no files to check ({sizes} pairs)."


def _told(name: str, split: "SplitReport") -> list[str]:
    lines = [f"{name}: {' '.join(split.counts.sentences())}"]
    if split.counts.kept:
        lines += [f"  source: {_lengths(split.source)}", f"  target: {_lengths(split.target)}"]
    if split.tree_depths:
        trees = split.tree_depths
        lines.append(
            f"  dependency trees: {trees.mean:.1f} edges deep on average, 99 % up to {trees.p99}, deepest {trees.max}"
        )
    if split.duplicates:
        lines.append(f"  {count(split.duplicates, 'pair')} occurred before in {name}")
    if split.seen_in_train:
        lines.append(f"  {count(split.seen_in_train, 'source')} also stand in train: scores on {name} will flatter")
    if split.outliers:
        where = ", ".join(split.outlier_places)
        lines.append(f"  {count(split.outliers, 'pair')} whose lengths do not go together, worst first: {where}")
    return lines


def _lengths(side: "Side") -> str:
    words, characters = side.words, side.characters
    return (
        f"{words.mean:.1f} words on average, 99 % up to {words.p99}, longest {words.max}; "
        f"{characters.mean:.1f} characters, 99 % up to {characters.p99}, longest {characters.max}"
    )


def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Data sets, as `saccade data list` has them.")],
    to: Annotated[Path, typer.Option(help="The folder they go to, each into one of its own.")] = Path("data"),
    offline: Annotated[bool, typer.Option("--offline", help="Take them from SACCADE_DATA alone.")] = False,
) -> None:
    """Fetch data sets, and check them.

    From the folder that SACCADE_DATA names where it has them, else from their public addresses. What broke off goes
    on where it was; what is there and right is left alone; what does not have the catalogue's sum is not kept.
    """
    from saccade.data.catalogue import find
    from saccade.data.fetch import fetch

    names = list(dict.fromkeys(names))
    for name in names:
        find(name)
    failed: dict[str, SaccadeError] = {}
    for name in names:
        try:
            for file in fetch(name, to, offline=offline, tell=tell):
                how = {"there": "was there", "mirror": "from SACCADE_DATA", "address": "downloaded"}[file.came]
                tell(f"{file.path}: {how}, checked")
        except SaccadeError as error:
            if len(names) == 1:
                raise
            tell(str(error))
            failed[name] = error
            continue
        say(str(to / name))
    if len(failed) < len(names):
        tell(f"Recipes find them by: export SACCADE_DATA={shlex.quote(str(to.absolute()))}")
    if failed:
        told = f"{', '.join(failed)}: not fetched whole; why is told above."
        mendable = all(isinstance(error, UsageError) for error in failed.values())
        raise (UsageError if mendable else SaccadeError)(told)


def list_sets(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with every file, its size and sum.")] = False,
) -> None:
    """What `data get` can fetch."""
    from saccade.data.catalogue import catalogue
    from saccade.view.table import render

    if as_json:
        say(to_json({name: each.model_dump() for name, each in catalogue().items()}, indent=2))
        return
    rows = [
        {
            "name": name,
            "MB": f"{sum(file.bytes for file in each.files.values()) / 1e6:.1f}",
            "from": "its address" if each.public else "SACCADE_DATA",
            "licence": each.licence,
            "what": each.about,
        }
        for name, each in catalogue().items()
    ]
    say(render(rows, list(rows[0])))
