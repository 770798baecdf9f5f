"""Every encoder with every decoder, and every two options of what joins them, in some model that keeps the laws."""

from typing import Any

import pytest
from pydantic import ValidationError

from saccade.models.translator import TranslatorConfig
from tests.cases import TranslatorCase, name_of
from tests.support import laws
from tests.support.pairs import Options, covering

RECURRENT = ("elman", "lstm", "gru", "lstmn")
SIDES = {kind: {"kind": kind, "width": 6} for kind in RECURRENT} | {
    "transformer": {"kind": "transformer", "width": 6, "heads": 2, "layers": 1}
}
CHOICES: dict[str, dict[str, Any]] = {
    "encoder": {f"{kind} encoder": {"encoder": side} for kind, side in SIDES.items()},
    "decoder": {f"{kind} decoder": {"decoder": side} for kind, side in SIDES.items()},
    "bridge": {"left out": {}}
    | {bridge: {"decoder": {"bridge": bridge}} for bridge in ("linear", "copy", "mean", "zero")},
    "look": {
        "as it is": {},
        "additive": {"decoder": {"attention": {"score": "additive"}}},
        "fed": {"decoder": {"attention": {"score": "dot"}, "feed_input": True}},
        "deep fusion": {"decoder": {"fusion": "deep"}},
    },
    "depth": {
        "one": {},
        "two": {"encoder": {"layers": 2}, "decoder": {"layers": 2}},
        "two on one": {"decoder": {"layers": 2}},
        "one on two": {"encoder": {"layers": 2}},
    },
    "tie": {tie: {"tie": tie} for tie in ("none", "output", "all")},
}


def case_of(options: Options) -> TranslatorCase | None:
    """None where the recipe is refused."""
    chosen = [each[option] for each, option in zip(CHOICES.values(), options, strict=True)]

    def gathered(side: str) -> dict[str, Any]:
        return {key: value for each in chosen for key, value in each.get(side, {}).items()}

    tree = {side: gathered(side) for side in ("encoder", "decoder")}
    tie = next(each["tie"] for each in chosen if "tie" in each)
    try:
        return TranslatorCase("; ".join(options), TranslatorConfig.model_validate(tree | {"tie": tie}))
    except ValidationError:
        return None


CASES, REFUSED = covering(CHOICES, case_of)
pairwise = pytest.mark.parametrize("case", CASES, ids=name_of)


def test_what_is_covered_is_what_can_be() -> None:
    """Pairs that no model has are those that are refused, and these alone."""
    expected = {("transformer encoder", bridge) for bridge in ("linear", "copy")}
    expected |= {("transformer decoder", bridge) for bridge in ("linear", "copy", "mean", "zero")}
    expected |= {("transformer decoder", look) for look in ("additive", "fed", "deep fusion")}
    expected |= {
        (f"{kind} {side}", "deep fusion") for kind in SIDES if kind != "lstmn" for side in ("encoder", "decoder")
    }
    expected |= {("copy", depth) for depth in ("two on one", "one on two")}
    expected |= {("zero", "as it is")}
    assert expected == REFUSED


@pairwise
def test_stepwise_equals_teacher_forced(case: TranslatorCase) -> None:
    laws.stepwise_equals_teacher_forced(case)


@pairwise
def test_packed_and_filled_equal_padded(case: TranslatorCase) -> None:
    laws.packed_and_filled_equal_padded(case)


@pairwise
def test_every_weight_is_reached(case: TranslatorCase) -> None:
    laws.every_weight_is_reached(case)
