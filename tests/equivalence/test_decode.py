"""Searches proved on a matrix: row = last token, column = next token. No network is needed.

`exhaustive` writes down every output there is: those that END closes within the limit, and at the limit the rest as
they are. In the words below V counts the tokens that may be chosen: END and three others (PAD and START never are).
"""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.greedy import greedy
from saccade.decode.scores import LengthRule, normalised
from saccade.decode.settings import DecodeConfig, search
from saccade.types import END, START, Hypothesis, State, Step

VOCABULARY, CHOICES = 6, (3, 4, 5)  # PAD, START, END, and three tokens to choose from
V = len(CHOICES) + 1
RULES: list[tuple[LengthRule, float]] = [
    ("none", 1.0),
    ("average", 1.0),
    ("average", 0.6),
    ("gnmt", 0.6),
    ("gnmt", 1.0),
]
rules = pytest.mark.parametrize(("length", "alpha"), RULES)
seeds = st.integers(0, 2**31)


def matrix_of(seed: int, spread: float = 2.0) -> Tensor:
    """(before, last, next): what comes next depends on the last two tokens, so states must follow their prefixes."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(VOCABULARY, VOCABULARY, VOCABULARY, generator=generator)


def model_of(matrices_BPVV: Tensor) -> tuple[Step, State]:
    """One matrix a sentence: the source is its number, the hypothesis remembers the token before the last."""

    def step(last_N: Tensor, state: State) -> tuple[Tensor, State]:
        before_N = state.hypothesis["before"]
        which_N = state.source["which"].repeat_interleave(len(before_N) // len(state.source["which"]))
        return matrices_BPVV[which_N, before_N, last_N], State(state.source, {"before": last_N})

    sentences = len(matrices_BPVV)
    return step, State({"which": torch.arange(sentences)}, {"before": torch.full((sentences,), START)})


def log_probabilities(cube: Tensor, tokens: tuple[int, ...], ended: bool) -> tuple[float, ...]:
    scores, before, last = [], START, START
    for token in (*tokens, END) if ended else tokens:
        scores.append(cube[before, last].log_softmax(-1)[token].item())
        before, last = last, token
    return tuple(scores)


def every_output(limit: int, prefix: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], bool]]:
    if len(prefix) == limit:
        yield prefix, False
        return
    yield prefix, True
    for token in CHOICES:
        yield from every_output(limit, (*prefix, token))


def exhaustive(cube: Tensor, limit: int, length: LengthRule, alpha: float) -> list[Hypothesis]:
    found = []
    for tokens, ended in every_output(limit):
        scores = log_probabilities(cube, tokens, ended)
        score = normalised(math.fsum(scores), len(scores), length, alpha)
        found.append(Hypothesis(tokens, score, math.fsum(scores), scores, ended))
    return sorted(found, key=lambda each: -each.score)


def alike(one: Hypothesis, other: Hypothesis) -> bool:
    return (
        (one.tokens, one.ended) == (other.tokens, other.ended)
        and one.score == pytest.approx(other.score, abs=1e-4)
        and one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        and one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-4)
    )


def assert_alike(one: list[Hypothesis], other: list[Hypothesis]) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        assert alike(mine, theirs), f"{mine}\n{theirs}"


# ---- greedy


def test_greedy_by_hand() -> None:
    """3 → 4 → END, with probabilities ½, ⅝ and ¾; the limit of 2 cuts END off, the limit of 0 leaves nothing."""
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START, [2, 3, 4, 5]] = torch.tensor([1 / 4, 1 / 2, 1 / 8, 1 / 8])
    p[3, [2, 3, 4]] = torch.tensor([1 / 4, 1 / 8, 5 / 8])
    p[4, [2, 3]] = torch.tensor([3 / 4, 1 / 4])
    step, state = model_of(p.log().expand(3, VOCABULARY, VOCABULARY, VOCABULARY))
    whole, cut, nothing = (each for (each,) in greedy(step, state, limits=[9, 2, 0]))
    assert (whole.tokens, whole.ended) == ((3, 4), True)
    assert whole.token_log_probabilities == pytest.approx([math.log(x) for x in (1 / 2, 5 / 8, 3 / 4)], abs=1e-6)
    assert whole.log_probability == pytest.approx(math.log(15 / 64), abs=1e-6)
    assert (cut.tokens, cut.ended) == ((3, 4), False)
    assert cut.log_probability == pytest.approx(math.log(5 / 16), abs=1e-6)
    assert nothing == Hypothesis((), 0.0, 0.0, (), ended=False)


def test_pad_and_start_are_never_chosen_but_take_their_share() -> None:
    logits = torch.zeros(VOCABULARY, VOCABULARY)
    logits[:, :2] = 9.0
    logits[:, 4] = 1.0
    step, state = model_of(logits.expand(1, VOCABULARY, VOCABULARY, VOCABULARY))
    expected = logits[0].log_softmax(-1)[4].item()
    for found in (
        greedy(step, state, limits=[2])[0],
        beam_search(step, state, limits=[2], rule=BeamRule(3, "none", 1.0, 3))[0],
    ):
        assert found[0].tokens == (4, 4)
        assert found[0].token_log_probabilities == pytest.approx([expected, expected])
        assert all(token in CHOICES for each in found for token in each.tokens)


def test_the_empty_output_can_win() -> None:
    logits = torch.zeros(VOCABULARY, VOCABULARY)
    logits[:, END] = 5.0
    step, state = model_of(logits.expand(1, VOCABULARY, VOCABULARY, VOCABULARY))
    for beam in (1, 2, 3):
        (best,) = search(step, state, limits=[4], config=DecodeConfig(beam=beam, length="none"))[0]
        assert (best.tokens, best.ended) == ((), True)


# ---- beam 1 = greedy


@rules
@settings(max_examples=40, deadline=None)
@given(seed=seeds, limits=st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_beam_of_one_is_greedy(length: LengthRule, alpha: float, seed: int, limits: list[int]) -> None:
    step, state = model_of(torch.stack([matrix_of(seed + b) for b in range(len(limits))]))
    beamed = beam_search(step, state, limits=limits, rule=BeamRule(1, length, alpha))
    for (one,), (other,) in zip(beamed, greedy(step, state, limits=limits), strict=True):
        assert (one.tokens, one.ended) == (other.tokens, other.ended)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)
        counted = len(other.token_log_probabilities)
        assert one.score == pytest.approx(normalised(other.log_probability, counted, length, alpha), abs=1e-5)
        assert other.score == other.log_probability


# ---- wide enough = exhaustive


def test_the_outputs_written_down_are_all_there_are() -> None:
    cube = matrix_of(0)
    cube[:, :, :2] = -torch.inf  # so that nothing is spent on PAD and START
    for limit in (1, 2, 3, 4):
        outputs = exhaustive(cube, limit, "none", 1.0)
        assert len(outputs) == sum(3**t for t in range(limit)) + 3**limit
        assert math.fsum(math.exp(each.log_probability) for each in outputs) == pytest.approx(1.0, abs=1e-5)


@rules
@settings(max_examples=25, deadline=None)
@given(seed=seeds, limit=st.integers(1, 4), spread=st.sampled_from([0.3, 1.0, 3.0]))
def test_a_beam_that_loses_nothing_is_exhaustive(
    length: LengthRule, alpha: float, seed: int, limit: int, spread: float
) -> None:
    """V·(V−1)^(T−2) continuations are all there are one step before the limit; at the limit only the best can win."""
    cube = matrix_of(seed, spread)
    step, state = model_of(cube[None])
    width = max(2, V * (V - 1) ** (limit - 2)) if limit > 1 else 2
    found = beam_search(step, state, limits=[limit], rule=BeamRule(int(width), length, alpha))[0]
    assert_alike(found, exhaustive(cube, limit, length, alpha)[:1])


@rules
@settings(max_examples=25, deadline=None)
@given(seed=seeds, limit=st.integers(2, 4), spread=st.sampled_from([0.3, 1.0, 3.0]))
def test_a_beam_of_all_prefixes_is_exhaustive_but_for_an_end_it_ranks_last(
    length: LengthRule, alpha: float, seed: int, limit: int, spread: float
) -> None:
    """(V−1)^(T−1) holds every prefix. END counts from the first k only, so that one step before the limit an END behind
    all k prefixes is not taken; with nothing of this kind in sight the result is exact.
    """
    cube = matrix_of(seed, spread)
    step, state = model_of(cube[None])
    found = beam_search(step, state, limits=[limit], rule=BeamRule((V - 1) ** (limit - 1), length, alpha))[0]
    outputs = exhaustive(cube, limit, length, alpha)
    prefixes = [
        math.fsum(log_probabilities(cube, tokens, ended=False))
        for tokens in {each.tokens[: limit - 1] for each in outputs if len(each.tokens) >= limit - 1}
    ]
    ends = sorted(
        (each.log_probability for each in outputs if each.ended and len(each.tokens) == limit - 2), reverse=True
    )
    ranked = sorted([*prefixes, *ends], reverse=True)[: (V - 1) ** (limit - 1)]
    reachable = [
        each for each in outputs if not (each.ended and len(each.tokens) == limit - 2) or each.log_probability in ranked
    ]
    assert_alike(found, reachable[:1])


def test_the_end_that_a_beam_of_all_prefixes_misses() -> None:
    """p(END) = 0.22 is the best output, yet ranks behind all three tokens (0.26); each then ends with 0.25 at best."""
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START, [END, *CHOICES]] = torch.tensor([0.22, 0.26, 0.26, 0.26])
    p[3:, [END, *CHOICES]] = 0.25
    cube = p.log().expand(VOCABULARY, VOCABULARY, VOCABULARY)
    step, state = model_of(cube[None])
    best = exhaustive(cube, 2, "none", 1.0)[0]
    assert (best.tokens, best.ended) == ((), True)
    narrow, wide = (beam_search(step, state, limits=[2], rule=BeamRule(width, "none"))[0][0] for width in (V - 1, V))
    assert narrow.log_probability == pytest.approx(math.log(0.26 * 0.25), abs=1e-5)
    assert alike(wide, best)


def test_at_the_limit_a_living_prefix_may_win_though_enough_have_ended() -> None:
    """END (0.4) and 4 END (0.25 · 0.8) fill the beam of two; 3 5 (0.35 · 0.9) is cut off at the limit, and better."""
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START, [END, 3, 4]] = torch.tensor([0.4, 0.35, 0.25])
    p[3, [END, 5]] = torch.tensor([0.1, 0.9])
    p[4, [END, 5]] = torch.tensor([0.8, 0.2])
    step, state = model_of(p.log().expand(1, VOCABULARY, VOCABULARY, VOCABULARY))
    first, second = beam_search(step, state, limits=[2], rule=BeamRule(2, "average", 1.0, n_best=2))[0]
    assert (first.tokens, first.ended) == ((3, 5), False)
    assert first.score == pytest.approx(math.log(0.315) / 2, abs=1e-5)
    assert (second.tokens, second.ended) == ((4,), True)
    assert second.score == pytest.approx(math.log(0.2) / 2, abs=1e-5)


# ---- what every n-best list promises


@rules
@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    limits=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    beam=st.integers(2, 7),
    spread=st.sampled_from([0.5, 2.0, 6.0]),
)
def test_promises_of_an_n_best_list(
    length: LengthRule, alpha: float, seed: int, limits: list[int], beam: int, spread: float
) -> None:
    """Sorted, distinct, within the limit, scored as the model scores them, whoever else is in the batch."""
    cubes = torch.stack([matrix_of(seed + b, spread) for b in range(len(limits))])
    step, state = model_of(cubes)
    rule = BeamRule(beam, length, alpha, n_best=beam)
    for cube, limit, found in zip(cubes, limits, beam_search(step, state, limits=limits, rule=rule), strict=True):
        assert 1 <= len(found) <= beam
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len({each.tokens for each in found}) == len(found)
        for each in found:
            assert len(each.tokens) + each.ended <= limit
            assert each.ended or len(each.tokens) == limit
            scores = log_probabilities(cube, each.tokens, each.ended)
            assert each.token_log_probabilities == pytest.approx(scores, abs=1e-4)
            assert each.log_probability == pytest.approx(math.fsum(scores), abs=1e-4)
            assert each.score == pytest.approx(normalised(each.log_probability, len(scores), length, alpha), abs=1e-4)
        alone_step, alone_state = model_of(cube[None])
        assert_alike(found, beam_search(alone_step, alone_state, limits=[limit], rule=rule)[0])


@settings(max_examples=30, deadline=None)
@given(seed=seeds, beam=st.integers(2, 5), limit=st.integers(1, 5))
def test_n_best_is_the_head_of_the_longer_list(seed: int, beam: int, limit: int) -> None:
    step, state = model_of(matrix_of(seed)[None])
    lists = [beam_search(step, state, limits=[limit], rule=BeamRule(beam, n_best=n))[0] for n in range(1, beam + 1)]
    for n, found in enumerate(lists, start=1):
        assert found == lists[-1][:n]


def test_no_sentences_give_no_results() -> None:
    step, state = model_of(matrix_of(0)[None][:0])
    assert greedy(step, state, limits=[]) == []
    assert beam_search(step, state, limits=[], rule=BeamRule()) == []


def test_a_vocabulary_smaller_than_the_beam() -> None:
    """At the first step there are four continuations for a beam of seven; what fills it up never comes out."""
    cube = matrix_of(3)
    step, state = model_of(cube[None])
    found = beam_search(step, state, limits=[1], rule=BeamRule(7, "none", 1.0, 7))[0]
    assert_alike(found, exhaustive(cube, 1, "none", 1.0))


# ---- length


def test_length_rules_by_hand() -> None:
    assert normalised(-6.0, 4, "none", 1.0) == -6.0
    assert normalised(-6.0, 4, "average", 1.0) == -1.5
    assert normalised(-6.0, 4, "average", 0.5) == -3.0
    assert normalised(-6.0, 7, "gnmt", 1.0) == -3.0
    assert normalised(-6.0, 19, "gnmt", 0.5) == -3.0
    for rule in ("average", "gnmt"):
        assert normalised(-6.0, 9, rule, 0.0) == -6.0  # α = 0 is none
        assert normalised(-6.0, 1, rule, 1.0) == -6.0  # one token is its own mean


def test_normalisation_chooses_between_short_and_long() -> None:
    """END at once with 0.4; or 3 and END with 0.6 · 0.6 = 0.36; 3, 5 and whatever follows have 0.12 each."""
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START, [END, 3]] = torch.tensor([0.4, 0.6])
    p[3, [END, 5]] = torch.tensor([0.6, 0.4])
    p[5, [END, 5]] = torch.tensor([0.5, 0.5])
    step, state = model_of(p.log().expand(1, VOCABULARY, VOCABULARY, VOCABULARY))

    def best(length: LengthRule, alpha: float) -> object:
        found = beam_search(step, state, limits=[3], rule=BeamRule(3, length, alpha))[0][0]
        return found.tokens, pytest.approx(found.score, abs=1e-4)

    assert best("none", 1.0) == ((), -0.9163)  # against −1.0217
    assert best("average", 1.0) == ((3,), -0.5108)  # −1.0217 / 2
    assert best("gnmt", 0.2) == ((), -0.9163)  # against −1.0217 / (7/6)^0.2 = −0.9906
    assert best("gnmt", 1.0) == ((3,), -0.8757)  # −1.0217 / (7/6)


def test_limits_follow_the_source() -> None:
    config = DecodeConfig(ratio=1.5, extra=4, max_length=20)
    assert [config.limit(n) for n in (0, 1, 3, 10, 11, 100)] == [4, 5, 8, 19, 20, 20]


def test_more_outputs_than_beams_are_refused() -> None:
    with pytest.raises(ValueError, match="n_best is 3 and beam is 2: a beam holds at most that many outputs"):
        DecodeConfig(beam=2, n_best=3)


def test_search_is_greedy_at_one_and_a_beam_above() -> None:
    step, state = model_of(matrix_of(1)[None])
    assert search(step, state, limits=[5], config=DecodeConfig(beam=1)) == greedy(step, state, limits=[5])
    config = DecodeConfig(beam=4, length="gnmt", alpha=0.6, n_best=3)
    expected = beam_search(step, state, limits=[5], rule=BeamRule(4, "gnmt", 0.6, 3))
    assert search(step, state, limits=[5], config=config) == expected
