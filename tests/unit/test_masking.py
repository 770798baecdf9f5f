"""Which tokens are masked: how many, which, what becomes of them, and that it is all a pure function of its key."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from saccade.data.masking import MASK, Masked, Masker, MaskingConfig, WordTable
from saccade.keyed import keyed_bits, shares
from saccade.text import BpeText, ByteText, CharText, TextConfig, Tokenizer, UnigramText, WordText, train_tokenizers
from saccade.types import END, PAD, SPECIALS, UNKNOWN

LINES = [
    "The cat sat on the mat; the other cats sat on the other mats.",
    "Übermäßig große Straßen führen übermäßig oft nach Köln.",
    "la niña y el niño cantan  y bailan  con   dos    espacios",
    "\tindented by a tab, and 12 345 numbers!",
] * 4
KINDS: dict[str, TextConfig] = {
    "char": CharText(size=300),
    "byte": ByteText(),
    "word": WordText(size=60),
    "word at spaces": WordText(size=60, cut="spaces"),
    "bpe": BpeText(size=330),
    "unigram": UnigramText(size=330),
}


@cache
def tokenizer(kind: str = "bpe") -> Tokenizer:
    return train_tokenizers(KINDS[kind], LINES, [], 1).source


class Numbers:
    """A vocabulary of so many ids; those from 20 on go on with the word before them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def decode(self, ids: Sequence[int], /) -> str:
        (each,) = ids
        return f" {each}" if each < 20 else str(each)

    def is_set_off(self, each: int, /) -> bool:
        return False


def masker(size: int = 50, seed: int = 3, **settings: object) -> Masker:
    return Masker(MaskingConfig.model_validate(settings), Numbers(size), seed=seed)


