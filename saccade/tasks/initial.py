"""`init_from` in a recipe: what it leaves open of text and encoder is as in the run that it names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade import config
from saccade.checkpoint import RECIPE, RunFolder
from saccade.config import Tree
from saccade.data.files import locate
from saccade.errors import SaccadeError, UsageError

KEY = "init_from"


def with_initial(tree: Mapping[str, Any], base: Path) -> Tree:
    """The recipe with the run's text and encoder under it.

    Where it has a text and a whole encoder of its own, as every resolved recipe, the run is not asked for.
    """
    name = tree.get(KEY)
    own = tree.get("model")
    model = dict(own) if isinstance(own, Mapping) else {}
    encoder = model.get("encoder")
    whole = isinstance(encoder, Mapping) and "kind" in encoder
    if not isinstance(name, str) or (own is not None and not isinstance(own, Mapping)):
        return dict(tree)
    if encoder is not None and not isinstance(encoder, Mapping):
        return dict(tree)
    if tree.get("text") is not None and whole:
        return dict(tree)
    text, theirs = _of_run(name, base)
    model["encoder"] = config.merged(theirs, encoder or {})
    return {**tree, "text": text if tree.get("text") is None else tree["text"], "model": model}


def _of_run(name: str, base: Path) -> tuple[Tree, Tree]:
    """Text and encoder of the run's recipe."""
    path = locate(name, base).path
    try:
        RunFolder.open(path).verify_recipe()
        saved = config.read(path / RECIPE)
        text, encoder = saved["text"], saved["model"]["encoder"]
    except SaccadeError as error:
        raise type(error)(f"init_from: {error}") from None
    except (KeyError, TypeError):
        raise UsageError(f"init_from: {name} is a run without an encoder that could be taken from it.") from None
    return dict(text), dict(encoder)
