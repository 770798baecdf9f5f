"""Whole outputs drawn from a matrix: how often each comes, whoever else is drawn; and the best of them by risk."""

import math
from collections import Counter
from typing import Any

import pytest
import sacrebleu
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.config import parse
from saccade.decode.greedy import greedy
from saccade.decode.sampling import ROWS, DrawConfig, draw_outputs, filtered
from saccade.decode.scores import allowed_log_probabilities, normalised
from saccade.decode.settings import DecodeConfig, search
from saccade.lines import Output
from saccade.metrics.expected import Utility, expected_utility
from saccade.translate import by_expected_utility
from saccade.types import END, START, Hypothesis, State
from tests.equivalence.test_decode import every_output, log_probabilities, matrix_of, model_of

LIMIT = 3
Outcome = tuple[tuple[int, ...], bool]
RULES: dict[str, dict[str, Any]] = {
    "ancestral": {},
    "temperature": {"temperature": 0.6},
    "hot": {"temperature": 1.7},
    "top-k": {"top_k": 2},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.2},
    "typical": {"typical": 0.7},
    "all": {"temperature": 1.2, "top_k": 3, "top_p": 0.95, "min_p": 0.05, "typical": 0.97},
}


def outcomes(cube: Tensor, config: DrawConfig, limit: int) -> dict[Outcome, float]:
    """Every output with its probability, each step's distribution being what the rule leaves of the model's."""
    found = {}
    for tokens, ended in every_output(limit):
        log_p, before, last = 0.0, START, START
        for token in (*tokens, END) if ended else tokens:
            log_p += filtered(allowed_log_probabilities(cube[before, last][None]), config)[0, token].item()
            before, last = last, token
        found[tokens, ended] = math.exp(log_p)
    assert math.fsum(found.values()) == pytest.approx(1.0)
    return {output: p for output, p in found.items() if p > 0}


