"""Phrases in texts: automata against plain searching, for every kind of tokenizer; what a phrase still needs."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from saccade.constraints import Lexicon
from saccade.decode.banks import allocate
from saccade.decode.characters import SIGN, WHITE, WORD, symbol_of, symbols
from saccade.decode.phrases import BEGIN, automaton, holds
from saccade.decode.wanted import NO_TOKEN
from saccade.errors import UsageError
from saccade.text import Tokenizer, train_tokenizers
from tests.unit.test_text import EVERY_KIND, LINES, section, trained

PHRASES = [
    "cat",
    "the cat",
    "ä",
    "straßen",
    "a a",
    "-",
    "the-",
    "niño",
    "e\u0301",
    "Köln.",
    "日本",
    "a",
    "the\u2003cat",
    "👩",
]
PARTS = [*PHRASES, "c", "t", "s", " ", "\n", "\u2003", "1", "“", ".", "\u0301", "é", "\ufffd", "_", ""]
KINDS = (*EVERY_KIND, "spaces")


@cache
def tokenizer_of(kind: str, **other: Any) -> Tokenizer:
    if kind == "spaces":
        return train_tokenizers(section("word", cut="spaces", **other), LINES, [], seed=1).source
    return train_tokenizers(section(kind, **other), LINES, [], seed=1).source if other else trained(kind)


@cache
def lexicon_of(kind: str) -> Lexicon:
    return Lexicon.of(tokenizer_of(kind))


# ---- texts


def test_how_often_a_text_holds_a_phrase() -> None:
    assert holds("the cat sat; the cats sat", "cat") == 1
    assert holds("the cat sat; the cats sat", "cat", whole_words=False) == 2
    assert holds("a a a", "a a") == 1  # copies do not overlap
    assert holds("a a a a", "a a") == 2
    assert holds("new\u2003 york!", "new york") == 1
    assert holds("(cat)", "cat") == holds("cat_", "cat") == holds("„cat“", "cat") == 1
    assert holds("cat1", "cat") == holds("cate\u0301", "cat") == holds("concat", "cat") == 0
    assert holds("50%, a%b", "%") == 2  # no letter, so nothing goes on in it
    assert holds("", "cat") == 0


def test_every_code_point_has_the_class_of_its_character() -> None:
    points = np.random.default_rng(0).integers(0, 0x110000, 20_000)
    assert [symbol_of(chr(point)) for point in points] == symbols()[points].tolist()
    assert [symbol_of(each) for each in "aä1\u0301 \n-_“"] == [WORD] * 4 + [WHITE] * 2 + [SIGN] * 3


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_an_automaton_finds_what_the_text_holds(kind: str, data: st.DataObject) -> None:
    """In tokens of a text, and in any others: bytes that make no characters, unknown words, characters bytewise."""
    lexicon = lexicon_of(kind)
    tokenizer = lexicon.tokenizer
    phrases = data.draw(st.lists(st.sampled_from(PHRASES), min_size=1, max_size=3))
    times = data.draw(st.integers(1, 3)) if len(phrases) == 1 else 1
    whole_words = data.draw(st.booleans())
    made = automaton(phrases, lexicon.spellings, times=times, whole_words=whole_words)
    for _ in range(5):
        stretches = st.one_of(
            st.lists(st.sampled_from(PARTS), max_size=6).map(lambda parts: tokenizer.encode("".join(parts))),
            st.lists(st.integers(0, tokenizer.size - 1), max_size=3),
            st.sampled_from(["ä", "ß", "“", "日本", "👩", " "]).map(lambda text: _bytewise(tokenizer, text)),
        )
        tokens = [token for part in data.draw(st.lists(stretches, max_size=4)) for token in part]
        text = tokenizer.decode(tokens)
        expected = any(holds(text, phrase, whole_words=whole_words) >= times for phrase in phrases)
        assert made.found(tokens) == expected, (phrases, times, whole_words, text)


def _bytewise(tokenizer: Tokenizer, text: str) -> list[int]:
    if tokenizer.spelling(4) != b"\0":  # words: there are no bytes
        return tokenizer.encode(text)
    return [4 + byte for byte in text.encode()]


# ---- what a phrase needs to be written


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whoever_writes_what_is_proposed_has_the_phrase(kind: str, data: st.DataObject) -> None:
    """From wherever a text is, in as many tokens as are said; each way by itself; and begun anew."""
    lexicon = lexicon_of(kind)
    tokenizer = lexicon.tokenizer
    words = ["cat", "the other", "Köln", "oft nach", "übermäßig", "mat"]
    known = ["cat", "the other", "oft nach"] if kind in ("word", "spaces") else words
    phrase, times = data.draw(st.sampled_from(known)), data.draw(st.integers(1, 2))
    wanted = lexicon.constraints([phrase] * times, [])
    assert wanted is not None
    [required] = wanted.required
    begun = data.draw(st.sampled_from(["", "the", "the ", "(", "the cat", "the o", "Kö", "a, "]))
    tokens = tokenizer.encode(begun) + data.draw(st.lists(st.integers(3, tokenizer.size - 1), max_size=2))
    state = required.automaton.after(tokens, BEGIN)
    for way in range(required.token_SR.shape[1]):
        written, at = list(tokens), state
        if required.token_SR[at, way] == NO_TOKEN:
            continue
        written.append(int(required.token_SR[at, way]))
        at = required.automaton.after(written)
        left = int(required.need_S[at])
        for step in range(left):
            assert required.need_S[at] <= left - step
            if required.need_S[at] == 0:
                break
            best = min(
                (token for token in required.token_SR[at] if token != NO_TOKEN),
                key=lambda token: required.need_S[required.automaton.after([*written, int(token)])],
            )
            written.append(int(best))
            at = required.automaton.after(written)
        text = tokenizer.decode(written)
        assert required.need_S[at] == 0, (text, phrase)
        assert holds(text, phrase) >= times, (text, phrase)


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_that_begins_with_the_phrase_does_not_begin_with_a_space(kind: str) -> None:
    lexicon = lexicon_of(kind)
    wanted = lexicon.constraints(["the cat" if kind == "spaces" else "The cat"], [])
    assert wanted is not None
    [required] = wanted.required
    tokens: list[int] = []
    while required.need_S[required.automaton.after(tokens)] > 0:
        state = required.automaton.after(tokens)
        tokens.append(next(int(token) for token in required.token_SR[state] if token != NO_TOKEN))
    assert lexicon.tokenizer.decode(tokens).lower() == "the cat"
    assert len(tokens) == wanted.tokens


def test_a_word_that_is_only_known_at_a_beginning_is_put_behind_a_sign() -> None:
    """`The` stands at the beginning of lines alone, and words are looked up with the space before them."""
    lexicon = lexicon_of("word")
    wanted = lexicon.constraints(["The"], [])
    assert wanted is not None
    [required] = wanted.required
    inside = lexicon.tokenizer.encode("the cat")
    tokens = inside
    while required.need_S[required.automaton.after(tokens)] > 0:
        state = required.automaton.after(tokens)
        tokens = [*tokens, next(int(token) for token in required.token_SR[state] if token != NO_TOKEN)]
    assert holds(lexicon.tokenizer.decode(tokens), "The") == 1
    assert wanted.longest == 2


# ---- what is refused


def refused(kind: str, must: list[str], must_not: list[str], **other: Any) -> str:
    with pytest.raises(UsageError) as caught:
        Lexicon.of(tokenizer_of(kind)).constraints(must, must_not, **other)
    return str(caught.value)


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    assert "must: '\\n ' has no word in it" in refused("bpe", ["\n "], [])
    assert "line 7: must_not: '' has no word in it" in refused("bpe", [], [""], place="line 7: ")
    told = refused("word", ["the zebra sat"], [])
    assert "must: 'the zebra sat' cannot be written: 'zebra' is not in the vocabulary of the target" in told
    assert "'zebra' is not in the vocabulary" in refused("spaces", ["zebra"], [])
    told = refused("bpe", ["sat", "on the mat"], ["cat", "the mat"])
    assert "must: 'on the mat' holds 'the mat', which must_not forbids" in told
    told = refused("bpe", ["concat"], ["cat"], whole_words=False)
    assert "must: 'concat' holds 'cat'" in told
    ids = tokenizer_of("bpe").encode("the cat sat")
    assert "prefix: 'the cat sat' holds 'cat', which must_not forbids" in refused("bpe", [], ["cat"], prefix=ids)
    ids = tokenizer_of("spaces").encode("the")  # what is set off cannot go on, so that the word is whole already
    assert "prefix: 'the' holds 'the'" in refused("spaces", [], ["the"], prefix=ids)


def test_what_only_seems_contradictory_is_not_refused() -> None:
    lexicon = lexicon_of("bpe")
    assert lexicon.constraints(["cats", "New"], ["cat", "New York"]) is not None
    assert lexicon.constraints([], ["cat"], prefix=lexicon.tokenizer.encode("the cat")) is not None  # … s may follow
    assert lexicon.constraints([], []) is None


def test_phrases_are_in_the_normal_form_of_the_text() -> None:
    lowered = Lexicon.of(tokenizer_of("bpe", lowercase=True))
    assert lowered.unmet("the cat", ["THE  Cat"], []) == []
    assert lowered.unmet("the cat", ["The Cat", "the cat", "mat"], ["CAT"]) == ["the cat", "mat", "CAT"]
    composed = lexicon_of("bpe")
    assert composed.unmet("nin\u0303o", [], ["niño"]) == ["niño"]  # what looks alike is alike


# ---- the places of a beam


@example([(0.0, 0), (-1.0, 1), (-2.0, 0), (-9.0, 2)], 4)
@given(
    st.lists(st.tuples(st.floats(-9, 0), st.integers(0, 3)), min_size=1, max_size=12),
    st.integers(1, 12),
)
def test_banks_take_turns(candidates: list[tuple[float, int]], count: int) -> None:
    """Against turns taken one by one: the best of each bank, fewest left first, then the second best, and so on."""
    score = torch.tensor([[each for each, _ in candidates]])
    left = torch.tensor([[bank for _, bank in candidates]])
    queues = {
        bank: sorted((i for i, each in enumerate(candidates) if each[1] == bank), key=lambda i: -score[0, i].item())
        for bank in range(4)
    }
    expected = []
    while any(queues.values()):
        expected += [queue.pop(0) for _, queue in sorted(queues.items()) if queue]
    assert allocate(score, left, torch.zeros_like(left, dtype=torch.bool), count)[0].tolist() == expected[:count]


def test_what_is_late_or_impossible_comes_last() -> None:
    score = torch.tensor([[-1.0, -2.0, -torch.inf, -3.0, -4.0]])
    late = torch.tensor([[True, False, False, False, True]])
    left = torch.tensor([[0, 2, 0, 1, 1]])
    assert allocate(score, left, late, 5)[0].tolist() == [3, 1, 0, 4, 2]
    assert allocate(score, left * 0, late & False, 3)[0].tolist() == [0, 1, 3]
