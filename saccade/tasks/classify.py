"""Classification: labelled texts in, a classifier out."""

from collections import Counter, deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field, model_validator

from saccade.checkpoint import Loaded
from saccade.classify import LABELS, engine_of, read_labels, reading_of
from saccade.config import plain
from saccade.data.batching import Cursor, Plan
from saccade.data.columns import Columns
from saccade.data.counts import Counts
from saccade.data.labelled import Example, LabelledData, labelled
from saccade.data.labelled_splits import (
    ClassifyDataConfig,
    check_there,
    files_like,
    has_split,
    length_rule,
    split_examples,
    texts_of,
)
from saccade.data.labelled_store import LabelledStore, write_labelled
from saccade.data.labels import Labels
from saccade.data.readings import Reading
from saccade.data.splits import Split
from saccade.data.vectors import vector_words
from saccade.disk import write_file
from saccade.errors import SaccadeError, UsageError
from saccade.loss import label_loss
from saccade.metrics.classification import Classification, classification
from saccade.metrics.interval import Confidence
from saccade.metrics.score import Score
from saccade.models.build import build_classifier
from saccade.models.classifier import Classifier, ClassifierConfig
from saccade.models.hierarchical import HierarchicalClassifier, HierarchicalConfig
from saccade.models.trainable import Trainable
from saccade.tasks.base import Recipe, Scores, Table, preset_gives
from saccade.tasks.vectors import begin_with, check_vectors, open_run_vectors, vectors_of, write_run_vectors
from saccade.tasks.vectors import told as told_of_vectors
from saccade.text import BpeText, ByteText, CharText, TextConfig, TextPair, Tokenizer, train_tokenizers
from saccade.text.pair import SOURCE_FILE
from saccade.train.numerics import autocast
from saccade.types import Batch

ModelConfig = Annotated[ClassifierConfig | HierarchicalConfig, Field(discriminator="kind")]
EXAMPLE_ROWS = 32
SAMPLE = 2000
"""Texts that a vocabulary is estimated from."""
MOST_SHOWN = 30
"""Labels up to which who is taken for whom is shown as a table."""
_SPLITS: tuple[Split, ...] = ("train", "valid")
_SHORT = 60


