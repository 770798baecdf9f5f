"""`measure`: outputs in a file, whoever wrote them, in numbers. And what `evaluate` shares with it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from saccade.cli.gates import FailOver, FailUnder, asked_gates, check_gates, check_names
from saccade.cli.score_formats import Format, shown
from saccade.cli.streams import count, read_lines, say
from saccade.errors import UsageError
from saccade.metrics.names import METRICS, TEXT_METRICS, TEXT_USUAL

if TYPE_CHECKING:
    from saccade.metrics.interval import Confidence
    from saccade.metrics.names import MetricName, TextMetric
    from saccade.metrics.score import Score

Lines = list[str]
NAMES_TOLD = ", ".join(name for name in TEXT_METRICS if ":" not in name or name.count(":") == 1)
Resamples = Annotated[
    int | None,
    typer.Option(help="Resamples that the intervals are of; 0: none are drawn. Default: 1000.", show_default=False),
]
ResampleSeed = Annotated[
    int | None, typer.Option(help="Seed of the resamples. Default: 12345, as sacrebleu's.", show_default=False)
]


def measure(
    outputs: Annotated[Path, typer.Argument(metavar="OUTPUTS", help="A file of outputs, one a line; - is stdin.")],
    reference: Annotated[
        list[Path],
        typer.Argument(metavar="REFERENCE", help="Files with what is right; where there are several, each is."),
    ],
    metrics: Annotated[str, typer.Option(help=f"Comma-separated, as bleu,bleu:lc,chrf++: {NAMES_TOLD}.")] = ",".join(
        TEXT_USUAL
    ),
    format_: Format = "text",
    fail_under: FailUnder = None,
    fail_over: FailOver = None,
    resamples: Resamples = None,
    resample_seed: ResampleSeed = None,
) -> None:
    """Score outputs without a model.

    The lines of OUTPUTS against those of REFERENCE: the same digits as `evaluate`, which makes the outputs first. A
    view of the text stands behind a colon: bleu:lc in small letters, bleu:none cut at white space, bleu:none:lc both.
    """
    names = metric_names(metrics)
    if "perplexity" in names:
        raise UsageError("--metrics perplexity: is a model's; of a run, `saccade evaluate RUN` tells it.")
    gates = asked_gates(fail_under, fail_over)
    check_names(gates, names)
    confidence = confidence_of(resamples, resample_seed)
    if [str(file) for file in (outputs, *reference)].count("-") > 1:
        raise UsageError("-: stdin can be read once; give files for the others.")
    written = read_lines(outputs)
    right = references_of(outputs, written, reference)
    from saccade.metrics.measure import measure as score

    scores: dict[str, Score] = {
        name: score(cast("TextMetric", name), written, right, confidence=confidence) for name in names
    }
    say(shown(scores, format_, {"outputs": str(outputs), "references": [str(file) for file in reference]}))
    check_gates(scores, gates)


def confidence_of(resamples: int | None, seed: int | None) -> "Confidence":
    from saccade.metrics.interval import RESAMPLES, SEED, Resampling

    if resamples == 0:
        if seed is not None:
            raise UsageError("--resample-seed: --resamples is 0, so nothing is drawn. Leave it out.")
        return False
    if resamples is not None and resamples < 100:
        raise UsageError(f"--resamples is {resamples}; fewer than 100 have no tails. Give more, or 0 for no intervals.")
    if seed is not None and seed < 0:
        raise UsageError(f"--resample-seed is {seed}; it must not be less than 0.")
    return Resampling(RESAMPLES if resamples is None else resamples, SEED if seed is None else seed)


def metric_names(text: str) -> "list[MetricName]":
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if name not in METRICS]
    if wrong or not names or len(set(names)) < len(names):
        raise UsageError(f"--metrics is {text!r}; it must be a list out of {', '.join(METRICS)}, each once.")
    return cast("list[MetricName]", names)


def references_of(source: Path, sources: Lines, files: Sequence[Path]) -> list[tuple[str, ...]]:
    """Of each line what is right: a line of every file."""
    found = [read_lines(file) for file in files]
    for file, lines in zip(files, found, strict=True):
        check_pairs(source, sources, file, lines)
    return list(zip(*found, strict=True))


def check_pairs(one: Path, ones: Lines, other: Path, others: Lines) -> None:
    if len(ones) != len(others):
        raise UsageError(f"{one} has {count(len(ones), 'line')} and {other} {len(others):,}; they must pair up.")
    if not ones:
        raise UsageError(f"{one}: is empty; there is nothing to score.")
