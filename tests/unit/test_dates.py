"""The dates data: one right answer each, alignments that point at the right characters, splits without a shared day."""

import hashlib
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from saccade.data import dates
from saccade.data.date_forms import LANGUAGES, ordinal_suffix
from saccade.data.date_voices import CASES, Names, load_names, recase, settle, voices
from saccade.data.dates import DateExample, DatesData, example, examples
from saccade.errors import MissingExtra, SaccadeError, UsageError

WORD = re.compile(r"[^\W\d_]+")
ENGLISH = ("en", "en-GB")


@cache
def many() -> tuple[DateExample, ...]:
    return (*examples(1, "train", 20_000), *examples(1, "valid", 2_000), *examples(1, "test", 2_000))


@cache
def months_of(language: str) -> dict[str, int]:
    """Month strings of one language as they may appear, straight from CLDR, casefolded."""
    (found,) = (each for each in LANGUAGES if each.code == language)
    return {
        recase(letters, language, case).casefold(): month
        for rows in load_names(found).months.values()
        for month, ways in enumerate(rows, start=1)
        for letters, _ in ways
        for case in CASES
    }


@cache
def months_anywhere() -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for language in LANGUAGES:
        for name, month in months_of(language.code).items():
            found.setdefault(name, set()).add(month)
    return found


def words(text: str) -> list[str]:
    return [word.casefold() for word in WORD.findall(text)]


@cache
def english_words() -> frozenset[str]:
    text = " ".join(each.source for each in many() if each.language in ENGLISH)
    return frozenset(words(text))


def year_of(digits: str) -> int:
    value = int(digits)
    return value if len(digits) == 4 else value + (2000 if value <= 49 else 1900)


def read_date(source: str) -> str:
    """The date in a text, by the rules in the module's docstring alone: knows no form and no alignment."""
    rest = re.sub(r"\d\d:\d\d", " ", source)
    if compact := re.search(r"(?<!\d)(\d{4})(\d\d)(\d\d)(?!\d)", rest):
        return "-".join(compact.groups())
    rest = re.sub(r"(?<!\d)\d{3}(?!\d)", " ", rest)
    named = [months_anywhere()[word] for word in words(rest) if word in months_anywhere()]
    numbers = re.findall(r"\d+", rest)
    if named:
        ((month,),) = named
        first, second = numbers
        year, day = (first, second) if len(first) == 4 else (second, first)
        return f"{year_of(year)}-{month:02}-{int(day):02}"
    first, second, third = numbers
    if len(first) == 4:
        return f"{first}-{int(second):02}-{int(third):02}"
    day, mon = int(first), int(second)
    separator = re.search(rf"{first}(\D+){second}\D", rest)
    assert separator
    if "." not in separator[1] and day != mon and max(day, mon) <= 12:
        assert set(words(source)) - english_words(), f"nothing in {source!r} decides the order"
    if mon > 12:
        assert "." not in separator[1], f"{source!r} has dots and the month first"
        day, mon = mon, day
    return f"{year_of(third)}-{mon:02}-{day:02}"


def test_no_source_has_two_answers() -> None:
    answers: dict[str, str] = {}
    for each in many():
        assert answers.setdefault(each.source, each.target) == each.target, each.source


def test_an_independent_reader_that_knows_only_the_stated_rules_finds_every_date() -> None:
    for each in many():
        assert read_date(each.source) == each.target, each


def test_both_orders_of_slashed_dates_occur_and_context_decides_some() -> None:
    slashed = [(each, re.search(r"(\d+)/(\d+)[/ ]\d+", each.source)) for each in many()]
    fields = [(each, int(m[1]), int(m[2])) for each, m in slashed if m and len(m[1]) < 4]
    assert sum(first > 12 for _, first, _ in fields) > 100
    assert sum(second > 12 for _, _, second in fields) > 30
    by_context = [each for each, first, second in fields if first != second and max(first, second) <= 12]
    assert len(by_context) > 50
    assert not [each for each in by_context if each.language in ENGLISH]


def test_every_month_string_in_use_denotes_one_month_in_all_languages() -> None:
    meanings: dict[str, set[int]] = {}
    for voice in (voice for cased in voices() for voice in cased):
        for rows in voice.names.months.values():
            for month, ways in enumerate(rows):
                for letters, _ in ways:
                    meanings.setdefault(letters.casefold(), set()).add(month)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}
    assert len(meanings) > 200


def test_no_weekday_and_no_word_of_a_carrier_or_form_reads_as_a_month() -> None:
    for voice in (voice for cased in voices() for voice in cased):
        texts = [way for rows in voice.names.weekdays.values() for ways in rows for way in ways]
        for form in (*voice.carriers, *voice.plain, *voice.label, *voice.numeric):
            texts += [before for before, _ in form.pieces]
        assert not set(words(" ".join(texts))) & set(months_anywhere()), voice.code


