"""Metrics of written text, worked by hand or by brute force; and what all of them have in common."""

import math
from functools import cache
from itertools import combinations
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.metrics.brackets import Constituent, bracket_f1, read_tree
from saccade.metrics.distinct import distinct_1, distinct_2
from saccade.metrics.edits import cer, distance, g2p_wer, per, wer
from saccade.metrics.interval import bootstrap_mean, bootstrap_sums
from saccade.metrics.lines import f1, ratio
from saccade.metrics.measure import measure
from saccade.metrics.names import LESS_IS_BETTER, METRICS, TEXT_METRICS, USUAL, WITHOUT_REFERENCE, TextMetric
from saccade.metrics.overlap import (
    answer_em,
    answer_f1,
    bag_f1,
    longest_common,
    plain_answer,
    rouge_1,
    rouge_2,
    rouge_l,
)
from saccade.metrics.slots import intent_accuracy, slot_f1, slots_of
from saccade.metrics.text import bleu, bleu_code, chrf, code_tokens, exact_match
from saccade.train.loop import is_better
from saccade.train.settings import LOWER_IS_BETTER

every_metric = pytest.mark.parametrize("name", TEXT_METRICS)
short_text = st.text("abc ", max_size=9)


# ---- what all have in common


def test_the_names_are_the_type() -> None:
    assert get_args(TextMetric) == TEXT_METRICS
    assert set(METRICS) > WITHOUT_REFERENCE | {*USUAL}
    assert len(set(METRICS) & LESS_IS_BETTER) == 7  # the others are of language models


def test_training_knows_what_is_better() -> None:
    assert set(LOWER_IS_BETTER) >= LESS_IS_BETTER
    assert not set(LOWER_IS_BETTER) & (set(METRICS) - LESS_IS_BETTER)
    for metric, better in (("per", 10.0), ("bracket_f1", 30.0)):
        assert is_better({metric: better, "loss": 1.0}, {metric: 20.0, "loss": 1.0}, metric)
        assert not is_better({metric: 20.0, "loss": 1.0}, {metric: better, "loss": 1.0}, metric)


RIGHT = [
    "(S (NP PRP )NP (VP VBZ (NP DT NN )NP )VP . )S B-city I-city",
    "(S (NP DT NN )NP (VP VBD (ADVP RB RB )ADVP )VP . )S B-day I-day",
    "(FRAG (NP NN NNS )NP : (NP JJ NNS )NP )FRAG B-time I-time",
]


@every_metric
def test_a_perfect_output_gets_the_best_score(name: TextMetric) -> None:
    score = measure(name, RIGHT, RIGHT)
    assert score.count == 3
    if name in WITHOUT_REFERENCE:
        assert 0 < score.value <= 100
    else:
        assert score.value == pytest.approx(0.0 if name in LESS_IS_BETTER else 100.0)


@every_metric
def test_a_wrong_output_is_worse_and_its_interval_holds_it(name: TextMetric) -> None:
    wrong = ["(S (NP NN )NP )S", RIGHT[1], RIGHT[1]]
    score = measure(name, wrong, RIGHT)
    if name not in WITHOUT_REFERENCE:
        assert score.value > 0 if name in LESS_IS_BETTER else score.value < 100
    assert math.isnan(score.low) == (name in WITHOUT_REFERENCE)
    if name not in WITHOUT_REFERENCE:
        assert 0 <= score.low <= score.value <= score.high
        assert measure(name, wrong, RIGHT) == score  # the resamples are the same each time


@every_metric
def test_one_of_several_references_is_enough(name: TextMetric) -> None:
    if name in WITHOUT_REFERENCE:
        return
    several = [["other words (X Y )X", right] for right in RIGHT[:2]] + [RIGHT[2]]
    score = measure(name, RIGHT, several)
    assert score.value == pytest.approx(0.0 if name in LESS_IS_BETTER else 100.0)
    assert score.signature is None or "nrefs:var" in score.signature
    with pytest.raises(UsageError, match="line 2 has no reference"):
        measure(name, RIGHT, [RIGHT[0], [], RIGHT[2]])


