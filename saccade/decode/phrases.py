"""Phrases in a text that is written token by token: an automaton over characters, as tables over tokens.

The states are those of Aho and Corasick (1975): what of each phrase the text ends in. A token moves a state by all its
characters at once; tokens that move every state alike are of one kind, so a table has a column a kind. What counts is
the text: in whatever tokens a phrase is written, it is found, and found only where it stands as whole words.

Shapes: A states between characters, S states, those within a character too; Y symbols, K kinds of tokens, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saccade.decode.characters import BROKEN, HIGH, OPEN, REPLACEMENT, SIGN, WHITE, WORD, open_characters, symbols
from saccade.decode.characters import symbol_of as class_of
from saccade.errors import UsageError

FOUND, BEGIN = 0, 1
"""The state of a text that holds the phrase, which it never leaves; that of the empty text."""
MOST_ENTRIES = 1 << 26
_NOTHING = 0  # the kind of tokens that spell nothing

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Spellings:
    """What the tokens of a vocabulary spell: whole characters, or one byte of one."""

    size: int
    bytes_of: Ints
    """Of each token the byte that it spells, where that is only a part of a character; else 0."""
    silent: NDArray[np.bool_]
    points: Ints
    """The code points of all tokens, each once."""
    levels: tuple[tuple[Ints, Ints], ...]
    """The first characters of all tokens that have one, the second ones, …: tokens, and which of `points`."""

    @staticmethod
    def of(spelt: Sequence[bytes], set_off: Sequence[bool]) -> "Spellings":
        """`set_off`: a space stands before the token, unless it is the first, where it would change nothing."""
        bytes_of = np.zeros(len(spelt), dtype=np.int64)
        texts: list[str] = []
        for each, (part, apart) in enumerate(zip(spelt, set_off, strict=True)):
            if len(part) == 1 and part[0] >= HIGH:
                bytes_of[each] = part[0]
                texts.append("")
            else:
                texts.append(" " + part.decode() if apart and part else part.decode())
        silent = np.array([not part for part in spelt], dtype=bool)
        points = np.array(sorted({ord(character) for text in texts for character in text}), dtype=np.int64)
        return Spellings(len(spelt), bytes_of, silent, points, tuple(_levels(texts, points)))


def _levels(texts: Sequence[str], points: Ints) -> Iterator[tuple[Ints, Ints]]:
    which = [each for each, text in enumerate(texts) if text]
    place = 0
    while which:
        yield np.array(which), np.searchsorted(points, [ord(texts[each][place]) for each in which])
        place += 1
        which = [each for each in which if len(texts[each]) > place]


@dataclass(frozen=True, eq=False)
class Automaton:
    """Which phrase a text holds or ends in, told by one number, its state."""

    next_SK: NDArray[np.int32]
    kind_V: NDArray[np.int32]
    end_S: Ints
    """The state behind the end of the text, which ends words, too."""
    times_S: Ints
    """How often the phrase stands in the text for sure."""

    def after(self, tokens: Sequence[int], state: int = BEGIN) -> int:
        for token in tokens:
            state = int(self.next_SK[state, self.kind_V[token]])
        return state

    def found(self, tokens: Sequence[int]) -> bool:
        """Whether the text of these tokens, when it ends there, holds a phrase (so often as is asked for)."""
        return bool(self.end_S[self.after(tokens)] == FOUND)


def folded(phrase: str) -> str:
    """White space is one space, and none at the ends."""
    return " ".join(phrase.split())


def holds(text: str, phrase: str, *, whole_words: bool = True) -> int:
    """How often a text holds a phrase, counted from the left without overlaps: what automata are held against.

    Of whole words, letters and digits (with their marks) do not go on at either end of the phrase.
    """
    text, phrase = folded(text), folded(phrase)
    count, at = 0, text.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        joined = whole_words and (_one_word(text[at - 1 : at], phrase[0]) or _one_word(phrase[-1], text[end : end + 1]))
        count += not joined
        at = text.find(phrase, at + 1 if joined else end)
    return count


def _one_word(left: str, right: str) -> bool:
    return bool(left and right) and class_of(left) == class_of(right) == WORD


def automaton(phrases: Sequence[str], spellings: Spellings, *, times: int = 1, whole_words: bool = True) -> Automaton:
    """FOUND is any of the phrases, `times` times. White space is one space, whatever it is made of."""
    phrases = [folded(phrase) for phrase in phrases]
    characters = sorted(set("".join(phrases)) - {" "})
    symbol = {character: number for number, character in enumerate(characters, start=WHITE + 1)} | {" ": WHITE}
    is_word = [True, False, False, *(class_of(character) == WORD for character in characters)]
    spelt = [tuple(symbol[character] for character in phrase) for phrase in phrases]
    next_AY, times_A = _over_symbols(_Reader(spelt, is_word, times, whole_words))
    special = {ord(character): symbol[character] for character in characters}
    return _over_tokens(next_AY, times_A, special, spellings)


# How often a phrase was found; which phrases the text ends in, and how far; and of what class its last character is.
_Place = tuple[int, frozenset[tuple[int, int]], int]
_AT_BEGIN: _Place = (0, frozenset(), -1)


@dataclass(frozen=True)
class _Reader:
    phrases: Sequence[tuple[int, ...]]
    is_word: Sequence[bool]
    times: int
    whole_words: bool

    def follow(self, place: _Place, symbol: int) -> _Place | None:
        """Where the text is behind one more character; None: all is found."""
        found, within, before = place
        word = self.is_word[symbol]
        class_ = WORD if word else WHITE if symbol == WHITE else SIGN
        if class_ == before == WHITE:
            return place
        if not word and self._whole(within):  # it was whole but for a word's end, which this is
            found, within = found + 1, frozenset()
            if found == self.times:
                return None
        inside = self.whole_words and word and before == WORD
        new = {(p, at + 1) for p, at in within if self.phrases[p][at : at + 1] == (symbol,)}
        if not inside:
            new |= {(p, 1) for p in self._beginning.get(symbol, ())}
        if self._whole(new) and not (self.whole_words and word):
            return None if found + 1 == self.times else (found + 1, frozenset(), class_)
        return found, frozenset(new), class_

    @cached_property
    def _beginning(self) -> dict[int, list[int]]:
        """By their first character: which phrases begin with it."""
        found: dict[int, list[int]] = {}
        for p, phrase in enumerate(self.phrases):
            found.setdefault(phrase[0], []).append(p)
        return found

    def _whole(self, within: Iterable[tuple[int, int]]) -> bool:
        return any(at == len(self.phrases[p]) for p, at in within)


def _over_symbols(reader: _Reader) -> tuple[Ints, Ints]:
    """next_AY, and how often each state has found a phrase."""
    number: dict[_Place | None, int] = {None: FOUND, _AT_BEGIN: BEGIN}
    places = [_AT_BEGIN]
    rows = [[FOUND] * len(reader.is_word)]
    for place in places:
        row = []
        for symbol in range(len(reader.is_word)):
            after = reader.follow(place, symbol)
            if after is not None and after not in number:
                number[after] = len(number)
                places.append(after)
            row.append(number[after])
        rows.append(row)
    found = [reader.times, *(place[0] for place in places)]
    return np.array(rows, dtype=np.int64), np.array(found, dtype=np.int64)


def _over_tokens(next_AY: Ints, times_A: Ints, special: dict[int, int], spellings: Spellings) -> Automaton:
    moves_KA, kind_V = _moves(next_AY, special, spellings)
    broken_A = next_AY[:, special.get(REPLACEMENT, SIGN)]
    if not spellings.bytes_of.any():
        return Automaton(moves_KA.T.astype(np.int32), kind_V, next_AY[:, SIGN], times_A)
    A, whole_kinds = len(next_AY), len(moves_KA)
    bytes_SH, from_R, times_R = _within_characters(next_AY, times_A, broken_A, special)
    kind_V[spellings.bytes_of > 0] = whole_kinds + spellings.bytes_of[spellings.bytes_of > 0] - HIGH
    whole_SK = np.concatenate([moves_KA.T, moves_KA.T[broken_A[from_R]]])
    whole_SK[:, _NOTHING] = np.arange(len(whole_SK))
    next_SK: NDArray[np.int32] = np.concatenate([whole_SK, bytes_SH], axis=1).astype(np.int32)
    end_S = next_AY[np.concatenate([np.arange(A), broken_A[from_R]]), SIGN]
    return Automaton(next_SK, kind_V, end_S, np.concatenate([times_A, times_R]))


def _moves(next_AY: Ints, special: dict[int, int], spellings: Spellings) -> tuple[Ints, NDArray[np.int32]]:
    """What each kind of token that spells whole characters does to each state; and the kind of each token.

    Character by character for all tokens at once: those that have moved the states alike are one from there on.
    """
    symbol_of = symbols()[spellings.points]
    special_points = np.array(list(special), dtype=np.int64)
    place = np.searchsorted(spellings.points, special_points)
    known = np.isin(special_points, spellings.points)
    symbol_of[place[known]] = np.array(list(special.values()), dtype=np.int64)[known]
    A, Y = next_AY.shape
    moves = [np.arange(A)]
    number = {moves[0].tobytes(): 0}
    move_V = np.zeros(spellings.size, dtype=np.int64)
    for which, point in spellings.levels:
        pair = move_V[which] * Y + symbol_of[point]
        new = np.zeros(len(moves) * Y, dtype=np.int64)
        new[pair] = 1
        pairs = np.flatnonzero(new)
        before, which_before = np.unique(pairs // Y, return_inverse=True)
        before_PA = np.stack([moves[each] for each in before])[which_before.reshape(-1)]
        for each, move in zip(pairs, next_AY[before_PA, (pairs % Y)[:, None]], strict=True):
            new[each] = number.setdefault(move.tobytes(), len(moves))
            if new[each] == len(moves):
                moves.append(move)
        move_V[which] = new[pair]
        if len(moves) * A > MOST_ENTRIES:
            raise UsageError("phrases: there are too many of them for one line. Give fewer, or shorter ones.")
    used, kind_V = np.unique(move_V, return_inverse=True)
    if used[0] != _NOTHING:
        used, kind_V = np.concatenate([[_NOTHING], used]), kind_V + 1
    return np.stack(moves)[used], kind_V.reshape(-1).astype(np.int32)


def _within_characters(
    next_AY: Ints, times_A: Ints, broken_A: Ints, special: dict[int, int]
) -> tuple[Ints, Ints, Ints]:
    """What bytes do; behind the states between characters come those within one: a state before it, and what is open.

    Two states before it are one where every character that can still come of it moves them to the same state.
    """
    opened = open_characters(special, next_AY.shape[1])
    reach_GY, group_Q = np.unique(opened.reach_QY, axis=0, return_inverse=True)
    group_Q = group_Q.reshape(-1)
    reach_GY[:, special.get(REPLACEMENT, SIGN)] = True
    class_GA = np.zeros((len(reach_GY), len(next_AY)), dtype=np.int64)
    before: list[Ints] = []
    times: list[Ints] = []
    for g, reach_Y in enumerate(reach_GY):
        outcomes = next_AY[1:, reach_Y]  # FOUND is left out: it is FOUND whatever comes
        _, first, class_ = np.unique(outcomes, axis=0, return_index=True, return_inverse=True)
        class_GA[g, 1:] = class_.reshape(-1)
        before.append(first + 1)
        times.append(times_A[outcomes[first]].min(1))
    size_Q = np.array([len(before[g]) for g in group_Q])
    size_Q[0] = 0
    first_Q = len(next_AY) + np.cumsum(size_Q) - size_Q
    open_R = np.repeat(np.arange(len(size_Q)), size_Q)
    before_R = np.concatenate([before[g] for g in group_Q[1:]])
    times_R = np.concatenate([times[g] for g in group_Q[1:]])

    def behind(before_N: Ints, open_N: Ints, anew: Callable[[], Ints]) -> Ints:
        symbol_NH, to_NH = opened.symbol_QH[open_N], opened.to_QH[open_N]
        goes_on = first_Q[to_NH] + class_GA[group_Q[to_NH], before_N[:, None]]
        whole = next_AY[before_N[:, None], np.maximum(symbol_NH, 0)]
        return np.where(symbol_NH == OPEN, goes_on, np.where(symbol_NH == BROKEN, anew(), whole))

    every_A = np.arange(len(next_AY))
    bytes_AH = behind(every_A, np.zeros_like(every_A), lambda: broken_A[:, None])
    bytes_AH[FOUND] = FOUND
    bytes_RH = behind(before_R, open_R, lambda: bytes_AH[broken_A[before_R]])
    return np.concatenate([bytes_AH, bytes_RH]), before_R, times_R