def rows_of(lengths: list[int], size: int = 50, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    ids = np.concatenate([[*draw.integers(4, size, length - 1), END] for length in lengths])
    return ids, np.array(lengths)


def mask(machine: Masker, lengths: list[int], epoch: int = 0) -> tuple[NDArray[np.int64], Masked]:
    ids, sizes = rows_of(lengths, machine.vocabulary)
    return ids, machine(ids, sizes, np.arange(len(lengths)), epoch)


def within(hits: int, of: int, share: float) -> None:
    """Five standard deviations of a binomial: one run in two million would fail, and the seed is fixed."""
    assert abs(hits - of * share) < 5 * math.sqrt(of * share * (1 - share)), f"{hits} of {of}, not {share:.0%}"


# ---- tokens


def test_eighty_ten_ten_over_a_hundred_thousand_tokens() -> None:
    ids, masked = mask(masker(size=1000), [101] * 1000)
    chosen = masked.target_N != PAD
    assert chosen.sum() == 15 * 1000  # exactly 15 of each 100
    assert np.array_equal(masked.ids_N[~chosen], ids[~chosen])
    assert np.array_equal(masked.target_N[chosen], ids[chosen])
    what = masked.ids_N[chosen]
    within(int((what == MASK).sum()), 15_000, 0.8)
    within(int((what == ids[chosen]).sum()), 15_000, 0.1 + 0.1 / 996)
    others = what[(what != MASK) & (what != ids[chosen])]
    assert others.min() >= len(SPECIALS)
    assert len(set(others.tolist())) > 700  # drawn from the whole vocabulary
    within(int((others < 500).sum()), len(others), 496 / 996)


def test_every_place_is_chosen_as_often() -> None:
    machine = masker()
    ids, sizes = rows_of([21] * 2000)
    target = machine(ids, sizes, np.arange(2000), 0).target_N.reshape(2000, 21)
    for hits in (target[:, :-1] != PAD).sum(0).tolist():
        within(hits, 2000, 3 / 20)
    assert (target[:, -1] == PAD).all()


@pytest.mark.parametrize(("tokens", "predicted"), [(1, 1), (3, 1), (9, 1), (10, 2), (11, 2), (17, 3), (100, 15)])
def test_how_many_of_a_row(tokens: int, predicted: int) -> None:
    """The nearest number to 15 %, of two equally near ones the even; one at least."""
    _, masked = mask(masker(), [tokens + 1])
    assert (masked.target_N != PAD).sum() == predicted


def test_specials_are_never_chosen() -> None:
    ids = np.array([END, 7, UNKNOWN, END, END, UNKNOWN, END])
    masked = masker(share=0.99)(ids, np.array([4, 1, 2]), np.arange(3), 0)
    assert np.flatnonzero(masked.target_N).tolist() == [1]
    assert np.array_equal(np.delete(masked.ids_N, 1), np.delete(ids, 1))


def test_a_row_is_masked_the_same_whatever_stands_beside_it() -> None:
    machine = masker()
    ids, sizes = rows_of([9, 30, 14, 22])
    whole = machine(ids, sizes, np.array([5, 1, 8, 3]), 2)
    ends = np.cumsum(sizes)
    for row, end, size in zip((5, 1, 8, 3), ends, sizes, strict=True):
        mine = slice(end - size, end)
        alone = machine(ids[mine], np.array([size]), np.array([row]), 2)
        assert np.array_equal(alone.ids_N, whole.ids_N[mine])
        assert np.array_equal(alone.target_N, whole.target_N[mine])


def test_seed_epoch_and_row_decide() -> None:
    def places(seed: int, epoch: int, row: int) -> tuple[int, ...]:
        ids, sizes = rows_of([60])
        return tuple(np.flatnonzero(masker(seed=seed)(ids, sizes, np.array([row]), epoch).target_N).tolist())

    assert places(1, 2, 3) == places(1, 2, 3)
    keys = [(seed, epoch, row) for seed in range(4) for epoch in range(4) for row in range(4)]
    assert len({places(*key) for key in keys}) == len(keys)


def test_what_is_asked_of_the_shares() -> None:
    ids, masked = mask(masker(mask=0.0, random=0.0), [40])
    assert np.array_equal(masked.ids_N, ids)
    _, masked = mask(masker(mask=1.0, random=0.0, share=0.5), [41])
    assert (masked.ids_N == MASK).sum() == 20
    with pytest.raises(ValidationError, match="together they may be 1"):
        MaskingConfig(mask=0.8, random=0.3)
    with pytest.raises(Exception, match="nothing to mask"):
        masker(size=4)


def test_nothing_in_nothing_out() -> None:
    for machine in (masker(), masker(whole_words=True)):
        empty = np.empty(0, dtype=np.int64)
        assert machine(empty, empty, empty, 0).ids_N.size == 0
        masked = machine(np.array([END, END]), np.array([1, 1]), np.arange(2), 0)
        assert masked.target_N.tolist() == [PAD, PAD]


def test_no_more_are_chosen_than_is_told() -> None:
    """What a GPU has to know beforehand."""
    machine = masker()
    for lengths in ([2] * 30, [3, 40, 7, 11], [101] * 5):
        _, masked = mask(machine, lengths)
        assert (masked.target_N != PAD).sum() <= int(machine.most * sum(lengths)) + len(lengths) + 1
    assert masker(whole_words=True).most == 1.0


# ---- whole words


def words_of(ids: list[int]) -> list[list[int]]:
    """As `Numbers` has them: places of a word's tokens."""
    words: list[list[int]] = []
    for place, each in enumerate(ids):
        if each == END:
            continue
        if each < 20 or place == 0:
            words.append([])
        words[-1].append(place)
    return words


@given(st.lists(st.integers(4, 39), min_size=1, max_size=60), st.integers(0, 50))
def test_words_are_chosen_whole(tokens: list[int], epoch: int) -> None:
    ids = [*tokens, END]
    machine = masker(size=40, whole_words=True)
    masked = machine(np.array(ids), np.array([len(ids)]), np.array([9]), epoch)
    chosen = set(np.flatnonzero(masked.target_N).tolist())
    words = words_of(ids)
    whole = [word for word in words if set(word) <= chosen]
    assert {place for word in whole for place in word} == chosen
    budget = max(1, round(0.15 * len(tokens)))
    if len(chosen) > budget:  # no word was short enough
        assert len(whole) == 1
        assert len(chosen) == min(map(len, words))
    else:
        left = budget - len(chosen)
        assert all(len(word) > left for word in words if word not in whole)


def test_words_are_chosen_as_tokens_are_where_each_is_one() -> None:
    ids, sizes = rows_of([30, 12], size=20)
    plain = masker(size=20)(ids, sizes, np.arange(2), 1)
    whole = masker(size=20, whole_words=True)(ids, sizes, np.arange(2), 1)
    assert np.array_equal(plain.ids_N, whole.ids_N)
    assert np.array_equal(plain.target_N, whole.target_N)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        *((kind, line) for kind in KINDS for line in LINES[:4]),
        # words outside of the vocabulary are UNKNOWN, of which nobody knows whether it had a space before it
        *((kind, line) for kind in KINDS if "word" not in kind for line in ("a", "<s> x", "don't - stop")),
    ],
)
def test_words_are_what_white_space_separates(kind: str, line: str) -> None:
    """The words that the tokenizer itself finds in the text; found here in the tokens alone."""
    text = tokenizer(kind)
    ids = text.encode(line)
    expected = text.word_places(line, ids)
    firsts = np.arange(len(ids)) == 0
    assert WordTable.of(text).words(np.array(ids), firsts).tolist() == expected


def test_words_end_with_their_row_and_at_specials() -> None:
    table = WordTable.of(Numbers(50))
    ids = np.array([5, 30, END, 30, UNKNOWN, 31, END, 32, 33])
    firsts = np.array([True, False, False, True, False, False, False, True, False])
    assert table.words(ids, firsts).tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 6]


# ---- bits by key


def test_bits_are_the_same_for_ever() -> None:
    """A run that is resumed by a later version must draw what the first one drew."""
    bits = keyed_bits(1, 2, 3, np.array([0, 1, 7]), np.array([0, 5, 5]))
    assert [f"{each:016x}" for each in bits.tolist()] == BITS


def test_bits_look_random() -> None:
    rows, places = np.divmod(np.arange(100_000), 100)
    bits = keyed_bits(7, 0, 1, rows, places)
    assert len(set(bits.tolist())) == 100_000
    for bit in range(64):
        within(int((bits >> np.uint64(bit) & np.uint64(1)).sum()), 100_000, 0.5)
    u = shares(bits)
    assert 0 <= u.min() < u.max() < 1
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02
    other = shares(keyed_bits(7, 0, 2, rows, places))
    assert abs(np.corrcoef(u, other)[0, 1]) < 0.02


BITS = ["51ad3878e79d5575", "7d093d0442752a1b", "689fe10b4d75d07a"]
