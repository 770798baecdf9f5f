"""Masked language models: plain text in, a model out that fills blanks, and an encoder for other tasks (BERT)."""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, model_validator

from saccade.checkpoint import Loaded
from saccade.config import plain
from saccade.data.batching import Cursor, Plan
from saccade.data.columns import Columns
from saccade.data.corpus import (
    SOURCE,
    Corpus,
    CorpusData,
    MaskedData,
    TextLine,
    further_lines,
    has_split,
    is_joined,
    most_tokens,
    rows_of,
    split_lines,
    write_corpus,
)
from saccade.data.counts import many
from saccade.data.files import Counts
from saccade.data.masking import Masker, MaskingConfig
from saccade.data.next_sentence import SentencePairs
from saccade.data.pretraining import Blanks
from saccade.data.splits import Split
from saccade.errors import SaccadeError, UsageError
from saccade.fill import BLANK, tokenizer_of
from saccade.metrics.interval import (
    Confidence,
    Interval,
    percentiles,
    resampled_sums,
    resampling,
    wilson,
    wilson_of_lines,
)
from saccade.metrics.score import Score
from saccade.metrics.stretches import HIGHEST, blocks
from saccade.models.build import build_masked
from saccade.models.masked import Judged, MaskedConfig, MaskedModel
from saccade.models.trainable import Trainable
from saccade.tasks.base import Recipe, preset_gives
from saccade.tasks.vectors import begin_with, check_vectors, open_run_vectors, vectors_of, write_run_vectors
from saccade.tasks.vectors import told as told_of_vectors
from saccade.text import BpeText, ByteText, CharText, TextConfig, TextPair, Tokenizer, train_tokenizers
from saccade.text.pair import SOURCE_FILE
from saccade.train.numerics import autocast
from saccade.train.settings import Precision
from saccade.types import Batch

EXAMPLE_ROWS = 32
"""Rows that the operations of a token are counted on."""
SAMPLE = 2000
"""Lines that a vocabulary is estimated from."""
FIXED_SEED = 0
"""Of the blanks that are validated and scored: the same for all runs, whatever their own seed is."""
SCORED_AT_ONCE = 8192
_SPLITS: tuple[Split, ...] = ("train", "valid")
_SHORT = 48


