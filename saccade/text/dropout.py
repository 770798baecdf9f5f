"""BPE-dropout (Provilkov et al. 2020): another cut of the same text each time, repeatable by its generator."""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import repeat
from typing import NamedTuple

import numpy as np

from saccade.errors import UsageError
from saccade.text.layout import BpeModel
from saccade.text.tokenizer import Tokenizer
from saccade.types import SPECIALS

_CACHED_WORDS = 1 << 17
_CACHED_LENGTH = 64
_DRAWS_AT_ONCE = 64


class _Word(NamedTuple):
    letters: tuple[int, ...]
    """The ids before any merge."""
    plain: tuple[int, ...]
    """The ids when no merge is dropped."""


class BpeDropout:
    """Encodes as the tokenizer does, but drops each possible merge with the given probability at every step.

    The paper draws for every candidate at every step and applies the best-ranked one that survives. Here candidates are
    drawn for in order of rank until one survives: the others' draws would not have been looked at.
    """

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        if not 0 <= probability < 1:
            raise UsageError(f"probability is {probability}; it must be at least 0 and less than 1.")
        model = tokenizer.model
        if not isinstance(model, BpeModel):
            raise UsageError(
                f"tokenizer: BPE-dropout needs a BPE tokenizer; this one is {model.type}. "
                "Set text.kind to bpe, or leave text.dropout out."
            )
        ids = model.vocab
        self._tokenizer = tokenizer
        self._probability = probability
        self._characters = {piece: each for piece, each in ids.items() if len(piece) == 1}
        self._merges = {
            (ids[left], ids[right]): (rank, ids[left + right]) for rank, (left, right) in enumerate(model.merges)
        }
        self._words: dict[str, _Word] = {}

    def encode(self, text: str, rng: np.random.Generator) -> list[int]:
        """The ids of the text, without START and END; the generator alone decides which of its cuts it is."""
        words = [self._word(word) for word in self._tokenizer.words(text)]
        # A word's first draws are those of its undropped cut: if all survive, which is common, that cut is the answer.
        merges = sum(len(word.letters) - len(word.plain) for word in words)
        survives = (rng.random(merges) >= self._probability).tolist()
        ids: list[int] = []
        begin = 0
        for word in words:
            end = begin + len(word.letters) - len(word.plain)
            first = survives[begin:end]
            ids += word.plain if all(first) else self._merge(word.letters, self._draws(first, rng))
            begin = end
        return ids

    def _word(self, word: str) -> _Word:
        known = self._words.get(word)
        if known is not None:
            return known
        letters = tuple(each for character in word for each in self._letter(character))
        made = _Word(letters, tuple(self._merge(letters, repeat(True))))
        if len(word) <= _CACHED_LENGTH:
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            self._words[word] = made
        return made

    def _letter(self, character: str) -> Sequence[int]:
        known = self._characters.get(character)
        return [len(SPECIALS) + byte for byte in character.encode()] if known is None else [known]

    def _draws(self, first: Sequence[bool], rng: np.random.Generator) -> Iterator[bool]:
        yield from first
        while True:
            yield from (rng.random(_DRAWS_AT_ONCE) >= self._probability).tolist()

    def _merge(self, letters: Sequence[int], survives: Iterator[bool]) -> list[int]:
        """The letters merged, best rank first and leftmost among equals, until no candidate survives."""
        ids = [*letters, -1]  # a merge empties the right place to -1, as is the place behind the last
        after = list(range(1, len(ids) + 1))
        before = list(range(-1, len(ids) - 1))
        candidates: list[tuple[int, int, int, int]] = []  # rank, place, left id, right id

        def add(place: int, right: int) -> None:
            found = self._merges.get((ids[place], ids[right]))
            if found is not None:
                heappush(candidates, (found[0], place, ids[place], ids[right]))

        for place in range(len(letters) - 1):
            add(place, place + 1)
        dropped: list[tuple[int, int, int, int]] = []
        while candidates:
            candidate = heappop(candidates)
            _, place, left, right = candidate
            neighbour = after[place]
            if ids[place] != left or ids[neighbour] != right:
                continue  # one of the two has been merged since
            if not next(survives):
                dropped.append(candidate)
                continue
            ids[place], ids[neighbour] = self._merges[left, right][1], -1
            after[place] = after[neighbour]
            before[after[place]] = place
            if before[place] >= 0:
                add(before[place], place)
            add(place, after[place])
            for each in dropped:  # a new step: those left out before stand again
                heappush(candidates, each)
            dropped.clear()
        return [each for each in ids if each >= 0]
