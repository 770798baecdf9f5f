"""Tags of words: spans written as tags and read from them, and the tags that a model knows.

| scheme | a span's words | alone | told apart from the one before it |
|---|---|---|---|
| iob1 | I-X … I-X | I-X | B-X only where a span of the same type ends right before it (CoNLL-2003 as published) |
| iob2 | B-X I-X … | B-X | always begins with B-X |
| bioes | B-X I-X … E-X | S-X | begins with B-X or S-X, ends with E-X or S-X |

O stands outside of all spans.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from saccade.errors import UsageError

Scheme = Literal["none", "iob1", "iob2", "bioes"]
PREFIXES: dict[Scheme, str] = {"iob1": "BI", "iob2": "BI", "bioes": "BIES"}
OUTSIDE = "O"
FORMAT = "saccade-tags-1"


class Span(NamedTuple):
    """Words from `begin` up to but not including `end`, from 0."""

    type: str
    begin: int
    end: int


def parts(tag: str) -> tuple[str, str]:
    """The prefix and the type of a tag; a tag without a type has the type _, as in conlleval."""
    return tag[:1], tag[1:].split("-", maxsplit=1)[-1] or "_"


def read_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of tags of any of the schemes, also of tags that none of them allows: as conlleval reads them.

    A span begins at B, at S, behind E or S, behind O, and where the type changes; it goes on up to the next beginning
    or O.
    """
    spans: list[Span] = []
    before, type_before, begin = OUTSIDE, "", 0
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = parts(tag)
        begins = prefix in "BS" or before in "ESO" or type_ != type_before
        if before != OUTSIDE and (prefix == OUTSIDE or begins):
            spans.append(Span(type_before, begin, place))
        if prefix != OUTSIDE and begins:
            begin = place
        before, type_before = prefix, type_
    return spans


def read_strictly(tags: Sequence[str], scheme: Literal["iob2", "bioes"]) -> list[Span]:
    """Only spans that are written exactly as the scheme says: whatever does not begin or end as it must is none."""
    spans: list[Span] = []
    begin, open_type = 0, None
    for place, tag in enumerate([*tags, OUTSIDE]):
        prefix, type_ = parts(tag)
        if prefix not in OUTSIDE + PREFIXES[scheme] or not prefix:
            raise UsageError(
                f"tags: {tag!r} is no tag of {scheme}, which has O and {', '.join(f'{p}-…' for p in PREFIXES[scheme])}."
            )
        goes_on = open_type == type_ and prefix in "IE"
        if open_type is not None and not goes_on:
            if scheme == "iob2":
                spans.append(Span(open_type, begin, place))
            open_type = None
        if goes_on and prefix == "E":
            spans.append(Span(type_, begin, place + 1))
            open_type = None
        if prefix == "S":
            spans.append(Span(type_, place, place + 1))
        if prefix == "B":
            begin, open_type = place, type_
    return spans


def write_tags(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags of so many words; the spans must not overlap."""
    tags = [OUTSIDE] * length
    ended: dict[int, str] = {}  # where a span ends, its type
    for span in sorted(spans, key=lambda each: each.begin):
        for place in range(span.begin, span.end):
            tags[place] = f"I-{span.type}"
        match scheme:
            case "iob1":
                first = "B" if ended.get(span.begin) == span.type else "I"
                last = None
            case "bioes":
                first, last = ("S", None) if span.end - span.begin == 1 else ("B", "E")
            case _:
                first, last = "B", None
        tags[span.begin] = f"{first}-{span.type}"
        if last is not None:
            tags[span.end - 1] = f"{last}-{span.type}"
        ended[span.end] = span.type
    return tags


def converted(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans in another scheme."""
    return list(tags) if scheme == "none" else write_tags(read_spans(tags), len(tags), scheme)


def fault(tag: str, scheme: Scheme) -> str:
    """Why this cannot be a tag of the scheme, in words; empty where it can."""
    if not tag:
        return "the tag is empty"
    if scheme == "none" or tag == OUTSIDE:
        return ""
    prefix, dash, type_ = tag.partition("-")
    if dash and type_ and prefix and prefix in PREFIXES[scheme]:
        return ""
    forms = " or ".join(f"{letter}-TYPE" for letter in PREFIXES[scheme])
    return f"the tag {tag[:40]!r} is none of {scheme}: O, {forms}"


def is_written_so(tags: Sequence[str], scheme: Scheme) -> bool:
    """Whether the tags are what the scheme writes for their spans."""
    return scheme == "none" or list(tags) == converted(tags, scheme)


def guess_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """What the tags of some sentences look like: none, unless all of them are O or have a prefix and a type."""
    found: set[str] = set()
    begins_with_i = False
    for tags in sentences:
        for tag in tags:
            if fault(tag, "bioes"):
                return "none"
            found.add(tag[0])
        begins_with_i = begins_with_i or not is_written_so(tags, "iob2")
    if found <= {OUTSIDE}:
        return "none"
    if found & {"E", "S"}:
        return "bioes"
    return "iob1" if begins_with_i else "iob2"


@dataclass(frozen=True)
class TagSet:
    """The tags a model knows; the first one's id is 1, for 0 is PAD."""

    names: tuple[str, ...]
    scheme: Scheme
    """How their spans are written; none where they name no spans."""

    @staticmethod
    def of(sentences: Iterable[Sequence[str]], scheme: Scheme) -> "TagSet":
        """The most frequent first, equally frequent ones by name."""
        count: Counter[str] = Counter()
        for tags in sentences:
            count.update(tags)
        return TagSet(tuple(sorted(count, key=lambda tag: (-count[tag], tag))), scheme)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names, start=1)}

    def name(self, number: int) -> str:
        return self.names[number - 1]

    def steps(self) -> tuple[list[bool], list[list[bool]], list[bool]] | None:
        """Which tags may begin a sentence, follow one another ([from][to]) and end it; None where all may."""
        if self.scheme == "none":
            return None
        first = [self._follows(OUTSIDE, tag) for tag in self.names]
        pairs = [[self._follows(before, tag) for tag in self.names] for before in self.names]
        return first, pairs, [self._follows(tag, OUTSIDE) for tag in self.names]

    def _follows(self, before: str, tag: str) -> bool:
        (last, last_type), (prefix, type_) = parts(before), parts(tag)
        same = last_type == type_ and before != OUTSIDE
        match self.scheme:
            case "iob1":
                return prefix != "B" or (same and last in "BI")
            case "iob2":
                return prefix != "I" or (same and last in "BI")
            case "bioes":
                return (same and prefix in "IE") if last in "BI" else prefix not in "IE"
            case "none":
                return True

    def to_json(self) -> str:
        return (
            json.dumps({"format": FORMAT, "scheme": self.scheme, "tags": list(self.names)}, ensure_ascii=False) + "\n"
        )

    @staticmethod
    def from_json(text: str, origin: str) -> "TagSet":
        try:
            tree: Any = json.loads(text)
            names, scheme = tuple(tree["tags"]), tree["scheme"]
            sound = (
                tree["format"] == FORMAT
                and scheme in ("none", *PREFIXES)
                and all(isinstance(name, str) and name for name in names)
                and len(set(names)) == len(names) > 0
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise UsageError(
                f"{origin}: is no list of tags as training writes it. Use the file of the run, or train anew."
            )
        return TagSet(names, scheme)
