"""Sequence to sequence: pairs of texts in, a translator out."""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from pydantic import ConfigDict, Field, model_validator

from saccade.config import plain
from saccade.data.batching import Cursor, Encode, Plan, batches, collate
from saccade.data.cmudict import CmudictData, dictionary
from saccade.data.columns import Columns
from saccade.data.files import Counts, FilesData
from saccade.data.splits import DataConfig, Split, grouped, groups, has_split, length_rule, split_pairs
from saccade.data.store import Store, write_store
from saccade.decode.settings import DecodeConfig
from saccade.errors import SaccadeError
from saccade.evaluate import decoded_metrics
from saccade.metrics.lines import References
from saccade.metrics.names import METRICS, USUAL, WITHOUT_REFERENCE, MetricName
from saccade.models.build import build_translator
from saccade.models.trainable import Trainable
from saccade.models.translator import Translator, TranslatorConfig
from saccade.tasks.base import Recipe, preset_gives
from saccade.tasks.vectors import begin_with, check_vectors, open_run_vectors, vectors_of, write_run_vectors
from saccade.tasks.vectors import told as told_of_vectors
from saccade.text import BpeDropout, SideText, TextConfig, TextPair, Tokenizer, sides, train_tokenizers
from saccade.text.pair import SOURCE_FILE, TARGET_FILE
from saccade.text.recipe import BpeSide, ByteSide, UnigramSide, WordSide
from saccade.train.task import Content
from saccade.train.validation import mean_loss, valid_lines
from saccade.translate import Engine
from saccade.types import Batch

EXAMPLE_ROWS = 32
"""Pairs that the operations of a token are counted on."""
SAMPLE = 2000
"""Pairs that a vocabulary is estimated from."""
_SPLITS: tuple[Split, ...] = ("train", "valid")
_SHORT = 48


class TranslateRecipe(Recipe):
    """From pairs of texts to a model that turns one into the other."""

    model_config = ConfigDict(json_schema_extra=preset_gives)
    METRICS: ClassVar[tuple[str, ...]] = tuple(name for name in METRICS if name not in WITHOUT_REFERENCE)

    task: Literal["translate"] = "translate"
    """translate: learn to turn one sequence into another."""
    data: DataConfig
    """The pairs: your own files, generated dates, or a corpus in its own format."""
    text: TextConfig
    """How text is cut into tokens."""
    model: TranslatorConfig
    """The encoder and the decoder."""
    decode: DecodeConfig = DecodeConfig()
    """How outputs are searched for, unless the command says otherwise."""
    metrics: Annotated[tuple[MetricName, ...], Field(min_length=1)] = USUAL
    """What `evaluate` tells of the outputs, unless the command says otherwise; and validation, where it decodes."""

    @model_validator(mode="after")
    def _words_have_vectors(self) -> "TranslateRecipe":
        check_vectors(self.model.vectors, self.text.kind)
        return self

    @model_validator(mode="after")
    def _copies_what_it_can_write(self) -> "TranslateRecipe":
        if self.model.copies and not self.text.shared:
            raise ValueError(
                "model.decoder.attention.pointer copies source tokens into the target, which needs one vocabulary for "
                "both sides: set text.shared to true"
            )
        return self

    @model_validator(mode="after")
    def _coverage_can_be_told(self) -> "TranslateRecipe":
        layers, layer = self.model.decoder.cross_layers, self.decode.coverage_layer
        if self.decode.coverage and not layers:
            raise ValueError(
                "decode.coverage goes by the decoder's weights over the source's tokens, but model.decoder has none: "
                "set coverage to 0, or give the decoder an attention"
            )
        if not -max(layers, 1) <= layer < max(layers, 1):
            raise ValueError(
                f"decode.coverage_layer is {layer}, but {layers} of the decoder's layers look at the source: give 0 to "
                f"{layers - 1}, or -1 for the last"
            )
        return self

    @model_validator(mode="after")
    def _parsed_where_a_parse_is_read(self) -> "TranslateRecipe":
        if not self.model.encoder.reads_parse:
            return self
        if not isinstance(self.data, FilesData):
            raise ValueError(
                f"model.encoder.positions is tree, which reads a dependency parse of every source; data.kind is "
                f"{self.data.kind}, which has none: use files with heads, or other positions"
            )
        for name, split in (("train", self.data.train), ("valid", self.data.valid), ("test", self.data.test)):
            if split is not None and not split.has_heads:
                raise ValueError(
                    f"model.encoder.positions is tree, which reads a dependency parse of every source, but data.{name} "
                    "has none: name a file of heads (`heads`, `heads_column` or `heads_field`), or use other positions"
                )
        return self

    def make_task(self, base: Path) -> "TranslateTask":
        return TranslateTask(self, base)

    def beginnings(self, base: Path) -> Iterator[tuple[Split, str]]:
        for split in ("train", "valid", "test"):
            if has_split(self.data, split):
                pair = next(split_pairs(self.data, split, base=base, counts=Counts()), None)
                shown = "holds no pair" if pair is None else f"begins {pair.source[:40]!r} → {pair.target[:40]!r}"
                yield split, shown

    def vocabularies(self, base: Path) -> tuple[dict[str, int], bool]:
        both = dict(zip(("source", "target"), sides(self.text), strict=True))
        sizes = {name: side.size for name, side in both.items() if isinstance(side, (WordSide, BpeSide, UnigramSide))}
        if len(sizes) < len(both):
            pairs = list(islice(split_pairs(self.data, "train", base=base, counts=Counts()), SAMPLE))
            learnt = train_tokenizers(self.text, [p.source for p in pairs], [p.target for p in pairs], self.seed)
            sizes = {"source": learnt.source.size, "target": learnt.target.size} | sizes
        return sizes, all(isinstance(side, ByteSide) for side in both.values())

    @staticmethod
    def next_command(run: Path) -> list[str]:
        return ["saccade", "translate", str(run), _example_line(Store.open(run / "data" / "valid"))]


