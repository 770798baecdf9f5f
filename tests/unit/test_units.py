"""Texts encoded unit by unit, and long ones window by window, have the ids that the library gives them as a whole."""

import re
import unicodedata
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from saccade.text import Tokenizer, train_tokenizers, units
from saccade.text.learn import LONGEST_UNIT, _without_long_units
from saccade.text.tokenizer import IN_NFC
from tests.unit.test_text import FORMS, LINES, any_text, check_round_trip, section, trained

ALL = ["char", "byte", "word", "bpe", "unigram"]
spaced = st.lists(
    st.sampled_from(
        [*" \t\n\x85\xa0\u2003\u3000\x1c\x1f", "  ", "a", "the", "é", "e\u0301", "\u0301", "´", "9", ",", "日", "👩"]
    )
).map("".join)


@pytest.mark.parametrize(("kind", "form"), list(product(ALL, FORMS)))
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(any_text | spaced, max_size=4))
def test_units_of_texts_are_encoded_as_the_library_encodes_the_texts(kind: str, form: str, texts: list[str]) -> None:
    tokenizer = trained(kind, form)
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == expected
    values, counts = tokenizer.encode_flat(texts)
    assert values.tolist() == [each for row in expected for each in row]
    assert counts.tolist() == [len(row) for row in expected]


def test_white_space_is_what_the_library_takes_for_it() -> None:
    """White space makes one word with the space behind it; Python's own split must find all of it too."""
    cutter = trained("bpe", "none")
    for character in map(chr, [*range(0xD800), *range(0xE000, 0x11000)]):
        is_space = cutter.words(f"{character} ") == [f"{character} "]
        assert is_space == (re.match(f"[{units.SPACE}]", character) is not None)
        assert character.isspace() >= is_space


def test_what_is_said_to_be_in_normal_form_is_not_changed() -> None:
    known = [
        chr(point) for point in range(0x11000) if not 0xD800 <= point < 0xE000 and re.match(f"[{IN_NFC}]", chr(point))
    ]
    rng = np.random.default_rng(0)
    mixed = "".join(rng.permutation(known * 3))
    normalizer = normalizers.NFC()
    assert len(known) > 20_000
    assert normalizer.normalize_str("".join(known)) == "".join(known)
    assert normalizer.normalize_str(mixed) == mixed == unicodedata.normalize("NFC", mixed)


@pytest.mark.parametrize("kind", ["bpe", "char", "byte", "unigram", "word"])
@pytest.mark.parametrize("name", ["a", "space", "caret", "family", "marks", "letters", "words", "of pieces", "the"])
def test_a_long_line_is_put_together_as_the_library_has_it(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than some windows, and shifted, so that windows begin at every phase of what repeats."""
    monkeypatch.setattr(units, "WINDOW", 1 << 12)  # whole lines take the library long
    rng = np.random.default_rng(1)
    tokenizer = greedy_for_runs() if kind == "bpe" else trained(kind, "none")
    drawn = rng.integers(0, 26, 3 * units.WINDOW)
    pieces = ["the", "cat", "mat", "aa", "aaaa", "  ", "^^", "er", "o"]
    line = {
        "a": "a" * 3 * units.WINDOW,
        "space": " " * 3 * units.WINDOW,
        "caret": "^" * 3 * units.WINDOW,
        "family": "👩\u200d👩\u200d👧\u200d" * (units.WINDOW // 3),
        "marks": ("e" + "\u0301\u0323" * 3) * (units.WINDOW // 3),
        "letters": "".join(map(chr, 97 + drawn)),
        "words": "the cat sat. " * (units.WINDOW // 5),
        "of pieces": "".join(rng.choice(pieces, units.WINDOW)),
        "the": "the" * units.WINDOW,
    }[name]
    for shift in ("", "b", " the", "日"):
        assert tokenizer.encode_batch([shift + line]) == [tokenizer.encode(shift + line)]


@cache
def greedy_for_runs() -> Tokenizer:
    """Merges that depend on where a run begins."""
    lines = ["a" * 7, "aaaa " * 9, "        x" * 9, "^^^^^^^", "thethe", "cat" * 4, "matmat", *LINES] * 5
    return train_tokenizers(section("bpe", normalize="none", size=420), lines, [], seed=1).source


def test_a_long_line_is_never_given_to_the_library_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0

    class Counting:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> Any:
            nonlocal longest
            longest = max([longest, *map(len, texts)])
            return whole.encode_batch_fast(texts, add_special_tokens=add_special_tokens)

    tokenizer = greedy_for_runs()
    whole = tokenizer._units._library
    monkeypatch.setattr(tokenizer._units, "_library", Counting())
    for character in "a ^👩ẃt":
        tokenizer.encode_flat([character * 5 * units.WINDOW])
    assert longest == units.WINDOW


def test_the_table_of_units_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_CACHED_UNITS", 50)
    tokenizer = Tokenizer(trained("bpe").to_json())
    for begin in range(0, 9999, 30):
        texts = [f"word{begin + i} and {'x' * 2 * units.LONG}" for i in range(30)]
        assert tokenizer.encode_batch(texts[:2]) == [tokenizer.encode(text) for text in texts[:2]]
        tokenizer.encode_flat([f"word{begin + i} and" for i in range(30)])
        assert len(tokenizer._units._table) <= 50 + 31
        assert max(map(len, tokenizer._units._table)) <= units.LONG


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_line_without_a_space_does_not_hold_up_training(kind: str) -> None:
    """What the library is given has no word beyond the limit; lines of shorter words are left as they are."""
    rng = np.random.default_rng(0)
    long = "".join(map(chr, 97 + rng.integers(0, 26, 5 * LONGEST_UNIT)))
    parts = _without_long_units(f"the cat {long} sat")
    assert "".join(parts) == f"the cat {long} sat"
    assert max(map(len, parts)) == LONGEST_UNIT
    sentence = "the cat sat " * LONGEST_UNIT
    assert _without_long_units(sentence) == [sentence]
    tokenizer = train_tokenizers(section(kind), [*LINES, long, "a" * 50_000, " " * 50_000], [], seed=1).source
    check_round_trip(tokenizer, f"the cat {long}")
