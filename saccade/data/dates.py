"""Dates as people write them → ISO 8601: the embedded data set, generated, with the alignment known by construction.

Every source has exactly one right answer, by these rules:

- With a month's name: a number of four digits is the year. Otherwise the day comes before the two-digit year.
- In numbers alone, a year of four digits that stands first is followed by month, then day, whatever separates them.
- A two-digit year stands last, always; 00-49 are 2000-2049 and 50-99 are 1950-1999 (`PIVOT`).
- With dots the day comes first, always.
- With slashes, dashes or spaces, and the year last, the order of day and month is decided by the value (the day is over
  12, or equals the month) or by the language that the text shows: a sentence or a weekday in any of the languages here
  but English has the day first. A bare or English `03/05/2020` never occurs.
- Other numbers in a sentence have three digits or are clock times.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from hashlib import blake2b
from typing import Literal

from pydantic import Field

from saccade.config import Section
from saccade.data.date_voices import CASES, Case, Form, Voice, voices
from saccade.data.draws import Draws
from saccade.errors import UsageError

PIVOT = 50
"""Two-digit years below it belong to the 2000s, the others to the 1900s; the data keeps to these hundred years."""
FIRST_DAY, LAST_DAY = date(1900 + PIVOT, 1, 1), date(1999 + PIVOT, 12, 31)
BARE_LENGTHS = (8, 35)
SENTENCE_LENGTHS = (30, 120)
SENTENCES_IN_100 = 35

# One of these is drawn evenly: noise in case, more of it on bare dates.
_BARE_CASES: tuple[Case, ...] = (*("as is",) * 7, "lower", "upper", "title")
_SENTENCE_CASES: tuple[Case, ...] = (*("as is",) * 16, "lower", "lower", "upper", "title")
_WRAPPERS = (("(", ")"), ("[", "]"), ('"', '"'), ("", "."), ("", ","), ("", ";"))

Alignment = tuple[tuple[int, ...], ...]
Pieces = list[tuple[str, str]]
"""(field, text): the field is y, m or d where the text decides part of the answer, else empty."""


class DatesData(Section):
    """Dates as people write them in sixteen locales, to ISO 8601; generated, no download."""

    kind: Literal["dates"] = "dates"
    """Generated dates."""
    train: int = Field(default=60_000, ge=1)
    """Examples to train on."""
    valid: int = Field(default=1_000, ge=1)
    """Examples to validate on; their calendar days occur in no other split."""
    test: int = Field(default=1_000, ge=1)
    """Examples to test on; their calendar days occur in no other split."""
    seed: int = 1
    """Another seed is another draw of examples; which day belongs to which split stays."""


@dataclass(frozen=True)
class DateExample:
    """One date, its ISO form, and where each character of the answer stands in the source."""

    source: str
    target: str
    """YYYY-MM-DD."""
    alignment: Alignment
    """For each target character the source positions that decide it, sorted; () for the two hyphens."""
    language: str


def example(seed: int, split: str, index: int) -> DateExample:
    """The example at `index`: a pure function of its three arguments."""
    _check(split, "index", index)
    draw = Draws(f"{seed}/{split}/{index}")
    day = draw.of(_days()[split])
    spoken = draw.of(voices())
    in_sentence = draw.below(100) < SENTENCES_IN_100
    shortest, longest = SENTENCE_LENGTHS if in_sentence else BARE_LENGTHS
    while True:  # the day and the language stay; only the way of writing is drawn again
        voice = spoken[CASES.index(draw.of(_SENTENCE_CASES if in_sentence else _BARE_CASES))]
        pieces = _sentence(voice, day, draw) if in_sentence else _bare(voice, day, draw)
        source = "".join([text for _, text in pieces])
        if shortest <= len(source) <= longest:
            return DateExample(source, day.isoformat(), _alignment(pieces), voice.code)


def examples(seed: int, split: str, count: int) -> Iterator[DateExample]:
    """The first `count` examples of a split."""
    _check(split, "count", count)
    return (example(seed, split, index) for index in range(count))


def _check(split: str, name: str, value: int) -> None:
    if split not in _days():
        raise UsageError(f"split is {split!r}; it must be one of train, valid, test.")
    if value < 0:
        raise UsageError(f"{name} is {value}; it must be 0 or more.")


def split_of(day: date) -> str:
    """The split a calendar day belongs to, for every seed: about 90 % train, 5 % valid, 5 % test."""
    digest = blake2b(day.isoformat().encode(), digest_size=8, key=b"saccade dates").digest()
    return {0: "valid", 1: "test"}.get(int.from_bytes(digest, "little") % 20, "train")


@cache
def _days() -> Mapping[str, tuple[date, ...]]:
    days: dict[str, list[date]] = {"train": [], "valid": [], "test": []}
    for day in map(date.fromordinal, range(FIRST_DAY.toordinal(), LAST_DAY.toordinal() + 1)):
        days[split_of(day)].append(day)
    return {split: tuple(members) for split, members in days.items()}


# Writing one example


def _bare(voice: Voice, day: date, draw: Draws) -> Pieces:
    pieces = _fill(_choose(voice, day, draw, label=True, in_sentence=False), voice, day, draw)
    noise = draw.below(100)
    if noise < 14:
        _respace(pieces, draw)
    elif noise < 22:
        before, after = draw.of(_WRAPPERS)
        if not (after == "." and pieces[-1][1].endswith(".")):
            pieces = [("", before), *pieces, ("", after)]
    return pieces


def _sentence(voice: Voice, day: date, draw: Draws) -> Pieces:
    pieces: Pieces = []
    for before, field in draw.of(voice.carriers).pieces:
        if before.startswith(".") and pieces and pieces[-1][1].endswith("."):
            before = before[1:]  # one full stop ends both the abbreviation and the sentence
        pieces.append(("", before))
        match field:
            case "date" | "label":
                form = _choose(voice, day, draw, label=field == "label", in_sentence=True)
                pieces += [piece for piece in _fill(form, voice, day, draw) if piece[1]]
            case "number":
                pieces.append(("", str(100 + draw.below(900))))
            case "time":
                pieces.append(("", f"{8 + draw.below(12):02}:{15 * draw.below(4):02}"))
    noise = draw.below(100)
    if noise < 12:
        _respace(pieces, draw)
    elif noise < 22:
        field, last = pieces[-1]
        if last.endswith("."):
            pieces[-1] = (field, last[:-1] + ("", "!", "...")[noise % 3])
    return pieces


def _choose(voice: Voice, day: date, draw: Draws, *, label: bool, in_sentence: bool) -> Form:
    while True:
        kind = draw.below(20)
        if kind < 14:
            form = draw.of(voice.label if label and kind < 7 else voice.plain)
        else:
            form = draw.of(voice.numeric if kind < 18 else voice.year_first)
        if not form.open_order or day.day > 12 or day.day == day.month:
            return form
        if not voice.code.startswith("en") and (in_sentence or form.shows_language):
            return form


def _fill(form: Form, voice: Voice, day: date, draw: Draws) -> Pieces:
    pieces: Pieces = []
    for before, field in form.pieces:
        if before:
            pieces.append(("", before))
        match field:
            case "d" | "dd" | "o":
                pieces.append(("d", f"{day.day:02}" if field == "dd" else str(day.day)))
                if field == "o":
                    pieces.append(("", voice.ordinals[day.day - 1]))
            case "M" | "MM":
                pieces.append(("m", f"{day.month:02}" if field == "MM" else str(day.month)))
            case "B" | "L" | "b" | "n":
                letters, dot = draw.of(voice.names.months[field][day.month - 1])
                pieces += [("m", letters), ("", dot)]
            case "y" | "yy":
                pieces.append(("y", str(day.year)[-2:] if field == "yy" else str(day.year)))
            case "A" | "W" | "a":
                pieces.append(("", draw.of(voice.names.weekdays[field][day.weekday()])))
    return pieces


def _respace(pieces: Pieces, draw: Draws) -> None:
    """Double one space; or drop it, where it follows a dot or a comma."""
    text = "".join([text for _, text in pieces])
    spaces = [at for at, character in enumerate(text) if character == " "]
    if not spaces:
        return
    chosen = draw.of(spaces)
    drop = text[chosen - 1] in ".," and draw.below(4) > 0
    start = 0
    for at, (field, written) in enumerate(pieces):
        if start <= chosen < start + len(written):
            cut = chosen - start
            pieces[at] = (field, written[:cut] + ("" if drop else "  ") + written[cut + 1 :])
            return
        start += len(written)


def _alignment(pieces: Pieces) -> Alignment:
    positions: dict[str, Alignment] = {}
    start = 0
    for field, text in pieces:
        end = start + len(text)
        if field:
            every = tuple(range(start, end))
            if not text.isdigit():
                positions[field] = (every, every)
            elif field == "y":
                century = ((start,), (start + 1,)) if len(text) == 4 else (every, every)
                positions[field] = (*century, (end - 2,), (end - 1,))
            else:
                positions[field] = ((start,), (end - 1,))  # one digit decides its own leading zero as well
        start = end
    return (*positions["y"], (), *positions["m"], (), *positions["d"])


# The languages, made ready once
