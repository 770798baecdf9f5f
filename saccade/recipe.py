"""The whole recipe, typed: every section in its place."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from saccade import config
from saccade.config import Section
from saccade.data.splits import DataConfig
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.models.translator import TranslatorConfig
from saccade.recipes import shipped, shipped_text
from saccade.text import TextConfig
from saccade.train.run import Job
from saccade.train.settings import TrainConfig


class Recipe(Section):
    """From data to a finished model: everything a run depends on."""

    task: Literal["translate"] = "translate"
    """What is learnt: translate turns one sequence into another."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 1
    """Fixes the first weights, the order of the data and every dropout."""
    data: DataConfig
    """The pairs: generated dates, or your own files."""
    text: TextConfig
    """How text is cut into tokens."""
    model: TranslatorConfig
    """The encoder and the decoder."""
    train: TrainConfig = TrainConfig()
    """How the model is trained."""
    decode: DecodeConfig = DecodeConfig()
    """How outputs are searched for, unless the command says otherwise."""

    @model_validator(mode="after")
    def _copies_what_it_can_write(self) -> "Recipe":
        if self.model.copies and not self.text.shared:
            raise ValueError(
                "model.decoder.attention.pointer copies source tokens into the target, which needs one vocabulary for "
                "both sides: set text.shared to true"
            )
        return self

    def job(self, base: Path) -> Job:
        return Job(
            task=self.task,
            data=self.data,
            text=self.text,
            model=self.model,
            train=self.train,
            seed=self.seed,
            decode=config.plain(self.decode),
            recipe=config.plain(self),
            base=base,
        )


def read_tree(name_or_path: str) -> tuple[dict[str, Any], str, Path]:
    """The tree of a shipped recipe or of a file, how errors name it, and where its relative paths are seen from."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return config.read(path), str(path), path.resolve().parent
    if name_or_path in shipped():
        return config.parse_yaml(shipped_text(name_or_path), name_or_path), name_or_path, Path.cwd()
    raise UsageError(
        f"{name_or_path}: neither a file nor a recipe that comes with Saccade ({', '.join(shipped())}). "
        "A recipe of your own is a .yaml file; `saccade init` writes one to start from."
    )


def load_recipe(name_or_path: str, settings: tuple[str, ...] = ()) -> tuple[Recipe, Path]:
    """A recipe with `dotted.name=value` settings applied, and the folder its relative paths are seen from."""
    tree, origin, base = read_tree(name_or_path)
    for setting in settings:
        tree = config.override(tree, setting)
    return config.parse(Recipe, tree, origin), base
