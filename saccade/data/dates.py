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

The names of months and weekdays come from CLDR by way of Babel. A name that means two months in two of the languages is
left out, and so is a short weekday that reads as a month ("mar" is Tuesday in Italian and March in many languages).
"""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from hashlib import blake2b
from string import Formatter
from typing import Any, Literal

from pydantic import Field

from saccade.config import Section
from saccade.data.date_forms import LANGUAGES, YEAR_FIRST, Language, ordinal_suffix
from saccade.data.draws import Draws
from saccade.errors import MissingExtra, SaccadeError, UsageError

PIVOT = 50
"""Two-digit years below it belong to the 2000s, the others to the 1900s; the data keeps to these hundred years."""
FIRST_DAY, LAST_DAY = date(1900 + PIVOT, 1, 1), date(1999 + PIVOT, 12, 31)
BARE_LENGTHS = (8, 35)
SENTENCE_LENGTHS = (30, 120)
SENTENCES_IN_100 = 35

Case = Literal["as is", "lower", "upper", "title"]
CASES: tuple[Case, ...] = ("as is", "lower", "upper", "title")
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


@dataclass(frozen=True)
class Names:
    """A language's names, by the field of a form that asks for them; each place holds the ways to write it."""

    months: Mapping[str, tuple[tuple[tuple[str, str], ...], ...]]
    """B, L, b, n: twelve months, each with (letters, dot or nothing)."""
    weekdays: Mapping[str, tuple[tuple[str, ...], ...]]
    """A, W, a: seven days from Monday."""


@dataclass(frozen=True)
class _Form:
    pieces: tuple[tuple[str, str], ...]
    """(text before, field); the last field is empty."""
    open_order: bool
    """Numbers with the year last and no dots: something must decide which of day and month comes first."""
    shows_language: bool


@dataclass(frozen=True)
class Voice:
    """A language in one letter case, ready to write with: no casing is left to do per example."""

    code: str
    names: Names
    ordinals: tuple[str, ...]
    plain: tuple[_Form, ...]
    label: tuple[_Form, ...]
    numeric: tuple[_Form, ...]
    year_first: tuple[_Form, ...]
    carriers: tuple[_Form, ...]


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


def _choose(voice: Voice, day: date, draw: Draws, *, label: bool, in_sentence: bool) -> _Form:
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


def _fill(form: _Form, voice: Voice, day: date, draw: Draws) -> Pieces:
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


@cache
def voices() -> tuple[tuple[Voice, ...], ...]:
    """Each language in each letter case, in the order of `CASES`."""
    names = settle({language.code: load_names(language) for language in LANGUAGES})
    return tuple(tuple(_voice(language, names[language.code], case) for case in CASES) for language in LANGUAGES)


def load_names(language: Language) -> Names:
    """The language's names as CLDR has them."""
    try:
        from babel import Locale
    except ImportError:
        raise MissingExtra("the dates data", "babel", "demo") from None
    locale = Locale.parse(language.code.replace("-", "_"))
    months: Mapping[str, Any] = locale.months
    days: Mapping[str, Any] = locale.days
    by_field: dict[str, list[tuple[tuple[str, str], ...]]] = {"B": [], "L": [], "b": [], "n": []}
    for month in range(1, 13):
        wide, alone = (_nfc(months[context]["wide"][month]) for context in ("format", "stand-alone"))
        short = [_nfc(months[context]["abbreviated"][month]) for context in ("format", "stand-alone")]
        bare = [name.removesuffix(".") for name in short]
        extra = [(name, ".") for name in bare if language.dotted and name not in (wide, alone)]
        written = [(name.removesuffix("."), "." if name.endswith(".") else "") for name in short]
        by_field["B"].append(((wide, ""),))
        by_field["L"].append(((alone, ""),))
        by_field["b"].append(tuple(dict.fromkeys(written + extra)))
        by_field["n"].append(tuple((name, "") for name in dict.fromkeys(bare)))
    weekdays: dict[str, tuple[tuple[str, ...], ...]] = {
        field: tuple((_nfc(days[context]["wide"][day]),) for day in range(7))
        for field, context in (("A", "stand-alone"), ("W", "format"))
    }
    abbreviated = (days["format"]["abbreviated"], days["stand-alone"]["abbreviated"])
    weekdays["a"] = tuple(tuple(dict.fromkeys(_nfc(table[day]) for table in abbreviated)) for day in range(7))
    return Names({field: tuple(rows) for field, rows in by_field.items()}, weekdays)


