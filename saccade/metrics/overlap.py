"""Words that an output shares with what is right: ROUGE of summaries, exact match and F1 of answers."""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References, how_many, paired, score_of_means, score_of_shares
from saccade.metrics.score import Score

_ALPHANUMERIC = re.compile(r"[^\W_]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def rouge_1(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """ROUGE-1 (Lin 2004): F1 of single words, mean over the lines, 0 to 100."""
    return _rouge("ROUGE-1", lambda one, other: bag_f1(one, other), hypotheses, references, confidence)


def rouge_2(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """ROUGE-2 (Lin 2004): F1 of pairs of neighbouring words, mean over the lines, 0 to 100."""
    return _rouge(
        "ROUGE-2", lambda one, other: bag_f1(pairwise(one), pairwise(other)), hypotheses, references, confidence
    )


def rouge_l(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """ROUGE-L (Lin 2004): F1 of the longest common subsequence, mean over the lines, 0 to 100."""
    return _rouge("ROUGE-L", _subsequence_f1, hypotheses, references, confidence)


def answer_em(hypotheses: Sequence[str], references: References) -> Score:
    """The percentage of answers equal to a reference, case, punctuation, articles and white space apart.

    As for SQuAD (Rajpurkar et al. 2016); with Wilson's interval.
    """
    pairs = paired("answer_em", hypotheses, references)
    right = sum(plain_answer(output) in map(plain_answer, several) for output, several in pairs)
    return score_of_shares("answer EM", right, len(pairs), f"{how_many(pairs)}|norm:squad")


def answer_f1(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """F1 of the words of answers (Rajpurkar et al. 2016), mean over the lines, 0 to 100; the best reference counts."""
    pairs = paired("answer_f1", hypotheses, references)
    values = [
        max(_answer_f1(plain_answer(output), plain_answer(each)) for each in several) for output, several in pairs
    ]
    return score_of_means("answer F1", values, f"{how_many(pairs)}|norm:squad", confidence=confidence)


def plain_answer(text: str) -> str:
    """Small letters, no punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def _answer_f1(one: str, other: str) -> float:
    if not one or not other:
        return float(one == other)  # no answer is right where there is none
    return bag_f1(one.split(), other.split())


def bag_f1(one: Iterable[object], other: Iterable[object]) -> float:
    """2 · shared / all, where each item counts as often as it occurs; 0 where a side has none."""
    ours, theirs = Counter(one), Counter(other)
    return 2 * (ours & theirs).total() / (ours.total() + theirs.total()) if ours and theirs else 0.0


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """How long the longest common subsequence is; a row of the table is the bits of one number (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    whole = (1 << len(one)) - 1
    row = whole
    for item in other:
        matched = row & places.get(item, 0)
        row = ((row + matched) | (row - matched)) & whole
    return (whole & ~row).bit_count()


def _subsequence_f1(one: Sequence[str], other: Sequence[str]) -> float:
    return 2 * longest_common(one, other) / (len(one) + len(other)) if one and other else 0.0


def _rouge(
    name: str,
    f1: Callable[[Sequence[str], Sequence[str]], float],
    hypotheses: Sequence[str],
    references: References,
    confidence: Confidence,
) -> Score:
    """Words are runs of letters and digits in small letters, not stemmed; of several references the best counts."""
    pairs = paired(name, hypotheses, references)
    values = [max(f1(_words(output), _words(each)) for each in several) for output, several in pairs]
    signature = f"{how_many(pairs)}|case:lc|tok:alphanumeric|stem:no|measure:f1"
    return score_of_means(name, values, signature, confidence=confidence)


def _words(text: str) -> list[str]:
    return _ALPHANUMERIC.findall(text.lower())
