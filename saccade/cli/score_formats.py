"""Scores as they are written: a table for the terminal, Markdown or LaTeX, JSON, tab-separated values."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saccade.cli.streams import to_json

if TYPE_CHECKING:
    from saccade.metrics.score import Score

ScoreFormat = Literal["text", "json", "tsv", "markdown", "latex"]
Format = Annotated[
    ScoreFormat,
    typer.Option("--format", "-f", help="How the scores are written; latex: a table for the package booktabs."),
]


def shown(scores: "Mapping[Any, Score]", format_: ScoreFormat, about: dict[str, Any]) -> str:
    from saccade.metrics.score import digits

    if format_ == "json":
        return to_json(about | {"scores": {name: score.to_dict() for name, score in scores.items()}}, indent=2)
    lines = all(score.unit == "lines" for score in scores.values())
    rows = [
        {
            "metric": score.name,
            "value": digits(score),
            "95 % interval": " – ".join(_ends(score)),
            "lines" if lines else "over": f"{score.count:,}{'' if lines else f' {score.unit}'}",
            "signature": score.signature or "",
        }
        for score in scores.values()
    ]
    match format_:
        case "tsv":
            heads = ("metric", "value", "low", "high", *(("lines",) if lines else ("count", "unit")), "signature")
            cells = [
                (name, digits(s), *(_ends(s) or ("", "")), str(s.count), *(() if lines else (s.unit,)),
                 s.signature or "")
                for name, s in scores.items()
            ]  # fmt: skip
            return "\n".join("\t".join(row) for row in (heads, *cells))
        case _:
            return table_of(rows, format_)


def _ends(score: "Score") -> tuple[str, ...]:
    """Of the interval, with as many digits as the value; none where there is none."""
    return () if math.isnan(score.low) else tuple(f"{end:.{score.places}f}" for end in (score.low, score.high))


def table_of(rows: Sequence[Mapping[str, str]], format_: ScoreFormat) -> str:
    from saccade.view import table

    match format_:
        case "markdown":
            return table.markdown(rows, list(rows[0]))
        case "latex":
            return table.latex(rows, list(rows[0]))
        case _:
            return table.render(rows, list(rows[0]))


def titled(title: str, format_: ScoreFormat) -> str:
    """What stands above a further table."""
    match format_:
        case "markdown":
            return f"\n{title[0].upper()}{title[1:]}:\n"
        case "latex":
            return f"\n% {title}"
        case _:
            return f"\n{title}\n"
