"""A document → its sentences, by rule: nothing is learnt, and the same text is always cut the same.

A sentence ends
1. at a line's end, or at an HTML line break (`<br />`), which itself is left out;
2. behind 。！？, and closing quotes or brackets that follow;
3. behind . ! ? … and closing quotes or brackets, before white space, unless what follows begins with a small letter;
   where white space stands before the mark, too, as in text that was tokenised, whatever follows.
A single full stop ends none behind an abbreviation (`Dr.`, `e.g.`; before a number `No.`), behind one letter that is an
initial (`J. Smith`) and behind a number or a letter that begins the sentence (`1. …`).
What is blank is no sentence; white space around one is left out. Whatever else stands in the text stands in exactly one
sentence.
"""

import re
from collections.abc import Iterator

_WORDS = """
    adm capt cmdr col cpl dr fr gen gov hon lt maj messrs mlle mme mr mrs ms prof pres rep rev sen sgt st supt
    approx apt ave bros cf co corp dept e.g est i.e inc jr ltd mt sr vs bspw bzgl bzw d.h evtl geb ggf hrsg vgl z.b z.t
"""
_BEFORE = "abb abs art bd ca chap eq fig figs no nos nr op p pp pt s sec tab vol vols"
ABBREVIATIONS = frozenset(_WORDS.split())
"""English and German; in small letters, without their last full stop."""
BEFORE_NUMBERS = frozenset(_BEFORE.split())
"""Those that are abbreviations before a number alone."""

_BREAK = re.compile(r"<br\s*/?>|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+", re.IGNORECASE)
_CLOSERS = "\"'”’»›)\\]}」』）"
# Only at the beginning of a run of marks, and never given back: a line of a million full stops is read once.
_END = re.compile(rf"(?<![。！？])[。！？]++[{_CLOSERS}]*+|(?<![.!?…])[.!?…]++[{_CLOSERS}]*+(?=\s)")
_NEXT = re.compile(r"\S")
_WORD_BEFORE = re.compile(r"[^\s(\[\"'“‘«]*$")
_LONGEST_WORD = 40


def sentences(document: str) -> list[str]:
    return [document[begin:end] for begin, end in spans(document)]


def spans(document: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends in the document."""
    found = []
    for begin, end in _lines(document):
        for first, last in _cut(document, begin, end):
            inner = document[first:last]
            left, right = len(inner) - len(inner.lstrip()), len(inner.rstrip())
            if left < right:
                found.append((first + left, first + right))
    return found


def _lines(document: str) -> Iterator[tuple[int, int]]:
    begin = 0
    for line_break in _BREAK.finditer(document):
        yield begin, line_break.start()
        begin = line_break.end()
    yield begin, len(document)


def _cut(document: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    first = begin
    for mark in _END.finditer(document, begin, end):
        if _ends(document, first, mark, end):
            yield first, mark.end()
            first = mark.end()
    yield first, end


def _ends(document: str, first: int, mark: re.Match[str], end: int) -> bool:
    if mark[0][0] in "。！？":
        return True
    if document[mark.start() - 1 : mark.start()].isspace() and mark.start() > first:
        return True
    following = _NEXT.search(document, mark.end(), end)
    if following is not None and following[0].islower():
        return False
    if mark[0] != ".":
        return True
    beginning = max(first, mark.start() - _LONGEST_WORD)
    before = _WORD_BEFORE.search(document, beginning, mark.start())
    word = before[0] if before else ""
    counts = following is not None and following[0].isdigit() and word.lower() in BEFORE_NUMBERS
    if counts or word.lower() in ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word != "I"):
        return False
    begins_it = beginning == first and document[first : mark.start()].strip() == word
    return not (begins_it and (word.isdigit() or len(word) == 1))
