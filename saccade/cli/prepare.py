"""`data prepare`: tokenizers and tokens of a recipe, made once for all trainings on the same data."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from saccade.cli.stopping import Stopping
from saccade.cli.streams import say, tell
from saccade.run_paths import is_bare


def prepare(
    recipe: Annotated[
        str,
        typer.Argument(metavar="RECIPE", help="A .yaml file or a recipe that comes with Saccade.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="The folder to make.", show_default=False)],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another value for a setting; can be given again."),
    ] = None,
) -> None:
    """Make tokenizers and tokens, and train nothing.

    For `saccade train RECIPE --prepared FOLDER`, any number of times: with other seeds, rates and models. A training
    without it makes its own. The folder appears when it is whole.
    """
    from saccade.api import prepare as prepare_data
    from saccade.cli.plan import beginnings
    from saccade.recipe import load_recipe

    loaded, base = load_recipe(recipe, tuple(set_ or ()))
    for split, begins in beginnings(loaded, base):
        tell(f"data: {split} {begins}")
    tell("preparing the data …")
    with Stopping() as stopping:
        try:
            made = prepare_data(loaded, out, base=base)
        except KeyboardInterrupt:
            tell("stopped; nothing is left" if not out.is_dir() or is_bare(out) else f"stopped; {out} is whole")
            raise typer.Exit(stopping.exit_code) from None
    for remark in made.remarks:
        tell(remark)
    words = ", ".join(f"{size:,} {what}" for what, size in made.vocabularies.items())
    say(f"{made.examples:,} {made.unit}, {words} · saved {made.path}")
    changes = [part for change in set_ or () for part in ("--set", change)]
    say(f"next: {shlex.join(['saccade', 'train', recipe, '--prepared', str(out), *changes])}")
