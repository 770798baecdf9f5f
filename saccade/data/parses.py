"""Dependency parses: heads of words as a file has them → heads of tokens as an encoder reads them.

Words are what white space separates, and heads are given as in CoNLL-U: one whole number a word, counted from 1, with 0
for the one root. A token stands where its word stands. White space belongs to the word behind it, and behind the last
word to that. END, and the tokens of a line without words, are each a word by itself and a root.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from saccade.data.counts import many

if TYPE_CHECKING:  # a recipe's --help must not wait for numpy
    from numpy.typing import NDArray

Heads = tuple[int, ...]
WordsOf = Callable[[str, Sequence[int]], Sequence[int]]
"""(text, its ids) → of each id the word that it is a part of, from 0: `Tokenizer.word_places`."""
ROOT = 0


def read_heads(text: str, source: str) -> Heads:
    """The heads of the source's words; a ValueError says what is wrong with them."""
    given = text.split()
    wrong = next((each for each in given if not (each.isascii() and each.isdigit())), None)
    if wrong is not None:
        raise ValueError(f"the heads hold {wrong[:20]!r}; each must be a whole number, the place of a word, or 0")
    heads = tuple(map(int, given))
    check_heads(heads, len(source.split()))
    return heads


def write_heads(heads: Heads) -> str:
    return " ".join(map(str, heads))


def line_of(source: str, heads: Heads | None) -> str:
    """A source as a line to translate: with its heads behind a tab, where it has a parse."""
    return source if heads is None else f"{source}\t{write_heads(heads)}"


def read_line(line: str) -> tuple[str, Heads]:
    """What `line_of` joined; a ValueError says what is wrong. A line without anything in it needs no heads."""
    source, tab, heads = line.rpartition("\t")
    if not tab and line:
        raise ValueError("there is no tab in it, behind which the heads of its words would stand")
    return source, read_heads(heads, source)


def check_heads(heads: Sequence[int], words: int) -> None:
    """A ValueError for what is no tree over the words: too many or too few heads, or none there, circles, two roots."""
    if len(heads) != words:
        raise ValueError(f"{many(len(heads), 'head')} for {many(words, 'word')}; each word has one")
    outside = next((word for word, head in enumerate(heads, start=1) if not 0 <= head <= words), None)
    if outside is not None:
        raise ValueError(
            f"word {outside} has the head {heads[outside - 1]}; the words are 1 to {words:,}, and 0 is the root"
        )
    reached: set[int] = {ROOT}
    for word in range(1, words + 1):
        path = [word]
        while heads[path[-1] - 1] not in reached:
            path.append(heads[path[-1] - 1])
            if len(path) > words:
                raise ValueError(f"the heads go in a circle from word {word}; a dependency tree has none")
        reached.update(path)
    roots = [word for word, head in enumerate(heads, start=1) if head == ROOT]
    if len(roots) > 1:
        raise ValueError(f"words {roots[0]} and {roots[1]} both have the head 0; a dependency tree has one root")


def depth_of(heads: Heads) -> int:
    """Edges from the root to the word that hangs lowest."""
    known = {ROOT: -1}
    for word in range(1, len(heads) + 1):
        path = []
        while word not in known:
            path.append(word)
            word = heads[word - 1]
        for lower in reversed(path):
            known[lower] = known[heads[lower - 1]] + 1
    return max(known.values())


def on_tokens(heads: Heads, words: Sequence[int]) -> "NDArray[Any]":
    """(tokens + 1, 2): of each token and of END behind them, word and head, as `types.Parse` has them.

    `words` says of each token which word it is a part of. A word whose head has no token, because the text was cut
    before it, hangs on its nearest ancestor that has one; without any, it is a root.
    """
    import numpy as np

    first: dict[int, int] = {}
    for place, word in enumerate(words):
        first.setdefault(word, place)
    rows = np.empty((len(words) + 1, 2), dtype=np.int64)
    rows[:, 0], rows[:, 1] = np.arange(len(rows)), ROOT
    if not heads:
        return rows
    above = {word: _head_there(heads, word, first) for word in first}
    for place, word in enumerate(words):
        rows[place] = first[word], above[word]
    return rows


def _head_there(heads: Heads, word: int, first: dict[int, int]) -> int:
    head = heads[word]
    while head != ROOT and head - 1 not in first:
        head = heads[head - 1]
    return ROOT if head == ROOT else first[head - 1] + 1