def settle(names: Mapping[str, Names]) -> dict[str, Names]:
    """The names without those that could be read in two ways, whichever the language; a full name takes their place."""
    meanings: dict[str, set[int]] = {}
    for code, each in names.items():
        for rows in each.months.values():
            for month, ways in enumerate(rows):
                for letters, _ in ways:
                    for case in CASES:
                        meanings.setdefault(recase(letters, code, case).casefold(), set()).add(month)

    def clear(letters: str, code: str) -> bool:
        return all(len(meanings[recase(letters, code, case).casefold()]) == 1 for case in CASES)

    settled = {}
    for code, each in names.items():
        for ((wide, _),) in each.months["B"]:
            if not clear(wide, code):
                raise SaccadeError(f"the month name {wide!r} ({code}) means another month in another language.")
        months = {
            field: tuple(
                tuple(way for way in ways if clear(way[0], code)) or each.months["B"][month]
                for month, ways in enumerate(rows)
            )
            for field, rows in each.months.items()
        }
        weekdays = {
            field: tuple(
                tuple(way for way in ways if way.removesuffix(".").casefold() not in meanings)
                or each.weekdays["A"][day]
                for day, ways in enumerate(rows)
            )
            for field, rows in each.weekdays.items()
        }
        settled[code] = Names(months, weekdays)
    return settled


def _voice(language: Language, names: Names, case: Case) -> Voice:
    code = language.code

    def name(text: str) -> str:
        return recase(text, code, case)

    def word(text: str) -> str:
        return text if case == "title" else recase(text, code, case)  # in title case only the names take a capital

    def forms(templates: Sequence[str]) -> tuple[_Form, ...]:
        return tuple(_form(template, word) for template in templates)

    months = {
        field: tuple(tuple((name(letters), dot) for letters, dot in ways) for ways in rows)
        for field, rows in names.months.items()
    }
    weekdays = {
        field: tuple(tuple(name(way) for way in ways) for ways in rows) for field, rows in names.weekdays.items()
    }
    return Voice(
        code=code,
        names=Names(months, weekdays),
        ordinals=tuple(word(ordinal_suffix(code, day)) for day in range(1, 32)),
        plain=forms(language.plain),
        label=forms(language.label),
        numeric=forms(language.numeric),
        year_first=forms(YEAR_FIRST),
        carriers=forms(language.carriers),
    )


def _form(template: str, word: Callable[[str], str]) -> _Form:
    pieces = tuple((word(before), field or "") for before, field, _, _ in Formatter().parse(template))
    numbers = [(before, field) for before, field in pieces if field in ("d", "dd", "M", "MM", "y", "yy")]
    by_number = len(numbers) == 3  # else the month is a name or the form is a carrier
    return _Form(
        pieces=pieces,
        open_order=by_number and numbers[0][1] != "y" and "." not in numbers[1][0],
        shows_language=any(field == "A" for _, field in pieces),
    )


def recase(text: str, code: str, case: Case) -> str:
    """The text in another letter case by the rules of its language, in NFC."""
    match case:
        case "as is":
            return text
        case "title":
            return recase(text[:1], code, "upper") + text[1:]
        case "lower":
            if code == "tr":
                text = text.replace("I", "ı").replace("İ", "i")
            return _nfc(text.lower())
        case "upper":
            if code == "tr":
                text = text.replace("ı", "I").replace("i", "İ")
            if code == "el":  # capitals carry no accent, only the diaeresis
                text = _nfc(unicodedata.normalize("NFD", text).replace("\N{COMBINING ACUTE ACCENT}", ""))
            return _nfc(text.upper())


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)
