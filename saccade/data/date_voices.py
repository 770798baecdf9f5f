"""The names and turns of phrase that dates are written with: each language of the data set, in each letter case.

The names of months and weekdays come from CLDR by way of Babel. A name that means two months in two of the languages is
left out, and so is a short weekday that reads as a month ("mar" is Tuesday in Italian and March in many languages).
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from string import Formatter
from typing import Any, Literal

from saccade.data.date_forms import LANGUAGES, YEAR_FIRST, Language, ordinal_suffix
from saccade.errors import MissingExtra, SaccadeError

Case = Literal["as is", "lower", "upper", "title"]
CASES: tuple[Case, ...] = ("as is", "lower", "upper", "title")


@dataclass(frozen=True)
class Names:
    """A language's names, by the field of a form that asks for them; each place holds the ways to write it."""

    months: Mapping[str, tuple[tuple[tuple[str, str], ...], ...]]
    """B, L, b, n: twelve months, each with (letters, dot or nothing)."""
    weekdays: Mapping[str, tuple[tuple[str, ...], ...]]
    """A, W, a: seven days from Monday."""


@dataclass(frozen=True)
class Form:
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
    plain: tuple[Form, ...]
    label: tuple[Form, ...]
    numeric: tuple[Form, ...]
    year_first: tuple[Form, ...]
    carriers: tuple[Form, ...]


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

    def forms(templates: Sequence[str]) -> tuple[Form, ...]:
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


def _form(template: str, word: Callable[[str], str]) -> Form:
    pieces = tuple((word(before), field or "") for before, field, _, _ in Formatter().parse(template))
    numbers = [(before, field) for before, field in pieces if field in ("d", "dd", "M", "MM", "y", "yy")]
    by_number = len(numbers) == 3  # else the month is a name or the form is a carrier
    return Form(
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
