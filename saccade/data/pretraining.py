"""Rows of text → batches with blanks; where wanted, of pairs of sentences. A pure function of (seed, epoch, row).

Shapes: N tokens of all rows, end to end; B rows.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.batching import Cursor, Job, Plan, jobs, prefetch
from saccade.data.corpus import Corpus
from saccade.data.masking import Masker
from saccade.data.next_sentence import SentencePairs
from saccade.types import Batch, Layout, Tokens

Numbers = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Blanks:
    """What is trained on, or validated: rows of a corpus, or pairs of its rows, with blanks in them."""

    corpus: Corpus
    masker: Masker
    pairs: SentencePairs | None = None

    def __len__(self) -> int:
        return len(self.corpus) if self.pairs is None else len(self.pairs)

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """(n, 2): tokens of each row, for source and target alike; of pairs, about."""
        each = np.diff(self.corpus.rows.offsets) if self.pairs is None else self.pairs.lengths
        return np.repeat(each.astype(np.int32)[:, None], 2, axis=1)

    def plan(self, batch_tokens: int, seed: int, batch_sentences: int | None = None) -> Plan:
        return Plan(self.lengths, batch_tokens, seed, batch_sentences)

    def batch(self, rows_B: Numbers, epoch: int) -> Batch:
        """Some rows as they are in an epoch, packed."""
        labels_B = None
        if self.pairs is None:
            ids_N, lengths_B = self.corpus.rows.take(rows_B)
        else:
            ids_N, lengths_B, labels_B = self.pairs.take(rows_B, epoch)
        masked = self.masker(ids_N, lengths_B, rows_B, epoch)
        if labels_B is not None:
            masked.target_N[np.cumsum(lengths_B) - 1] = labels_B
        layout = Layout.padded(torch.from_numpy(lengths_B)).packed()
        source, target = (Tokens(torch.from_numpy(side), layout) for side in masked)
        return Batch(source, target, tuple(rows_B.tolist()))

    def batches(self, plan: Plan, cursor: Cursor, workers: int) -> Generator[tuple[Cursor, Batch], None, None]:
        """Batches without end, each with the position behind it."""

        def make(job: Job) -> tuple[Cursor, Batch]:
            return job.following, self.batch(job.rows, job.epoch)

        return prefetch(jobs(plan, cursor), make, workers=workers)

    def once(self, at_once: int) -> Iterator[Batch]:
        """All rows with the blanks of epoch 0, which are always the same: for validation."""
        plan = self.plan(at_once, seed=0).epoch(0)
        return (self.batch(plan[k], 0) for k in range(len(plan)))
