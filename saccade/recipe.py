"""The whole recipe, typed: every section in its place."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from saccade import config, presets
from saccade.config import Section
from saccade.data.files import FilesData
from saccade.data.splits import DataConfig
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.models.translator import TranslatorConfig
from saccade.recipes import shipped, shipped_text
from saccade.text import TextConfig
from saccade.train.run import Job
from saccade.train.settings import TrainConfig

_PRESETS = {"anyOf": [{"enum": presets.trainable(), "type": "string"}, {"type": "null"}], "default": None}


def _preset_gives(schema: dict[str, Any]) -> None:
    """For editors: text and model must be given, or a preset that has them."""
    schema["required"] = ["data"]
    schema["anyOf"] = [{"required": ["text", "model"]}, {"required": [presets.KEY]}]


class Recipe(Section):
    """From data to a finished model: everything a run depends on."""

    model_config = ConfigDict(json_schema_extra=_preset_gives)

    preset: Annotated[str | None, WithJsonSchema(_PRESETS), Field(exclude=True)] = None
    """Settings of a published model that the recipe begins with; what it says itself comes before them."""
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
    def _copies_what_it_can_write(self) -> "Recipe":
        if self.model.copies and not self.text.shared:
            raise ValueError(
                "model.decoder.attention.pointer copies source tokens into the target, which needs one vocabulary for "
                "both sides: set text.shared to true"
            )
        return self

    @model_validator(mode="after")
    def _parsed_where_a_parse_is_read(self) -> "Recipe":
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
    """The tree of a shipped recipe or of a file, how errors name it, and where its relative paths are seen from.

    A preset's name is as good as a recipe that holds nothing else.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return config.read(path), str(path), path.resolve().parent
    if name_or_path in shipped():
        return config.parse_yaml(shipped_text(name_or_path), name_or_path), name_or_path, Path.cwd()
    if name_or_path in presets.names():
        return {presets.KEY: name_or_path}, name_or_path, Path.cwd()
    raise UsageError(
        f"{name_or_path}: neither a file nor a recipe that comes with Saccade ({', '.join(shipped())}) nor a preset "
        f"({', '.join(presets.trainable())}). "
        "A recipe of your own is a .yaml file; `saccade init` writes one to start from."
    )


def load_recipe(name_or_path: str, settings: tuple[str, ...] = ()) -> tuple[Recipe, Path]:
    """A recipe with `dotted.name=value` settings applied, and the folder its relative paths are seen from.

    First the preset, over it the recipe, over both the settings in their order; one of them may name the preset.
    """
    tree, origin, base = read_tree(name_or_path)
    naming = [setting for setting in settings if setting.partition("=")[0].strip() == presets.KEY]
    for setting in naming:
        tree = config.override(tree, setting)
    try:
        tree = presets.resolved(tree)
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None
    for setting in settings:
        if setting not in naming:
            tree = config.override(tree, setting)
    if origin in presets.names() and "data" not in tree:
        raise UsageError(
            f"{origin}: a preset has no data. Give it by --set data=…, or fill in what `saccade init {origin}` writes."
        )
    return config.parse(Recipe, tree, origin), base
