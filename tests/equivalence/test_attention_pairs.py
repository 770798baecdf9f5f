"""Every two options of attention that can be together are so in some model that keeps the laws."""

from typing import Any

import pytest
from pydantic import ValidationError

from saccade.models.translator import TranslatorConfig
from tests.cases import TranslatorCase, name_of
from tests.support import laws
from tests.support.pairs import Options, covering

CHOICES: dict[str, dict[str, Any]] = {
    "cell": {kind: {"kind": kind} for kind in ("elman", "gru", "lstm")},
    "gate": {"no gate": {}, "gate": {"attention": {"gate": True}}},
    "tokens": {"gold": {}, "sampled": {"sampling": {"kind": "linear", "start": 0.5, "slope": 0.0}}},
    "score": {
        score: {"attention": {"score": score}}
        for score in (
            "dot", "scaled-dot", "general", "reduced-rank", "additive", "concat", "location", "cosine", "mean", "last",
        )
    },
    "scope": {
        "global": {},
        "local-m": {"attention": {"scope": "local-m", "window": 2}},
        "local-p": {"attention": {"scope": "local-p", "window": 2}},
        "local-p of sum 1": {"attention": {"scope": "local-p", "window": 2, "renormalise": True}},
    },
    "order": {
        "current": {},
        "fed": {"feed_input": True},
        "previous": {"attention": {"query": "previous"}},
    },
    "readout": {readout: {"attention": {"readout": readout}} for readout in ("luong", "concat", "maxout")},
    "use": {
        "read": {},
        "doubly stochastic": {"attention": {"doubly_stochastic": 0.5}},
        "coverage": {"attention": {"coverage": 0.5}},
        "pointer": {"attention": {"pointer": True}},
        "pointer and coverage": {"attention": {"pointer": True, "coverage": 0.5}},
        "hard": {"attention": {"hard": {}}},
    },
}  # fmt: skip


def case_of(options: Options) -> TranslatorCase | None:
    """None where the recipe is refused."""
    decoder: dict[str, Any] = {"width": 6, "attention": {}}
    for each, chosen in zip(CHOICES.values(), options, strict=True):
        decoder |= {key: value for key, value in each[chosen].items() if key != "attention"}
        decoder["attention"] = decoder["attention"] | each[chosen].get("attention", {})
    tree = {"encoder": {"kind": decoder["kind"], "width": 6}, "decoder": decoder}
    try:
        return TranslatorCase(", ".join(options), TranslatorConfig.model_validate(tree))
    except ValidationError:
        return None


CASES, REFUSED = covering(CHOICES, case_of)
pairwise = pytest.mark.parametrize("case", CASES, ids=name_of)


def test_what_is_covered_is_what_can_be() -> None:
    """Pairs that no model has are those that are refused, and these alone."""
    blind = {"doubly stochastic", "coverage", "pointer", "pointer and coverage", "hard"}
    expected = {(score, use) for score in ("mean", "last") for use in blind}
    expected |= {(score, "coverage") for score in CHOICES["score"] if score != "additive"}
    expected |= {(score, "pointer and coverage") for score in CHOICES["score"] if score != "additive"}
    expected |= {("local-p", use) for use in ("pointer", "pointer and coverage", "hard")}
    expected |= {("last", scope) for scope in ("local-m", "local-p", "local-p of sum 1")}
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