class ClassifyRecipe(Recipe):
    """From labelled texts to a model that gives a label to others."""

    model_config = ConfigDict(json_schema_extra=preset_gives)
    METRICS: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1")

    task: Literal["classify"]
    """classify: learn to give a text, or two, a label."""
    data: ClassifyDataConfig
    """The labelled texts: generated reviews or ListOps, or your own files."""
    text: TextConfig
    """How text is cut into tokens."""
    model: ModelConfig
    """How a text is read and what becomes of it; of documents, sentence by sentence."""

    @model_validator(mode="after")
    def _one_side(self) -> "ClassifyRecipe":
        check_vectors(self.model.vectors, self.text.kind, takes_more=self.init_from is None)
        if not self.text.shared:
            raise ValueError("text.shared is false, but there is one vocabulary alone: leave it out")
        if isinstance(self.text, BpeText) and self.text.dropout:
            raise ValueError(f"text.dropout is {self.text.dropout}, which is for translate: leave it out")
        return self

    @model_validator(mode="after")
    def _as_many_texts_as_are_compared(self) -> "ClassifyRecipe":
        if self.model.reads == "apart" and texts_of(self.data) == 1:
            raise ValueError(
                "model.pair is apart, which compares two texts, but the data have one: name the second column or field "
                "(data.train.second), or leave model.pair out"
            )
        return self

    def reading(self, split: Split) -> Reading:
        max_length, max_sentences, _ = length_rule(self.data, split)
        return reading_of(self.model, max_length, max_sentences, all_of_it=True)

    def make_task(self, base: Path) -> "ClassifyTask":
        return ClassifyTask(self, base)

    def beginnings(self, base: Path) -> Iterator[tuple[Split, str]]:
        for split in ("train", "valid", "test"):
            if has_split(self.data, split):
                found = next(split_examples(self.data, split, base=base, counts=Counts()), None)
                told = "holds no text" if found is None else f"begins {found.texts[0][:40]!r} → {found.label[:40]!r}"
                yield split, told

    def checked(self, base: Path) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        problems: list[str] = []
        known: Counter[str] = Counter()
        train: set[tuple[str, ...]] = set()
        for split in ("train", "valid", "test"):
            if not has_split(self.data, split):
                continue
            counts, wrong = Counts(), list[str]()
            every = list(split_examples(self.data, split, base=base, counts=counts, problems=wrong))
            labels, texts = Counter(each.label for each in every), {each.texts for each in every}
            if not every and not wrong:
                wrong.append(f"no usable text: {' '.join(counts.sentences('text'))}")
            if split == "train":
                known, train = labels, texts
                if len(labels) == 1:
                    wrong.append(
                        f"all {len(every):,} texts have the label {next(iter(labels))!r}: nothing to tell apart"
                    )
            # What is held out of the training data stands in the same files: their faults are told once.
            held_out = split == "valid" and self.data.valid is None
            new = [each for each in wrong if not (held_out and f"train: {each}" in problems)]
            problems += [f"{split}: {each}" for each in new]
            found[split] = _told(counts, labels, known, lengths=sorted(_words(each.texts) for each in every))
            if len(texts) < len(every):
                found[split].append(f"{len(every) - len(texts):,} texts occurred before in {split}")
            if split != "train" and texts & train:
                found[split].append(f"{len(texts & train):,} texts also stand in train: scores on {split} will flatter")
        if problems:
            raise UsageError("\n".join(problems))
        return found

    def vocabularies(self, base: Path) -> tuple[dict[str, int], bool]:
        """Labels are counted in all of the data: where they are sorted, the first rows would show one alone."""
        every = split_examples(self.data, "train", base=base, counts=Counts())
        first = list(islice(every, SAMPLE))
        labels = len({each.label for each in first} | {each.label for each in every})
        if isinstance(self.text, (CharText, ByteText)):
            lines = (line for each in first for line in self.reading("train").parts(each.texts)[0])
            size = train_tokenizers(self.text, lines, (), self.seed).source.size
            return {"text": size, "labels": labels}, isinstance(self.text, ByteText)
        return {"text": self.text.size, "labels": labels}, False

    def scores(
        self, loaded: Loaded, files: Sequence[Path], split: Split, base: Path, *, confidence: Confidence = True
    ) -> dict[str, Score]:
        counts = Counts()
        every = self.to_score(files, split, base, counts, loaded.path)
        engine = engine_of(loaded)
        answers = engine.classify([each.texts for each in every])
        given = [each.label for each in answers]
        true = [each.label for each in every]
        measured = classification(true, given, order=engine.labels.names, confidence=confidence)
        return Scores(
            {"accuracy": measured.accuracy, "macro_f1": measured.macro_f1},
            tables_of(measured, engine.labels),
            (*counts.mended("text"), *engine.told_of_cut(sum(each.cut for each in answers))),
        )

    def to_score(self, files: Sequence[Path], split: Split, base: Path, counts: Counts, run: Path) -> list[Example]:
        """Texts of files as the recipe's own are, or else of its split; there is at least one."""
        if files:
            on_bad = self.data.on_bad if isinstance(self.data, LabelledData) else "refuse"
            like = files_like(self.data, files)
            every = list(labelled(like, base=base, on_bad=on_bad, counts=counts, keep_empty=True))
        else:
            if not has_split(self.data, split):
                raise UsageError(
                    f"{run}: its recipe names no {split} data. Name the files to score, or --split valid for "
                    "the validation data."
                )
            check_there(self.data, split, base)
            every = list(split_examples(self.data, split, base=base, counts=counts, keep_empty=True))
        if not every:
            raise UsageError(f"there is nothing to score: {' '.join(counts.sentences('text'))}")
        return every

    @staticmethod
    def next_command(run: Path) -> list[str]:
        return ["saccade", "classify", str(run), _example_line(LabelledStore.open(run / "data" / "valid"))]


