"""Language models: plain text in, a model that writes and scores text out."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator

from saccade import presets
from saccade.checkpoint import CONFIG, Loaded, RunFolder, files_of
from saccade.config import plain
from saccade.data.batching import Cursor
from saccade.data.chorales import ChoralesData, frames_of
from saccade.data.columns import Columns
from saccade.data.files import Counts, locate
from saccade.data.plain_text import Stretch, TextData, measured, read_text
from saccade.data.splits import Split
from saccade.data.streams import ReadConfig, Streams, StreamsConfig, Windows, WindowsConfig
from saccade.data.text_store import TextStore, write_text
from saccade.data.texts import LanguageData, ends_of, has_split, split_text
from saccade.decode.sampling import SampleConfig
from saccade.errors import SaccadeError, UsageError
from saccade.generate import Engine
from saccade.likelihood import CacheConfig, DynamicConfig
from saccade.metrics.interval import Confidence
from saccade.metrics.perplexity import perplexity_scores
from saccade.metrics.score import Score
from saccade.models.build import build_language_model
from saccade.models.language_model import LanguageModel, LanguageModelConfig
from saccade.models.trainable import Trainable
from saccade.tasks.base import Recipe, preset_gives
from saccade.tasks.vectors import begin_with, check_vectors, open_run_vectors, vectors_of, write_run_vectors
from saccade.tasks.vectors import told as told_of_vectors
from saccade.text import (
    BpeText,
    ByteText,
    CharText,
    RunText,
    StreamText,
    TextPair,
    Tokenizer,
    WordText,
    train_tokenizers,
)
from saccade.text.pair import SOURCE_FILE
from saccade.train.validation import mean_loss, stream_loss
from saccade.types import Batch

SAMPLE = 2000
"""Lines that a vocabulary is estimated from."""
VALID_STEPS = 256
"""Tokens of each stream that validation reads at a time; gradients it needs none."""
_SPLITS: tuple[Split, ...] = ("train", "valid")


class LanguageModelRecipe(Recipe):
    """From plain text to a model that writes and scores text."""

    model_config = ConfigDict(json_schema_extra=preset_gives)
    METRICS: ClassVar[tuple[str, ...]] = ("perplexity",)

    task: Literal["language-model"]
    """language-model: learn to say of every token of a text how probable it is, given those before it."""
    data: LanguageData
    """The text: your own files, generated sentences, or music."""
    text: StreamText
    """How text is cut into tokens."""
    read: ReadConfig = StreamsConfig()
    """How the text is read: streams, whose state is carried on; or windows, which a Transformer needs and has where
    nothing is said."""
    model: LanguageModelConfig
    """The decoder."""
    decode: SampleConfig = SampleConfig()
    """How text is drawn, unless the command says otherwise."""

    @model_validator(mode="before")
    @classmethod
    def _read_as_the_model_can(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        try:
            tree = presets.resolved(tree)
        except UsageError as error:
            raise ValueError(str(error)) from None
        decoder = tree.get("model", {}).get("decoder", {}) if isinstance(tree.get("model"), dict) else {}
        transformer = isinstance(decoder, dict) and decoder.get("kind") == "transformer"
        return tree if "read" in tree or not transformer else {**tree, "read": {"kind": "windows"}}

    @model_validator(mode="after")
    def _fits_together(self) -> "LanguageModelRecipe":
        if self.model.decoder.kind == "transformer" and isinstance(self.read, StreamsConfig):
            raise ValueError(
                "read.kind is streams, but model.decoder.kind is transformer, which carries no state on from one "
                "stretch of text to the next: use windows"
            )
        check_vectors(self.model.vectors, self.text.kind)
        if isinstance(self.text, RunText):
            return self
        if not self.text.shared:
            raise ValueError("text.shared is false, but a language model's text has one side: leave it out")
        if isinstance(self.text, BpeText) and self.text.dropout:
            raise ValueError(
                f"text.dropout is {self.text.dropout}, but a language model's text is cut once, before training: "
                "leave it out"
            )
        if ends_of(self.data) == "file" and isinstance(self.text, WordText) and self.text.cut == "spaces":
            raise ValueError(
                "data.ends is file, where line feeds are tokens, but text.cut is spaces, which drops them: use "
                "ends: line, or cut: signs"
            )
        return self

    # ---- what each task says for itself

    def make_task(self, base: Path) -> "LanguageModelTask":
        return LanguageModelTask(self, base)

    def beginnings(self, base: Path) -> Iterator[tuple[Split, str]]:
        for split in ("train", "valid", "test"):
            if has_split(self.data, split):
                first = next(split_text(self.data, split, base=base, counts=Counts()), None)
                yield split, "holds no text" if first is None else f"begins {first.text[:60]!r}"

    def checked(self, base: Path) -> dict[str, list[str]]:
        found = {}
        for split in ("train", "valid", "test"):
            if has_split(self.data, split):
                counts = Counts()
                size = measured(split_text(self.data, split, base=base, counts=counts))
                if not size["characters"]:
                    raise UsageError(f"{split}: the text is empty. Check the files that data.{split} names.")
                words = f"{size['words']:,} words (ends counted), {size['characters']:,} characters"
                found[split] = [*counts.sentences("line"), f"{words}, {size['bytes']:,} bytes"]
        return found

    def vocabularies(self, base: Path) -> tuple[dict[str, int], bool]:
        if isinstance(self.text, RunText):
            return {"text": tokenizer_of_run(self.text, base).size}, True
        if isinstance(self.text, (CharText, ByteText)):
            with closing(_text_of(self.data, "train", base)) as parts:
                learnt = train_tokenizers(self.text, [part.text for part in islice(parts, SAMPLE)], (), self.seed)
            return {"text": learnt.source.size}, isinstance(self.text, ByteText)
        return {"text": self.text.size}, False

    def scores(
        self, loaded: Loaded, files: Sequence[Path], split: Split, base: Path, *, confidence: Confidence = True
    ) -> dict[str, Score]:
        return self.scores_with(loaded, files, split, base, confidence=confidence)

    def scores_with(
        self,
        loaded: Loaded,
        files: Sequence[Path],
        split: Split,
        base: Path,
        *,
        cache: CacheConfig | None = None,
        dynamic: DynamicConfig | None = None,
        confidence: Confidence = True,
    ) -> dict[str, Score]:
        """The same, with ways to go on learning from the text as it is read."""
        engine, counts = writer_of(loaded), Counts()
        if files:
            names = [str(file.absolute()) for file in files]
            on_bad = self.data.on_bad if isinstance(self.data, TextData) else "refuse"
            parts = read_text(names, base=base, ends=engine.ends, on_bad=on_bad, counts=counts)
        elif not has_split(self.data, split):
            raise UsageError(
                f"{loaded.path}: its recipe names no {split} text. Give a file, or --split valid for the validation "
                "text."
            )
        else:
            parts = split_text(self.data, split, base=base, counts=counts)
        frames = frames_of if isinstance(self.data, ChoralesData) else None
        found = engine.score_stretches(parts, cache=cache, dynamic=dynamic, frames=frames, each=confidence is not False)
        return perplexity_scores(found, _signature(self.read, cache, dynamic), confidence=confidence)

    @staticmethod
    def next_command(run: Path) -> list[str]:
        store = TextStore.open(run / "data" / "valid")
        words = TextPair.load(run).source.decode(store.stretch(0).tolist()).split()
        return ["saccade", "generate", str(run), *words[:1]]


_DROPS = "but the tokenizer cuts words at white space, which drops them"


def tokenizer_of_run(text: RunText, base: Path) -> Tokenizer:
    """That of the run that `text` names, checked as for a model that is loaded."""
    path = locate(text.run, base).path
    try:
        RunFolder.open(path).verify()
        if SOURCE_FILE not in files_of(path):
            raise UsageError(f"{path}: has no tokenizer that a text could be cut by.")
        pair = TextPair.load(path)
    except SaccadeError as error:
        raise type(error)(f"text.run: {error}") from None
    return pair.source if text.side == "source" else pair.target


def _text_of(data: LanguageData, split: Split, base: Path) -> Generator[Stretch, None, None]:
    yield from split_text(data, split, base=base, counts=Counts())


def _signature(read: ReadConfig, cache: CacheConfig | None, dynamic: DynamicConfig | None) -> str:
    """What it takes to measure the same again."""
    told = ["ends:counted"]
    match read:
        case StreamsConfig():
            told.append("state:carried")
        case WindowsConfig():
            told.append(f"window:{read.length}" + (f",context:{read.context}" if read.context else ""))
    if cache is not None:
        told.append(f"cache:{cache.window},{cache.theta:g},{cache.weight:g}")
    if dynamic is not None:
        told.append(f"dynamic:{dynamic.rate:g},{dynamic.decay:g},{dynamic.steps}")
    return "|".join(told)


@dataclass(frozen=True)
class LanguageModelTask:
    recipe: LanguageModelRecipe
    base: Path

    name = "language-model"
    files = (SOURCE_FILE,)

    @property
    def tokens_depend_on(self) -> dict[str, Any]:
        return vectors_of(self.recipe.model.vectors)

    def learn(self, folder: Path) -> None:
        if isinstance(self.recipe.text, RunText):
            taken = tokenizer_of_run(self.recipe.text, self.base)
            pair = TextPair(taken, taken, shared=True)
        else:
            lines = (part.text for part in _text_of(self.recipe.data, "train", self.base))
            pair = train_tokenizers(self.recipe.text, lines, (), self.recipe.seed)
        if ends_of(self.recipe.data) == "file" and pair.source.cuts_at_spaces:
            raise UsageError(f"data.ends is file, where line feeds are tokens, {_DROPS}: use ends: line.")
        try:
            pair.save(folder)
        except OSError as error:
            raise SaccadeError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}.") from None

    def write(self, folder: Path) -> None:
        tokenizer, data = TextPair.load(folder).source, self.recipe.data
        unit = "pieces" if isinstance(data, ChoralesData) else f"{ends_of(data)}s"
        for split in _SPLITS:
            counts = Counts()
            write_text(
                folder / "data" / split,
                split_text(data, split, base=self.base, counts=counts),
                tokenizer,
                counts=counts,
                unit="lines" if unit == "files" else unit,  # a file is read line by line
                frames=frames_of if isinstance(data, ChoralesData) else None,
            )
        write_run_vectors(self.recipe.model.vectors, tokenizer.model.pieces(), folder, self.base)

    def open(self, folder: Path) -> "LanguageModelReady":
        stores: dict[str, TextStore] = {split: TextStore.open(folder / "data" / split) for split in _SPLITS}
        vectors = open_run_vectors(self.recipe.model.vectors, folder)
        return LanguageModelReady(self.recipe, TextPair.load(folder).source, stores, vectors)


@dataclass(frozen=True)
class LanguageModelReady:
    recipe: LanguageModelRecipe
    tokenizer: Tokenizer
    stores: Mapping[str, TextStore]
    vectors: Columns | None = None

    @property
    def model_settings(self) -> dict[str, Any]:
        return plain(self.recipe.model)

    @property
    def sizes(self) -> dict[str, int]:
        return {"text": self.tokenizer.size}

    @property
    def told(self) -> dict[str, int]:
        return {"tokens in the vocabulary": self.tokenizer.size}

    @property
    def facts(self) -> dict[str, Any]:
        """How the text was read is how it must be read when the model is used."""
        sections = {"text": self.recipe.text, "read": self.recipe.read, "decode": self.recipe.decode}
        return {name: plain(section) for name, section in sections.items()} | {"ends": ends_of(self.recipe.data)}

    @property
    def examples(self) -> tuple[int, str]:
        return len(self.stores["train"].text), "tokens"

    @property
    def remarks(self) -> tuple[str, ...]:
        told = (f"{name}: {told}" for name, store in self.stores.items() for told in store.counts.sentences("line"))
        return (*told, *told_of_vectors(self.vectors))

    @property
    def width(self) -> int:
        return self.recipe.model.decoder.width

    def build(self) -> LanguageModel:
        _ = self._cut  # a text too short for it is told before the run begins
        model = build_language_model(self.recipe.model, self.tokenizer.size)
        begin_with(self.vectors, model.decoder.embed.table, model.decoder.embed.scale)
        if isinstance(self.recipe.read, StreamsConfig):
            model.stream(self.recipe.read.streams)
        return model

    @cached_property
    def _cut(self) -> Streams | Windows:
        text, seed = self.stores["train"].text, self.recipe.seed
        match self.recipe.read:
            case StreamsConfig() as read:
                return Streams(text, read.streams, read.steps, varied=read.varied, seed=seed)
            case WindowsConfig(length=length, varied=varied):
                rows = max(1, self.recipe.train.planned_tokens // length)
                return Windows(text, length, rows, seed=seed, varied=varied)

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, Batch], None, None]:
        match self._cut:
            case Streams() as streams:
                return streams.chunks(cursor)
            case Windows() as windows:
                return windows.batches(cursor, workers=self.recipe.train.workers)

    def largest(self) -> list[Batch]:
        return [self._cut.largest()]

    def example(self) -> Batch:
        return next(self._cut.once())

    def worked(self, batch: Batch) -> int:
        return batch.tokens

    def validate(self, model: Trainable, at_once: int, device: torch.device) -> dict[str, float]:
        assert isinstance(model, LanguageModel)
        text, precision = self.stores["valid"].text, self.recipe.train.precision
        match self.recipe.read:
            case StreamsConfig() as read:
                rows = min(read.validation, len(text))
                steps = read.steps if model.forgets else max(1, min(VALID_STEPS, at_once // rows))
                return stream_loss(model, Streams(text, rows, steps).once(), precision, device)
            case WindowsConfig() as read:
                windows = Windows(text, read.own, max(1, at_once // read.length), context=read.context)
                return mean_loss(model, windows.once(), precision, device)


# ---- use


def writer_of(loaded: Loaded) -> Engine:
    """What writes and scores, from a run folder."""
    place = loaded.path / CONFIG
    if not isinstance(loaded.model, LanguageModel):
        raise UsageError(f"{loaded.path}: is a run of the task {loaded.task}; there must be one of language-model.")
    read: ReadConfig
    try:
        read = TypeAdapter(ReadConfig).validate_python(loaded.config.get("read"))
    except ValidationError:
        raise SaccadeError(f"{place}: is not as a training writes it: read is no section of it.") from None
    ends = loaded.config.get("ends")
    if ends not in ("line", "paragraph", "file"):
        raise SaccadeError(f"{place}: is not as a training writes it: ends is {ends!r}.")
    tokenizer = TextPair.load(loaded.path).source
    if loaded.sizes != {"text": tokenizer.size}:
        raise SaccadeError(
            f"{loaded.path}: its tokenizer has {tokenizer.size} tokens, its model {loaded.sizes}: they are not of one "
            "run."
        )
    return Engine(loaded.model, tokenizer, loaded.device, read, ends)
