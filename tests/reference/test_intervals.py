"""Intervals of language models' and taggers' scores, against a bootstrap written out resample by resample."""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.metrics import stretches
from saccade.metrics.interval import Resampling, bootstrap_sums
from saccade.metrics.perplexity import Perplexity, TextCounts, perplexity_scores
from saccade.metrics.score import Score
from saccade.metrics.spans import SpanLike, span_report
from saccade.metrics.stretches import Sizes, blocks, spread
from saccade.score_tags import score_tags
from saccade.text.tags import TagSet, converted, read_spans, read_strictly

NAMES = ("perplexity", "perplexity_per_word", "perplexity_per_byte", "bits_per_character", "nats_per_frame")
HOW = Resampling(300, seed=7)


def brute_force(
    lines: Sequence[object], value_of: Callable[[list[int]], float], how: Resampling
) -> tuple[float, float]:
    """Draw line numbers with replacement, score what was drawn from scratch, sort, and cut a fortieth off each end."""
    draw = np.random.default_rng(how.seed)
    found = sorted(value_of(draw.integers(len(lines), size=len(lines)).tolist()) for _ in range(how.samples))

    def at(share: float) -> float:
        place = share * (len(found) - 1)
        low = math.floor(place)
        return found[low] + (place - low) * (found[min(low + 1, len(found) - 1)] - found[low])

    return at(0.025), at(0.975)


# ---- language models


