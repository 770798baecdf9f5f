"""Exact search against brute force: on tables that know position or history, under every length rule, and on models.

Tables are 6 × 6: PAD, START, END and three tokens to choose from.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.brute_force import EveryOutput, brute_force
from saccade.decode.exact import Exact, ExactRule, exact_search
from saccade.decode.scores import LengthRule, normalised
from saccade.errors import SaccadeError, UsageError
from saccade.types import END, START, Hypothesis, State, Step
from tests.cases import TranslatorCase, every_translator, name_of, sentence
from tests.equivalence.test_decode import RULES, VOCABULARY, exhaustive, matrix_of, model_of

NEAR = 1e-5
rules = pytest.mark.parametrize(("length", "alpha"), [*RULES, ("power", 0.6)])
seeds = st.integers(0, 2**31)
spreads = st.sampled_from([0.3, 1.0, 3.0])
PLENTY = 100_000


def by_position(tables_BTVV: Tensor) -> tuple[Step, State]:
    """One table a sentence: what comes next depends on the last token and on how many there are."""

    def step(last_N: Tensor, state: State) -> tuple[Tensor, State]:
        place_N = state.hypothesis["place"]
        which_N = state.source["which"].repeat_interleave(len(place_N) // len(state.source["which"]))
        logits_NV = tables_BTVV[which_N, place_N, last_N]
        place_N += 1  # as a decoder may: into the state it was given
        return logits_NV, State(state.source, {"place": place_N})

    sentences = len(tables_BTVV)
    return step, State({"which": torch.arange(sentences)}, {"place": torch.zeros(sentences, dtype=torch.long)})


def tables_of(seed: int, sentences: int, spread: float, kind: str) -> tuple[Tensor, tuple[Step, State]]:
    cubes = torch.stack([matrix_of(seed + b, spread) for b in range(sentences)])
    return cubes, (model_of(cubes) if kind == "history" else by_position(cubes))


def alone(cubes: Tensor, b: int, kind: str) -> tuple[Step, State]:
    return model_of(cubes[b : b + 1]) if kind == "history" else by_position(cubes[b : b + 1])


def search_all(
    model: tuple[Step, State],
    limits: list[int],
    rule: ExactRule,
    found: Sequence[Hypothesis | None] | None = None,
) -> list[Exact]:
    step, state = model
    return exact_search(step, state, limits=limits, rule=rule, found=found)


def assert_is_the_mode(found: Exact, every: EveryOutput) -> None:
    mode = every.mode
    assert found.proved
    assert found.best is not None
    assert found.best.ended
    assert found.best.score == pytest.approx(mode.score, abs=NEAR)
    assert found.bound == found.best.score
    same = [each for each in every.outputs if each.ended and each.tokens == found.best.tokens]
    assert len(same) == 1
    assert found.best.log_probability == pytest.approx(same[0].log_probability, abs=NEAR)
    assert found.best.token_log_probabilities == pytest.approx(same[0].token_log_probabilities, abs=NEAR)
    if mode.score - sorted((e.score for e in every.outputs if e.ended), reverse=True)[1:2][0] > NEAR:
        assert found.best.tokens == mode.tokens
    (empty,) = [each for each in every.outputs if each.ended and not each.tokens]
    assert found.empty == pytest.approx(empty.log_probability, abs=NEAR)
    assert found.is_empty == (not found.best.tokens)


# ---- brute force


@given(seed=seeds, limit=st.integers(1, 4), spread=spreads)
def test_brute_force_is_every_output(seed: int, limit: int, spread: float) -> None:
    cube = matrix_of(seed, spread)
    step, state = model_of(cube[None])
    every = brute_force(step, state, limit=limit)
    expected = exhaustive(cube, limit, "none", 1.0)
    assert {(each.tokens, each.ended) for each in every.outputs} == {(each.tokens, each.ended) for each in expected}
    assert len(every.outputs) == len(expected)
    assert [each.score for each in every.outputs] == pytest.approx([each.score for each in expected], abs=1e-4)
    assert math.fsum(math.exp(each.log_probability) for each in every.outputs) + every.lost == pytest.approx(
        1, abs=1e-4
    )
    assert 0 < every.lost < 1


def test_brute_force_refuses_what_it_cannot_write_down() -> None:
    step, state = model_of(matrix_of(0)[None])
    with pytest.raises(UsageError, match=r"limit: with 3 tokens .* a limit of 13 makes 2,391,484 outputs; .* Lower"):
        brute_force(step, state, limit=13)
    with pytest.raises(UsageError, match="limit: must be at least 1; got 0"):
        brute_force(step, state, limit=0)
    step, state = model_of(torch.full((1, VOCABULARY, VOCABULARY, VOCABULARY), math.nan))
    with pytest.raises(SaccadeError, match="sum to nan, not to 1"):
        brute_force(step, state, limit=2)


# ---- exact = brute force


@rules
@pytest.mark.parametrize("kind", ["history", "position"])
@settings(max_examples=25)
@given(
    seed=seeds,
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    spread=spreads,
    width=st.sampled_from([1, 2, 8]),
    beam=st.sampled_from([0, 1, 3]),
)
def test_exact_is_brute_force(
    length: LengthRule, alpha: float, kind: str, seed: int, limits: list[int], spread: float, width: int, beam: int
) -> None:
    """With a beam's outputs to begin with and without; and never less than that beam."""
    cubes, model = tables_of(seed, len(limits), spread, kind)
    found: list[Hypothesis | None] | None = None
    if beam:
        found = [each[0] for each in beam_search(*model, limits=limits, rule=BeamRule(beam, length, alpha))]
    results = search_all(model, limits, ExactRule(length, alpha, PLENTY, width=width), found)
    for b, (limit, result) in enumerate(zip(limits, results, strict=True)):
        every = brute_force(*alone(cubes, b, kind), limit=limit, length=length, alpha=alpha)
        if limit > 1:
            assert_is_the_mode(result, every)
        else:
            assert result.is_empty
        beamed = found[b] if found is not None else None
        if beamed is not None and beamed.ended:
            assert result.best is not None
            assert result.best.score >= beamed.score - NEAR


