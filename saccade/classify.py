"""Lines in, labels out: tokenise, read, weigh. One line in is one line out, whatever it holds."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from saccade.checkpoint import CONFIG, Loaded
from saccade.data.counts import many
from saccade.data.labels import Labels
from saccade.data.lengths import alike
from saccade.data.readings import Reading, Row
from saccade.errors import SaccadeError, UsageError
from saccade.models.build import settings_of
from saccade.models.classifier import Classifier, ClassifierConfig
from saccade.models.hierarchical import HierarchicalClassifier, HierarchicalConfig
from saccade.text import TextPair, Tokenizer

LABELS = "labels.json"
"""The labels, in a run folder."""
MAX_ROWS = 1024
"""Lines read side by side, whatever the token budget."""
CHARACTERS_PER_TOKEN = 32
"""Of a line at most so many characters a token that is read are tokenised: a line of 10 MB costs next to nothing."""


@dataclass(frozen=True)
class Answer:
    """A label, and how probable it is."""

    label: str
    probability: float


@dataclass(frozen=True)
class Classified:
    """All that came of one line, most probable first."""

    texts: tuple[str, ...]
    answers: tuple[Answer, ...]
    cut: bool = False
    """There was more of it than is read; the rest was left out."""

    @property
    def label(self) -> str:
        return self.answers[0].label

    @property
    def probability(self) -> float:
        return self.answers[0].probability


@dataclass(frozen=True)
class Engine:
    """A model, its tokenizer and its labels, ready to classify."""

    model: Classifier | HierarchicalClassifier
    text: Tokenizer
    labels: Labels
    reading: Reading
    texts: int
    """How many texts a line holds."""
    device: torch.device

    def classify(
        self, lines: Sequence[str | tuple[str, ...]], *, top: int | None = 1, batch_tokens: int = 8192, first: int = 1
    ) -> list[Classified]:
        """In the order of the lines; the `top` most probable labels of each, or all.

        A line of a model of two texts is the two, or a string with a tab between them; `first` is the first line's
        number, for errors.
        """
        texts = [self.read(line, number) for number, line in enumerate(lines, start=first)]
        rows, cut = self.reading.rows(texts, self.text.encode_batch)
        most = len(self.labels) if top is None else min(top, len(self.labels))
        found: list[tuple[Answer, ...]] = [()] * len(rows)
        longest, sequences = [max(map(len, row), default=0) for row in rows], [len(row) for row in rows]
        for some in alike(range(len(rows)), longest, batch_tokens, most=MAX_ROWS, parts=sequences):
            for i, answers in zip(some, self._answers([rows[i] for i in some], most), strict=True):
                found[i] = answers
        return [Classified(*each) for each in zip(texts, found, cut, strict=True)]

    def told_of_cut(self, lines: int) -> list[str]:
        """A sentence, where some lines were not read to their end."""
        told = f"{many(lines, 'line')} longer than the model reads ({self.reading.told}): the rest was not read."
        return [told] if lines else []

    def read(self, line: str | tuple[str, ...], number: int = 1) -> tuple[str, ...]:
        """The texts of a line."""
        texts = tuple(line) if isinstance(line, tuple) else self._split(line)
        if len(texts) != self.texts:
            told = "a tab between two texts" if self.texts == 2 else "one text"
            held = f"{len(texts)} text{'' if len(texts) == 1 else 's'}"
            raise UsageError(f"line {number} ({texts[0][:40]!r}) holds {held}; the model reads {told} in each line.")
        return texts

    def _split(self, line: str) -> tuple[str, ...]:
        """An empty line is as many empty texts."""
        return (line,) if self.texts == 1 else tuple(line.split("\t")) if line else ("",) * self.texts

    @torch.inference_mode()
    def _answers(self, rows: Sequence[Row], most: int) -> list[tuple[Answer, ...]]:
        shares_BL = self.model.predict(self.reading.tokens(rows).to(self.device)).cpu()
        # Equal ones in the order of the labels: the same answer on every machine.
        shares, labels = shares_BL.sort(dim=-1, descending=True, stable=True)
        pairs = zip(shares[:, :most].tolist(), labels[:, :most].tolist(), strict=True)
        return [
            tuple(Answer(self.labels.name(label + 1), share) for share, label in zip(*pair, strict=True))
            for pair in pairs
        ]


def engine_of(loaded: Loaded) -> Engine:
    """The engine of a run of the task `classify`."""
    model, path = loaded.model, loaded.path
    if not isinstance(model, (Classifier, HierarchicalClassifier)):
        raise UsageError(f"{path}: is a run of the task {loaded.task}; to classify, there must be one of classify.")
    settings = settings_of(loaded.task, loaded.config["model"], f"{path / CONFIG}: model")
    assert isinstance(settings, (ClassifierConfig, HierarchicalConfig))
    text, labels = TextPair.load(path).source, read_labels(path)
    if {"text": text.size, "labels": len(labels)} != loaded.sizes:
        raise SaccadeError(
            f"{path}: its tokenizer has {text.size} tokens and its list of labels {len(labels)}, its model "
            f"{loaded.sizes}: they are not of one run."
        )
    limits = _Limits.of(loaded.config.get("reads"), path)
    reading = reading_of(settings, limits.max_length, limits.max_sentences)
    return Engine(model, text, labels, reading, limits.texts, loaded.device)


def reading_of(
    settings: ClassifierConfig | HierarchicalConfig, max_length: int, max_sentences: int, *, all_of_it: bool = False
) -> Reading:
    """How a model's texts are read; `all_of_it`: however long they are, before they are cut."""
    many = max_sentences if settings.reads == "document" else 1
    most = None if all_of_it else max_length * CHARACTERS_PER_TOKEN * many
    return Reading(settings.reads, settings.starts, settings.ends, max_length, max_sentences, most)


def read_labels(folder: Path) -> Labels:
    path = folder / LABELS
    try:
        return Labels.from_json(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{path}: cannot be read: {reason or error}.") from None


@dataclass(frozen=True)
class _Limits:
    """What config.json says of how texts are read."""

    texts: int
    max_length: int
    max_sentences: int

    @staticmethod
    def of(tree: object, path: Path) -> "_Limits":
        names = [each.name for each in fields(_Limits)]
        whole = isinstance(tree, dict) and tree.keys() == set(names)
        if not isinstance(tree, dict) or not whole or not all(type(v) is int and v > 0 for v in tree.values()):
            raise SaccadeError(
                f"{path / CONFIG}: is not as a training writes it: reads must hold {', '.join(names)}, whole numbers."
            )
        return _Limits(**tree)