def text_of(count: int, seed: int = 0) -> list[tuple[float, float, int, int, int, int, int]]:
    """Of each line: nats, those of its end, tokens, words, characters, bytes, frames."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = draw.randint(1, 9)
        characters = words * draw.randint(2, 5)
        end = draw.expovariate(2.0)
        sizes = (words, characters, characters + draw.randint(0, 4), draw.randint(1, 8))
        rows.append((end + draw.expovariate(0.1), end, words + draw.randint(0, 3), *sizes))
    return rows


def perplexity_of(rows: Sequence[Sequence[float]], *, noted: bool = True) -> Perplexity:
    nats, ends, tokens, words, characters, sizes, frames = (sum(column) for column in zip(*rows, strict=True))
    counts = TextCounts(int(tokens), int(words), int(characters), int(sizes), len(rows), int(frames))
    return Perplexity(nats, counts, ends, np.array(rows) if noted else None)


@pytest.mark.parametrize("lines", [2, 3, 40])
@pytest.mark.parametrize("name", NAMES)
def test_intervals_of_a_language_model_are_those_of_resampled_lines(lines: int, name: str) -> None:
    rows = text_of(lines)

    def value(drawn: list[int]) -> float:
        return perplexity_scores(perplexity_of([rows[i] for i in drawn], noted=False), "")[name].value

    score = perplexity_scores(perplexity_of(rows), "signed", confidence=HOW)[name]
    assert (score.low, score.high) == pytest.approx(brute_force(rows, value, HOW), rel=1e-12)
    assert score.low <= score.value <= score.high
    assert score.signature == "signed"
    usual = perplexity_scores(perplexity_of(rows), "signed")[name]
    assert (usual.low, usual.high) == pytest.approx(brute_force(rows, value, Resampling()), rel=1e-12)


def test_where_nothing_can_be_resampled_there_is_no_interval() -> None:
    def bounds(found: Perplexity, *, confidence: bool = True) -> set[bool]:
        scores = perplexity_scores(found, "", confidence=confidence)
        assert list(scores) == list(NAMES)
        return {math.isnan(end) for score in scores.values() for end in (score.low, score.high)}

    many, one = text_of(9), text_of(1)
    assert bounds(perplexity_of(many)) == {False}
    assert bounds(perplexity_of(one)) == {True}
    assert bounds(perplexity_of(many, noted=False)) == {True}
    assert bounds(perplexity_of(many), confidence=False) == {True}
    silent = [(*row[:-1], 0) for row in many[1:]]  # some resamples have no frame at all
    scores = perplexity_scores(perplexity_of([many[0], *silent]), "")
    assert math.isnan(scores["nats_per_frame"].low)
    assert not math.isnan(scores["perplexity"].low)


def test_a_probability_of_next_to_nothing_has_finite_ends() -> None:
    rows = [(1e6 + each, 0.0, 1, 1, 1, 1, 0) for each in range(5)]
    score = perplexity_scores(perplexity_of(rows), "")["perplexity"]
    assert score.low == score.value == score.high == pytest.approx(math.exp(700))


@given(lines=st.integers(1, 60), most=st.integers(1, 20), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_merged_blocks_keep_the_sums(lines: int, most: int, seed: int) -> None:
    rows_NK = np.array(text_of(lines, seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "MOST_BLOCKS", most)
        merged_MK = blocks(rows_NK)
    assert len(merged_MK) <= most or lines <= most
    assert len(merged_MK) == lines if lines <= most else len(merged_MK) >= most / 2
    assert merged_MK.sum(0) == pytest.approx(rows_NK.sum(0))
    together = -(-lines // len(merged_MK)) if lines > most else 1
    expected = [rows_NK[begin : begin + together].sum(0) for begin in range(0, lines, together)]
    np.testing.assert_allclose(merged_MK, expected)


def test_of_very_many_lines_neighbours_are_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = text_of(600)
    every = perplexity_scores(perplexity_of(rows), "")["perplexity"]
    monkeypatch.setattr(stretches, "MOST_BLOCKS", 200)
    merged = perplexity_scores(perplexity_of(rows), "")["perplexity"]
    threes = [list(map(sum, zip(*rows[begin : begin + 3], strict=True))) for begin in range(0, 600, 3)]
    by_hand = bootstrap_sums(np.array(threes), lambda sums: np.exp(sums[:, 0] / sums[:, 2]))
    assert (merged.low, merged.high) == pytest.approx(by_hand)
    assert merged.value == every.value
    assert merged.high - merged.low == pytest.approx(every.high - every.low, rel=0.25)


@given(parts=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=12), cuts=st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_tokens_and_sizes_are_noted_by_stretch(parts: list[tuple[int, bool]], cuts: int) -> None:
    """However the tokens come in pieces; what has no end counts to the last that has one."""
    by_hand: list[list[float]] = []
    is_end: list[bool] = []
    sizes, open_ = Sizes(), [0.0, 0.0, 0.0, 0.0]
    for number, (tokens, ended) in enumerate(parts):
        sizes.add(Counter(words=tokens + ended, characters=number), ended=ended)
        nats = [float(len(is_end) + each) for each in range(tokens + ended)]
        is_end += [False] * tokens + [True] * ended
        more = [sum(nats), nats[-1] if ended else 0.0, len(nats), number]
        open_ = [one + other for one, other in zip(open_, more, strict=True)]
        if ended:
            by_hand.append(open_)
            open_ = [0.0, 0.0, 0.0, 0.0]
    if not by_hand:
        by_hand = [[0.0, 0.0, 0.0, 0.0]]
    by_hand[-1] = [one + other for one, other in zip(by_hand[-1], open_, strict=True)]
    costs, done = np.zeros((len(by_hand), 3)), 0
    for begin in range(0, len(is_end), cuts):
        some = np.array(is_end[begin : begin + cuts])
        spread(np.arange(begin, begin + len(some), dtype=np.float64), some, costs, done)
        done += int(some.sum())
    np.testing.assert_allclose(costs, [row[:3] for row in by_hand])
    assert sizes.table().tolist() == [[row[2], row[3], 0, 0] for row in by_hand]


# ---- taggers

TAGS = TagSet(("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"), "iob2")


def tagged(count: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Tags that are right, and tags a third of which are not; ORG stands in one sentence alone."""
    draw = random.Random(seed)
    some = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    gold = [converted([draw.choice(some) for _ in range(draw.randint(1, 8))], "iob2") for _ in range(count)]
    found = [[tag if draw.random() < 0.7 else draw.choice(some) for tag in tags] for tags in gold]
    gold[count // 2] = found[count // 2] = ["B-ORG", "I-ORG"]
    return gold, found


Sides = list[list[set[SpanLike]]]


def share_of(sides: Sides, name: str) -> Callable[[list[int]], float]:
    """`precision`, `recall`, `f1` or `f1_TYPE` of the sentences that were drawn, in percent."""
    of, _, type_ = name.partition("_")

    def value(drawn: list[int]) -> float:
        gold, found = ([{span for span in side[i] if type_ in ("", span[0])} for i in drawn] for side in sides)
        return 100 * f1_of(gold, found)[of]

    return value


def f1_of(gold: Sequence[set[SpanLike]], found: Sequence[set[SpanLike]]) -> dict[str, float]:
    right = sum(len(one & other) for one, other in zip(gold, found, strict=True))
    guessed, there = sum(map(len, found)), sum(map(len, gold))
    precision, recall = right / guessed if guessed else 0.0, right / there if there else 0.0
    both = precision + recall
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / both if both else 0.0}