def named(months: tuple[str, ...], short: tuple[str, ...], weekday: str) -> Names:
    wide = tuple(((name, ""),) for name in months)
    brief = tuple(((name, ""),) for name in short)
    days = (("lunedi",), ("martedi",))
    return Names({"B": wide, "L": wide, "b": brief, "n": brief}, {"A": days, "W": days, "a": ((weekday,), ("ma.",))})


def test_a_name_with_two_meanings_gives_way_to_the_full_name() -> None:
    one = named(("january", "june"), ("jan", "jun"), "mo")
    other = named(("iunie", "julho"), ("Jun", "jul"), "JAN.")  # Jun is month 1 here, 2 there
    settled = settle({"xx": one, "yy": other})
    assert settled["xx"].months["b"] == ((("jan", ""),), (("june", ""),))
    assert settled["yy"].months["n"] == ((("iunie", ""),), (("jul", ""),))
    assert settled["xx"].weekdays["a"] == (("mo",), ("ma.",))
    assert settled["yy"].weekdays["a"] == (("lunedi",), ("ma.",))
    with pytest.raises(SaccadeError, match="'june'"):
        settle({"xx": one, "yy": replace(other, months={**other.months, "B": ((("june", ""),), (("julho", ""),))})})


def test_targets_are_iso_days_of_the_stated_years() -> None:
    for each in many():
        assert date.fromisoformat(each.target).isoformat() == each.target
        assert 1950 <= int(each.target[:4]) <= 2049


def test_sources_are_nfc_on_one_line_and_of_the_stated_lengths() -> None:
    carried = [each for each in many() if len(each.source) > 35]
    for each in many():
        assert unicodedata.is_normalized("NFC", each.source)
        assert each.source == each.source.strip()
        assert not [c for c in each.source if unicodedata.category(c).startswith("C") or c in "\u2028\u2029"]
        assert 8 <= len(each.source) <= 120
    assert 0.30 < len(carried) / len(many()) < 0.37
    lengths = {len(each.source) for each in many()}
    assert min(lengths) == 8
    assert max(lengths) > 110


def assert_aligned(each: DateExample) -> None:
    source, target = each.source, each.target
    assert len(each.alignment) == 10
    assert each.alignment[4] == each.alignment[7] == ()
    year, month, day = each.alignment[:4], each.alignment[5:7], each.alignment[8:]
    for positions in each.alignment:
        assert list(positions) == sorted(set(positions))
        assert all(0 <= at < len(source) for at in positions)
    written = sorted({at for positions in year for at in positions})
    assert "".join(source[at] for at in written) in (target[:4], target[2:4])
    assert written == list(range(written[0], written[-1] + 1))
    if len(written) == 4:
        assert year == tuple((at,) for at in written)
    else:
        assert year == (tuple(written), tuple(written), (written[0],), (written[1],))
    if source[month[0][0]].isdigit():
        assert_digits(source, target[5:7], month)
    else:
        assert month[0] == month[1]
        span = source[month[0][0] : month[0][-1] + 1]
        assert len(span) == len(month[0])
        assert months_of(each.language)[span.casefold()] == int(target[5:7])
        around = source[max(0, month[0][0] - 1) : month[0][0]] + source[month[0][-1] + 1 : month[0][-1] + 2]
        assert not WORD.search(around), "the span is a whole word"
    assert_digits(source, target[8:], day)


def assert_digits(source: str, two: str, aligned: tuple[tuple[int, ...], ...]) -> None:
    (first,), (second,) = aligned
    if first == second:
        assert "0" + source[first] == two
        assert not source[max(0, first - 1)].isdigit() or first == 0
    else:
        assert second == first + 1
        assert source[first : second + 1] == two


def test_alignment_points_at_the_characters_that_decide() -> None:
    for each in many():
        assert_aligned(each)


@settings(max_examples=200, deadline=None)
@given(st.integers(-(2**63), 2**63), st.sampled_from(("train", "valid", "test")), st.integers(0, 2**40))
def test_any_seed_and_index_give_one_aligned_readable_example(seed: int, split: str, index: int) -> None:
    each = example(seed, split, index)
    assert each == example(seed, split, index)
    assert read_date(each.source) == each.target
    assert_aligned(each)


def test_all_languages_and_many_formats_occur() -> None:
    counts = Counter(each.language for each in many())
    assert set(counts) == {language.code for language in LANGUAGES}
    assert len(counts) >= 12
    assert min(counts.values()) > 0.8 * len(many()) / len(counts)
    assert any("CYRILLIC" in unicodedata.name(c, "") for each in many() for c in each.source)
    assert any("GREEK" in unicodedata.name(c, "") for each in many() for c in each.source)
    shapes = Counter(shape(each) for each in many() if len(each.source) <= 35)
    assert sum(count >= 20 for count in shapes.values()) >= 40
    assert {"yyyy-m-d", "d.m.yyyy", "d MON yyyy", "MON d, yyyy", "w, d MON yyyy", "d.m.yy"} <= set(shapes)