def _example_line(store: Store) -> str:
    """A short source of the validation data."""
    if store.parses is not None:
        return "text<TAB>heads"
    sources = [store.text(i)[0] for i in range(min(len(store), 50))]
    shown = [source for source in sources if source.isprintable()] or sources
    short = [source for source in shown if len(source) <= _SHORT] or [min(shown, key=len)[:_SHORT]]
    return next((source for source in short if " " in source), short[0])


def _dropout(side: SideText) -> float:
    return side.dropout if isinstance(side, BpeSide) else 0.0


def _cutting(tokenizer: Tokenizer, dropout: float) -> Callable[[str, np.random.Generator], list[int]]:
    if dropout == 0:
        return lambda text, _: tokenizer.encode(text)
    return BpeDropout(tokenizer, dropout).encode


@dataclass(frozen=True)
class TranslateTask:
    recipe: TranslateRecipe
    base: Path

    name = "translate"

    @property
    def files(self) -> tuple[str, ...]:
        return (SOURCE_FILE,) if self.recipe.text.shared else (SOURCE_FILE, TARGET_FILE)

    @property
    def tokens_depend_on(self) -> dict[str, Any]:
        model = self.recipe.model
        read = {**vectors_of(model.vectors), "model.encoder reads a parse": model.encoder.reads_parse}
        if isinstance(self.recipe.data, CmudictData):
            read |= {f"the dictionary for {split}": Content("cmudict", dictionary(split)) for split in _SPLITS}
        return read

    def learn(self, folder: Path) -> None:
        data, base = self.recipe.data, self.base

        def side(which: int) -> Iterator[str]:
            return (pair[:2][which] for pair in split_pairs(data, "train", base=base, counts=Counts()))

        pair = train_tokenizers(self.recipe.text, side(0), side(1), self.recipe.seed)
        try:
            pair.save(folder)
        except OSError as error:
            raise SaccadeError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}.") from None

    def write(self, folder: Path) -> None:
        text = TextPair.load(folder)
        for split in _SPLITS:
            self._write_split(folder, split, text)
        write_run_vectors(self.recipe.model.vectors, text.source.model.pieces(), folder, self.base)

    def _write_split(self, folder: Path, split: Split, text: TextPair) -> None:
        data, counts = self.recipe.data, Counts()
        max_length, on_long = length_rule(data, split)
        drops = any(_dropout(side) > 0 for side in sides(self.recipe.text))
        write_store(
            folder / "data" / split,
            split_pairs(data, split, base=self.base, counts=counts),
            text.source,
            text.target,
            max_length=max_length,
            on_long=on_long,
            counts=counts,
            keep_text=drops or split == "valid",
            words_of=text.source.word_places if self.recipe.model.encoder.reads_parse else None,
        )

    def open(self, folder: Path) -> "TranslateReady":
        stores: dict[str, Store] = {split: Store.open(folder / "data" / split) for split in _SPLITS}
        vectors = open_run_vectors(self.recipe.model.vectors, folder)
        return TranslateReady(self.recipe, TextPair.load(folder), stores, vectors)


