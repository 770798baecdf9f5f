"""Labelled brackets of written trees against right ones: F1, as PARSEVAL and its program evalb count.

A tree is a line such as `(S (NP PRP )NP (VP VBZ )VP . )S`: an opening bracket with the label of a constituent, a
closing one with or without it, and between them a part of speech for each word. A constituent is a label and the words
from its first to its last. As with the usual parameters of evalb (Collins 1999):

- the parts of speech themselves are no constituents;
- punctuation is taken out first, where the right tree has it: `,` `.` `:` and both kinds of quotes;
- PRT counts as ADVP;
- a constituent that stands twice counts twice.

Otherwise than there, no line is left out because it is no tree or has another number of words. A closing bracket too
many is passed over, and what is open at the end is closed there (as Vinyals et al. 2015 do).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References, f1, how_many, paired, score_of_sums
from saccade.metrics.score import Score

PUNCTUATION = frozenset({",", ".", ":", "``", "''"})
ROOTS = frozenset({"", "TOP", "S1", "ROOT"})
_TOKENS = re.compile(r"\([^\s()]*|\)[^\s()]*|[^\s()]+")
_SAME = {"PRT": "ADVP"}


@dataclass(frozen=True)
class Constituent:
    label: str
    first: int
    """The place of its first word."""
    end: int
    """The place behind its last word."""


@dataclass(frozen=True)
class ReadTree:
    tags: tuple[str, ...]
    constituents: tuple[Constituent, ...]


def read_tree(line: str) -> ReadTree:
    """Any line as a tree, however broken."""
    tags: list[str] = []
    opened: list[tuple[str, int]] = []
    constituents: list[Constituent] = []
    for token in _TOKENS.findall(line):
        if token[0] == "(":
            opened.append((token[1:], len(tags)))
        elif token[0] != ")":
            tags.append(token)
        elif opened:
            constituents.append(Constituent(*opened.pop(), len(tags)))
    constituents += [Constituent(label, first, len(tags)) for label, first in opened]
    return ReadTree(tuple(tags), tuple(each for each in constituents if each.label not in ROOTS))


def bracket_f1(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
    """Corpus F1 of labelled brackets, 0 to 100; of several references the one that fits best counts."""
    counts, signature = bracket_counts(hypotheses, references)
    return score_of_sums("bracket F1", counts, f1, signature, confidence=confidence)


def bracket_counts(hypotheses: Sequence[str], references: References) -> tuple[list[tuple[int, int, int]], str]:
    """Of each line the brackets in both, in the reference that fits best, in the output; and the signature."""
    pairs = paired("bracket_f1", hypotheses, references)
    counts = [_best(read_tree(output), [read_tree(each) for each in right]) for output, right in pairs]
    return counts, f"{how_many(pairs)}|labels:yes|punctuation:no|PRT:ADVP"


def _best(written: ReadTree, right: Sequence[ReadTree]) -> tuple[int, int, int]:
    return max((_counts(written, each) for each in right), key=lambda counts: 2 * counts[0] / max(1, sum(counts[1:])))


def _counts(written: ReadTree, right: ReadTree) -> tuple[int, int, int]:
    """Constituents in both, in the right tree, in the written one."""
    left_out = [place for place, tag in enumerate(right.tags) if tag in PUNCTUATION]
    ours, theirs = _without(written, left_out), _without(right, left_out)
    return (ours & theirs).total(), theirs.total(), ours.total()


def _without(tree: ReadTree, left_out: Sequence[int]) -> Counter[Constituent]:
    """The constituents when some words are taken out; those that had no others are gone."""

    def moved(place: int) -> int:
        return place - sum(each < place for each in left_out)

    kept = (
        Constituent(_SAME.get(each.label, each.label), moved(each.first), moved(each.end)) for each in tree.constituents
    )
    return Counter(each for each in kept if each.first < each.end)
