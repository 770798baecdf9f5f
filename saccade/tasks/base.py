"""What the recipes of all tasks have in common."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, WithJsonSchema, model_validator

from saccade import config, presets
from saccade.checkpoint import Loaded
from saccade.config import Names, Section
from saccade.data.files import locate
from saccade.data.splits import Split
from saccade.errors import UsageError
from saccade.metrics.interval import Confidence
from saccade.metrics.score import Score
from saccade.tasks.initial import KEY as INIT_FROM
from saccade.train.initial import Initial
from saccade.train.run import Job
from saccade.train.settings import TrainConfig
from saccade.train.task import Task

_PRESETS = {"anyOf": [{"enum": presets.trainable(), "type": "string"}, {"type": "null"}], "default": None}


def preset_gives(schema: dict[str, Any]) -> None:
    """For editors: text and model must be given, or a preset or another run that has them."""
    given = [name for name in schema["required"] if name in ("text", "model")]
    schema["required"] = [name for name in schema["required"] if name not in given]
    if "default" not in schema["properties"]["task"]:
        schema["required"].insert(0, "task")
    if given:
        schema["anyOf"] = [{"required": given}, {"required": [presets.KEY]}, {"required": [INIT_FROM]}]


@dataclass(frozen=True)
class Table:
    """Numbers of which there are several, for people."""

    name: str
    title: str
    rows: tuple[dict[str, str], ...]
    """All with the same columns."""
    values: Any = None
    """The same as plain values, for JSON."""


class Scores(dict[str, Score]):
    """Scores by name, and what they are made of, in tables; `remarks`: what was left out or mended, in sentences."""

    def __init__(
        self, scores: Mapping[str, Score], tables: tuple[Table, ...] = (), remarks: tuple[str, ...] = ()
    ) -> None:
        super().__init__(scores)
        self.tables, self.remarks = tables, remarks


class Recipe(Section):
    """From data to a finished model: everything a run depends on. Each task has its own."""

    METRICS: ClassVar[tuple[str, ...]] = ()
    """What the best checkpoint can be chosen by, beside the loss."""

    preset: Annotated[str | None, WithJsonSchema(_PRESETS), Field(exclude=True)] = None
    """Settings of a published model that the recipe begins with; what it says itself comes before them."""
    task: str
    """What is learnt."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 1
    """Fixes the first weights, the order of the data and every dropout."""
    init_from: Annotated[str | None, Names.RUN] = None
    """A run whose tokenizer, and whose encoder's weights, this one begins with; text and encoder are then as there."""
    freeze: bool = False
    """With `init_from`: the encoder's weights stay as they are; only what stands on it is trained."""
    data: Any  # here and below: a section of the task's own
    """What is learnt from."""
    text: Any
    """How text is cut into tokens."""
    model: Any
    """What is trained."""
    train: TrainConfig = TrainConfig()
    """How the model is trained."""

    @model_validator(mode="before")
    @classmethod
    def _begins_with_its_preset(cls, tree: Any) -> Any:
        """What is resolved names no preset any more: it stands by itself, whatever becomes of the preset."""
        if not isinstance(tree, dict):
            return tree
        try:
            return presets.resolved(tree)
        except UsageError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _knows_its_metric(self) -> "Recipe":
        there = ("loss", *self.METRICS)
        if self.train.metric not in there:
            near = difflib.get_close_matches(self.train.metric, there, n=1, cutoff=0.5)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise ValueError(
                f"train.metric is {self.train.metric!r}; for the task {self.task} it must be one of "
                f"{', '.join(there)}.{hint}"
            )
        return self

    @model_validator(mode="after")
    def _begins_with_an_encoder(self) -> "Recipe":
        if self.freeze and self.init_from is None:
            raise ValueError(
                "freeze is true, but there is no init_from: an encoder that has learnt nothing would stay as it is"
            )
        if self.init_from is not None and getattr(self.model, "encoder", None) is None:
            raise ValueError(f"init_from is {self.init_from!r}, but a model of the task {self.task} has no encoder")
        return self

    def job(self, base: Path) -> Job:
        initial = None
        if self.init_from is not None:
            initial = Initial(self.init_from, locate(self.init_from, base).path, self.freeze)
        return Job(
            task=self.make_task(base),
            train=self.train,
            seed=self.seed,
            recipe=config.plain(self),
            named=dict(config.named(self)),
            base=base,
            initial=initial,
        )

    # ---- what each task says for itself

    def make_task(self, base: Path) -> Task:
        """`base`: where relative paths are seen from."""
        raise NotImplementedError

    def beginnings(self, base: Path) -> Iterator[tuple[Split, str]]:
        """Of every split, how it begins, in words: so a file that cannot be read is told before anything is done."""
        raise NotImplementedError

    def checked(self, base: Path) -> dict[str, list[str]]:
        """All of the data, read: what is in each split, in lines; an error where something must be mended."""
        raise NotImplementedError

    def vocabularies(self, base: Path) -> tuple[dict[str, int], bool]:
        """Sizes, as `build_model` asks for them, estimated from a little of the data; whether they are sure."""
        raise NotImplementedError

    def scores(
        self, loaded: Loaded, files: Sequence[Path], split: Split, base: Path, *, confidence: Confidence = True
    ) -> dict[str, Score]:
        """What `evaluate` tells of a run of this recipe: on files as the recipe's own are, or else on its split.

        `Scores`, where there is more to tell than one number each. `confidence`: of intervals that are drawn.
        """
        raise NotImplementedError

    @staticmethod
    def next_command(run: Path) -> list[str]:
        """What to do with a finished run: a command that works as it stands."""
        raise NotImplementedError