@dataclass(frozen=True)
class TranslateReady:
    recipe: TranslateRecipe
    pair: TextPair
    stores: Mapping[str, Store]
    vectors: Columns | None = None

    @property
    def model_settings(self) -> dict[str, Any]:
        return plain(self.recipe.model)

    @property
    def sizes(self) -> dict[str, int]:
        return {"source": self.pair.source.size, "target": self.pair.target.size}

    @property
    def told(self) -> dict[str, int]:
        source, target = self.pair.source.size, self.pair.target.size
        return {"tokens": source} if self.pair.shared else {"source tokens": source, "target tokens": target}

    @property
    def facts(self) -> dict[str, Any]:
        recipe = self.recipe
        return {"text": plain(recipe.text), "decode": plain(recipe.decode), "metrics": list(recipe.metrics)}

    @property
    def examples(self) -> tuple[int, str]:
        return len(self.stores["train"]), "pairs"

    @property
    def remarks(self) -> tuple[str, ...]:
        told = (f"{split}: {told}" for split, store in self.stores.items() for told in store.counts.sentences())
        return (*told, *told_of_vectors(self.vectors))

    @property
    def width(self) -> int:
        return self.recipe.model.decoder.width

    def build(self) -> Translator:
        model = build_translator(self.recipe.model, self.pair.source.size, self.pair.target.size)
        begin_with(self.vectors, model.encoder.embed.table, model.encoder.embed.scale)
        return model

    @cached_property
    def _plan(self) -> Plan:
        train = self.recipe.train
        return Plan(self.stores["train"].lengths, train.planned_tokens, self.recipe.seed, train.batch_sentences)

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, Batch], None, None]:
        return batches(
            self.stores["train"],
            self._plan,
            cursor=cursor,
            workers=self.recipe.train.workers,
            encode=self._encode(),
            words_of=self.pair.source.word_places,
        )

    def _encode(self) -> Encode | None:
        of_source, of_target = map(_dropout, sides(self.recipe.text))
        if of_source == 0 and of_target == 0:
            return None
        source, target = _cutting(self.pair.source, of_source), _cutting(self.pair.target, of_target)

        def encode(one: str, other: str, random: np.random.Generator) -> tuple[list[int], list[int]]:
            return source(one, random), target(other, random)

        return encode

    def largest(self) -> list[Batch]:
        return [collate(self.stores["train"], rows) for rows in self._plan.epoch(0).largest()]

    def example(self) -> Batch:
        return collate(self.stores["train"], self._plan.epoch(0)[0][:EXAMPLE_ROWS])

    def worked(self, batch: Batch) -> int:
        return batch.tokens

    def validate(self, model: Trainable, at_once: int, device: torch.device) -> dict[str, float]:
        assert isinstance(model, Translator)
        store, train = self.stores["valid"], self.recipe.train
        plan = Plan(store.lengths, at_once, seed=0).epoch(0)
        some = (collate(store, plan[k]) for k in range(len(plan)))
        values = mean_loss(model, some, train.precision, device)
        if train.metric not in ("loss", "perplexity"):
            sources, targets = valid_lines(store)
            references: References = targets
            if groups(self.recipe.data):
                sources, references = grouped(sources, targets)
            metrics, decode = (*self.recipe.metrics, cast("MetricName", train.metric)), self.recipe.decode
            engine = self._engines.setdefault((id(model), device), Engine(model, self.pair, device))
            values |= decoded_metrics(engine, sources, references, metrics=metrics, decode=decode)
        return values

    @cached_property
    def _engines(self) -> dict[tuple[int, torch.device], Engine]:
        """Kept from one validation to the next: each would begin a stream of its own on a GPU."""
        return {}
