"""Presets: the settings of published models, each a part of a recipe that a recipe may begin with. Imports no torch."""

import difflib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from saccade import config
from saccade.config import Tree
from saccade.errors import UsageError

KEY = "preset"
TASKS = ("translate", "language-model", "masked-language-model", "classify", "tag")
"""The tasks there are; a preset of any other is a model that waits for its task."""
_SIDES = ("encoder", "decoder", "words", "sentences")


def names() -> list[str]:
    folder = resources.files("saccade") / "presets"
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def text_of(name: str) -> str:
    return (resources.files("saccade") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def described(name: str) -> str:
    """What it is: its first line, which is a comment."""
    return text_of(name).partition("\n")[0].removeprefix("#").strip()


def tree_of(name: str) -> Tree:
    tree: Tree = config.parse_yaml(text_of(name), f"preset {name}")
    return tree


def trainable() -> list[str]:
    """Those whose task is there."""
    return [name for name in names() if tree_of(name)["task"] in TASKS]


def resolved(tree: Mapping[str, Any]) -> Tree:
    """The recipe with its preset under it: what the recipe says itself comes before what the preset says."""
    own = {key: value for key, value in tree.items() if key != KEY}
    name = tree.get(KEY)
    if name is None:
        return own
    preset = _known(name)
    _something_is_left(name, preset["model"], own.get("model"))
    return config.merged(preset, own)


def _known(name: Any) -> Tree:
    if name not in names():
        near = difflib.get_close_matches(str(name), names(), n=1, cutoff=0.5)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        raise UsageError(f"{KEY} is {name!r}; it must be one of {', '.join(trainable())}.{hint}")
    tree = tree_of(name)
    if tree["task"] not in TASKS:
        raise UsageError(
            f"{KEY} is {name!r}, which waits for its task, {tree['task']}: recipes have {', '.join(TASKS)} so far. "
            f"To train there are {', '.join(trainable())}."
        )
    return tree


def _something_is_left(name: str, preset: Tree, own: Any) -> None:
    """A recipe with a model of its own would hide a preset's: refused, since whoever names one wants to have it."""
    if not isinstance(own, Mapping):
        return
    sides = [side for side in _SIDES if side in preset]
    if all(
        isinstance(own.get(side), Mapping) and config.merged(preset[side], own[side]) == own[side] for side in sides
    ):
        theirs = " and a ".join(f"model.{side}" for side in sides)
        raise UsageError(
            f"{KEY} is {name!r}, but the recipe has a {theirs} of its own, which come before the "
            f"preset's: nothing of that would be left. Leave out either {_THOSE[len(sides)]} or the preset."
        )


_THOSE = {1: "that", 2: "those two"}
