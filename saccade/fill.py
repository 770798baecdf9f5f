"""Lines with blanks in, lines without out: what a masked language model holds most probable in each blank.

A blank is one token. Tokens hold the space before them: a blank behind a space is filled by tokens that begin with
one, which is the line's own, any other blank by tokens that do not. Every blank is filled as if the others stayed.
Shapes: K blanks, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from saccade.checkpoint import Loaded
from saccade.data.lengths import alike
from saccade.data.masking import MASK
from saccade.errors import SaccadeError, UsageError
from saccade.models.masked import MaskedModel, precise
from saccade.text import TextPair, Tokenizer
from saccade.types import END, SPECIALS, Tokens

BLANK = "[MASK]"
"""What stands for a blank in a line, where nothing else is asked for."""
MAX_TOKENS = 1024
CHARACTERS_PER_TOKEN = 32
"""Of a line at most MAX_TOKENS × this many characters are read, so that a line of 10 MB costs next to nothing."""
ROWS_AT_ONCE = 1024
SCORES_AT_ONCE = 1 << 24
"""Probabilities that are held at once: there are as many a blank as tokens in the vocabulary."""


@dataclass(frozen=True)
class Filling:
    """What may stand in a blank."""

    text: str
    """As it is written into the line, in the place of the blank."""
    probability: float
    """Among all tokens of the vocabulary."""
    token: int


@dataclass(frozen=True)
class Filled:
    """All that came of one line."""

    source: str
    text: str
    """With the most probable filling in each blank."""
    blanks: tuple[tuple[Filling, ...], ...]
    """Of each blank, in the line's order, its fillings, best first; none of a blank that was not read."""
    cut: bool = False
    """The line had more tokens than are read; blanks in the rest stay."""


@dataclass(frozen=True)
class _Line:
    """A line as the model reads it."""

    source: str
    parts: tuple[str, ...]
    """What stands between the blanks."""
    spaced: tuple[bool, ...]
    """Of each blank, whether its token brings the space before it."""
    ids: tuple[int, ...]
    cut: bool

    @property
    def places(self) -> list[int]:
        """Where the blanks are that are read."""
        return [place for place, each in enumerate(self.ids) if each == MASK]


@dataclass(frozen=True)
class Filler:
    """A model and its tokenizer, ready to fill blanks."""

    model: MaskedModel
    tokenizer: Tokenizer
    device: torch.device
    max_tokens: int = MAX_TOKENS

    def fill(self, lines: Sequence[str], *, top: int = 5, blank: str = BLANK, batch_tokens: int = 4096) -> list[Filled]:
        """The lines in their order, the `top` fillings of each blank; a line without blanks stays as it is."""
        if top < 1:
            raise UsageError(f"top is {top}; it must be at least 1.")
        if not blank.strip():
            raise UsageError(f"blank is {blank!r}; it must be something visible, such as {BLANK}.")
        read = self._read(lines, blank)
        done = [Filled(line.source, line.source, ((),) * len(line.spaced), line.cut) for line in read]
        asked = [i for i, line in enumerate(read) if line.places]
        for rows in alike(asked, [len(line.ids) for line in read], batch_tokens, most=ROWS_AT_ONCE):
            for i, blanks in zip(rows, self._fillings([read[i] for i in rows], top), strict=True):
                done[i] = _written(read[i], blanks, blank)
        return done

    def _read(self, lines: Sequence[str], blank: str) -> list[_Line]:
        split = [line[: self.max_tokens * CHARACTERS_PER_TOKEN].split(blank) for line in lines]
        spaced = [[self._joins and part.endswith(" ") for part in parts[:-1]] for parts in split]
        said = [
            part[:-1] if brings else part
            for parts, each in zip(split, spaced, strict=True)
            for part, brings in zip(parts, [*each, False], strict=True)
        ]
        encoded = iter(self.tokenizer.encode_batch(said))
        read = []
        for line, parts, each in zip(lines, split, spaced, strict=True):
            ids = list(next(encoded))
            for _ in each:
                ids += [MASK, *next(encoded)]
            whole = len(ids) <= self.max_tokens and sum(map(len, parts)) + len(each) * len(blank) == len(line)
            kept = (*ids[: self.max_tokens], END)
            read.append(_Line(line, tuple(parts), tuple(each), kept, cut=not whole))
        return read

    @cached_property
    def _texts(self) -> list[str]:
        return [self.tokenizer.decode([each]) for each in range(self.tokenizer.size)]

    @cached_property
    def _joins(self) -> bool:
        """Whether there are tokens that hold a space and what follows it; characters and bytes do not."""
        return any(text.startswith(" ") and text.strip() for text in self._texts[len(SPECIALS) :])

    @cached_property
    def _fitting(self) -> dict[bool, Tensor]:
        """(V,) which tokens may stand in a blank that brings its space, and in one that does not."""

        def fits(text: str, spaced: bool) -> bool:
            if not self._joins:
                return text not in ("\n", "\r")
            return bool(text.strip()) and text[:1].isspace() == spaced and (text[0] == " " or not spaced)

        special = [False] * len(SPECIALS)
        texts = self._texts[len(SPECIALS) :]
        return {
            spaced: torch.tensor([*special, *(fits(text, spaced) for text in texts)], device=self.device)
            for spaced in (False, True)
        }

    @torch.inference_mode()
    def _fillings(self, lines: list[_Line], top: int) -> list[list[tuple[Filling, ...]]]:
        source = Tokens.of([line.ids for line in lines])
        places = [row * source.layout.longest + place for row, line in enumerate(lines) for place in line.places]
        spaced = [brings for line in lines for brings in line.spaced[: len(line.places)]]
        memory_ND = self.model.read(source.to(self.device))
        at_once = max(1, SCORES_AT_ONCE // self.tokenizer.size)
        found: list[tuple[Filling, ...]] = []
        for begin in range(0, len(places), at_once):
            some = slice(begin, begin + at_once)
            places_K = torch.tensor(places[some], device=self.device)
            p_KV = precise(self.model.scores(memory_ND, places_K)).softmax(-1)
            found += [self._best(p_V, brings, top) for p_V, brings in zip(p_KV, spaced[some], strict=True)]
        each = iter(found)
        return [[next(each) for _ in line.places] for line in lines]

    def _best(self, p_V: Tensor, spaced: bool, top: int) -> tuple[Filling, ...]:
        fitting_V = self._fitting[spaced]
        best = p_V.masked_fill(~fitting_V, -1.0).topk(min(top, int(fitting_V.sum())))
        pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return tuple(Filling(self._texts[token][int(spaced) :], p, token) for p, token in pairs)


def tokenizer_of(loaded: Loaded) -> Tokenizer:
    """That of a run's model."""
    tokenizer = TextPair.load(loaded.path).source
    if loaded.sizes != {"text": tokenizer.size}:
        raise SaccadeError(
            f"{loaded.path}: its tokenizer has {tokenizer.size} tokens, its model {loaded.sizes}: they are not of one "
            "run."
        )
    return tokenizer


def _written(line: _Line, blanks: list[tuple[Filling, ...]], blank: str) -> Filled:
    unread = ((),) * (len(line.spaced) - len(blanks))
    words = [fillings[0].text for fillings in blanks] + [blank] * len(unread)
    text = line.parts[0] + "".join(word + part for word, part in zip(words, line.parts[1:], strict=True))
    rest = line.source[sum(map(len, line.parts)) + len(line.spaced) * len(blank) :]
    return Filled(line.source, text + rest, (*blanks, *unread), line.cut)
