"""A tree with a label at every node, as in the Stanford Sentiment Treebank → its phrases, each with its label.

Of `(3 (2 It) (4 (2 's) (3 fun)))` the phrase `fun` has the label 3, `'s fun` 4 and the whole, `It 's fun`, 3.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKENS = re.compile(r"[()]|[^ \t()]+")  # the treebank has a word with a space in it that does not break
DEEPEST = 500
"""Brackets inside one another; a file of other brackets is refused before memory ends."""


class Phrase(NamedTuple):
    label: str
    text: str
    """Its words with single spaces between them, written as in the tree."""


class _Node(NamedTuple):
    label: str
    words: list[str]


def phrases(line: str) -> list[Phrase]:
    """Of every node, parts before what they are part of: the whole is the last. A ValueError where it is no tree."""
    found: list[Phrase] = []
    above: list[_Node] = []  # the nodes that are open
    tokens = iter(_TOKENS.findall(line))
    for token in tokens:
        if not above and (token != "(" or found):
            raise ValueError("the line holds more or else than one tree in brackets")
        if token == "(":
            above.append(_opened(tokens, len(above)))
        elif token == ")":
            found.append(_closed(above))
        else:
            above[-1].words.append(token)
    if above or not found:
        raise ValueError(f"{len(above)} brackets are left open" if above else "the line is empty")
    return found


def _opened(tokens: Iterator[str], depth: int) -> _Node:
    label = next(tokens, ")")
    if label in "()":
        raise ValueError("a bracket opens without a label behind it")
    if depth >= DEEPEST:
        raise ValueError(f"more than {DEEPEST} brackets stand inside one another")
    return _Node(label, [])


def _closed(above: list[_Node]) -> Phrase:
    node = above.pop()
    if not node.words:
        raise ValueError(f"the brackets of a label {node.label[:20]!r} hold no word")
    if above:
        above[-1].words.extend(node.words)
    return Phrase(node.label, " ".join(node.words))
