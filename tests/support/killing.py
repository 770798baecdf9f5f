"""Trainings that are killed and go on, and what must then be the same as in one that was left alone."""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event as Signal
from pathlib import Path
from typing import Any

import saccade
from saccade import config
from saccade.checkpoint import RunFolder, read_json
from saccade.recipe import Recipe, parse_recipe
from saccade.train.events import Event, Prepared, Saved
from tests.support.tiny import notes

# A server that has torch loaded forks each child, so that a hundred of them start in seconds.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["saccade.api", "torch._dynamo"])  # the optimiser imports the latter at its first step
DEATHS = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir")
"""Calls of the system that a save is made of."""


@dataclass(frozen=True)
class Death:
    """When a child kills itself."""

    at_change: int | None = None
    """Before its so-many-th change to the disk, in whichever thread."""
    at_saved: int | None = None
    """When it is told that this update, or a later one, is saved."""


def train_child(tree: dict[str, Any], out: str, device: str, death: Death, begun: Signal) -> None:
    """Begin or go on with a run, and be killed when the time has come."""
    import torch

    torch.set_num_threads(1)
    if death.at_change is not None:
        _die_at(death.at_change)

    def hear(event: Event) -> None:
        if isinstance(event, Prepared):
            begun.set()
        if isinstance(event, Saved) and death.at_saved is not None and event.update >= death.at_saved:
            os.kill(os.getpid(), signal.SIGKILL)

    resume = (Path(out) / "train.yaml").exists()
    saccade.train(parse_recipe(tree), out, resume=resume, device=device, on_event=hear)


def _die_at(call: int) -> None:
    left = call

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_die(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return call_or_die

    for name in DEATHS:
        setattr(os, name, dying(getattr(os, name)))


@dataclass(frozen=True)
class Kills:
    by_clock: int
    """Kills at a moment of the clock."""
    in_saves: int
    """Kills at a flush, a rename or a removal: while data, checkpoints or the model are written."""


def train_with_kills(
    recipe: Recipe, out: Path, *, draw: random.Random, kills: int, longest: float, device: str = "cpu"
) -> Kills:
    """Train to the end, killed with SIGKILL that often: half at random moments, half inside saves.

    It ends earlier where a child has nothing left to do before its moment has come.
    """
    by_clock = in_saves = 0
    for number in range(kills):
        in_save = number % 2 == 0
        child, begun = _start(recipe, out, device, Death(at_change=draw.randint(1, 90) if in_save else None))
        if in_save:
            child.join(120)
        else:
            if draw.random() < 0.75:  # else the clock runs from the beginning of the process
                _wait_for(begun, child)
            child.join(draw.uniform(0.02, longest))
        if child.is_alive():
            child.kill()
            child.join()
        if child.exitcode == 0:
            break
        _must_be_killed(child)
        in_saves, by_clock = in_saves + in_save, by_clock + (not in_save)
    _finish(recipe, out, device)
    return Kills(by_clock, in_saves)


def train_with_kills_at(recipe: Recipe, out: Path, *, updates: Sequence[int], device: str = "cpu") -> None:
    """Train to the end, killed with SIGKILL as soon as each of these updates is saved."""
    for update in updates:
        child, _ = _start(recipe, out, device, Death(at_saved=update))
        child.join()
        _must_be_killed(child)
    _finish(recipe, out, device)


def _wait_for(begun: Signal, child: BaseProcess) -> None:
    while child.is_alive() and not begun.wait(0.05):
        pass


def _must_be_killed(child: BaseProcess) -> None:
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the training failed with exit code {child.exitcode}")


def _finish(recipe: Recipe, out: Path, device: str) -> None:
    last, _ = _start(recipe, out, device, Death())
    last.join()
    if last.exitcode != 0:
        raise RuntimeError(f"the resumed training failed with exit code {last.exitcode}")


def _start(recipe: Recipe, out: Path, device: str, death: Death) -> tuple[BaseProcess, Signal]:
    begun = _context.Event()
    arguments = (config.plain(recipe), str(out), device, death, begun)
    child = _context.Process(target=train_child, args=arguments, daemon=True)
    child.start()
    return child, begun


def trace(run: Path) -> dict[str, Any]:
    """Everything of a run that may not depend on how often it was interrupted."""
    newest = RunFolder(run).steps()[-1]
    progress = read_json(newest / "state.json")["progress"]
    return {
        "updates": notes(run, "update"),
        "validations": notes(run, "validated", "averaged"),
        "progress": {name: value for name, value in progress.items() if name != "seconds"},
        "model": (run / "model.safetensors").read_bytes(),
        "newest": newest.name,
        "newest model": (newest / "model.safetensors").read_bytes(),
        "newest optimizer": (newest / "optimizer.safetensors").read_bytes(),
    }


def logged(run: Path) -> list[dict[str, Any]]:
    """The log's means, without what the clock says."""
    return [
        {name: value for name, value in note.items() if name not in ("seconds", "tokens_per_second")}
        for note in notes(run, "trained")
    ]


def leftovers(run: Path) -> list[str]:
    """Files and folders that only a killed save leaves."""
    return [str(path.relative_to(run)) for path in run.rglob(".*")]
