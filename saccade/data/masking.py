"""Text with blanks: which tokens a masked language model has to guess, and what stands in their place.

BERT's masking (Devlin et al. 2019), drawn anew for every epoch (Liu et al. 2019): a pure function of (seed, epoch,
row). The mask itself is START. No source holds that, and every vocabulary has it: so tokenizers and vocabularies of
pre-trained encoders are those of any other model, which may go on from their weights.
Shapes: N tokens of all rows, end to end; B rows; V vocabulary; M tokens that may be chosen; U words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from saccade.config import Section
from saccade.errors import UsageError
from saccade.keyed import Bits, keyed_bits, shares
from saccade.types import PAD, SPECIALS, START

MASK = START
Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
ORDER, WHAT, WHICH = 1, 2, 3
"""What bits are drawn for: the order in which tokens are chosen, what is done to each, and by which it is replaced."""


class MaskingConfig(Section):
    share: float = Field(0.15, gt=0.0, lt=1.0)
    """Share of a text's tokens that are predicted; at least one of them is."""
    mask: float = Field(0.8, ge=0.0, le=1.0)
    """Of those, the share that is hidden behind the mask."""
    random: float = Field(0.1, ge=0.0, le=1.0)
    """Of those, the share that is replaced by any token of the vocabulary; all others stay as they are."""
    whole_words: bool = False
    """Predict whole words alone: all pieces between two spaces, or none."""

    @model_validator(mode="after")
    def _within_one(self) -> "MaskingConfig":
        if self.mask + self.random > 1.0 + 1e-9:
            raise ValueError(f"mask is {self.mask} and random is {self.random}: together they may be 1 at most")
        return self


class Tokenizer(Protocol):
    """What is asked of a tokenizer."""

    @property
    def size(self) -> int: ...

    def decode(self, ids: Sequence[int], /) -> str: ...

    def is_set_off(self, each: int, /) -> bool: ...


@dataclass(frozen=True)
class WordTable:
    """Which tokens of a vocabulary begin a word: those with a space in front, which most tokenizers' tokens hold."""

    spaced_V: Flags
    blank_V: Flags
    """Nothing but space, which belongs to the word behind it."""

    @staticmethod
    def of(tokenizer: Tokenizer) -> "WordTable":
        texts = [tokenizer.decode([each]) for each in range(tokenizer.size)]
        spaced = np.array([text[:1].isspace() or tokenizer.is_set_off(each) for each, text in enumerate(texts)])
        blank = np.array([text.isspace() for text in texts])
        return WordTable(spaced, blank)

    def words(self, ids_N: Ids, firsts_N: Flags) -> Ids:
        """Of each token the number of its word, through all rows. A special token is a word by itself."""
        special_N = ids_N < len(SPECIALS)
        begins_N = firsts_N | special_N | self.spaced_V[ids_N]
        begins_N[1:] |= special_N[:-1]
        begins_N[1:] &= ~(self.blank_V[ids_N[:-1]] & ~firsts_N[1:] & ~special_N[1:])
        return np.cumsum(begins_N) - 1


class Masked(NamedTuple):
    ids_N: Ids
    """What is read."""
    target_N: Ids
    """What stood there, where it is to be predicted; else PAD."""


class _Candidates(NamedTuple):
    """Tokens that may be chosen, row by row, and what their choice goes by."""

    at_M: Ids
    row_M: Ids
    bits_M: Bits


