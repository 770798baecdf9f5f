"""Bracketed trees, as in the Penn Treebank → a sentence and its tree written as one line of tokens.

`((S (NP-SBJ (PRP He)) (VP (VBZ sleeps)) (. .)))` gives the source `He sleeps .` and the target
`(S (NP PRP )NP (VP VBZ )VP . )S`: a token for each opening and closing bracket with its label, and the part of speech
in place of each word (Vinyals et al. 2015). Function tags and indices are cut off labels, and traces (`-NONE-`) are
left out with every constituent that holds nothing else, as is usual.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saccade.config import Section
from saccade.data.counts import Counts
from saccade.data.files import File, Pair, locate, raw_lines
from saccade.data.parallel import OnBad, OnLong, Paths
from saccade.errors import UsageError

_TOKENS = re.compile(r"[()]|[^\s()]+")
_LABEL = re.compile(r"[^-=|]+")
TRACE = "-NONE-"
DEEPEST = 500
"""Brackets inside one another; a file of other brackets is refused before memory ends."""


class TreeFiles(Section):
    """One split of the trees."""

    files: Paths
    """Files of bracketed trees, each on one line or on several; a line may begin with its document's id and a tab."""
    documents: tuple[str, str] | None = None
    """Only documents whose id lies between these two, both included; ids are compared letter by letter."""


class TreesData(Section):
    """Sentences and their bracketed trees, as in the Penn Treebank."""

    kind: Literal["trees"] = "trees"
    """Bracketed trees."""
    train: TreeFiles
    """What the model learns from."""
    valid: TreeFiles
    """What the best checkpoint is chosen by."""
    test: TreeFiles | None = None
    """What the finished model is scored on."""
    max_length: Annotated[int, Field(ge=1)] = 512
    """The most tokens a side may have, the end mark not counted."""
    on_long: OnLong = "drop"
    """What happens to a longer training pair: `cut` it, `drop` it, or `refuse` to train."""
    on_bad: OnBad = "refuse"
    """What happens to what is no tree: `refuse`, or `repair` (it is left out)."""


@dataclass
class Node:
    """A constituent, or with a word a part of speech."""

    label: str
    word: str = ""
    children: list["Node"] = field(default_factory=list)


def parsed_sentences(
    data: TreesData, split: TreeFiles, *, base: Path, counts: Counts, problems: list[str] | None = None
) -> Iterator[Pair]:
    """The split's sentences with their trees. What is no tree is refused, or counted and left out."""
    for name in split.files:
        file = locate(name, base)
        for document, text, place in _trees(file):
            counts.lines += 1
            if split.documents is not None and not split.documents[0] <= document <= split.documents[1]:
                counts.other_split += 1
                continue
            try:
                words, written = linearised(read_bracketed(text))
            except ValueError as error:
                counts.note("bad_rows", place)
                told = f"{place}: {error}. Mend it, or set data.on_bad to repair to leave it out."
                if data.on_bad == "refuse" and problems is None:
                    raise UsageError(told) from None
                if data.on_bad == "refuse" and problems is not None:
                    problems.append(told)
                continue
            counts.kept += 1
            yield Pair(" ".join(words), " ".join(written), place)


def _trees(file: File) -> Iterator[tuple[str, str, str]]:
    """(document, tree, place) of each: lines are put together until every bracket is closed."""
    document, parts, first, depth = "", list[str](), 0, 0
    with closing(raw_lines(file)) as lines:
        for number, raw in enumerate(lines, start=1):
            line = raw.decode("utf-8", errors="replace")
            if depth <= 0 and not line.lstrip().startswith("("):
                before, tab, rest = line.partition("\t")
                document, line = (before.strip(), rest) if tab else (document, line)
            if not line.strip():
                continue
            first = number if not parts else first
            parts.append(line)
            depth += line.count("(") - line.count(")")
            if depth <= 0:
                yield document, "".join(parts), f"{file.name}:{first}"
                parts, depth = [], 0
    if parts:
        yield document, "".join(parts), f"{file.name}:{first}"


def read_bracketed(text: str) -> Node:
    """The tree in the text; a ValueError says why it is none."""
    top = Node("")
    opened = [top]
    tokens = _TOKENS.findall(text)
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token == "(":
            if opened[-1].word or len(opened) > DEEPEST:
                raise ValueError(f"a bracket opens behind the word {opened[-1].word!r}, or inside {DEEPEST} others")
            opened.append(Node(""))
        elif token == ")":
            if len(opened) == 1 or not (opened[-1].word or opened[-1].children):
                raise ValueError("a bracket is closed that holds nothing or was not opened")
            done = opened.pop()
            opened[-1].children.append(done)
        elif before == "(":
            opened[-1].label = token
        else:
            if opened[-1].word or opened[-1].children or not opened[-1].label:
                raise ValueError(f"the word {token!r} stands where a part of speech and one word should")
            opened[-1].word = token
    if len(opened) > 1:
        raise ValueError(f"{len(opened) - 1} brackets are not closed")
    if len(top.children) != 1:
        raise ValueError(f"there are {len(top.children)} trees where there should be one")
    return top.children[0]


def linearised(tree: Node) -> tuple[list[str], list[str]]:
    """The words, and the tokens that the tree is written in; a ValueError where no word is left."""
    words: list[str] = []
    written = _written(tree, words)
    if not words:
        raise ValueError("the tree has no word")
    return words, written


def _written(node: Node, words: list[str]) -> list[str]:
    if node.word:
        if node.label == TRACE:
            return []
        words.append(node.word)
        return [node.label]
    inside = [token for child in node.children for token in _written(child, words)]
    if not inside:
        return []
    label = bare(node.label)
    return [f"({label}", *inside, f"){label}"] if label else inside


def bare(label: str) -> str:
    """NP of NP-SBJ-1, of NP=2 and of NP|QP; a label that begins with a dash, such as -LRB-, stays."""
    found = _LABEL.match(label)
    return found[0] if found else label
