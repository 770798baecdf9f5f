"""`demo`: three models learn to read dates under one protocol; a table, a few translations and pictures."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli.progress import display
from saccade.cli.streams import say, tell
from saccade.cli.words import duration
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.lab.bottleneck import Contestant, Report, Result
    from saccade.train.events import Event


def demo(
    out: Annotated[Path, typer.Option(help="Where runs and pictures go.")] = Path("runs/demo"),
    seconds: Annotated[float, typer.Option(help="Training time of each model.", min=1)] = 75.0,
    threads: Annotated[
        int, typer.Option(help="Processor cores used; one is nearly as fast as two for models this small.", min=1)
    ] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Another value for a setting of all three; can be given again."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the results.")] = False,
) -> None:
    """Three models learn to read dates.

    An LSTM without attention, the same with attention, and a small Transformer see the same generated data in the same
    batches for the same seconds, and are scored on days none of them has seen. Nothing is downloaded.
    """
    if not math.isfinite(seconds):
        raise UsageError(f"--seconds is {seconds}; it must be a finite number.")
    import time

    import torch

    from saccade.lab.bottleneck import bottleneck
    from saccade.train.events import Finished, Prepared

    torch.set_num_threads(threads)
    began = time.monotonic()
    _claim(out)
    with display("demo", quiet=quiet, minutes=seconds / 60) as shown:

        def show(contestant: "Contestant", event: "Event") -> None:
            if isinstance(event, Prepared):
                shown.note(f"── {contestant.name} ({contestant.recipe}), {seconds:.0f} seconds ──")
            shown.show(event)
            if isinstance(event, Finished):
                shown.note(f"{contestant.name}: {event.update} updates")

        report = bottleneck(out, seconds=seconds, on_event=show, settings=set_ or ())
    _print(report)
    for path in _draw(report, out):
        say(f"  {path}")
    say(f'\nall in {duration(time.monotonic() - began)}. next: saccade translate {out}/dates "3 mars 1999"')


def _claim(out: Path) -> None:
    """Make the folder, or take one that an earlier demo left: nothing else is ever replaced."""
    mark = out / "demo.txt"
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, not a folder. Name another with --out.")
    if out.is_dir() and any(out.iterdir()) and not mark.exists():
        raise UsageError(f"{out}: is not empty, and no demo made it. Name another folder with --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        mark.write_text("Made by `saccade demo`, which replaces what is in here.\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be made: {error.strerror or error}. Name another with --out.") from None


def _print(report: "Report") -> None:
    from saccade.lab.bottleneck import LENGTHS
    from saccade.view.table import render

    bins = [f"{low}–{high} chars" for low, high in LENGTHS]
    columns = ["model", "parameters", "updates", "time", "exact match [95 %]", *bins, "alignment error"]
    say(render([_row(result, bins) for result in report.results], columns))
    scored = [result.alignment for result in report.results if result.alignment]
    dates = f"{report.results[0].overall.of:,} dates on days never trained on"
    say(f"\nexact match: % of {dates}. alignment error: % of target characters whose")
    say("most attended source character is not one they come from (Transformer: heads averaged, its best layer);")
    if scored:
        say(f"looking anywhere at random gives {100 * scored[0].chance_argmax_error:.0f} %.")
        rates = (f"{each.contestant.name} {each.links['aer'].value:.1f}" for each in report.results if each.links)
        say(f"As links, sure where one character decides: AER {', '.join(rates)}.")
    say(f"\n{report.verdict}\n")
    names = [result.contestant.name for result in report.results]
    say(
        render(
            [dict(zip(["input", *names], [line, *outputs], strict=True)) for line, outputs in report.samples],
            ["input", *names],
        )
    )
    say("\npictures:")


def _row(result: "Result", bins: list[str]) -> dict[str, str]:
    low, high = result.overall.interval
    cells = {
        "model": result.contestant.name,
        "parameters": f"{result.parameters:,}",
        "updates": f"{result.updates:,}",
        "time": f"{result.seconds:.0f} s",
        "exact match [95 %]": f"{result.overall.percent:.1f} [{100 * low:.1f}, {100 * high:.1f}]",
        "alignment error": "–" if result.alignment is None else f"{100 * result.alignment.argmax_error:.1f}",
    }
    return cells | {name: f"{share.percent:.1f}" for name, share in zip(bins, result.by_length, strict=True)}


def _draw(report: "Report", out: Path) -> list[Path]:
    from saccade.errors import MissingExtra
    from saccade.view.attention import save_grid_png, save_png
    from saccade.view.page import save_html

    page = out / "attention.html"
    note = "Outlined: where each target character comes from, as the generator knows it."
    save_html(report.traces, page, title="Where the models look", note=note, gold=report.gold)
    written = [page]
    try:
        for number, (trace, gold) in enumerate(zip(report.traces, report.gold, strict=True), start=1):
            written.append(out / f"attention-{number}.png")
            save_png(trace, written[-1], gold=gold)
            if trace.attention["cross"].size > trace.attention["cross"][0, 0].size:
                written.append(out / f"attention-{number}-heads.png")
                save_grid_png(trace, written[-1])
    except MissingExtra as error:
        tell(str(error))
        written.pop()
    return written
