"""Gates: a score that is not as good as it must be ends the command with status 3."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.errors import GateFailed, UsageError
from saccade.metrics.names import LESS_IS_BETTER

if TYPE_CHECKING:
    from saccade.metrics.score import Score

FailUnder = Annotated[
    list[str] | None,
    typer.Option(metavar="METRIC=VALUE", help="Exit with status 3 if the metric is less; can be given again."),
]
FailOver = Annotated[
    list[str] | None,
    typer.Option(metavar="METRIC=VALUE", help="The same if it is more: for errors and perplexity."),
]
Gate = tuple[str, float, bool]
"""Metric, bound, and whether more than the bound is what fails."""


def asked_gates(under: Sequence[str] | None, over: Sequence[str] | None) -> list[Gate]:
    return [_gate(text, over=False) for text in under or ()] + [_gate(text, over=True) for text in over or ()]


def _gate(text: str, *, over: bool) -> Gate:
    option, example = ("--fail-over", "per=8") if over else ("--fail-under", "bleu=25")
    name, _, value = text.partition("=")
    try:
        bound = float(value)
    except ValueError:
        bound = math.nan
    if not name or math.isnan(bound):
        raise UsageError(f"{option} {text}: write it as metric=value, for example {option} {example}.")
    if not over and name in {*LESS_IS_BETTER, "aer"}:
        raise UsageError(f"--fail-under {text}: of {name} less is better; say --fail-over {text}.")
    return name, bound, over


def check_names(gates: Sequence[Gate], names: Sequence[str]) -> None:
    for name, bound, over in gates:
        if name not in names:
            option = "--fail-over" if over else "--fail-under"
            there = f"is not among the metrics: {', '.join(names)}" if names else "is not measured here"
            raise UsageError(f"{option} {name}={bound:g}: {name} {there}.")


def check_gates(scores: "Mapping[str, Score]", gates: Sequence[Gate]) -> None:
    missed = [
        f"{name} is {scores[name].value:.2f}, {'more' if over else 'less'} than {bound:g}"
        for name, bound, over in gates
        if not (scores[name].value <= bound if over else scores[name].value >= bound)
    ]
    if missed:
        option = "--fail-over" if all(over for _, _, over in gates) else "--fail-under"
        raise GateFailed(f"{option}: {'; '.join(missed)}.")
