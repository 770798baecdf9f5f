"""Slots and intents out of one written line: the intent, then a label for each word.

`atis_flight O O B-fromloc.city_name O B-toloc.city_name I-toloc.city_name`. A slot is its type and the words from its
first to its last; it is right as a whole or not at all, as the program conlleval counts. An `I-` behind nothing, or
behind another type, begins a slot. Labels that are missing say `O`; a slot behind the last word is a wrong one.
"""

from collections.abc import Sequence

from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References, f1, how_many, paired, score_of_shares, score_of_sums
from saccade.metrics.score import Score

Slot = tuple[str, int, int]


def slots_of(labels: Sequence[str]) -> set[Slot]:
    """(type, place of the first word, place behind the last) of every slot."""
    found: set[Slot] = set()
    kind, first = "", 0
    for place, label in enumerate([*labels, "O"]):
        sign, _, here = label.partition("-")
        goes_on = sign == "I" and bool(kind) and here == kind
        if kind and not goes_on:
            found.add((kind, first, place))
            kind = ""
        if sign in ("B", "I") and not goes_on:
            kind, first = here, place
    return found


def slot_f1(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """Corpus F1 of slots, 0 to 100."""
    counts, signature = slot_counts(hypotheses, references)
    return score_of_sums("slot F1", counts, f1, signature, confidence=confidence)


def slot_counts(hypotheses: Sequence[str], references: References) -> tuple[list[tuple[int, int, int]], str]:
    """Of each line the slots in both, in the reference that fits best, in the output; and the signature."""
    pairs = paired("slot_f1", hypotheses, references)
    counts = [max((_counts(output, each) for each in right), key=_share) for output, right in pairs]
    return counts, f"{how_many(pairs)}|scheme:BIO"


def intent_accuracy(hypotheses: Sequence[str], references: References) -> Score:
    """The percentage of lines that begin with the right intent, with Wilson's interval."""
    pairs = paired("intent_accuracy", hypotheses, references)
    right = sum(output.split()[:1] in [each.split()[:1] for each in several] for output, several in pairs)
    return score_of_shares("intent accuracy", right, len(pairs), None)


def _counts(output: str, reference: str) -> tuple[int, int, int]:
    """Slots in both, in the reference, in the output."""
    ours, theirs = slots_of(output.split()[1:]), slots_of(reference.split()[1:])
    return len(ours & theirs), len(theirs), len(ours)


def _share(counts: tuple[int, int, int]) -> float:
    return 2 * counts[0] / max(1, counts[1] + counts[2])
