"""Tagged data that are written, ready to train on: batches of them, and how a model does on those held out."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.config import plain
from saccade.data.batching import Cursor, Job, Plan, jobs, prefetch
from saccade.data.columns import Columns
from saccade.data.conll import TagCounts
from saccade.data.splits import Split
from saccade.data.tagged_store import collate_tagged
from saccade.keyed import philox
from saccade.models.build import build_tagger
from saccade.models.tagger import Tagger, TaggerSizes
from saccade.models.trainable import Trainable
from saccade.score_tags import score_tags
from saccade.tag import sizes_of
from saccade.tasks.vectors import begin_with
from saccade.tasks.vectors import told as told_of_vectors
from saccade.text.tags import TagSet
from saccade.text.words import GivenWords, PiecesOfWords, WordList
from saccade.train.numerics import autocast
from saccade.types import UNKNOWN, Batch, Tokens

if TYPE_CHECKING:
    from saccade.tasks.tag import TagRecipe

EXAMPLE_ROWS = 32
"""Sentences that the operations of a word are counted on."""
SPLITS: tuple[Split, ...] = ("train", "valid")
READ = "tagged"
"""Under which a store says what was read for it, line by line."""
CONTINUED = "continued"
"""Under which it names the rows that go on with the sentence of the row before."""


@dataclass(frozen=True)
class TagReady:
    recipe: "TagRecipe"
    text: WordList | PiecesOfWords
    tags: TagSet
    stores: Mapping[str, Columns]
    vectors: Columns | None

    @property
    def model_settings(self) -> dict[str, Any]:
        return plain(self.recipe.model)

    @property
    def sizes(self) -> dict[str, int]:
        return sizes_of(self.text, self.tags)

    @property
    def told(self) -> dict[str, int]:
        return self.sizes

    @property
    def facts(self) -> dict[str, Any]:
        data = self.recipe.data
        return {"text": plain(self.recipe.text), "column": data.column if data.kind == "conllu" else None}

    @property
    def examples(self) -> tuple[int, str]:
        return int(self.stores["train"].facts["rows"]), "sentences"

    @property
    def remarks(self) -> tuple[str, ...]:
        told = [
            f"{split}: {sentence}"
            for split in SPLITS
            for sentence in TagCounts(**self.stores[split].facts[READ]).sentences_told()
        ]
        if self.tags.scheme != "none":
            told.append(f"tags: spans are learnt as {self.tags.scheme}")
        return (*told, *told_of_vectors(self.vectors))

    @property
    def width(self) -> int:
        return self.recipe.model.encoder.width

    def build(self) -> Tagger:
        model = build_tagger(self.recipe.model, TaggerSizes.named(self.sizes), self.tags.steps())
        begin_with(self.vectors, model.encoder.embed.table, model.encoder.embed.scale)
        return model

    def _lengths(self, split: str) -> NDArray[np.int64]:
        """(n, 2): words, and what the encoder reads."""
        store = self.stores[split]
        words = np.diff(store["source"].offsets)
        if not self.text.in_pieces:
            return np.stack([words, words], axis=1)
        ends = store["inside"].offsets[store["source"].offsets]  # of each sentence, pieces before it
        return np.stack([np.diff(ends), words], axis=1)

    @cached_property
    def _plan(self) -> Plan:
        train = self.recipe.train
        return Plan(self._lengths("train"), train.planned_tokens, self.recipe.seed, train.batch_sentences)

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, Batch], None, None]:
        store = self.stores["train"]

        def make(job: Job) -> tuple[Cursor, Batch]:
            made = collate_tagged(store, job.rows)
            return job.following, self._with_unknown(made, job)

        return prefetch(jobs(self._plan, cursor), make, workers=self.recipe.train.workers)

    def _with_unknown(self, batch: Batch, job: Job) -> Batch:
        """Some of the words that stood once are unknown: a pure function of seed, epoch and batch."""
        text = self.recipe.text
        if not isinstance(text, GivenWords) or not isinstance(self.text, WordList) or text.unknown == 0:
            return batch
        rare, ids_N = self.text.rare, batch.source.ids
        random = np.random.Generator(philox(self.recipe.seed, job.epoch, row=int(job.rows[0]), purpose=2))
        drawn_N = random.random(len(ids_N)) < text.unknown
        hidden_N = torch.from_numpy(drawn_N) & (ids_N >= rare.start) & (ids_N < rare.stop)
        source = Tokens(ids_N.masked_fill(hidden_N, UNKNOWN), batch.source.layout, inside=batch.source.inside)
        return Batch(source, batch.target, batch.index)

    def largest(self) -> list[Batch]:
        return [collate_tagged(self.stores["train"], rows) for rows in self._plan.epoch(0).largest()]

    def example(self) -> Batch:
        return collate_tagged(self.stores["train"], self._plan.epoch(0)[0][:EXAMPLE_ROWS])

    def worked(self, batch: Batch) -> int:
        return int(batch.source.layout.lengths_B.sum())

    @torch.inference_mode()
    def validate(self, model: Trainable, at_once: int, device: torch.device) -> dict[str, float]:
        """Each batch is read once, for the loss and for the tags."""
        assert isinstance(model, Tagger)
        store, precision = self.stores["valid"], self.recipe.train.precision
        plan = Plan(self._lengths("valid"), at_once, seed=0).epoch(0)
        nll, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
        found: dict[int, list[str]] = {}
        for k in range(len(plan)):
            batch = collate_tagged(store, plan[k])
            tokens += batch.tokens
            with autocast(precision, device):
                on_device = batch.to(device)
                scores_NK, layout = model(on_device.source), on_device.source.layout
                nll += model.loss_of(scores_NK, layout, on_device.target.ids).nll
                best_N = model.best_of(scores_NK, layout, probabilities=False).tags_N
            rest = iter(best_N.tolist())
            for row, length in zip(batch.index, batch.source.layout.lengths_B.tolist(), strict=True):
                found[row] = [self.tags.name(number) for number in islice(rest, length)]
        values = {"loss": nll.item() / max(1, tokens)}
        gold, given = self._whole(self._gold), self._whole([found[row] for row in range(len(found))])
        scored = score_tags(self.tags, None, gold, gold, given, confidence=False).scores
        return values | {name: scored[name].value for name in self.recipe.METRICS if name in scored}

    @cached_property
    def _gold(self) -> list[list[str]]:
        """The right tags of each row by their names, those that training never had, too: as `evaluate` has them."""
        gold = self.stores["valid"]["gold"]
        return [gold[row].tobytes().decode("utf-8").split("\n") for row in range(len(gold.offsets) - 1)]

    def _whole(self, rows: list[list[str]]) -> list[list[str]]:
        """Sentences, out of the stretches that they are read in."""
        continued = set(self.stores["valid"].facts[CONTINUED])
        whole: list[list[str]] = []
        for number, tags in enumerate(rows):
            if number in continued:
                whole[-1] = whole[-1] + tags
            else:
                whole.append(tags)
        return whole