def exceeded_once_in_a_thousand(freedom: int) -> float:
    """The bound of chi-square, by Wilson and Hilferty (1931)."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + 3.0902 * math.sqrt(part)) ** 3)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_outputs_come_as_often_as_their_probability_says(rule: dict[str, Any]) -> None:
    count, cube = 20_000, matrix_of(8, 1.0)
    config = parse(DrawConfig, {"samples": count, "seed": 17, **rule})
    step, state = model_of(cube[None])
    (drawn,) = draw_outputs(step, state, lines=[5], limits=[LIMIT], config=config)
    got = Counter((each.tokens, each.ended) for each in drawn)
    wanted = {output: count * p for output, p in outcomes(cube, config, LIMIT).items()}
    assert len(drawn) == count > ROWS
    assert set(got) <= set(wanted)
    often = {output: mean for output, mean in wanted.items() if mean >= 5}
    cells = [(got[output], mean) for output, mean in often.items()]
    rest = count - sum(mean for _, mean in cells)
    if rest >= 5:
        cells.append((count - sum(seen for seen, _ in cells), rest))
    distance = sum((seen - mean) ** 2 / mean for seen, mean in cells)
    assert distance < exceeded_once_in_a_thousand(len(cells) - 1)


def drawn_alone(cubes: Tensor, b: int, line: int, limit: int, config: DrawConfig) -> list[Hypothesis]:
    step, state = model_of(cubes[b : b + 1])
    return draw_outputs(step, state, lines=[line], limits=[limit], config=config)[0]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    limits=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    samples=st.integers(1, 9),
    first=st.integers(0, 10**6),
)
def test_promises_of_what_is_drawn(seed: int, limits: list[int], samples: int, first: int) -> None:
    """Within the limit, scored as the model scores it, whoever else is in the batch and however many are drawn."""
    cubes = torch.stack([matrix_of(seed + b) for b in range(len(limits))])
    config = DrawConfig(samples=samples, seed=seed, temperature=1.3)
    step, state = model_of(cubes)
    lines = [first + 3 * b for b in range(len(limits))]
    together = draw_outputs(step, state, lines=lines, limits=limits, config=config)
    for b, (found, limit) in enumerate(zip(together, limits, strict=True)):
        assert len(found) == samples
        for each in found:
            assert len(each.tokens) + each.ended <= limit
            assert each.ended or len(each.tokens) == limit
            scores = log_probabilities(cubes[b], each.tokens, each.ended)
            assert each.token_log_probabilities == pytest.approx(scores, abs=1e-4)
            assert each.log_probability == each.score == pytest.approx(math.fsum(scores), abs=1e-4)
        assert found == drawn_alone(cubes, b, lines[b], limit, config)
        fewer = config.model_copy(update={"samples": (samples + 1) // 2})
        assert drawn_alone(cubes, b, lines[b], limit, fewer) == found[: (samples + 1) // 2]


def test_more_samples_than_are_drawn_side_by_side() -> None:
    cubes, config = torch.stack([matrix_of(1), matrix_of(2)]), DrawConfig(samples=ROWS + 70)
    step, state = model_of(cubes)
    found = draw_outputs(step, state, lines=[0, 1], limits=[5, 5], config=config)
    assert [len(some) for some in found] == [ROWS + 70] * 2
    assert found[1] == drawn_alone(cubes, 1, 1, 5, config)
    assert len({each.tokens for each in found[0]}) > 20


def test_other_lines_and_seeds_draw_other_outputs() -> None:
    cubes = matrix_of(3, 0.5)[None]
    by_key = [
        [each.tokens for each in drawn_alone(cubes, 0, line, 9, DrawConfig(samples=8, seed=seed))]
        for line, seed in ((0, 1), (1, 1), (0, 2))
    ]
    assert len({tuple(tokens) for tokens in by_key}) == 3


def test_the_state_given_is_not_written_into() -> None:
    """A step may write into what it is given."""
    cube = matrix_of(4)

    def step(last_N: Tensor, state: State) -> tuple[Tensor, State]:
        before_N = state.hypothesis["before"].clone()
        state.hypothesis["before"].copy_(last_N)
        return cube[before_N, last_N], state

    state = model_of(cube[None])[1]
    config = DrawConfig(samples=1)
    first = draw_outputs(step, state, lines=[0], limits=[6], config=config)
    assert state.hypothesis["before"].tolist() == [START]
    assert draw_outputs(step, state, lines=[0], limits=[6], config=config) == first


def test_search_draws_where_it_is_told_to() -> None:
    cubes = torch.stack([matrix_of(5), matrix_of(6)])
    step, state = model_of(cubes)
    sample = DrawConfig(samples=3, seed=2)
    config = DecodeConfig(beam=4, length="gnmt", alpha=0.6, sample=sample)
    found = search(step, state, limits=[5, 6], config=config, lines=[7, 8])
    plain = draw_outputs(step, state, lines=[7, 8], limits=[5, 6], config=sample)
    assert [[each.tokens for each in some] for some in found] == [[each.tokens for each in some] for some in plain]
    for each in (each for some in found for each in some):
        length = len(each.token_log_probabilities)
        assert each.score == pytest.approx(normalised(each.log_probability, length, "gnmt", 0.6))
    unnumbered = search(step, state, limits=[5, 6], config=config)
    assert unnumbered == search(step, state, limits=[5, 6], config=config, lines=[0, 1])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), limit=st.integers(0, 6))
def test_the_narrowest_rules_are_greedy(seed: int, limit: int) -> None:
    step, state = model_of(matrix_of(seed)[None])
    ((wanted,),) = greedy(step, state, limits=[limit])
    for rule in ({"top_k": 1}, {"temperature": 0.0}, {"min_p": 1.0}, {"top_p": 1e-9}):
        config = parse(DrawConfig, rule | {"samples": 2})
        for found in draw_outputs(step, state, lines=[0], limits=[limit], config=config)[0]:
            assert (found.tokens, found.ended) == (wanted.tokens, wanted.ended)
            assert found.log_probability == pytest.approx(wanted.log_probability, abs=1e-5)


def test_no_sentences_give_no_samples() -> None:
    step, state = model_of(matrix_of(0)[None][:0])
    assert draw_outputs(step, state, lines=[], limits=[], config=DrawConfig(samples=4)) == []


# ---- minimum Bayes risk


LETTERS = {3: "ab ", 4: "c", 5: "abd "}


def text_of(tokens: tuple[int, ...]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def output_of(tokens: tuple[int, ...], ended: bool = True) -> Output:
    return Output(text_of(tokens), 0.0, 0.0, tokens, (), ended)


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
@pytest.mark.parametrize("seed", [1, 2])
def test_many_samples_choose_as_the_whole_distribution_does(utility: Utility, seed: int) -> None:
    """The exact expected utility: every output there is, weighed by its probability; pair by pair by sacrebleu."""
    cube = matrix_of(seed, 1.0)
    p = outcomes(cube, DrawConfig(), LIMIT)
    measure = sacrebleu.sentence_chrf if utility == "chrf" else sacrebleu.sentence_bleu
    texts = list(dict.fromkeys(text_of(tokens) for tokens, _ in p))
    exact = {
        one: math.fsum(share * measure(one, [text_of(tokens)]).score for (tokens, _), share in p.items())
        for one in texts
    }
    weighed = expected_utility(texts, [text_of(tokens) for tokens, _ in p], utility, weights=list(p.values()))
    assert weighed == pytest.approx(list(exact.values()), rel=1e-6)

    count = 5000
    step, state = model_of(cube[None])
    config = DrawConfig(samples=count, seed=1)
    (drawn,) = draw_outputs(step, state, lines=[0], limits=[LIMIT], config=config)
    outputs = [output_of(each.tokens, each.ended) for each in drawn]
    ranked = by_expected_utility([output_of(tokens) for tokens, _ in p], outputs, utility)
    best, *others = sorted(exact.items(), key=lambda each: -each[1])
    assert ranked[0].text == best[0]
    assert best[1] - others[0][1] > 0.1  # no toss-up
    for each in ranked:  # the standard error of a mean of numbers between 0 and 100 is at most 50/√count
        assert each.score == pytest.approx(exact[each.text], abs=4 * 50 / math.sqrt(count))


def test_the_most_probable_output_need_not_be_the_best() -> None:
    """c alone has 0.4, but ab, abd and abab share 0.6 and most of their letters (Eikema and Aziz 2020)."""
    outputs = [output_of((4,))] * 4 + [output_of((3,))] * 2 + [output_of((5,))] * 2 + [output_of((3, 3))] * 2
    chosen = by_expected_utility(outputs, outputs, "chrf")
    assert chosen[0].text == "abd "
    assert chosen[-1].text == "c"
