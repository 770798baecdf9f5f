import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.metrics.alignment import AlignmentScore, alignment_error, combine
from saccade.metrics.interval import bootstrap_mean, bootstrap_sums, wilson, wilson_of_lines
from saccade.metrics.score import Score, digits
from saccade.metrics.text import bleu, chrf, exact_match, ter


def test_wilson_equals_a_published_example() -> None:
    # Newcombe (1998), table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for successes, n, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]:
        assert wilson(successes, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)


@given(st.integers(1, 5000), st.data())
def test_wilson_holds_the_share_and_mirrors(n: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, n))
    low, high = wilson(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert low < high
    other_low, other_high = wilson(n - successes, n)
    assert (1 - other_high, 1 - other_low) == pytest.approx((low, high), abs=1e-12)


def test_wilson_narrows_with_confidence_and_refuses_the_impossible() -> None:
    loose, tight = wilson(30, 100, confidence=0.5), wilson(30, 100, confidence=0.99)
    assert tight.low < loose.low < loose.high < tight.high
    for successes, n in [(-1, 5), (6, 5), (0, 0)]:
        with pytest.raises(UsageError, match="wilson"):
            wilson(successes, n)
    with pytest.raises(UsageError, match="confidence"):
        wilson(1, 2, confidence=1.0)


@given(st.integers(1, 300), st.data())
def test_of_lines_of_one_word_each_it_is_wilsons_own(n: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    counts_N2 = np.stack([np.arange(n) < right, np.ones(n)], axis=1)
    assert wilson_of_lines(counts_N2) == pytest.approx(tuple(wilson(right, n)), abs=1e-9)


@given(st.lists(st.integers(0, 9).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1))
def test_of_words_in_lines_it_is_never_narrower_and_holds_the_share(counts: list[tuple[int, int]]) -> None:
    right, total = (sum(column) for column in zip(*counts, strict=True))
    if not total:
        return
    low, high = wilson_of_lines(np.array(counts))
    plain = wilson(right, total)
    assert -1e-12 <= low <= right / total <= high <= 1 + 1e-12
    assert high - low >= plain.high - plain.low - 1e-9


def test_it_holds_the_true_share_as_often_as_it_says_where_words_of_a_line_err_together() -> None:
    """Lines of 10 words with a share of their own (mean 0.8, a correlation of 1/6 between words of a line)."""
    draw = np.random.default_rng(1)
    of_lines = as_independent = 0
    for _ in range(600):
        right_N = draw.binomial(10, draw.beta(4, 1, size=200))
        low, high = wilson_of_lines(np.stack([right_N, np.full(200, 10)], axis=1))
        of_lines += low <= 0.8 <= high
        low, high = wilson(int(right_N.sum()), 2000)
        as_independent += low <= 0.8 <= high
    assert 0.93 < of_lines / 600 < 0.97
    assert as_independent / 600 < 0.85


def test_it_is_as_wide_as_resampled_lines() -> None:
    draw = np.random.default_rng(2)
    total_N = draw.integers(1, 30, size=2000)
    counts_N2 = np.stack([draw.binomial(total_N, draw.beta(9, 1, size=2000)), total_N], axis=1)
    low, high = wilson_of_lines(counts_N2)
    drawn = bootstrap_sums(counts_N2, lambda sums_SK: sums_SK[:, 0] / sums_SK[:, 1])
    assert (low, high) == pytest.approx((drawn.low, drawn.high), abs=0.1 * (drawn.high - drawn.low))


def test_of_one_line_nothing_is_known_but_its_words() -> None:
    assert wilson_of_lines(np.array([[3, 5], [0, 0]])) == pytest.approx(tuple(wilson(3, 5)))


def test_bootstrap_of_the_mean_agrees_with_the_normal_law() -> None:
    values = np.random.default_rng(0).normal(5, 2, size=400)
    low, high = bootstrap_mean(values, samples=4000)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.03)
    assert bootstrap_mean(values, samples=4000) == (low, high)
    assert bootstrap_mean(values, samples=4000, seed=1) != (low, high)


def test_bootstrap_in_pieces_has_every_resample() -> None:
    long = np.arange(2**16) % 2  # 64 resamples are drawn at once, then the other 36
    low, high = bootstrap_mean(long, samples=100)
    assert 0.49 < low < 0.5 < high < 0.51


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [[1.0], [2.0]]])
def test_bootstrap_refuses_what_has_no_spread(values: list[float]) -> None:
    with pytest.raises(UsageError, match="values"):
        bootstrap_mean(values)


def test_bootstrap_refuses_too_few_samples() -> None:
    with pytest.raises(UsageError, match="samples"):
        bootstrap_mean([1.0, 2.0], samples=99)


