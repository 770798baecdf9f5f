"""Our scores of written text against the programs that others score with, where they are installed."""

import random
from typing import Any

import pytest

from saccade.metrics.brackets import bracket_f1
from saccade.metrics.edits import cer, wer
from saccade.metrics.lines import f1, score_of_sums
from saccade.metrics.overlap import rouge_1, rouge_2, rouge_l
from saccade.metrics.slots import slot_f1, slots_of

WORDS = ["the", "cat", "cats", "sat", "Mat", "on", "a", "1,000", "euros", "e-mail", "Re:", "it's", "U.S.", "x_y"]


def lines(seed: int, count: int = 200) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(count)]


def test_error_rates_equal_jiwer() -> None:
    jiwer = pytest.importorskip("jiwer")
    output, right = lines(1), lines(2)
    assert wer(output, right).value == pytest.approx(100 * jiwer.wer(right, output))
    assert cer(output, right).value == pytest.approx(100 * jiwer.cer(right, output))


def test_rouge_equals_rouge_score_without_its_stemmer() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    output, first, second = lines(3), lines(4), lines(5)
    for ours, name in ((rouge_1, "rouge1"), (rouge_2, "rouge2"), (rouge_l, "rougeL")):
        theirs = [scorer.score(right, each)[name].fmeasure for each, right in zip(output, first, strict=True)]
        assert ours(output, first, confidence=False).value == pytest.approx(100 * sum(theirs) / len(theirs))
        several = list(zip(first, second, strict=True))
        best = [scorer.score_multi(right, each)[name].fmeasure for each, right in zip(output, several, strict=True)]
        assert ours(output, several, confidence=False).value == pytest.approx(100 * sum(best) / len(best))


def test_slots_equal_seqeval() -> None:
    seqeval: Any = pytest.importorskip("seqeval.metrics")
    draw = random.Random(6)
    signs = ["O", "O", "B-a", "I-a", "B-b", "I-b", "I-a.b-c"]
    right = [draw.choices(signs, k=draw.randint(1, 9)) for _ in range(300)]
    output = [[draw.choice([label, label, draw.choice(signs)]) for label in labels] for labels in right]
    score = slot_f1([f"x {' '.join(each)}" for each in output], [f"x {' '.join(each)}" for each in right])
    assert score.value == pytest.approx(100 * seqeval.f1_score(right, output))
    for labels in right:
        theirs = {(kind, first, last + 1) for kind, first, last in seqeval.sequence_labeling.get_entities(labels)}
        assert slots_of(labels) == theirs


# What evalb prints for the trees that come with it: matched, gold and written brackets. Words are left out here.
RIGHT = "(S (A P )A (B Q (A R T )A )B )S"
EVALB = {
    "(S (A P )A (B Q (A R T )A )B )S": (4, 4, 4),
    "(S (A P )A (B Q (C R T )C )B )S": (3, 4, 4),
    "(S (A P )A (B Q (A R U )A )B )S": (4, 4, 4),
    "(S (C P )C (B Q (A R U )A )B )S": (3, 4, 4),
    "(S (A P )A (B Q R (A T )A )B )S": (3, 4, 4),
    "(S (A P Q )A (A R T )A )S": (2, 4, 3),
    "(S P Q R T )S": (1, 4, 1),
    "P Q R T": (0, 4, 0),
    "(S (A P )A (B Q (A (A R T )A )A )B )S": (4, 4, 5),
    "(S (A P )A (B Q (A (A (A (A (A R T )A )A )A )A )A )B )S": (4, 4, 8),
    "(TOP (S (A P )A (B Q (A R T )A )B )S )TOP": (4, 4, 4),
}


@pytest.mark.parametrize("written", EVALB)
def test_brackets_equal_evalb(written: str) -> None:
    theirs = score_of_sums("", [EVALB[written]], f1, "", confidence=False).value
    assert bracket_f1([written], [RIGHT], confidence=False).value == pytest.approx(theirs)
    punctuated = bracket_f1([written.replace("T )", "T : )", 1)], [RIGHT.replace("T )", "T : )")], confidence=False)
    assert punctuated.value == pytest.approx(theirs)


def test_brackets_of_a_corpus_equal_evalb() -> None:
    expected = [sum(each) for each in zip(*EVALB.values(), strict=True)]
    score = bracket_f1(list(EVALB), [RIGHT] * len(EVALB))
    assert score.value == pytest.approx(100 * 2 * expected[0] / (expected[1] + expected[2]))
