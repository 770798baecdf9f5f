"""Trainings that are killed and go on, and what must then be the same as in one that was left alone."""

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import saccade
from saccade import config
from saccade.checkpoint import RunFolder, read_json
from saccade.recipe import Recipe
from tests.support.tiny import notes

# A server that has torch loaded forks each child, so that a hundred of them start in seconds.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["saccade.api", "torch._dynamo"])  # the optimiser imports the latter at its first step


def train_child(tree: dict[str, Any], out: str, die_at: int | None) -> None:
    """Begin or go on with a run; where `die_at` is given, be killed at that flush or rename of a file."""
    import torch

    torch.set_num_threads(1)
    if die_at is not None:
        _die_at(die_at)
    resume = (Path(out) / "train.yaml").exists()
    saccade.train(config.parse(Recipe, tree), out, resume=resume, device="cpu")


def _die_at(call: int) -> None:
    left = call

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_die(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args)

        return call_or_die

    os.fsync, os.rename, os.replace = dying(os.fsync), dying(os.rename), dying(os.replace)


@dataclass(frozen=True)
class Kills:
    by_clock: int
    """Kills at a moment of the clock."""
    in_saves: int
    """Kills at a flush or a rename: while data, checkpoints or the model are written."""


def train_with_kills(recipe: Recipe, out: Path, *, draw: random.Random, kills: int, longest: float) -> Kills:
    """Train to the end, killed with SIGKILL that often: half at random moments, half inside saves.

    It ends earlier where a child has nothing left to do before its moment has come.
    """
    tree = config.plain(recipe)
    by_clock = in_saves = 0
    for number in range(kills):
        in_save = number % 2 == 0
        child = _start(tree, out, die_at=draw.randint(1, 45) if in_save else None)
        child.join(60 if in_save else draw.uniform(0.02, longest))
        if child.is_alive():
            child.kill()
            child.join()
        if child.exitcode == 0:
            break
        if child.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"the training failed with exit code {child.exitcode}")
        in_saves, by_clock = in_saves + in_save, by_clock + (not in_save)
    last = _start(tree, out, die_at=None)
    last.join()
    if last.exitcode != 0:
        raise RuntimeError(f"the resumed training failed with exit code {last.exitcode}")
    return Kills(by_clock, in_saves)


def _start(tree: dict[str, Any], out: Path, die_at: int | None) -> BaseProcess:
    child = _context.Process(target=train_child, args=(tree, str(out), die_at), daemon=True)
    child.start()
    return child


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