def test_exact_match_counts_whole_lines() -> None:
    score = exact_match(["a b", "c", "d ", "e"], ["a b", "c", "d", "E"])
    assert (score.value, score.count, score.signature) == (50.0, 4, None)
    assert (score.low, score.high) == pytest.approx((15.0, 85.0), abs=0.05)  # Wilson for 2 of 4


def test_scores_travel_as_json() -> None:
    told = Score("BLEU", 27.34, math.nan, math.nan, "nrefs:1", 3).to_dict()
    expected = {"name": "BLEU", "value": 27.34, "low": None, "high": None, "signature": "nrefs:1", "count": 3}
    assert json.loads(json.dumps(told, allow_nan=False)) == expected


def test_digits_round_like_print() -> None:
    assert digits(Score("BLEU", 27.349, 0, 0, None, 1)) == "27.3"
    assert digits(Score("BLEU", 27.349, 0, 0, None, 1), width=2) == "27.35"


@pytest.mark.parametrize("metric", [bleu, chrf, ter, exact_match], ids=lambda metric: metric.__name__)
def test_text_must_pair_up(metric) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="empty"):
        metric([], [])
    with pytest.raises(UsageError, match="2 hypotheses and 1 references"):
        metric(["a", "b"], ["a"])
    with pytest.raises(UsageError, match="not one string"):
        metric("ab", ["a", "b"])


@pytest.mark.parametrize(("metric", "best"), [(bleu, 100), (chrf, 100), (ter, 0)])
def test_a_perfect_copy_gets_the_best_score_with_no_doubt(metric, best: float) -> None:  # type: ignore[no-untyped-def]
    lines = [f"this is sentence number {i} of the test" for i in range(5)]
    score = metric(lines, lines)
    assert (score.value, score.low, score.high) == pytest.approx((best, best, best))


def test_no_interval_where_none_was_asked_for_or_possible() -> None:
    lines = ["the cat sat on the mat", "the dog ran"]
    for score in (bleu(lines, lines, confidence=False), bleu(lines[:1], lines[:1])):
        assert math.isnan(score.low)
        assert math.isnan(score.high)


def test_alignment_worked_by_hand() -> None:
    weights = np.array(
        [
            [0.7, 0.1, 0.1, 0.1],  # gold 0: looked right, 0.3 outside
            [0.1, 0.2, 0.6, 0.1],  # gold 1: looked at 2, 0.8 outside
            [0.0, 0.5, 0.4, 0.1],  # gold 1 and 2: right, 0.1 outside
            [0.25, 0.25, 0.25, 0.25],  # no gold: not scored
        ]
    )
    score = alignment_error(weights, [[0], [1], [2, 1, 2], []])
    assert score.scored == 3
    assert score.argmax_error == pytest.approx(1 / 3)
    assert score.mass_error == pytest.approx((0.3 + 0.8 + 0.1) / 3)
    assert score.chance_argmax_error == pytest.approx((0.75 + 0.75 + 0.5) / 3)
    assert score.chance_mass_error == score.chance_argmax_error


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_uniform_attention_is_chance(target: int, source: int, data: st.DataObject) -> None:
    gold = data.draw(st.lists(st.lists(st.integers(0, source - 1), min_size=1), min_size=target, max_size=target))
    score = alignment_error(np.full((target, source), 1 / source), gold)
    assert score.argmax_error == pytest.approx(score.chance_argmax_error)
    assert score.mass_error == pytest.approx(score.chance_mass_error)


def test_pooling_counts_positions_not_examples() -> None:
    short, long = np.eye(1), np.eye(3)[[0, 0, 0]]
    scores = [alignment_error(short, [[0]]), alignment_error(long, [[0], [1], [2]])]
    pooled = combine(scores)
    assert pooled == AlignmentScore(0.5, 0.5, 0.5, 0.5, 4)
    stacked = combine([alignment_error(long[:1], [[0]]), alignment_error(long[1:], [[1], [2]])])
    assert stacked == scores[1]


def test_nothing_scored_is_not_a_number() -> None:
    nothing = alignment_error(np.eye(2), [[], []])
    assert nothing.scored == 0
    assert math.isnan(nothing.argmax_error)
    right = alignment_error(np.eye(2), [[0], [1]])
    assert combine([nothing, right]) == right
    assert math.isnan(combine([]).mass_error)


@pytest.mark.parametrize(
    ("weights", "gold", "told"),
    [
        (np.eye(2), [[0]], "2 target positions; got 1"),
        (np.eye(2), [[0], [2]], "target position 1 has 2"),
        (np.eye(2), [[0], [-1]], "target position 1 has -1"),
        (np.ones((2, 2)), [[0], [1]], "sum to at most 1"),
        (np.full((1, 2), np.nan), [[0]], "finite"),
        (np.ones(2), [[0]], "shape"),
    ],
)
def test_alignment_refuses_what_does_not_fit(weights: np.ndarray, gold: list[list[int]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        alignment_error(weights, gold)