@every_metric
def test_lines_must_pair_up(name: TextMetric) -> None:
    with pytest.raises(UsageError, match=r"nothing to score|at least one line"):
        measure(name, [], [])
    with pytest.raises(UsageError, match="a list of"):
        measure(name, "ab", ["a", "b"])
    if name not in WITHOUT_REFERENCE:
        with pytest.raises(UsageError, match="2 hypotheses and 1 references"):
            measure(name, ["a", "b"], ["a"])


@every_metric
@pytest.mark.parametrize("output", ["", " ", ")", "((", "\0", "é́ 日本", "<unk>"])
def test_any_output_can_be_scored(name: TextMetric, output: str) -> None:
    score = measure(name, [output] * 3, RIGHT)
    assert math.isfinite(score.value)
    assert score.value >= 0


def test_resampled_sums_agree_with_resampled_means() -> None:
    values = np.random.default_rng(0).normal(5, 2, size=300)
    sums = np.stack([values, np.ones(300)], axis=1)
    assert bootstrap_sums(sums, ratio) == pytest.approx(bootstrap_mean(values), abs=0.05)
    low, high = bootstrap_sums(np.array([[1, 2, 2]] * 5), f1)
    assert (low, high) == (0.5, 0.5)
    for wrong in (np.ones(3), np.ones((1, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(UsageError, match="counts must be a table"):
            bootstrap_sums(wrong, ratio)
    with pytest.raises(UsageError, match="samples"):
        bootstrap_sums(sums, ratio, samples=10)


# ---- edits


def by_the_table(one: str, other: str) -> int:
    @cache
    def edits(i: int, j: int) -> int:
        if min(i, j) == 0:
            return max(i, j)
        return min(edits(i - 1, j) + 1, edits(i, j - 1) + 1, edits(i - 1, j - 1) + (one[i - 1] != other[j - 1]))

    return edits(len(one), len(other))


@settings(max_examples=300, deadline=None)
@given(short_text, short_text)
def test_the_distance_is_that_of_the_table(one: str, other: str) -> None:
    assert distance(one, other) == by_the_table(one, other)


def test_the_distance_of_long_texts() -> None:
    rng = np.random.default_rng(1)
    one, other = ("".join(rng.choice(list("abcd"), size=size)) for size in (180, 150))
    assert distance(one, other) == by_the_table(one, other)
    assert distance("kitten", "sitting") == 3
    assert distance(["K", "AE1", "T"], ["K", "T"]) == 1


def test_error_rates_worked_by_hand() -> None:
    # the cat sat → the cat sat down: 1 of 3 words; a b → (nothing): 2 of 2; together 3 of 5, not the mean of the two
    score = wer(["the cat sat down", ""], ["the cat sat", "a b"])
    assert score.value == pytest.approx(100 * 3 / 5)
    assert (score.name, score.signature) == ("WER", "nrefs:1|case:mixed|unit:word")
    assert cer(["kitten "], ["sitting"], confidence=False).value == pytest.approx(100 * 3 / 7)
    assert per(["K AE1 T"], ["K AE0 T S"], confidence=False).value == pytest.approx(50)
    assert wer(["a b c d"], ["a"], confidence=False).value == pytest.approx(300)
    with pytest.raises(UsageError, match="every reference is empty"):
        wer(["a"], [" "])


def test_the_closest_pronunciation_counts_and_of_equals_the_longest() -> None:
    assert per(["K T"], [["K AE1 T", "S T EH1 P"]], confidence=False).value == pytest.approx(100 / 3)
    assert per(["K T"], [["K AE1 T", "K"]], confidence=False).value == pytest.approx(100 / 3)  # 1 edit each way


def test_a_word_is_right_as_a_whole_or_wrong() -> None:
    score = g2p_wer(["K AE1  T", "D AO1 G", "F IH1 SH"], [["K AE0 T", "K AE1 T"], "D AA1 G", ["F IH1 SH"]])
    assert score.value == pytest.approx(100 / 3)
    assert score.signature == "nrefs:var|case:mixed|unit:line"
    assert (score.low, score.high) == pytest.approx((6.1, 79.2), abs=0.1)  # Wilson for 1 of 3


# ---- overlap


@settings(max_examples=200, deadline=None)
@given(short_text, short_text)
def test_the_longest_common_subsequence_by_trying_all(one: str, other: str) -> None:
    found = 0
    for size in range(len(one), 0, -1):
        if any(_is_in(chosen, other) for chosen in combinations(one, size)):
            found = size
            break
    assert longest_common(list(one), list(other)) == found


def _is_in(chosen: tuple[str, ...], text: str) -> bool:
    rest = iter(text)
    return all(each in rest for each in chosen)


def test_rouge_worked_by_hand() -> None:
    output, right = "The cat sat.", "the cat, it sat"
    # words: 3 of ours, 4 of theirs, 3 shared: 6/7; neighbours: 2, 3, 1 shared: 2/5; subsequence the cat sat: 6/7
    assert rouge_1([output], [right], confidence=False).value == pytest.approx(600 / 7)
    assert rouge_2([output], [right], confidence=False).value == pytest.approx(200 / 5)
    assert rouge_l([output], [right], confidence=False).value == pytest.approx(600 / 7)
    assert rouge_l(["sat cat the"], [right], confidence=False).value == pytest.approx(200 / 7)
    assert rouge_1(["über_all"], ["über all"], confidence=False).value == 100  # letters of any script
    mean = rouge_1([output, "dog"], [right, "cat"], confidence=False)
    assert mean.value == pytest.approx(300 / 7)
    assert mean.signature == "nrefs:1|case:lc|tok:alphanumeric|stem:no|measure:f1"


def test_answers_as_squad_compares_them() -> None:
    assert plain_answer("  The  Eiffel-Tower, a.k.a. an IRON thing!") == "eiffeltower aka iron thing"
    assert answer_em(["the Kitchen.", "park"], ["kitchen", ["Garden", "the park"]]).value == 100
    # eiffel tower / tower of paris: 1 shared of 2 and 3
    assert answer_f1(["The Eiffel Tower"], ["tower of Paris"], confidence=False).value == pytest.approx(40)
    assert answer_f1(["an"], [""], confidence=False).value == 100  # both say nothing
    assert answer_f1(["something"], ["the"], confidence=False).value == 0
    assert bag_f1("aab", "abb") == pytest.approx(2 * 2 / 6)
    assert answer_f1(["a x x"], [["y", "x"]], confidence=False).value == pytest.approx(200 / 3)


# ---- variety


def test_distinct_n_is_divided_by_words() -> None:
    lines = ["I don't know.", "I don't know."]  # i don ' t know . : 6 words, twice; 5 pairs
    assert distinct_1(lines).value == pytest.approx(100 * 6 / 12)
    assert distinct_2(lines).value == pytest.approx(100 * 5 / 12)
    assert distinct_2(["a", "b"]).value == 0  # no pair reaches over the end of a line
    assert distinct_1([""]).value == 0


# ---- brackets


def test_a_tree_is_read_however_it_closes() -> None:
    expected = (Constituent("NP", 0, 2), Constituent("VP", 2, 3), Constituent("S", 0, 3))
    for line in ("(S (NP DT NN )NP (VP VBZ )VP )S", "(S(NP DT NN)(VP VBZ))", "(TOP (S (NP DT NN ) (VP VBZ ) ) )"):
        assert read_tree(line).constituents == expected
        assert read_tree(line).tags == ("DT", "NN", "VBZ")
    broken = read_tree(") (S (NP DT NN ) ) ) (VP VBZ")
    assert broken.tags == ("DT", "NN", "VBZ")
    assert set(broken.constituents) == {Constituent("NP", 0, 2), Constituent("S", 0, 2), Constituent("VP", 2, 3)}


def test_bracket_f1_worked_by_hand() -> None:
    right = "(S (NP DT NN )NP , (VP VBZ (NP NN )NP (PRT RP )PRT )VP . )S"
    # Without punctuation: S 0-5, NP 0-2, VP 2-5, NP 3-4, ADVP 4-5. Written: S 0-5, NP 0-2, VP 2-4, NP 3-4, ADVP 4-5.
    written = "(S (NP DT NN )NP , (VP VBZ (NP NN )NP )VP (ADVP RB )ADVP . )S"
    assert bracket_f1([written], [right], confidence=False).value == pytest.approx(100 * 8 / 10)
    flat = "(S DT NN , VBZ NN RP . )S"
    assert bracket_f1([flat], [right], confidence=False).value == pytest.approx(100 * 2 / 6)
    assert bracket_f1(["DT NN"], [right], confidence=False).value == 0
    # over both lines: found 4 + 1, right 5 + 5, written 5 + 1
    both = bracket_f1([written, flat], [right, right])
    assert both.value == pytest.approx(100 * 10 / 16)
    assert both.low <= both.value <= both.high


def test_brackets_that_stand_twice_count_twice_and_labels_count() -> None:
    right = "(NP (NP NN )NP )NP"
    assert bracket_f1(["(NP NN )NP"], [right], confidence=False).value == pytest.approx(100 * 2 / 3)
    assert bracket_f1(["(VP (NP NN )NP )VP"], [right], confidence=False).value == pytest.approx(50)


def test_punctuation_is_taken_out_where_the_right_tree_has_it() -> None:
    right, other_tags = "(S (NP NN )NP , (VP VB )VP . )S", "(S (NP NN )NP CC (VP VB )VP NN )S"
    assert bracket_f1([other_tags], [right], confidence=False).value == 100
    # one word too few: nothing is skipped, the places simply do not agree
    assert bracket_f1(["(S (VP VB )VP . )S"], [right], confidence=False).value == 0
    # brackets around punctuation alone are none
    assert bracket_f1(["(S (NP NN )NP (X , )X (VP VB )VP . )S"], [right], confidence=False).value == 100


# ---- slots


def test_slots_of_labels() -> None:
    labels = ["O", "B-a", "I-a", "B-a", "I-b", "I-b", "O", "I-c", "B-c"]
    assert slots_of(labels) == {("a", 1, 3), ("a", 3, 4), ("b", 4, 6), ("c", 7, 8), ("c", 8, 9)}
    assert slots_of([]) == set()
    assert slots_of(["B-x.y-z", "I-x.y-z"]) == {("x.y-z", 0, 2)}


def test_slots_and_intents_worked_by_hand() -> None:
    right = "flight O B-from O B-to I-to"
    assert slot_f1(["fare O B-from O B-to I-to"], [right], confidence=False).value == 100
    assert intent_accuracy(["fare O B-from O B-to I-to"], [right]).value == 0
    # one of two slots right, one wrong of two written: 2 · 1 / (2 + 2)
    assert slot_f1(["flight O B-from O B-to"], [right], confidence=False).value == pytest.approx(50)
    # too few labels: 2 · 1 / (2 + 1); too many: 2 · 2 / (2 + 3)
    assert slot_f1(["flight O B-from"], [right], confidence=False).value == pytest.approx(200 / 3)
    assert slot_f1([f"{right} B-x"], [right], confidence=False).value == pytest.approx(80)
    assert slot_f1([""], [right], confidence=False).value == 0
    assert intent_accuracy(["", right], [right, right]).value == 50


# ---- several references, and code


def test_the_closest_reference_length_and_the_most_matches_count() -> None:
    output = "the cat sat on the mat today"
    several = [["a cat sat on a red mat", "the cat sat on the red mat today"], ["yes"]]
    alone = bleu([output, "yes"], [several[0][1], "yes"], confidence=False)
    assert bleu([output, "yes"], several, confidence=False).value > alone.value
    assert "nrefs:var" in str(bleu([output, "yes"], several).signature)
    assert chrf([output, "yes"], several).count == 2
    assert exact_match(["a", "b"], [["x", "a"], ["c"]]).value == 50


def test_code_comes_apart_at_every_sign() -> None:
    assert code_tokens("os.kill(getPid(), 'a_b1')") == [
        "os", ".", "kill", "(", "get", "Pid", "(", ")", ",", "`", "a_b1", "`", ")",
    ]  # fmt: skip
    # f ( a , b ) against f ( a , c ): 5 of 6, 3 of 5, 2 of 4, 1 of 3 → (5/6 · 3/5 · 2/4 · 1/3) ^ (1/4)
    score = bleu_code(["f(a,b)"], ["f(a, c)"], confidence=False)
    assert score.value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)
    assert "tok:code" in str(score.signature)
    assert "smooth:none" in str(score.signature)
    assert bleu_code(['x = "a"'], ["x='a'"], confidence=False).value == pytest.approx(100)
