"""`compare`: systems side by side on one test set."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saccade.cli.options import BatchTokens, Beam, DecodeSettings, Device, LengthPenalty, MaxLength
from saccade.cli.streams import check_place, say, tell, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.compare.result import Comparison

Format = Literal["text", "json", "tsv", "markdown", "latex"]


def compare(
    systems: Annotated[
        list[Path],
        typer.Argument(
            metavar="SYSTEM...",
            help="Run folders, checkpoints in them (RUN/checkpoints/step-N), and files with one output a line, in any "
            "order. All are tested against the first.",
        ),
    ],
    source: Annotated[
        Path | None,
        typer.Option(
            help="A file of sources; for other tasks than translation, one as the recipe's own.", metavar="FILE"
        ),
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="The file with the right outputs.", metavar="FILE")] = None,
    more: Annotated[
        list[Path] | None,
        typer.Option("--refs", metavar="FILE", help="A file with other right outputs; can be given again."),
    ] = None,
    tsv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="In place of both: columns of source, reference, and more references."),
    ] = None,
    split: Annotated[
        Literal["test", "valid"] | None,
        typer.Option(
            help="Without files: which split of the recipes, the same in all. Default: test.", show_default=False
        ),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(help="The folder that relative paths in recipes are seen from. Default: each its own."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, the most important first. Default: those of the first run's recipe.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        Literal["randomisation", "bootstrap"],
        typer.Option(
            help="Paired test: approximate randomisation, or bootstrap, as sacrebleu's --paired-ar, --paired-bs."
        ),
    ] = "randomisation",
    resamples: Annotated[
        int | None,
        typer.Option(
            help="Trials of the test. Default: 10000 of randomisation, 1000 of bootstrap.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the test's draws.")] = 12345,
    names: Annotated[
        str | None,
        typer.Option(help="Comma-separated, one for each system. Default: of folders and files.", show_default=False),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=A,B", help="Systems that belong together, by their names; can be given again."),
    ] = None,
    group_seeds: Annotated[
        bool, typer.Option("--group-seeds/--no-group-seeds", help="Group runs whose recipes differ in the seed alone.")
    ] = True,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    max_length: MaxLength = None,
    settings: DecodeSettings = None,
    batch_tokens: BatchTokens = 4096,
    examples: Annotated[int, typer.Option(help="In the page: so many lines that differ most, each way.")] = 10,
    buckets: Annotated[int, typer.Option(help="The most groups of lines by length and by difficulty.")] = 5,
    format_: Annotated[Format, typer.Option("--format", "-f", help="How the comparison is written.")] = "text",
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="Write a page with everything, in one file, too."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Compare systems on one test set.

    Runs are asked for outputs on the spot; the test set is that of their recipes, which must be the same, or files.
    Scores come with 95 % intervals, and paired tests against the first system say what is more than luck. Runs that
    differ in their seed alone are shown as what they are: points of one model.
    """
    if out is not None:
        _check_page(out)
    from saccade.compare.run import compare as run

    found = run(
        systems,
        source=source,
        reference=reference,
        references=more or (),
        tsv=tsv,
        split=split,
        base=base,
        metrics=None if metrics is None else _listed(metrics),
        test=test,
        resamples=resamples,
        seed=seed,
        names=None if names is None else _listed(names),
        groups=_groups(group or []),
        group_seeds=group_seeds,
        beam=beam,
        length_penalty=length_penalty,
        max_length=max_length,
        decode=settings or (),
        batch_tokens=batch_tokens,
        device=device,
        examples=examples,
        buckets=buckets,
        command=_command(),
        on_step=tell,
    )
    _tell(found, format_)
    if out is not None:
        found.report(out)
        tell(f"{out}: the whole comparison")


def _check_page(out: Path) -> None:
    """Before any model is asked: whether a page can be written there."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--output {out}: writes a page; its name must end in .html. For other kinds use --format.")
    check_place(out, "--output")


def _tell(found: "Comparison", format_: Format) -> None:
    say(to_json(found.to_dict(), indent=2) if format_ == "json" else found.table(format_))


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _groups(given: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, equals, members = text.partition("=")
        if not equals or not name.strip() or len(_listed(members)) < 2:
            raise UsageError(f"--group {text}: write it as name=system,system, for example --group lstm=lstm-1,lstm-2.")
        found[name.strip()] = _listed(members)
    return found


def _command() -> str:
    """What was typed, for the page."""
    arguments = sys.argv[1:] if "compare" in sys.argv[1:2] else []
    return " ".join(["saccade", *map(shlex.quote, arguments)]) if arguments else ""
