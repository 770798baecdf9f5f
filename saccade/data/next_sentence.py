"""Pairs of sentences for next-sentence prediction (Devlin et al. 2019): does the second follow the first in its text?

Sentences are the lines of documents. Each that has one behind it is the first of a pair, in half of the pairs followed
by that one, in the others by any sentence of another document: drawn anew for every epoch, a pure function of
(seed, epoch, row). Each sentence ends in END: so a pair reads a END b END, and what stands behind one END is b.
Shapes: N tokens of all rows, end to end; B pairs, 2B sentences.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.data.columns import Ragged
from saccade.errors import UsageError
from saccade.keyed import keyed_bits
from saccade.types import END

FOLLOWS, RANDOM = 1, 2
"""The labels: the second sentence is the first one's next, or any other."""
WHETHER, WHO = 11, 12
"""What bits are drawn for: whether the next sentence is taken, and which other one."""
Ids = NDArray[np.int64]
Rows = NDArray[np.integer[Any]]


class Joined(NamedTuple):
    ids_N: Ids
    lengths_B: Ids
    labels_B: Ids


class SentencePairs:
    """All pairs of a text, numbered by their first sentences."""

    def __init__(self, sentences: Ragged, document_of: NDArray[Any], *, seed: int, max_length: int) -> None:
        """`document_of` numbers the documents from 0, one number a sentence, those of a document side by side.

        A pair has at most `max_length` tokens, its two END not counted.
        """
        if max_length < 2:
            raise UsageError(f"max_length is {max_length}: a pair of sentences has two tokens at least.")
        self.sentences, self.seed, self.max_length = sentences, seed, max_length
        count = len(document_of)
        self.first = np.flatnonzero(document_of[1:] == document_of[:-1]).astype(np.int64)
        """Of each pair, the row of its first sentence."""
        begins = np.flatnonzero(np.diff(document_of, prepend=-1)).astype(np.int64)
        if len(begins) < 2 or not len(self.first):
            raise UsageError(
                f"next-sentence prediction needs two documents, and one of them with two lines; there are {count:,} "
                f"lines in {len(begins):,} documents. Separate documents by empty lines, or set model.next_sentence "
                "to false."
            )
        self._count = count
        self._begin = np.repeat(begins, np.diff(np.append(begins, count)))
        self._size = np.repeat(np.diff(np.append(begins, count)), np.diff(np.append(begins, count)))
        """Of each sentence, where its document begins, and how many sentences that has."""

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each pair whose second sentence follows the first, END included: about what any pair has."""
        each = np.diff(self.sentences.offsets)
        both = each[self.first] + each[self.first + 1]
        cut: NDArray[np.int32] = np.minimum(both, self.max_length + 2).astype(np.int32)
        return cut

    def take(self, pairs: Rows, epoch: int) -> Joined:
        """Some pairs as they are in an epoch, end to end."""
        first_B = self.first[pairs]
        random_B = (keyed_bits(self.seed, epoch, WHETHER, pairs) >> np.uint64(63)).astype(bool)
        others_B = self._count - self._size[first_B]
        drawn_B = (keyed_bits(self.seed, epoch, WHO, pairs) % others_B.astype(np.uint64)).astype(np.int64)
        drawn_B = np.where(drawn_B < self._begin[first_B], drawn_B, drawn_B + self._size[first_B])
        second_B = np.where(random_B, drawn_B, first_B + 1)
        ids, lengths = self.sentences.take(np.stack([first_B, second_B], axis=1).flatten())
        ids_N, lengths_B2 = self._cut(ids.astype(np.int64), lengths.reshape(-1, 2))
        return Joined(ids_N, lengths_B2.sum(1), np.where(random_B, RANDOM, FOLLOWS))

    def _cut(self, ids_N: Ids, lengths_B2: Ids) -> tuple[Ids, Ids]:
        """The longer sentence gives way: each may have half of the room, and what the other leaves of it."""
        words_B2 = lengths_B2 - 1
        room_B = np.maximum(self.max_length - words_B2[:, 1], (self.max_length + 1) // 2)
        kept_B = np.minimum(words_B2[:, 0], room_B)
        kept_B2 = np.stack([kept_B, np.minimum(words_B2[:, 1], self.max_length - kept_B)], axis=1) + 1
        if np.array_equal(kept_B2, lengths_B2):
            return ids_N, lengths_B2
        lengths, kept = lengths_B2.flatten(), kept_B2.flatten()
        place_N = np.arange(len(ids_N)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        last_N = np.repeat(kept, lengths) - 1
        cut_N: Ids = np.where(place_N == last_N, END, ids_N)[place_N <= last_N]
        return cut_N, kept_B2
