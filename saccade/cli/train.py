"""`train`: from a recipe to a run folder, with something to look at on the way."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli.options import Device
from saccade.cli.progress import display
from saccade.cli.stopping import Stopping
from saccade.cli.streams import say, tell
from saccade.cli.words import amount, duration, metric
from saccade.errors import UsageError
from saccade.run_paths import is_bare, is_run, located, no_run

if TYPE_CHECKING:
    from saccade.recipe import Recipe
    from saccade.train.events import Finished, Profiled

RESOLVED = "train.yaml"


@dataclass(frozen=True)
class Order:
    """What is to be trained, and where."""

    recipe: "Recipe"
    base: Path
    """Where relative paths in the recipe are seen from."""
    out: Path
    prepared: Path | None = None
    """Where tokenizers and tokens are taken from, if they are not to be made."""


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A .yaml file, a recipe that comes with Saccade, or, with --resume, a run folder.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Another value for a setting; can be given again."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run folder. Default: runs/ and the recipe's name.", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    prepared: Annotated[
        Path | None,
        typer.Option(
            help="Take tokenizers and tokens from there: a folder of `data prepare`, or a run on the same data.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    max_minutes: Annotated[
        float | None,
        typer.Option(help="Stop after this much training, resumed time included; sets train.minutes.", min=0),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be trained; write nothing.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Tell at the end where the time went.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the result and errors.")] = False,
) -> None:
    """Train a recipe into a run folder.

    The folder holds the best model so far, its tokenizer, the resolved recipe, the log (metrics.jsonl) and the last
    checkpoints. Ctrl-C saves and stops; --resume goes on as if nothing had happened.
    """
    settings = list(set_ or ())
    if max_minutes is not None:
        settings.append(f"train.minutes={max_minutes}")
    if resume and overwrite:
        raise UsageError("--resume continues a run and --overwrite replaces it; give one of them.")
    order = _order(recipe, tuple(settings), out, prepared, resume=resume)
    if dry_run:
        from saccade.cli.plan import tell_plan

        tell_plan(order.recipe, order.base, order.out, order.prepared, resume=resume, overwrite=overwrite)
        return
    if not resume:
        _check_before(order, overwrite=overwrite)
    _run(order, resume=resume, overwrite=overwrite, device=device, quiet=quiet, profile=profile)


def _order(
    name: str | None, settings: tuple[str, ...], out: Path | None, prepared: Path | None, *, resume: bool
) -> Order:
    from saccade.checkpoint import recorded_base
    from saccade.recipe import load_recipe

    if resume and prepared is not None:
        raise UsageError("--resume goes on with the tokens that the run has; leave out --prepared.")
    if name is None and out is None:
        raise UsageError("RECIPE is missing: name a .yaml file or one of `saccade init --list`.")
    if name is not None and not Path(name).is_dir():
        recipe, base = load_recipe(name, settings)
        return Order(recipe, base, out or Path("runs") / Path(name).stem, prepared)
    folder = Path(name) if name is not None else out
    assert folder is not None
    if located(folder).step is not None:
        raise no_run(folder, "")
    if not is_run(folder):
        raise UsageError(f"{folder}: is no run folder. Name a recipe to begin one.")
    if not resume:
        raise UsageError(f"{folder}: is a run. Go on with it by --resume, or name a recipe to begin another.")
    if out is not None and out.resolve() != folder.resolve():
        raise UsageError(f"{folder}: a run goes on in its own folder; leave out --out {out}.")
    recipe, _ = load_recipe(str(folder / RESOLVED), settings)
    return Order(recipe, recorded_base(folder), folder)


def _check_before(order: Order, *, overwrite: bool) -> None:
    """What can be told at once, before all of the data are read."""
    from saccade.cli.plan import beginnings

    if overwrite and order.out.is_dir() and not is_bare(order.out) and not is_run(order.out):
        raise UsageError(f"{order.out}: is not empty and is no run folder; --overwrite replaces runs alone.")
    if order.prepared is None:  # else the data need not be here any more
        beginnings(order.recipe, order.base)


def _run(order: Order, *, resume: bool, overwrite: bool, device: str, quiet: bool, profile: bool) -> None:
    from saccade.api import training
    from saccade.train.events import Finished, Prepared, Profiled

    profiled: Profiled | None = None
    finished: Finished | None = None
    parameters = 0
    limit = order.recipe.train.minutes
    with Stopping() as stopping:
        try:
            with display(order.out.absolute().name, quiet=quiet, minutes=limit) as screen:
                for event in training(
                    order.recipe,
                    order.out,
                    resume=resume,
                    overwrite=overwrite,
                    device=device,
                    base=order.base,
                    prepared=order.prepared,
                    stop=stopping.asked,
                    profile=profile,
                ):
                    stopping.armed = True
                    screen.show(event)
                    if isinstance(event, Prepared):
                        parameters = event.parameters
                    if isinstance(event, Profiled):
                        profiled = event
                    if isinstance(event, Finished):
                        finished = event
        except KeyboardInterrupt:
            saved = any((order.out / "checkpoints").glob("step-*"))
            tell(f"stopped at once; {'the last checkpoint stands' if saved else 'nothing was saved yet'}")
            if (order.out / RESOLVED).is_file():
                say(f"next: saccade train {shlex.quote(str(order.out))} --resume")
            raise typer.Exit(stopping.exit_code) from None
    assert finished is not None
    if profiled is not None:
        for line in profile_lines(profiled):
            say(line)
    _tell_result(order, finished, parameters)
    if finished.reason == "interrupted":
        raise typer.Exit(stopping.exit_code)


def profile_lines(found: "Profiled") -> list[str]:
    """Seconds an update and share of each part, then speed and utilisation."""
    rows = [
        f"{name:<10}{1000 * seconds / found.updates:>10,.1f} ms{seconds / found.seconds:>7.1%}"
        for name, seconds in found.parts.items()
    ]
    speed = found.tokens / found.seconds
    return [
        f"{'part':<10}{'an update':>13}{'share':>7}",
        *rows,
        f"{speed:,.0f} tokens/s · {found.flops_per_token / 1e6:,.1f} MFLOP a token · "
        f"{found.utilisation:.0%} of the {found.peak / 1e9:,.0f} GFLOP/s of a large matrix product here",
    ]


_REASONS = {"minutes": "time is up", "patience": "no new best for a while", "interrupted": "interrupted"}


def _tell_result(order: Order, finished: "Finished", parameters: int) -> None:
    for remark in finished.remarks:
        tell(remark)
    if finished.reason in _REASONS:
        tell(f"{_REASONS[finished.reason]}: stopped at update {finished.update:,}")
    say(
        f"{_best(order, finished)} · {duration(finished.seconds)} · {amount(parameters)} parameters"
        f" · saved {finished.path}"
    )
    folder = shlex.quote(str(finished.path))
    if finished.reason == "interrupted":
        say(f"next: saccade train {folder} --resume")
    else:
        say(f"next: {shlex.join(order.recipe.next_command(finished.path))}")


def _best(order: Order, finished: "Finished") -> str:
    chosen_by = order.recipe.train.metric
    if not finished.best:
        return f"no validation yet at update {finished.update}"
    beside = next((name for name in finished.best if name != chosen_by), chosen_by)
    shown = f"best valid {metric(chosen_by, finished.best[chosen_by])} ({metric(beside, finished.best[beside])})"
    if finished.averaged:
        return f"{shown}, mean of the last {finished.averaged} checkpoints"
    return f"{shown} at update {finished.best_update}"
