"""Sentence scores of all pairs at once, against sacrebleu pair by pair; and what minimum Bayes risk makes of them."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.lines import Output
from saccade.metrics import expected
from saccade.metrics.expected import Utility, expected_utility, utilities
from saccade.translate import by_expected_utility

SENTENCE: dict[Utility, Callable[[str, list[str]], sacrebleu.metrics.base.Score]] = {
    "chrf": sacrebleu.sentence_chrf,
    "bleu": sacrebleu.sentence_bleu,
}
each_utility = pytest.mark.parametrize("utility", list(SENTENCE))
words = st.sampled_from(["a", "the", "The", "cat", "sat", "on", "mat", ",", "naïve", "1,000.5", "don't", "日本", "..."])
sentences = st.lists(words, max_size=9).map(" ".join) | st.text(max_size=12)


def by_sacrebleu(candidates: list[str], references: list[str], utility: Utility) -> list[list[float]]:
    return [[SENTENCE[utility](one, [other]).score for other in references] for one in candidates]


@each_utility
@settings(max_examples=60, deadline=None)
@given(candidates=st.lists(sentences, min_size=1, max_size=5), references=st.lists(sentences, min_size=1, max_size=5))
def test_every_pair_has_sacrebleus_digits(utility: Utility, candidates: list[str], references: list[str]) -> None:
    found = utilities(candidates, references, utility)
    np.testing.assert_allclose(found, by_sacrebleu(candidates, references, utility), rtol=1e-13, atol=0)


@each_utility
def test_pieces_of_the_product_are_the_whole(utility: Utility, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(1)
    some = ["the", "cat", "sat", "on", "a", "mat", ",", "and", "it", "saw"]
    texts = [" ".join(draw.choices(some, k=draw.randint(0, 12))) for _ in range(9)]
    whole = utilities(texts, texts, utility)
    monkeypatch.setattr(expected, "AT_ONCE", 3)
    assert (utilities(texts, texts, utility) == whole).all()
    np.testing.assert_allclose(whole, by_sacrebleu(texts, texts, utility), rtol=1e-13)


@each_utility
@settings(max_examples=25, deadline=None)
@given(samples=st.lists(sentences, min_size=1, max_size=8), more=st.lists(sentences, max_size=3))
def test_the_expectation_is_the_mean_over_all_samples(utility: Utility, samples: list[str], more: list[str]) -> None:
    """What was drawn twice counts twice."""
    candidates = [*samples, *more]
    naive = [float(np.mean(row)) for row in by_sacrebleu(candidates, samples, utility)]
    assert expected_utility(candidates, samples, utility) == pytest.approx(naive, rel=1e-12)
    chosen = by_expected_utility([_output(text) for text in candidates], [_output(text) for text in samples], utility)
    assert len(chosen) == len(set(candidates))
    assert chosen[0].score == pytest.approx(max(naive), rel=1e-12)
    assert [each.score for each in chosen] == pytest.approx(sorted((each.score for each in chosen), reverse=True))
    for each in chosen:
        assert each.score == pytest.approx(naive[candidates.index(each.text)], rel=1e-12)


def _output(text: str, log_probability: float = -1.0) -> Output:
    return Output(text, log_probability, log_probability, (4,), (log_probability,), ended=True)


@each_utility
def test_weights_stand_for_how_often(utility: Utility) -> None:
    texts = ["the cat sat", "the cat", "a dog sat on it"]
    often = [texts[0]] * 3 + [texts[1]] * 5 + [texts[2]]
    for weights in ([3, 5, 1], [0.3, 0.5, 0.1]):
        assert expected_utility(texts, texts, utility, weights=weights) == pytest.approx(
            expected_utility(texts, often, utility), rel=1e-12
        )


def test_by_hand() -> None:
    """abc and abd: 2 of 3 letters, 1 of 2 pairs, 0 of 1 triples are shared; P = R = F = (⅔ + ½ + 0) / 3."""
    share = 100 * (2 / 3 + 1 / 2) / 3
    assert utilities(["abc"], ["abd", "abc", ""], "chrf")[0].tolist() == pytest.approx([share, 100, 0])
    assert expected_utility(["abc", "abd"], ["abc", "abd", "abd"], "chrf") == pytest.approx(
        [(100 + 2 * share) / 3, (200 + share) / 3]
    )
    # "the cat sat" of "the cat ran": 2/3 words, 1/2 pairs, no triple (half of one); four words in a row it has none
    bleu = 100 * math.exp((math.log(2 / 3) + math.log(1 / 2) + math.log(1 / 2)) / 3)
    assert utilities(["the cat sat"], ["the cat ran"], "bleu")[0, 0] == pytest.approx(bleu)


def test_of_equals_the_first_is_chosen() -> None:
    """ab and ba share their letters alone: each is as good as the other."""
    for first, second in (("ab", "ba"), ("ba", "ab")):
        outputs = [_output(first), _output(second), _output(first, -2.0), _output(second, -2.0)]
        chosen = by_expected_utility(outputs, outputs, "chrf")
        assert [(each.text, each.log_probability) for each in chosen] == [(first, -1.0), (second, -1.0)]
        assert chosen[0].score == pytest.approx(chosen[1].score)


@pytest.mark.parametrize(
    ("samples", "weights", "said"),
    [
        ([], None, "samples: there are none"),
        (["a"], [1.0, 2.0], "weights: there are 2 of them and 1 samples"),
        (["a", "b"], [0.0, 0.0], "weights: they must not be negative, and not all 0"),
        (["a", "b"], [2.0, -1.0], "weights: they must not be negative"),
    ],
)
def test_what_is_refused(samples: list[str], weights: list[float] | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        expected_utility(["a"], samples, "chrf", weights=weights)