@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_spans_are_those_of_resampled_sentences(seed: int) -> None:
    gold, found = tagged(25, seed)
    freely: Sides = [[set(read_spans(tags)) for tags in side] for side in (gold, found)]
    strictly: Sides = [[set(read_strictly(tags, "iob2")) for tags in side] for side in (gold, found)]
    scores = score_tags(TAGS, None, gold, gold, found, confidence=HOW).scores
    names = ["f1", "f1_strict", "precision", "recall", "f1_LOC", "f1_ORG", "f1_PER"]
    assert [name for name in scores if name in names] == names
    for name in names:
        value = share_of(strictly, "f1") if name == "f1_strict" else share_of(freely, name)
        score = scores[name]
        assert score.value == pytest.approx(value(list(range(25))))
        assert (score.low, score.high) == pytest.approx(brute_force(gold, value, HOW))
        assert score.low <= score.value <= score.high
        assert score.count == 25
    assert scores["f1"].low != scores["f1_strict"].low


def test_a_type_that_a_resample_lacks_counts_0_there() -> None:
    """ORG is right where it stands, in one sentence of 25: one resample of three lacks it."""
    gold, found = tagged(25, 0)
    rare = score_tags(TAGS, None, gold, gold, found).scores["f1_ORG"]
    assert (rare.low, rare.value, rare.high) == (0.0, 100.0, 100.0)


def test_spans_have_no_interval_where_none_is_asked_for_or_none_can_be_drawn() -> None:
    gold, found = tagged(8, 1)
    drawn = {"f1", "f1_strict", "precision", "recall", "f1_LOC", "f1_ORG", "f1_PER"}

    def bare(scores: dict[str, Score]) -> set[str]:
        return {name for name, score in scores.items() if math.isnan(score.low) and not math.isnan(score.value)}

    plain = score_tags(TAGS, None, gold, gold, found, confidence=False).scores
    assert bare(plain) == drawn
    assert bare(score_tags(TAGS, None, gold, gold, found).scores) == set()
    assert bare(score_tags(TAGS, None, gold[4:5], gold[4:5], found[4:5]).scores) == drawn & {
        "f1", "f1_strict", "precision", "recall", "f1_ORG",
    }  # fmt: skip
    nothing = span_report([[], []], [[], []]).scores()
    assert {name: (score.low, score.value, score.high) for name, score in nothing.items()} == dict.fromkeys(
        ("f1", "precision", "recall"), (0.0, 0.0, 0.0)
    )


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Texts of 60 lines out of a world whose perplexity is known: 95 of 100 intervals should hold it, and most do."""
    draw = random.Random(3)
    world = math.exp(2.0)  # nats are exponential with mean 2, of one token each
    hits = []
    for _ in range(200):
        rows = [(draw.expovariate(0.5), 0.0, 1, 1, 1, 1, 0) for _ in range(60)]
        score = perplexity_scores(perplexity_of(rows), "", confidence=Resampling(200, seed=1))["perplexity"]
        hits.append(score.low <= world <= score.high)
    assert 0.87 <= mean(hits) <= 0.99
