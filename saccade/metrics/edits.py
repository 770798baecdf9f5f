"""Edits between an output and what is right: error rates of words, characters and phonemes.

Where several references are right, the one with the fewest edits counts; of equals the longest.
"""

from collections.abc import Hashable, Sequence

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References, how_many, paired, ratio, score_of_shares, score_of_sums
from saccade.metrics.score import Score

WORDS, CHARACTERS, PHONEMES = "unit:word", "unit:character", "unit:phoneme"
"""What is inserted, deleted and substituted."""


def distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions that turn one into the other (Levenshtein 1966).

    A column of the table is two numbers, whose bits say where it grows and where it falls: one step for each item of
    `other`, whatever the length of `one` (Myers 1999, in the form of Hyyrö 2003).
    """
    if not one:
        return len(other)
    places: dict[Hashable, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    whole, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    up, down, edits = whole, 0, len(one)
    for item in other:
        equal = places.get(item, 0)
        diagonal = (((equal & up) + up) ^ up) | equal | down
        right_up, right_down = down | (whole & ~(diagonal | up)), up & diagonal
        edits += bool(right_up & last) - bool(right_down & last)
        right_up, right_down = (right_up << 1) | 1, right_down << 1
        up = (right_down | ~(diagonal | right_up)) & whole
        down = right_up & diagonal & whole
    return edits


def wer(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """Word error rate: edits per 100 reference words, from 0 up, less is better. Words are cut at white space."""
    return _rate("WER", WORDS, hypotheses, references, confidence)


def cer(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """Character error rate: edits per 100 reference characters, inner white space included; less is better."""
    return _rate("CER", CHARACTERS, hypotheses, references, confidence)


def per(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """Phoneme error rate: edits per 100 reference phonemes, which white space separates; less is better."""
    return _rate("PER", PHONEMES, hypotheses, references, confidence)


def g2p_wer(hypotheses: Sequence[str], references: References) -> Score:
    """Of pronunciations: the percentage of words that are not right as a whole, with Wilson's interval.

    That is what the literature on graphemes and phonemes calls word error rate; `wer` counts edits of running text.
    """
    pairs = paired("WER", hypotheses, references)
    wrong = sum(output.split() not in [each.split() for each in right] for output, right in pairs)
    return score_of_shares("WER of words", wrong, len(pairs), f"{how_many(pairs)}|case:mixed|unit:line")


def edit_counts(
    name: str, unit: str, hypotheses: Sequence[str], references: References
) -> tuple[list[tuple[int, int]], str]:
    """Of each line the edits to the closest reference, and its length; and the signature of what was counted."""
    pairs = paired(name, hypotheses, references)

    def cut(line: str) -> Sequence[str]:
        return line.strip() if unit == CHARACTERS else line.split()

    counts = [_closest(cut(output), [cut(each) for each in right]) for output, right in pairs]
    if not any(length for _, length in counts):
        raise UsageError(f"{name}: every reference is empty; there is nothing that edits could be measured by.")
    return counts, f"{how_many(pairs)}|case:mixed|{unit}"


def _rate(name: str, unit: str, hypotheses: Sequence[str], references: References, confidence: Confidence) -> Score:
    counts, signature = edit_counts(name, unit, hypotheses, references)
    return score_of_sums(name, counts, ratio, signature, confidence=confidence)


def _closest(output: Sequence[str], right: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Edits to the closest reference, and its length."""
    edits, shorter = min((distance(each, output), -len(each)) for each in right)
    return edits, -shorter
