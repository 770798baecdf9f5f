"""What a training needs of its task: everything that is not the same for all of them.

A task reads its data and writes them as tokens into the run folder, builds its model, makes batches and says how well
the model does. The loop, precision, graphs, saving and resuming are the same for all.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from saccade.data.batching import Cursor
from saccade.models.trainable import Trainable
from saccade.types import Batch


@dataclass(frozen=True)
class Content:
    """A file that no setting names, so that its content alone counts."""

    called: str
    path: Path | None
    """None where it is not here."""


class Tokenised(Protocol):
    """A split of the data in the run folder: a `Store` of pairs, or other `Columns`."""

    @property
    def folder(self) -> Path: ...

    @property
    def fingerprint(self) -> str:
        """Equal for stores of equal content."""

    def verify(self) -> None:
        """Every byte is as it was written; else an error that names the file."""


class Ready(Protocol):
    """The data of a task, read back from the run folder, and what training makes of them."""

    @property
    def stores(self) -> Mapping[str, Tokenised]:
        """The splits that were written, by name: train and valid."""

    @property
    def model_settings(self) -> dict[str, Any]:
        """The recipe's section, as `models.build.build_model` takes it; kept in config.json."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """How many ids each vocabulary has, by the names that `build_model` asks for; kept in config.json."""

    @property
    def told(self) -> Mapping[str, int]:
        """The same in words for people, as in `source tokens`; a vocabulary that serves twice stands there once."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What else of the recipe is kept in config.json, for those who use the model."""

    @property
    def examples(self) -> tuple[int, str]:
        """How many there are to train on, and what they are, as in `pairs`."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was done to the data, in words."""

    @property
    def width(self) -> int:
        """The model's, for schedules that go by it."""

    def build(self) -> Trainable:
        """The model with its first weights, as the generators are seeded; on the CPU."""

    def batches(self, cursor: Cursor) -> Generator[tuple[Cursor, Batch], None, None]:
        """Batches without end from the cursor on, each with the position behind it; a pure function of the seed."""

    def largest(self) -> list[Batch]:
        """Those that take most memory, to find out whether they fit."""

    def example(self) -> Batch:
        """A small batch, on which the operations of a token are counted."""

    def worked(self, batch: Batch) -> int:
        """The tokens of a batch that speed is told in."""

    def validate(self, model: Trainable, at_once: int, device: torch.device) -> dict[str, float]:
        """How well the model of the moment does on the validation data: `loss`, and the metrics of the task.

        `at_once`: the most rows × longest side that shall be worked on together.
        """


class Task(Protocol):
    """One recipe's task."""

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> tuple[str, ...]:
        """What `learn` writes into the run folder: they belong to the model as its weights do."""

    @property
    def tokens_depend_on(self) -> Mapping[str, Any]:
        """What `learn` and `write` read of the recipe beside data, text and `init_from`, by the settings' names."""

    def learn(self, folder: Path) -> None:
        """What is learnt from the training data before any weight: tokenizers, labels."""

    def write(self, folder: Path) -> None:
        """The data as tokens, afresh, in folder/data/train and folder/data/valid; `learn` was done before."""

    def open(self, folder: Path) -> Ready:
        """What the two have written."""