@rules
@settings(max_examples=20)
@given(seed=seeds, limits=st.lists(st.integers(1, 5), min_size=2, max_size=5), spread=spreads)
def test_in_a_batch_as_alone(length: LengthRule, alpha: float, seed: int, limits: list[int], spread: float) -> None:
    """To the last expansion: what a sentence gets does not depend on who is searched beside it."""
    cubes, model = tables_of(seed, len(limits), spread, "history")
    for expansions in (5, PLENTY):
        rule = ExactRule(length, alpha, expansions)
        for b, together in enumerate(search_all(model, limits, rule)):
            (single,) = search_all(alone(cubes, b, "history"), [limits[b]], rule)
            assert (single.proved, single.expansions) == (together.proved, together.expansions)
            assert single.bound == pytest.approx(together.bound, abs=NEAR)
            assert (single.best and single.best.tokens) == (together.best and together.best.tokens)


@rules
@settings(max_examples=15)
@given(seed=seeds, limit=st.integers(2, 5), spread=spreads)
def test_no_beam_is_better(length: LengthRule, alpha: float, seed: int, limit: int, spread: float) -> None:
    _, model = tables_of(seed, 1, spread, "history")
    (exact,) = search_all(model, [limit], ExactRule(length, alpha, PLENTY))
    assert exact.best is not None
    for beam in (1, 2, 4, 9):
        for each in beam_search(*model, limits=[limit], rule=BeamRule(beam, length, alpha, n_best=beam))[0]:
            assert not each.ended or each.score <= exact.best.score + NEAR


@settings(max_examples=30)
@given(seed=seeds, memory=st.sampled_from([0, 1_000, 3_000]))
def test_little_memory_only_makes_sentences_wait(seed: int, memory: int) -> None:
    """A state here is 8 bytes; there is room for one sentence, or a few."""
    limits = [4, 5, 2, 5, 1, 3]
    _, model = tables_of(seed, len(limits), 1.0, "history")
    rule = ExactRule("average", 1.0, PLENTY, width=2)
    some = search_all(model, limits, ExactRule("average", 1.0, PLENTY, width=2, memory=memory))
    for one, other in zip(some, search_all(model, limits, rule), strict=True):
        assert one.best == other.best
        assert (one.proved, one.expansions) == (other.proved, other.expansions) == (True, other.expansions)


# ---- by hand


def markov(rows: dict[int, dict[int, float]]) -> tuple[Step, State]:
    p = torch.zeros(VOCABULARY, VOCABULARY)
    for last, following in rows.items():
        for token, probability in following.items():
            p[last, token] = probability
    p[p.sum(-1) == 0, END] = 1.0
    return model_of(p.log().expand(1, VOCABULARY, VOCABULARY, VOCABULARY))


def test_the_mode_is_empty_and_normalisation_mends_it() -> None:
    """END at once has 0.4; all else is spread thin: 0.6 · ⅓ at the first step, and sure from there."""
    model = markov({START: {END: 0.4, 3: 0.2, 4: 0.2, 5: 0.2}, 3: {4: 1.0}, 4: {5: 1.0}, 5: {END: 1.0}})
    (plain,) = search_all(model, [6], ExactRule("none"))
    assert plain.best is not None
    assert plain.is_empty
    assert plain.empty == pytest.approx(math.log(0.4), abs=NEAR)
    assert plain.best.log_probability == plain.empty
    assert plain.expansions == 1  # nothing else can win: 0.2 < 0.4
    (mean,) = search_all(model, [6], ExactRule("average"))
    assert mean.best is not None
    assert mean.best.tokens == (3, 4, 5)
    assert not mean.is_empty
    assert mean.best.score == pytest.approx(math.log(0.2) / 4, abs=NEAR)