def tables_of(measured: Classification, labels: Labels) -> tuple[Table, ...]:
    """Each label, and who is taken for whom; a label that training has not seen is marked."""
    unseen = [each for each in measured.classes if not labels.id(each.label)]
    rows = tuple(
        {
            "label": each.label,
            "precision": f"{100 * each.precision:.1f}",
            "recall": f"{100 * each.recall:.1f}",
            "F1": f"{100 * each.f1:.1f}",
            "texts": f"{each.support:,}",
            **({"in training": "yes" if labels.id(each.label) else "no"} if unseen else {}),
        }
        for each in measured.classes
    )
    tables = [Table("classes", "each label", rows, measured.to_dict()["classes"])]
    if len(measured.classes) <= MOST_SHOWN:
        confusion = tuple(
            {
                "true \\ given": each.label,
                **{name: f"{count:,}" for name, count in zip(measured.labels, row, strict=True)},
            }
            for each, row in zip(measured.classes, measured.confusion, strict=True)
        )
        tables.append(
            Table("confusion", "rows have the label, columns were given it", confusion, measured.to_dict()["confusion"])
        )
    return tuple(tables)


def _told(counts: Counts, labels: Counter[str], known: Counter[str], lengths: list[int]) -> list[str]:
    told = [" ".join(counts.sentences("text"))]
    if not labels:
        return told
    shown = ", ".join(f"{label!r} {count:,} ({count / labels.total():.1%})" for label, count in labels.most_common(10))
    told.append(f"labels: {len(labels)}: {shown}{', …' if len(labels) > 10 else ''}")
    new = {label: count for label, count in labels.items() if label not in known}
    if new:
        told.append(
            f"{sum(new.values()):,} texts have a label that train has not, and will count as wrong: {sorted(new)[:10]}"
        )
    told.append(
        f"words: {sum(lengths) / len(lengths):.1f} on average, 99 % up to {lengths[int(0.99 * (len(lengths) - 1))]}, "
        f"longest {lengths[-1]}"
    )
    return told


def _words(texts: tuple[str, ...]) -> int:
    return sum(len(text.split()) for text in texts)


def _example_line(store: LabelledStore) -> str:
    """A short text of the validation data."""
    texts = [store.text(i) for i in range(min(len(store), 50))]
    short = [text for text in texts if len(text) <= _SHORT and text.isprintable() and " " in text.strip()]
    if short:
        return short[0]
    cells = ["".join(filter(str.isprintable, cell[:_SHORT])) for cell in texts[0].split("\t")]
    return "\t".join(cells) if any(cells) else "…"


@dataclass(frozen=True)
class ClassifyTask:
    recipe: ClassifyRecipe
    base: Path

    name = "classify"

    @property
    def files(self) -> tuple[str, ...]:
        return SOURCE_FILE, LABELS

    @property
    def tokens_depend_on(self) -> dict[str, Any]:
        reading = self.recipe.reading("train")
        return {
            **vectors_of(self.recipe.model.vectors),
            "model reads a text as": reading.layout,
            "model reads START first": reading.starts,
            "model reads END last": reading.ends,
        }

    def learn(self, folder: Path) -> None:
        """The tokenizer and the labels, in one pass over the training data."""
        recipe, counts, seen = self.recipe, Counts(), set[str]()
        reading = recipe.reading("train")

        def lines() -> Iterator[str]:
            for each in split_examples(recipe.data, "train", base=self.base, counts=counts):
                seen.add(each.label)
                yield from reading.parts(each.texts)[0]

        every = lines()
        # Where the run begins with another's encoder, the tokenizer is that one's.
        text = None
        if recipe.init_from is None:
            vectors = recipe.model.vectors
            more = () if vectors is None else vector_words(vectors.path, vectors.more_words, base=self.base)
            text = train_tokenizers(recipe.text, every, (), recipe.seed, given=more)
        deque(every, maxlen=0)  # bytes are learnt from nothing: the labels are
        if len(seen) < 2:
            raise UsageError(
                f"data.train: there must be at least two labels to tell apart; there is {sorted(seen) or 'none'}. "
                f"{' '.join(counts.sentences('text'))}"
            )
        try:
            if text is not None:
                text.save(folder)
        except OSError as error:
            raise SaccadeError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}.") from None
        write_file(folder / LABELS, Labels.of(seen).to_json())

    def write(self, folder: Path) -> None:
        tokenizer, labels = TextPair.load(folder).source, read_labels(folder)
        for split in _SPLITS:
            counts = Counts()
            write_labelled(
                folder / "data" / split,
                split_examples(self.recipe.data, split, base=self.base, counts=counts),
                reading=self.recipe.reading(split),
                tokenizer=tokenizer,
                labels=labels,
                on_long=length_rule(self.recipe.data, split)[2],
                counts=counts,
                keep_text=split == "valid",
            )
        write_run_vectors(self.recipe.model.vectors, tokenizer.model.pieces(), folder, self.base)

    def open(self, folder: Path) -> "ClassifyReady":
        stores: dict[str, LabelledStore] = {split: LabelledStore.open(folder / "data" / split) for split in _SPLITS}
        vectors = open_run_vectors(self.recipe.model.vectors, folder)
        return ClassifyReady(self.recipe, TextPair.load(folder).source, read_labels(folder), stores, vectors)