def shape(each: DateExample) -> str:
    """The form of a bare date with its names and values taken out: `d MON yyyy`; 5 and 05 count as one form."""
    marks = ["w" if character.isalpha() else character for character in each.source]
    for field, aligned in (("y", each.alignment[:4]), ("m", each.alignment[5:7]), ("d", each.alignment[8:])):
        for at in {at for positions in aligned for at in positions}:
            marks[at] = field if each.source[at].isdigit() else "M"
    for run, mark in (("w+", "w"), ("M+", "MON"), ("d+", "d"), ("m+", "m"), (" +", " ")):
        marks = [re.sub(run, mark, "".join(marks))]
    return marks[0]


def test_noise_in_case_and_spacing_occurs() -> None:
    sources = [each.source for each in many()]
    for kind in (str.isupper, str.islower, lambda text: "  " in text, lambda text: re.search(r"[^\W\d_],\d", text)):
        assert sum(bool(kind(text)) for text in sources) > 50
    assert any(text.startswith("(") for text in sources)


def test_weekdays_in_english_are_the_days_own() -> None:
    seen = 0
    for each in many():
        for name in re.findall(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b", each.source.lower()):
            if each.language in ENGLISH:
                seen += 1
                assert date.fromisoformat(each.target).strftime("%A").lower() == name
    assert seen > 100


def test_splits_share_no_day_for_any_seed() -> None:
    days = {
        split: {e.target for s in (1, 2) for e in examples(s, split, 2_000)} for split in ("train", "valid", "test")
    }
    for one, other in pairwise((*days, "train")):
        assert not days[one] & days[other]
    sizes = Counter(dates.split_of(date.fromordinal(n)) for n in range(date(1950, 1, 1).toordinal(), 767_000))
    share = {split: size / sizes.total() for split, size in sizes.items()}
    assert share == pytest.approx({"train": 0.90, "valid": 0.05, "test": 0.05}, abs=0.005)


def test_examples_do_not_depend_on_the_order_of_calls_or_the_process() -> None:
    backwards = [example(3, "train", index) for index in reversed(range(300))][::-1]
    assert backwards == list(examples(3, "train", 300))
    assert backwards != list(examples(4, "train", 300))
    code = (
        "import hashlib; from saccade.data.dates import examples;"
        "print(hashlib.sha256(repr(list(examples(3, 'train', 300))).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == hashlib.sha256(repr(backwards).encode()).hexdigest()


def test_case_follows_the_language() -> None:
    assert recase("Nisan", "tr", "upper") == "NİSAN"
    assert recase("KASIM", "tr", "lower") == "kasım"
    assert recase("Μαΐου", "el", "upper") == "ΜΑΪΟΥ"
    assert recase("Ιούλιος", "el", "upper") == "ΙΟΥΛΙΟΣ"
    assert recase("août", "fr", "title") == "Août"


@pytest.mark.parametrize(
    ("code", "written"),
    [
        ("en", "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 23rd 31st"),
        ("sv", "1:a 2:a 3:e 4:e 11:e 12:e 13:e 21:a 22:a 23:e 31:a"),
        ("fr", "1er 2 3 4 11 12 13 21 22 23 31"),
        ("pt", "1º 2 3 4 11 12 13 21 22 23 31"),
        ("ru", "1-го 2-го 3-го 4-го 11-го 12-го 13-го 21-го 22-го 23-го 31-го"),
    ],
)
def test_ordinals(code: str, written: str) -> None:
    days = (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 31)
    assert " ".join(f"{day}{ordinal_suffix(code, day)}" for day in days) == written


def test_misuse_is_told() -> None:
    with pytest.raises(UsageError, match="split is 'dev'"):
        example(1, "dev", 0)
    with pytest.raises(UsageError, match="split is 'dev'"):
        examples(1, "dev", 5)
    with pytest.raises(UsageError, match="index is -1"):
        example(1, "train", -1)
    with pytest.raises(UsageError, match="count is -1"):
        examples(1, "train", -1)


def test_without_babel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babel", None)
    voices.cache_clear()
    with pytest.raises(MissingExtra, match=r"saccade\[demo\]"):
        example(1, "train", 0)


def test_the_recipe_section() -> None:
    section = DatesData()
    assert (section.kind, section.train, section.valid, section.test, section.seed) == (
        "dates",
        60_000,
        1_000,
        1_000,
        1,
    )
    assert all(field.description for field in DatesData.model_fields.values())
    for field in ("train", "valid", "test"):
        with pytest.raises(ValidationError):
            DatesData.model_validate({field: 0})
