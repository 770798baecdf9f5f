"""What a run folder tells of its run: the model in words, how long it trained and on how much."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import config
from saccade.run_paths import ENVIRONMENT, RECIPE, located, update_of

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Training:
    """How a run came about; None where its folder does not tell."""

    model: str
    """What reads and what writes, as `gru → gru + general`."""
    seed: int | None
    updates: int | None
    seconds: float | None
    """Of training and of what was validated on the way."""
    tokens: int | None
    """Those that the loss counted, END included."""
    machine: str | None
    recipe: dict[str, Any]
    step: int | None = None
    """The update of its checkpoint, where that is what was given, and not the run."""


def training_of(path: Path) -> Training:
    """Of a run, or until one of its checkpoints."""
    at = located(path)
    run, step = at.run, at.step
    recipe = config.read(run / RECIPE)
    notes = [note for note in _notes(run / METRICS) if note.get("kind") == "trained"]
    notes = [note for note in notes if step is None or note.get("update", 0) <= step]
    progress = _progress(run) if step is None else _progress_at(at.weights)
    made_on = _object(run / ENVIRONMENT)
    return Training(
        model=parts_of(recipe.get("model") or {}),
        seed=recipe.get("seed"),
        updates=step or max((note.get("update", 0) for note in notes), default=progress.get("update")),
        seconds=progress.get("seconds", max((note.get("seconds", 0.0) for note in notes), default=None)),
        tokens=progress.get("tokens"),
        machine=made_on.get("gpu") or made_on.get("processor"),
        recipe=recipe,
        step=step,
    )


def parts_of(model: dict[str, Any]) -> str:
    """`gru → gru + general`: what reads, then what writes; once where both are the same.

    `words gru + attention → sentences gru + attention` where sequences are read within sequences; `lstm + max` of a
    classifier's pooling.
    """
    kinds = []
    for level in (name for name in ("words", "sentences") if isinstance(model.get(name), dict)):
        kinds.append(f"{level} {model[level]['encoder']['kind']} + {model[level]['pooling']}")
    for side in (model[name] for name in ("encoder", "decoder") if isinstance(model.get(name), dict)):
        attention = side.get("attention")
        kinds.append(f"{side['kind']} + {attention['score']}" if attention else str(side["kind"]))
    whole = " → ".join(dict.fromkeys(kinds))
    return f"{whole} + {model['pooling']}" if "pooling" in model else whole


def _notes(log: Path) -> Iterator[dict[str, Any]]:
    """The lines of the log; what is no whole line of it is passed over."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    note = json.loads(line)
                except ValueError:
                    continue
                if isinstance(note, dict):
                    yield note
    except OSError:
        return


def _progress(run: Path) -> dict[str, Any]:
    """What the last checkpoint knows of how far training has come."""
    steps = {update: path for path in run.glob("checkpoints/step-*") if (update := update_of(path)) is not None}
    return _progress_at(steps[max(steps)]) if steps else {}


def _progress_at(step: Path) -> dict[str, Any]:
    found = _object(step / "state.json").get("progress")
    return found if isinstance(found, dict) else {}


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# ---- recipes side by side


def only_seed_differs(one: Training, other: Training) -> bool:
    """Runs, or checkpoints of as many updates."""
    return one.step == other.step and set(config.difference(one.recipe, other.recipe)) == {"seed"}


def differences(recipes: Sequence[dict[str, Any] | None]) -> dict[str, tuple[Any, ...]]:
    """The settings that are not the same in all of the recipes, each with a value for every system.

    A system without a recipe has None everywhere, and makes no difference.
    """
    flat = [None if recipe is None else config.flatten(recipe) for recipe in recipes]
    known = [each for each in flat if each is not None]
    names = list(dict.fromkeys(name for each in known for name in each))
    return {
        name: tuple(None if each is None else each.get(name) for each in flat)
        for name in names
        if any(each.get(name) != known[0].get(name) for each in known)
    }