@dataclass(frozen=True)
class ClassifyReady:
    recipe: ClassifyRecipe
    text: Tokenizer
    labels: Labels
    stores: Mapping[str, LabelledStore]
    vectors: Columns | None = None

    @property
    def model_settings(self) -> dict[str, Any]:
        return plain(self.recipe.model)

    @property
    def sizes(self) -> dict[str, int]:
        return {"text": self.text.size, "labels": len(self.labels)}

    @property
    def told(self) -> dict[str, int]:
        return {"tokens": self.text.size, "labels": len(self.labels)}

    @property
    def facts(self) -> dict[str, Any]:
        max_length, max_sentences, _ = length_rule(self.recipe.data, "test")
        reads = {"texts": texts_of(self.recipe.data), "max_length": max_length, "max_sentences": max_sentences}
        return {"text": plain(self.recipe.text), "reads": reads}

    @property
    def examples(self) -> tuple[int, str]:
        return len(self.stores["train"]), "texts"

    @property
    def remarks(self) -> tuple[str, ...]:
        told = (f"{split}: {each}" for split, store in self.stores.items() for each in store.remarks)
        return (*told, *told_of_vectors(self.vectors))

    @property
    def width(self) -> int:
        model = self.recipe.model
        return model.words.encoder.width if isinstance(model, HierarchicalConfig) else model.encoder.width

    def build(self) -> Classifier | HierarchicalClassifier:
        model = build_classifier(self.recipe.model, self.text.size, len(self.labels))
        reader = model.words if isinstance(model, HierarchicalClassifier) else model.encoder
        begin_with(self.vectors, reader.embed.table, reader.embed.scale)
        return model

    @cached_property
    def _plan(self) -> Plan:
        train = self.recipe.train
        return Plan(self.stores["train"].lengths, train.planned_tokens, self.recipe.seed, train.batch_sentences)

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, Batch], None, None]:
        return self.stores["train"].batches(self._plan, cursor, workers=self.recipe.train.workers)

    def largest(self) -> list[Batch]:
        return [self.stores["train"].collate(rows) for rows in self._plan.epoch(0).largest()]

    def example(self) -> Batch:
        return self.stores["train"].collate(self._plan.epoch(0)[0][:EXAMPLE_ROWS])

    def worked(self, batch: Batch) -> int:
        """Tokens that are read."""
        read = batch.source if batch.source.inside is None else batch.source.inside
        return read.ids.numel()

    @torch.inference_mode()
    def validate(self, model: Trainable, at_once: int, device: torch.device) -> dict[str, float]:
        """Loss of the texts whose label training has seen; of the others, too, how many labels are right."""
        store = self.stores["valid"]
        plan = Plan(store.lengths, at_once, seed=0).epoch(0)
        nll, counted = torch.zeros((), dtype=torch.float64, device=device), 0
        true, given = list[str](), list[str]()
        for k in range(len(plan)):
            batch = store.collate(plan[k])
            with autocast(self.recipe.train.precision, device):
                on_device = batch.to(device)
                scores_BL = model(on_device.source)
                nll += label_loss(scores_BL, on_device.target).nll
            counted += batch.tokens
            true += [store.label(row) for row in batch.index]
            given += [self.labels.name(label + 1) for label in scores_BL.argmax(-1).tolist()]
        measured = classification(true, given, confidence=False)
        return {
            "loss": nll.item() / max(1, counted),
            "accuracy": measured.accuracy.value,
            "macro_f1": measured.macro_f1.value,
        }
