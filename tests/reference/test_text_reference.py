"""Tokenizers against the library used plainly, against brute force, and against the paper written out."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from saccade.text import BpeDropout, BpeText, ByteText, CharText, Tokenizer, UnigramText, WordText, train_tokenizers
from saccade.text.layout import RESERVED, BpeModel, UnigramModel
from saccade.types import SPECIALS, UNKNOWN

CUT = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"

UNICODE_FORMS: dict[Literal["nfc", "nfkc"], Literal["NFC", "NFKC"]] = {"nfc": "NFC", "nfkc": "NFKC"}


@cache
def ascii_lines() -> tuple[str, ...]:
    rng = np.random.default_rng(7)
    syllables = [a + b for a in "bcdfghklmnprst" for b in "aeiou"]
    words = ["".join(rng.choice(syllables, size=rng.integers(1, 5))) for _ in range(400)]
    ends = [".", "?", "!", " (1999)", ", 42%", "..."]
    return tuple(
        " ".join(words[int(rng.integers(400) ** 2 / 400)] for _ in range(rng.integers(2, 9))) + str(rng.choice(ends))
        for _ in range(250)
    )


@cache
def bpe() -> Tokenizer:
    return train_tokenizers(BpeText(size=500), ascii_lines(), [], seed=0).source


@cache
def unigram() -> Tokenizer:
    return train_tokenizers(UnigramText(size=420), ascii_lines(), [], seed=0).source


def plain(model: models.Model, trainer: trainers.Trainer) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(CUT), "isolated")
    made.train_from_iterator(ascii_lines(), trainer)
    return made


def test_bpe_is_the_librarys_bpe_moved_behind_the_reserved_ids() -> None:
    reference = plain(models.BPE(), trainers.BpeTrainer(vocab_size=240, min_frequency=2, show_progress=False))
    assert bpe().size == 500
    for line in ascii_lines():
        assert [each - len(RESERVED) for each in bpe().encode(line)] == reference.encode(line).ids


def test_words_are_the_librarys_words_moved_behind_the_specials() -> None:
    reference = plain(models.WordLevel(), trainers.WordLevelTrainer(vocab_size=96, show_progress=False))
    tokenizer = train_tokenizers(WordText(size=100), ascii_lines(), [], seed=0).source
    unknown = 0
    for line in ascii_lines():
        words = [word for word, _ in reference.pre_tokenizer.pre_tokenize_str(line)]
        wanted = [reference.token_to_id(word) for word in words]
        assert tokenizer.encode(line) == [UNKNOWN if each is None else each + len(SPECIALS) for each in wanted]
        unknown += wanted.count(None)
    assert unknown > 0


def test_characters_are_counted() -> None:
    tokenizer = train_tokenizers(CharText(size=275), ascii_lines(), [], seed=0).source
    count = Counter("".join(ascii_lines()))
    best = sorted(count, key=lambda character: (-count[character], character))[:15]
    wanted = [260 + best.index(each) if each in best else 4 + ord(each) for each in ascii_lines()[0]]
    assert tokenizer.encode(ascii_lines()[0]) == wanted


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_are_utf8(text: str) -> None:
    tokenizer = train_tokenizers(ByteText(normalize="none"), [], [], seed=0).source
    assert tokenizer.encode(text) == [4 + byte for byte in text.encode()]


@pytest.mark.parametrize("make", [bpe, unigram])
def test_the_file_decodes_alike_in_the_library(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    read = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    for text in (*ascii_lines()[:50], "né 日本 \0 <s> <0x41>", "  ẃ\n\n"):
        ids = tokenizer.encode(text)
        assert read.encode(text).ids == ids
        assert read.decode(ids) == tokenizer.decode(ids)


def test_unigram_finds_the_most_probable_cut() -> None:
    model = unigram().model
    assert isinstance(model, UnigramModel)
    score = dict(model.vocab[len(RESERVED) :])

    def best(word: str) -> float:
        """Over every way to cut the word, by brute force."""
        if not word:
            return 0.0
        heads = [word[:end] for end in range(1, len(word) + 1) if word[:end] in score]
        return max((score[head] + best(word[len(head) :]) for head in heads), default=-np.inf)

    words = {word for line in ascii_lines() for word in unigram().words(line) if len(word) <= 9}
    assert len(words) > 50
    longer = 0
    for word in words:
        ids = unigram().encode(word)
        assert sum(model.vocab[each][1] for each in ids) == pytest.approx(best(word), abs=1e-9)
        longer += len(ids) > 1
    assert longer > 20


def test_unigram_keeps_the_librarys_pieces() -> None:
    reference = plain(models.Unigram(), trainers.UnigramTrainer(vocab_size=160, show_progress=False))
    pieces = set(unigram().model.pieces()[len(RESERVED) :])
    alphabet = set("".join(ascii_lines()))
    assert len(pieces) == 160
    assert pieces >= alphabet
    assert len(pieces ^ set(reference.get_vocab())) <= 8  # each character counts once more than in the plain text


letters = st.text(st.sampled_from("abcdeionrst .?4é日<\n"), max_size=60)


@settings(max_examples=200, deadline=None)
@given(text=letters | st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(ascii_lines()))
def test_no_dropout_is_the_librarys_own_encoding(text: str) -> None:
    assert BpeDropout(bpe(), 0.0).encode(text, np.random.default_rng(0)) == bpe().encode(text)


def outcomes(model: BpeModel, word: str, p: float) -> dict[tuple[str, ...], float]:
    """The probability of every cut, from the algorithm as Provilkov et al. (2020), section 3.2, state it."""
    rank = {tuple(pair): each for each, pair in enumerate(model.merges)}
    total: dict[tuple[str, ...], float] = defaultdict(float)

    def walk(symbols: tuple[str, ...], weight: float) -> None:
        candidates = sorted((rank[pair], place) for place, pair in enumerate(pairwise(symbols)) if pair in rank)
        for before, (_, place) in enumerate(candidates):  # all better ones dropped, this one kept
            merged = (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])
            walk(merged, weight * p**before * (1 - p))
        total[symbols] += weight * p ** len(candidates)

    walk(tuple(word), 1.0)
    return total


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_has_the_papers_distribution(p: float) -> None:
    model = bpe().model
    assert isinstance(model, BpeModel)
    word = max((word for line in ascii_lines()[:40] for word in bpe().words(line) if len(word) <= 6), key=len)
    wanted = outcomes(model, word, p)
    assert len(wanted) > 3
    assert sum(wanted.values()) == pytest.approx(1)
    dropout, rng, trials = BpeDropout(bpe(), p), np.random.default_rng(3), 10_000
    pieces = model.pieces()
    seen = Counter(tuple(pieces[each] for each in dropout.encode(word, rng)) for _ in range(trials))
    assert set(seen) <= set(wanted)
    for cut, probability in wanted.items():
        deviation = np.sqrt(probability * (1 - probability) / trials)
        assert abs(seen[cut] / trials - probability) < 5 * deviation + 1e-3, cut


def is_of_old(character: str) -> bool:
    """Assigned in Unicode 3.2: of newer characters the library and Python may know unlike editions."""
    return unicodedata.ucd_3_2_0.category(character) != "Cn"


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"]).filter(is_of_old)))
def test_normal_forms_are_unicodes(text: str) -> None:
    for form, name in UNICODE_FORMS.items():
        tokenizer = train_tokenizers(ByteText(normalize=form), [], [], seed=0).source
        assert tokenizer.normalise(text) == unicodedata.normalize(name, text)