class Masker:
    """Masks rows of tokens. Specials are never chosen, and nothing is replaced by one."""

    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer, *, seed: int) -> None:
        if tokenizer.size <= len(SPECIALS):
            raise UsageError("the vocabulary holds special tokens alone: there is nothing to mask.")
        self.config, self.vocabulary, self.seed = config, tokenizer.size, seed
        self.table = WordTable.of(tokenizer) if config.whole_words else None

    @property
    def most(self) -> float:
        """Of the tokens of rows, at most this share and one a row are chosen; 1 where words may be longer."""
        return self.config.share if self.table is None else 1.0

    def __call__(self, ids: NDArray[Any], lengths_B: NDArray[Any], rows_B: NDArray[Any], epoch: int) -> Masked:
        """The rows of the data set that the tokens are, and the epoch, decide all that is drawn."""
        ids_N = ids.astype(np.int64)
        begins_B = np.cumsum(lengths_B) - lengths_B
        row_N = np.repeat(np.arange(len(lengths_B)), lengths_B)
        place_N = np.arange(len(ids_N)) - begins_B[row_N]
        keys = (np.asarray(rows_B)[row_N], place_N)
        at_M = np.flatnonzero(ids_N >= len(SPECIALS))
        candidates = _Candidates(at_M, row_N[at_M], keyed_bits(self.seed, epoch, ORDER, *keys)[at_M])
        budget_B = _budget(candidates.row_M, len(lengths_B), self.config.share)
        if self.table is None:
            chosen = _tokens(candidates, budget_B)
        else:
            chosen = _words(candidates, budget_B, self.table.words(ids_N, place_N == 0)[at_M])
        target_N = np.full_like(ids_N, PAD)
        target_N[chosen] = ids_N[chosen]
        return Masked(self._replaced(ids_N, chosen, keys, epoch), target_N)

    def _replaced(self, ids_N: Ids, chosen: Ids, keys: tuple[NDArray[Any], ...], epoch: int) -> Ids:
        mine = [key[chosen] for key in keys]
        what = shares(keyed_bits(self.seed, epoch, WHAT, *mine))
        which = keyed_bits(self.seed, epoch, WHICH, *mine)
        others = (which % np.uint64(self.vocabulary - len(SPECIALS))).astype(np.int64) + len(SPECIALS)
        kept = np.where(what < self.config.mask + self.config.random, others, ids_N[chosen])
        ids_N[chosen] = np.where(what < self.config.mask, MASK, kept)
        return ids_N


def _budget(row_M: Ids, rows: int, share: float) -> Ids:
    """How many tokens of each row are to be chosen."""
    there_B = np.bincount(row_M, minlength=rows)
    wanted_B = np.maximum(np.rint(share * there_B).astype(np.int64), 1)
    budget_B: Ids = np.minimum(wanted_B, there_B)
    return budget_B


def _tokens(candidates: _Candidates, budget_B: Ids) -> Ids:
    order = np.lexsort((candidates.bits_M, candidates.row_M))
    rank = _rank(candidates.row_M[order])
    return candidates.at_M[order[rank < budget_B[candidates.row_M[order]]]]


def _words(candidates: _Candidates, budget_B: Ids, word_M: Ids) -> Ids:
    """Words in random order, each taken where what is left of its row's budget holds all of it.

    Of a row whose words are all too long for it, the shortest is.
    """
    if not len(word_M):
        return candidates.at_M
    _, first_U, unit_M, size_U = np.unique(word_M, return_index=True, return_inverse=True, return_counts=True)
    row_U, bits_U = candidates.row_M[first_U], candidates.bits_M[first_U]
    order = np.lexsort((bits_U, row_U))
    rank = _rank(row_U[order])
    taken_U = np.zeros(len(first_U), dtype=bool)
    left_B = budget_B.copy()
    for turn in range(int(rank.max()) + 1):  # one word of every row a turn
        mine = order[rank == turn]
        mine = mine[size_U[mine] <= left_B[row_U[mine]]]
        taken_U[mine] = True
        left_B[row_U[mine]] -= size_U[mine]
        if not left_B.any():
            break
    shortest = np.lexsort((bits_U, size_U, row_U))
    shortest = shortest[_rank(row_U[shortest]) == 0]
    taken_U[shortest] |= left_B[row_U[shortest]] == budget_B[row_U[shortest]]
    return candidates.at_M[taken_U[unit_M]]


def _rank(row: Ids) -> Ids:
    """Of each entry its place among those of its row; entries of a row stand together."""
    first = np.flatnonzero(np.diff(row, prepend=-1))
    sizes = np.diff(np.append(first, len(row)))
    return np.arange(len(row)) - np.repeat(first, sizes)
