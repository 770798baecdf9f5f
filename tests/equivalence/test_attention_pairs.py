"""Every two options of attention that can be together are so in some model that keeps the laws."""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from saccade.models.translator import TranslatorConfig
from saccade.nn.masks import pack
from saccade.types import Layout
from tests.cases import TranslatorCase, assert_same, name_of, whole

Options = tuple[str, ...]
Pair = tuple[tuple[int, str], tuple[int, str]]
FREE: dict[str, dict[str, Any]] = {
    "cell": {kind: {"kind": kind} for kind in ("elman", "gru", "lstm")},
    "gate": {"no gate": {}, "gate": {"attention": {"gate": True}}},
    "tokens": {"gold": {}, "sampled": {"sampling": {"kind": "linear", "start": 0.5, "slope": 0.0}}},
}
"""Goes with everything."""
BOUND: dict[str, dict[str, Any]] = {
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
CHOICES = FREE | BOUND


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


@cache
def pairs_of(options: Options) -> frozenset[Pair]:
    return frozenset(combinations(enumerate(options), 2))


def covering() -> Iterator[TranslatorCase]:
    """Always the next that has the most pairs not yet met: of what is bound, and with it of what is free."""
    first = tuple(next(iter(each)) for each in FREE.values())
    bound = [options for options in product(*BOUND.values()) if case_of(first + options) is not None]
    free = list(product(*FREE.values()))
    met: set[Pair] = set()
    while True:
        best = max(bound, key=lambda options: len(pairs_of(first + options) - met))
        whole_best = max((each + best for each in free), key=lambda options: len(pairs_of(options) - met))
        if pairs_of(whole_best) <= met:
            every = (one + other for one, other in product(free, bound))
            whole_best = next((options for options in every if not pairs_of(options) <= met), whole_best)
        if pairs_of(whole_best) <= met:
            return
        met |= pairs_of(whole_best)
        case = case_of(whole_best)
        assert case is not None
        yield case


CASES = list(covering())
pairwise = pytest.mark.parametrize("case", CASES, ids=name_of)


def test_what_is_covered_is_what_can_be() -> None:
    """Pairs that no model has are those that are refused, and these alone."""
    met = {pair for case in CASES for pair in pairs_of(tuple(case.name.split(", ")))}
    every = {
        ((i, a), (j, b))
        for (i, one), (j, other) in combinations(enumerate(CHOICES.values()), 2)
        for a, b in product(one, other)
    }
    refused = {(a, b) for (_, a), (_, b) in every - met}
    blind = {"doubly stochastic", "coverage", "pointer", "pointer and coverage", "hard"}
    expected = {(score, use) for score in ("mean", "last") for use in blind}
    expected |= {(score, "coverage") for score in CHOICES["score"] if score != "additive"}
    expected |= {(score, "pointer and coverage") for score in CHOICES["score"] if score != "additive"}
    expected |= {("local-p", use) for use in ("pointer", "pointer and coverage", "hard")}
    expected |= {("last", scope) for scope in ("local-m", "local-p", "local-p of sum 1")}
    assert refused == expected


@pairwise
@torch.no_grad()
def test_stepwise_equals_teacher_forced(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    encoded, input_BT = model.encode(batch.source), batch.decoder_input.ids
    forced_BTV = model.decoder(whole(input_BT), encoded)
    state = model.start(encoded, input_BT.shape[1]).widen(2)
    for t in range(input_BT.shape[1]):
        logits_NV, state = model.step(input_BT[:, t].repeat_interleave(2), state)
        assert_same(logits_NV[::2], forced_BTV[:, t], f"step {t}")
        assert_same(logits_NV[1::2], forced_BTV[:, t], f"step {t}")


@pairwise
def test_packed_equals_padded_and_every_weight_is_reached(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    packed, padded = model.loss(batch.packed(), 0.1), model.loss(batch, 0.1)
    assert_same(packed.total, padded.total)
    assert_same(packed.nll, padded.nll)
    assert_same(model(batch.packed()), pack(model(batch), _packed(batch.target.layout)))
    torch.manual_seed(0)
    model.train().loss(batch.packed()).total.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-9, name


def _packed(layout: Layout) -> Layout:
    return layout.packed()
