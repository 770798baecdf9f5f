"""Recipes of every task: read, resolved, typed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.json_schema import models_json_schema

from saccade import config, presets
from saccade.errors import UsageError
from saccade.recipes import shipped, shipped_text
from saccade.tasks.base import Recipe as Recipe
from saccade.tasks.classify import ClassifyRecipe
from saccade.tasks.initial import with_initial
from saccade.tasks.language_model import LanguageModelRecipe
from saccade.tasks.masked import MaskedRecipe
from saccade.tasks.tag import TagRecipe
from saccade.tasks.translate import TranslateRecipe

RECIPES: tuple[type[Recipe], ...] = (
    TranslateRecipe,
    LanguageModelRecipe,
    MaskedRecipe,
    TagRecipe,
    ClassifyRecipe,
)


def recipe_of(task: object) -> type[Recipe]:
    """The recipe of a task, by its name."""
    names = [str(each.model_fields["task"].annotation.__args__[0]) for each in RECIPES]  # type: ignore[union-attr]
    if task not in names:
        raise UsageError(f"task is {task!r}; it must be one of {', '.join(names)}.")
    return RECIPES[names.index(str(task))]


def parse_recipe(tree: Mapping[str, Any], origin: str = "recipe", base: Path | None = None) -> Recipe:
    """The tree as the recipe of the task it names, its preset under it; or an error that names the setting.

    `base`: where the path of the run is seen from that it may begin with; the working directory where not given.
    """
    try:
        tree = with_initial(presets.resolved(tree), base or Path.cwd())
        kind = recipe_of(tree.get("task", "translate"))
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None
    return config.parse(kind, tree, origin)


def schema() -> dict[str, Any]:
    """The JSON schema of all recipes, one for each task."""
    refs, definitions = models_json_schema([(each, "validation") for each in RECIPES])
    return {"title": "Recipe", "$defs": definitions["$defs"], "oneOf": list(refs.values())}


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
    return parse_recipe(tree, origin, base), base