def test_a_known_output_saves_work_and_is_kept() -> None:
    model = markov({START: {3: 0.55, 4: 0.45}, 3: {END: 0.3, 5: 0.7}, 5: {END: 0.3, 3: 0.7}, 4: {END: 1.0}})
    (blind,) = search_all(model, [4], ExactRule("none", width=1))
    assert blind.best is not None
    known = replace(blind.best, score=0.0, log_probability=0.0)
    (told,) = search_all(model, [4], ExactRule("none", width=1), [known])
    assert told.best is not None
    assert blind.best.tokens == told.best.tokens == (4,)
    assert told.best.score == pytest.approx(math.log(0.45), abs=NEAR)  # scored anew, by the rule
    assert (told.expansions, blind.expansions) == (2, 5)  # blind: START, 3, 3 5 and 3 5 3 before 4 is tried
    for unfit in (Hypothesis((4,), 9.0, 9.0, (9.0,), ended=False), Hypothesis((3,) * 4, 9.0, 9.0, (9.0,) * 5, True)):
        (found,) = search_all(model, [4], ExactRule("none", width=1), [unfit])  # not ended; longer than the limit
        assert (found.best, found.expansions) == (blind.best, blind.expansions)


def test_nothing_to_search_and_nothing_to_find() -> None:
    model = markov({START: {3: 1.0}, 3: {3: 1.0}})
    (nothing,) = search_all(model, [0], ExactRule())
    assert (nothing.best, nothing.proved, nothing.bound, nothing.expansions) == (None, True, -math.inf, 0)
    assert search_all((model[0], State({}, {})), [], ExactRule()) == []
    (endless,) = search_all(model, [5], ExactRule())  # it never ends
    assert (endless.best, endless.proved, endless.empty) == (None, True, -math.inf)
    assert not endless.is_empty


# ---- budgets


@rules
@settings(max_examples=25)
@given(seed=seeds, limit=st.integers(2, 5), expansions=st.integers(1, 60), width=st.sampled_from([1, 8]))
def test_a_budget_that_runs_out_is_said(
    length: LengthRule, alpha: float, seed: int, limit: int, expansions: int, width: int
) -> None:
    """Never more than the budget; proved only what is so; and the bound holds."""
    _, model = tables_of(seed, 1, 1.0, "history")
    (found,) = search_all(model, [limit], ExactRule(length, alpha, expansions, width=width))
    mode = brute_force(*model, limit=limit, length=length, alpha=alpha).mode
    assert 1 <= found.expansions <= expansions
    assert found.bound >= mode.score - NEAR
    assert found.best is not None
    assert found.best.score <= mode.score + NEAR
    if found.proved:
        assert found.best.score == pytest.approx(mode.score, abs=NEAR)
        assert found.bound == found.best.score
    else:
        assert found.bound > found.best.score
        assert not found.is_empty
    whole = search_all(model, [limit], ExactRule(length, alpha, PLENTY, width=width))[0]
    assert found.proved or whole.expansions > expansions


def test_seconds_are_a_budget_too() -> None:
    _, model = tables_of(1, 2, 0.1, "history")
    for found in search_all(model, [9, 9], ExactRule("average", seconds=1e-9)):
        assert not found.proved
        assert found.expansions == 1
        assert found.seconds >= 1e-9


@pytest.mark.parametrize("wrong", [{"expansions": 0}, {"width": 0}, {"seconds": 0.0}, {"seconds": math.nan}])
def test_budgets_must_be_positive(wrong: dict[str, float]) -> None:
    step, state = model_of(matrix_of(0)[None])
    with pytest.raises(UsageError, match="expansions, width and seconds must be positive"):
        exact_search(step, state, limits=[3], rule=ExactRule(**wrong))  # type: ignore[arg-type]


def test_one_known_output_a_sentence() -> None:
    step, state = model_of(matrix_of(0)[None])
    with pytest.raises(UsageError, match="found: must have one output or None for each of the 1 sentences"):
        exact_search(step, state, limits=[3], found=[])


def test_no_numbers_no_search() -> None:
    step, state = model_of(torch.full((1, VOCABULARY, VOCABULARY, VOCABULARY), math.nan))
    with pytest.raises(SaccadeError, match="not numbers"):
        exact_search(step, state, limits=[3])


# ---- models


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_of_a_model_exact_is_brute_force(case: TranslatorCase) -> None:
    """At least ten tokens to choose from, outputs of up to three; caches, input feeding, copying and all."""
    model, source = case.build(), case.batch().source
    limits = [3, 2, 2, 3]
    with torch.no_grad():
        every = [
            brute_force(model.step, model.start(model.encode(sentence(source, b)), limit), limit=limit)
            for b, limit in enumerate(limits)
        ]
        encoded = model.encode(source)
    lengths: list[LengthRule] = ["none", "average"]
    for length in lengths:
        state = model.start(encoded, max(limits))
        results = exact_search(model.step, state, limits=limits, rule=ExactRule(length, 1.0, PLENTY))
        for outputs, found in zip(every, results, strict=True):
            assert found.proved
            assert found.best is not None
            mode = max(
                normalised(each.log_probability, len(each.token_log_probabilities), length, 1.0)
                for each in outputs.outputs
                if each.ended
            )
            assert found.best.score == pytest.approx(mode, abs=1e-4)
            (same,) = [each for each in outputs.outputs if each.ended and each.tokens == found.best.tokens]
            assert found.best.token_log_probabilities == pytest.approx(same.token_log_probabilities, abs=1e-4)