class MaskedRecipe(Recipe):
    """From plain text to a model that fills blanks, whose encoder other tasks may begin with."""

    model_config = ConfigDict(json_schema_extra=preset_gives)
    METRICS: ClassVar[tuple[str, ...]] = ("accuracy", "perplexity", "next_sentence_accuracy")

    task: Literal["masked-language-model"]
    """masked-language-model: learn what stands in the blanks of a text."""
    data: MaskedData
    """The text: your own files, the texts of a classifier's data without their labels, or generated sentences."""
    text: TextConfig
    """How text is cut into tokens."""
    model: MaskedConfig
    """The encoder, and what stands on it."""
    masking: MaskingConfig = MaskingConfig()
    """Which tokens are predicted, and what stands in their place."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "MaskedRecipe":
        if isinstance(self.text, BpeText) and self.text.dropout > 0:
            raise ValueError(
                f"text.dropout is {self.text.dropout}: a masked language model reads its text cut the same way each "
                "time, and other blanks in it. Set it to 0"
            )
        if self.model.next_sentence and not isinstance(self.data, CorpusData):
            raise ValueError(
                f"model.next_sentence is true, but data.kind is {self.data.kind}, whose sentences follow nothing: use "
                "text of your own, with empty lines between documents"
            )
        check_vectors(self.model.vectors, self.text.kind)
        if self.train.metric == "next_sentence_accuracy" and not self.model.next_sentence:
            raise ValueError("train.metric is next_sentence_accuracy, but model.next_sentence is false")
        return self

    @property
    def limit(self) -> int:
        """The most tokens of a row: of a pair each has half."""
        return most_tokens(self.data) // (2 if self.model.next_sentence else 1)

    def make_task(self, base: Path) -> "MaskedTask":
        return MaskedTask(self, base)

    def beginnings(self, base: Path) -> Iterator[tuple[Split, str]]:
        for split in ("train", "valid", "test"):
            if has_split(self.data, split):
                line = next(split_lines(self.data, split, base=base, counts=Counts()), None)
                yield split, "holds no line" if line is None else f"begins {line.text[:60]!r}"

    def checked(self, base: Path) -> dict[str, list[str]]:
        found, trained = {}, set[int]()
        for split in ("train", "valid", "test"):
            if has_split(self.data, split):
                counts = Counts()
                report = _Report.of(split_lines(self.data, split, base=base, counts=counts))
                if not report.lines:
                    raise UsageError(f"{split}: there is no line in it that is not empty.")
                if self.model.next_sentence and (report.documents < 2 or report.lines == report.documents):
                    raise UsageError(
                        f"{split}: {many(report.lines, 'line')} in {many(report.documents, 'document')}; next-sentence "
                        "prediction needs two documents, and one of them with two lines. Separate documents by empty "
                        "lines, or set model.next_sentence to false."
                    )
                found[split] = report.told(counts, split, trained)
                trained = report.hashes if split == "train" else trained
        return found

    def vocabularies(self, base: Path) -> tuple[dict[str, int], bool]:
        if isinstance(self.text, (CharText, ByteText)):
            lines = islice(split_lines(self.data, "train", base=base, counts=Counts()), SAMPLE)
            learnt = train_tokenizers(self.text, (line.text for line in lines), (), self.seed)
            return {"text": learnt.source.size}, isinstance(self.text, ByteText)
        return {"text": self.text.size}, False

    def scores(
        self, loaded: Loaded, files: Sequence[Path], split: Split, base: Path, *, confidence: Confidence = True
    ) -> dict[str, Score]:
        assert isinstance(loaded.model, MaskedModel)
        tokenizer = tokenizer_of(loaded)
        if files:
            lines = further_lines(self.data, files, base=base, counts=Counts())
        elif not has_split(self.data, split):
            raise UsageError(f"the recipe names no {split} data. Name a file of text, or take --split valid.")
        else:
            lines = split_lines(self.data, split, base=base, counts=Counts())
        rows = rows_of(lines, tokenizer, limit=self.limit, joined=is_joined(self.data))
        blanks = fixed(self, Corpus.read(rows), tokenizer)
        return _scores(_judged(loaded.model, blanks.once(SCORED_AT_ONCE), "fp32", loaded.device), confidence)

    @staticmethod
    def next_command(run: Path) -> list[str]:
        return [
            "saccade",
            "fill",
            str(run),
            example_line(Columns.open(run / "data" / "valid"), TextPair.load(run).source),
        ]


def example_line(store: Columns, tokenizer: Tokenizer) -> str:
    """A short line of the validation data with a blank in it."""
    column = store[SOURCE]
    for i in range(min(len(column.offsets) - 1, 50)):
        ids = column[i][:-1].tolist()
        text = tokenizer.decode(ids)
        words = text.split(" ")
        if len(text) <= _SHORT and text.isprintable() and len(words) > 2:
            middle = len(words) // 2
            return " ".join([*words[:middle], BLANK, *words[middle + 1 :]])
    return f"It {BLANK} ."


@dataclass
class _Report:
    """What is in a split."""

    lines: int
    documents: int
    words: list[int]
    hashes: set[int]

    @staticmethod
    def of(lines: Iterable[TextLine]) -> "_Report":
        report = _Report(0, 0, [], set())
        for line in lines:
            report.lines += 1
            report.documents = line.document + 1
            report.words.append(len(line.text.split()))
            report.hashes.add(hash(line.text))
        return report

    def told(self, counts: Counts, split: Split, trained: set[int]) -> list[str]:
        words = np.array(self.words)
        told = [
            f"{many(self.lines, 'line')} in {many(self.documents, 'document')}.",
            f"{words.mean():.1f} words on average, 99 % up to {int(np.quantile(words, 0.99))}, longest {words.max()}",
        ]
        again = self.lines - len(self.hashes)
        if again:
            told.append(f"{many(again, 'line')} occurred before in {split}")
        seen = len(self.hashes & trained)
        if seen:
            told.append(f"{many(seen, 'line')} also stand in train: scores on {split} will flatter")
        return told + counts.sentences("line")[1:]


@dataclass(frozen=True)
class MaskedTask:
    recipe: MaskedRecipe
    base: Path

    name = "masked-language-model"
    files = (SOURCE_FILE,)

    @property
    def tokens_depend_on(self) -> dict[str, Any]:
        return {**vectors_of(self.recipe.model.vectors), "model reads at most": self.recipe.limit}

    def learn(self, folder: Path) -> None:
        if self.recipe.init_from is not None:
            return  # the tokenizer is that of the other run
        lines = split_lines(self.recipe.data, "train", base=self.base, counts=Counts())
        one = train_tokenizers(
            self.recipe.text.model_copy(update={"shared": True}), (line.text for line in lines), (), self.recipe.seed
        )
        try:
            one.save(folder)
        except OSError as error:
            raise SaccadeError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}.") from None

    def write(self, folder: Path) -> None:
        tokenizer = TextPair.load(folder).source
        for split in _SPLITS:
            counts = Counts()
            write_corpus(
                folder / "data" / split,
                split_lines(self.recipe.data, split, base=self.base, counts=counts),
                tokenizer,
                limit=self.recipe.limit,
                joined=is_joined(self.recipe.data),
                counts=counts,
            )
        write_run_vectors(self.recipe.model.vectors, tokenizer.model.pieces(), folder, self.base)

    def open(self, folder: Path) -> "MaskedReady":
        stores: dict[str, Columns] = {split: Columns.open(folder / "data" / split) for split in _SPLITS}
        vectors = open_run_vectors(self.recipe.model.vectors, folder)
        ready = MaskedReady(self.recipe, TextPair.load(folder).source, stores, vectors)
        for blanks in (ready.train, ready.valid):  # where no pairs can be made of a text, that is told at once
            len(blanks)
        return ready


def _pairs(recipe: MaskedRecipe, corpus: Corpus, seed: int) -> SentencePairs | None:
    if not recipe.model.next_sentence:
        return None
    return SentencePairs(corpus.rows, corpus.document_of, seed=seed, max_length=2 * recipe.limit)


def fixed(recipe: MaskedRecipe, corpus: Corpus, tokenizer: Tokenizer) -> Blanks:
    """A text with the blanks that it is validated and scored with."""
    masker = Masker(recipe.masking, tokenizer, seed=FIXED_SEED)
    return Blanks(corpus, masker, _pairs(recipe, corpus, FIXED_SEED))


@torch.inference_mode()
def _judged(model: MaskedModel, batches: Iterable[Batch], precision: Precision, device: torch.device) -> Judged:
    total: Judged | None = None
    for batch in batches:
        with autocast(precision, device):
            found = model.judge(batch.to(device))
        total = found if total is None else total + found
    assert total is not None  # there is no empty store
    return total


def _values(judged: Judged) -> dict[str, float]:
    tokens, pairs = int(judged.tokens), int(judged.pairs)
    loss = float(judged.nll) / max(1, tokens)
    values = {"loss": loss, "perplexity": math.exp(min(loss, HIGHEST))}
    values["accuracy"] = 100 * int(judged.correct) / max(1, tokens)
    if pairs:
        values["next_sentence_loss"] = float(judged.pair_nll) / pairs
        values["next_sentence_accuracy"] = 100 * int(judged.correct_pairs) / pairs
    return values


def _scores(judged: Judged, confidence: Confidence) -> dict[str, Score]:
    tokens, pairs, values = int(judged.tokens), int(judged.pairs), _values(judged)
    if not tokens:
        raise UsageError("there is no token in the data that could be a blank: nothing can be scored.")
    rows_N3 = torch.cat(judged.rows).cpu().numpy()
    low, high = wilson_of_lines(rows_N3[:, 1:])
    scores = {
        "accuracy": Score("accuracy", values["accuracy"], 100 * low, 100 * high, None, tokens, unit="blanks"),
        "perplexity": Score(
            "perplexity", values["perplexity"], *_interval(rows_N3[:, ::2], confidence), None, tokens, unit="blanks"
        ),
    }
    if pairs:
        low, high = wilson(int(judged.correct_pairs), pairs)
        value = values["next_sentence_accuracy"]
        scores["next_sentence_accuracy"] = Score(
            "next sentence", value, 100 * low, 100 * high, None, pairs, unit="pairs"
        )
    return scores


def _interval(rows_N2: NDArray[Any], confidence: Confidence) -> Interval:
    """Of the perplexity, by resampling rows; of a resample without a blank nothing could be said."""
    if (how := resampling(confidence, len(rows_N2))) is None:
        return Interval(math.nan, math.nan)
    nats_S, blanks_S = resampled_sums(blocks(rows_N2), samples=how.samples, seed=how.seed).T
    told_S = blanks_S > 0
    return percentiles(np.exp(np.minimum(nats_S[told_S] / blanks_S[told_S], HIGHEST)))


@dataclass(frozen=True)
class MaskedReady:
    recipe: MaskedRecipe
    tokenizer: Tokenizer
    stores: Mapping[str, Columns]
    vectors: Columns | None = None

    @property
    def model_settings(self) -> dict[str, Any]:
        return plain(self.recipe.model)

    @property
    def sizes(self) -> dict[str, int]:
        return {"text": self.tokenizer.size}

    @property
    def told(self) -> dict[str, int]:
        return {"tokens": self.tokenizer.size}

    @property
    def facts(self) -> dict[str, Any]:
        settings = {"text": plain(self.recipe.text), "masking": plain(self.recipe.masking)}
        return settings | {"max_length": most_tokens(self.recipe.data)}

    @property
    def examples(self) -> tuple[int, str]:
        return len(self.train), "pairs of sentences" if self.recipe.model.next_sentence else "rows"

    @property
    def remarks(self) -> tuple[str, ...]:
        told = (f"{split}: {told}" for split, store in self.stores.items() for told in self._told(store))
        return (*told, *told_of_vectors(self.vectors))

    def _told(self, store: Columns) -> list[str]:
        facts = store.facts
        first = f"{many(facts['rows'], 'row')} of at most {many(self.recipe.limit, 'token')}"
        return [f"{first}, from {many(facts['documents'], 'document')}.", *store.counts.sentences("line")]

    @property
    def width(self) -> int:
        return self.recipe.model.encoder.width

    @cached_property
    def train(self) -> Blanks:
        corpus = Corpus.of(self.stores["train"])
        masker = Masker(self.recipe.masking, self.tokenizer, seed=self.recipe.seed)
        return Blanks(corpus, masker, _pairs(self.recipe, corpus, self.recipe.seed))

    @cached_property
    def valid(self) -> Blanks:
        return fixed(self.recipe, Corpus.of(self.stores["valid"]), self.tokenizer)

    @cached_property
    def _plan(self) -> Plan:
        train = self.recipe.train
        return self.train.plan(train.planned_tokens, self.recipe.seed, train.batch_sentences)

    def build(self) -> MaskedModel:
        model = build_masked(self.recipe.model, self.tokenizer.size, self.train.masker.most)
        begin_with(self.vectors, model.encoder.embed.table, model.encoder.embed.scale)
        return model

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, Batch], None, None]:
        return self.train.batches(self._plan, cursor, self.recipe.train.workers)

    def largest(self) -> list[Batch]:
        return [self.train.batch(rows, 0) for rows in self._plan.epoch(0).largest()]

    def example(self) -> Batch:
        return self.train.batch(self._plan.epoch(0)[0][:EXAMPLE_ROWS], 0)

    def worked(self, batch: Batch) -> int:
        """All that is read."""
        return int(batch.source.layout.lengths_B.sum())

    def validate(self, model: Trainable, at_once: int, device: torch.device) -> dict[str, float]:
        assert isinstance(model, MaskedModel)
        return _values(_judged(model, self.valid.once(at_once), self.recipe.train.precision, device))
