"""Lexical constraints proved on matrices: what must be is always there, what must not be never, the best is found.

The tokens of the matrix get spellings. `PIECES` is a vocabulary of pieces, `WORDS` one of words that are set off.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.lexical import Constraints, Lexical
from saccade.decode.phrases import Spellings, automaton, folded, holds
from saccade.decode.rules import Wishes
from saccade.decode.scores import LengthRule, normalised
from saccade.decode.settings import DecodeConfig, search
from saccade.decode.wanted import Forbidden, Required
from saccade.types import END, Hypothesis
from tests.equivalence.test_decode import (
    CHOICES,
    VOCABULARY,
    alike,
    assert_alike,
    every_output,
    log_probabilities,
    matrix_of,
    model_of,
    rules,
    seeds,
)


class Vocabulary(NamedTuple):
    """What tokens 3, 4 and 5 spell, and which are words set off from each other."""

    spelt: tuple[str, str, str]
    set_off: bool

    def text(self, tokens: Sequence[int]) -> str:
        return (" " if self.set_off else "").join(self.spelt[token - 3] for token in tokens)

    @property
    def spellings(self) -> Spellings:
        return Spellings.of([b"", b"", b"", *(each.encode() for each in self.spelt)], [False] * 3 + [self.set_off] * 3)


WORDS = Vocabulary(("x", "y", "z"), set_off=True)
LETTERS = Vocabulary((" ", "a", "b"), set_off=False)
PIECES = Vocabulary((" a", "a", " b"), set_off=False)
EVERY = (WORDS, LETTERS, PIECES)
phrases_of = {
    WORDS: ["x", "y", "z", "x y", "y x", "x x", "y z x", "x y x"],
    LETTERS: ["a", "b", "ab", "a b", "b a", "aa", "aab"],
    PIECES: ["a", "aa", "a b", "b a", "aa b"],
}


def cheapest(vocabulary: Vocabulary, text: str) -> tuple[int, ...] | None:
    for length in range(1, 8):
        for tokens in product(CHOICES, repeat=length):
            if vocabulary.text(tokens) == text:
                return tokens
    return None


@cache
def required(vocabulary: Vocabulary, phrase: str, times: int = 1) -> Required:
    made = automaton([phrase], vocabulary.spellings, times=times)
    plain, spaced = cheapest(vocabulary, phrase), cheapest(vocabulary, " " + phrase)
    if plain is None or spaced is None:
        only = plain or spaced
        assert only is not None
        return Required.of(made, [only], anew=0, at_begin=0)
    return Required.of(made, [spaced, plain], anew=0, at_begin=1)


@cache
def forbidden(vocabulary: Vocabulary, phrases: tuple[str, ...]) -> Forbidden | None:
    spellings = vocabulary.spellings
    return Forbidden.of(automaton(phrases, spellings), spellings.silent) if phrases else None


def constraints(vocabulary: Vocabulary, must: Sequence[str], must_not: Sequence[str] = ()) -> Constraints:
    wanted = Counter(must)
    return Constraints(
        tuple(required(vocabulary, phrase, times) for phrase, times in wanted.items()),
        forbidden(vocabulary, tuple(must_not)),
    )


def control(asked: Sequence[Constraints], *, every_end: bool = False) -> Lexical:
    return Lexical.of(asked, every_end=every_end, device=torch.device("cpu"), vocabulary=VOCABULARY)


def meets(vocabulary: Vocabulary, tokens: Sequence[int], must: Sequence[str], must_not: Sequence[str] = ()) -> bool:
    text = vocabulary.text(tokens)
    return all(holds(text, phrase) >= times for phrase, times in Counter(must).items()) and not any(
        holds(text, phrase) for phrase in must_not
    )


@st.composite
def requests(draw: st.DrawFn) -> tuple[Vocabulary, list[str], list[str]]:
    """A vocabulary, and what must be and must not be in outputs written in it; no phrase contradicts another."""
    vocabulary = draw(st.sampled_from(EVERY))
    phrases = st.sampled_from(phrases_of[vocabulary])
    must = draw(st.lists(phrases, max_size=3))
    must_not = draw(st.lists(phrases, max_size=2, unique=True))
    return vocabulary, must, [each for each in must_not if not any(holds(wanted, each) for wanted in must)]


# ---- what must be


@settings(max_examples=100, deadline=None)
@given(asked=requests(), seed=seeds, beam=st.integers(1, 12), extra=st.integers(0, 4))
def test_what_must_be_is_there_however_narrow_the_beam(
    asked: tuple[Vocabulary, list[str], list[str]], seed: int, beam: int, extra: int
) -> None:
    """With a limit that leaves room for the phrases and nothing else, and fewer hypotheses than banks."""
    vocabulary, must, _ = asked
    assume(must)
    wanted = constraints(vocabulary, must)
    limit = wanted.longest + extra
    step, state = model_of(matrix_of(seed)[None])
    found = beam_search(
        step,
        state,
        limits=[limit],
        rule=BeamRule(beam, "average", 1.0, beam),
        wishes=Wishes(control=control([wanted])),
    )[0]
    assert found
    for each in found:
        assert len(each.token_log_probabilities) <= limit
        assert meets(vocabulary, each.tokens, must), (vocabulary.text(each.tokens), must)
        assert each.token_log_probabilities == pytest.approx(
            log_probabilities(matrix_of(seed), each.tokens, each.ended), abs=1e-4
        )
    assert len({(each.tokens, each.ended) for each in found}) == len(found)


@rules
@settings(max_examples=25, deadline=None)
@given(asked=requests(), seed=seeds, limit=st.integers(2, 5))
def test_a_beam_that_loses_nothing_is_exhaustive(
    length: LengthRule, alpha: float, asked: tuple[Vocabulary, list[str], list[str]], seed: int, limit: int
) -> None:
    vocabulary, must, must_not = asked
    cube = matrix_of(seed)
    outputs = []
    for tokens, ended in every_output(limit):
        if meets(vocabulary, tokens, must, must_not):
            scores = log_probabilities(cube, tokens, ended)
            score = normalised(math.fsum(scores), len(scores), length, alpha)
            outputs.append(Hypothesis(tokens, score, math.fsum(scores), scores, ended))
    assume(outputs)
    best = max(outputs, key=lambda each: each.score)
    step, state = model_of(cube[None])
    wishes = Wishes(control=control([constraints(vocabulary, must, must_not)]))
    width = 4 * 3 ** (limit - 2)
    [found] = beam_search(step, state, limits=[limit], rule=BeamRule(width, length, alpha), wishes=wishes)[0]
    assert alike(found, best) or found.score == pytest.approx(best.score, abs=1e-5), f"{found}\n{best}"
    assert meets(vocabulary, found.tokens, must, must_not)


@rules
@settings(max_examples=25, deadline=None)
@given(seed=seeds, limits=st.lists(st.integers(0, 7), min_size=1, max_size=4), beam=st.integers(1, 5))
def test_where_nothing_is_asked_it_is_the_plain_search(
    length: LengthRule, alpha: float, seed: int, limits: list[int], beam: int
) -> None:
    """One sentence asks for something, so that the control chooses; of the others nothing changes."""
    cubes = torch.stack([matrix_of(seed + b) for b in range(len(limits) + 1)])
    rule = BeamRule(beam, length, alpha, beam)
    step, state = model_of(cubes)
    asked = [*[Constraints()] * len(limits), constraints(WORDS, ["x"])]
    steered = beam_search(step, state, limits=[*limits, 9], rule=rule, wishes=Wishes(control=control(asked)))
    step, state = model_of(cubes)
    for one, other in zip(steered, beam_search(step, state, limits=[*limits, 0], rule=rule)[:-1], strict=False):
        assert len(one) == len(other)
        for place, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert mine.score == pytest.approx(theirs.score, abs=1e-6)
            near = sum(each.score == pytest.approx(mine.score, abs=1e-5) for each in one)
            if near == 1 and place < len(one) - 1:  # of equals either may come first; the last may have one left out
                assert alike(mine, theirs), f"{mine}\n{theirs}"


# ---- what must not be


@settings(max_examples=100, deadline=None)
@given(
    vocabulary=st.sampled_from(EVERY),
    seed=seeds,
    beam=st.integers(1, 6),
    limit=st.integers(1, 8),
    data=st.data(),
)
def test_what_must_not_be_is_never_there(
    vocabulary: Vocabulary, seed: int, beam: int, limit: int, data: st.DataObject
) -> None:
    """Greedy, too; and where the limit cuts an output off."""
    must_not = data.draw(st.lists(st.sampled_from(phrases_of[vocabulary]), min_size=1, max_size=3, unique=True))
    step, state = model_of(matrix_of(seed)[None])
    wishes = Wishes(control=control([constraints(vocabulary, [], must_not)]))
    found = search(step, state, limits=[limit], config=DecodeConfig(beam=beam, n_best=beam), wishes=wishes)[0]
    assert found
    for each in found:
        assert meets(vocabulary, each.tokens, [], must_not), (vocabulary.text(each.tokens), must_not)


@settings(max_examples=100, deadline=None)
@given(seed=seeds, limit=st.integers(1, 4), data=st.data(), vocabulary=st.sampled_from(EVERY))
def test_the_mask_forbids_no_more_than_it_must(
    seed: int, limit: int, data: st.DataObject, vocabulary: Vocabulary
) -> None:
    """Every output that holds none of the phrases can still be written: with all of them kept, all are found."""
    must_not = data.draw(st.lists(st.sampled_from(phrases_of[vocabulary]), min_size=1, max_size=3, unique=True))
    width = 2 * 3**limit
    step, state = model_of(matrix_of(seed)[None])
    wishes = Wishes(control=control([constraints(vocabulary, [], must_not)]))
    rule = BeamRule(width, "none", 1.0, width, stop="length")
    found = beam_search(step, state, limits=[limit], rule=rule, wishes=wishes)[0]
    allowed = {each for each in every_output(limit) if meets(vocabulary, each[0], [], must_not)}
    assert {(each.tokens, each.ended) for each in found} == allowed


# ---- both, and whoever else is there


@settings(max_examples=30, deadline=None)
@given(asked=st.lists(requests(), min_size=1, max_size=4), seed=seeds, beam=st.integers(1, 5), prefix=st.booleans())
def test_a_batch_is_searched_as_its_sentences_alone(
    asked: list[tuple[Vocabulary, list[str], list[str]]], seed: int, beam: int, prefix: bool
) -> None:
    every = [constraints(*each) for each in asked]
    limits = [each.longest + 2 + b for b, each in enumerate(every)]
    prefixes = [(3,) if prefix and b % 2 and not must_not else () for b, (_, _, must_not) in enumerate(asked)]
    cubes = torch.stack([matrix_of(seed + b) for b in range(len(asked))])
    rule = BeamRule(beam, "average", 1.0, beam)
    step, state = model_of(cubes)
    together = beam_search(
        step, state, limits=limits, rule=rule, wishes=Wishes(control=control(every), prefixes=prefixes)
    )
    for b, one in enumerate(every):
        step, state = model_of(cubes[b : b + 1])
        wishes = Wishes(control=control([one]), prefixes=prefixes[b : b + 1])
        [alone] = beam_search(step, state, limits=limits[b : b + 1], rule=rule, wishes=wishes)
        assert_alike(together[b], alone)


def test_words_may_overlap_but_copies_do_not() -> None:
    """`x y x` holds `x y` and `y x`; twice `x x` needs four of them."""
    logits = torch.zeros(VOCABULARY, VOCABULARY)
    logits[:, END] = 3.0
    for must, expected in ((["x y", "y x"], 3), (["x x", "x x"], 4), (["x x", "x"], 2), (["x", "x", "x"], 3)):
        step, state = model_of(logits.expand(1, VOCABULARY, VOCABULARY, VOCABULARY))
        wishes = Wishes(control=control([constraints(WORDS, must)]))
        [best] = beam_search(step, state, limits=[12], rule=BeamRule(12, "none"), wishes=wishes)[0]
        assert len(best.tokens) == expected
        assert meets(WORDS, best.tokens, must)


def test_a_phrase_that_was_begun_begins_anew_where_it_does_not_go_on() -> None:
    """`x x y` is in `x x x y`: of three x the last two count."""
    made = required(WORDS, "x x y")
    needs = [int(made.need_S[made.automaton.after(tokens)]) for tokens in ((), (3,), (3, 3), (3, 3, 3), (3, 3, 5))]
    assert needs == [3, 2, 1, 1, 3]
    assert folded("  a \u2003 b ") == "a b"
