"""The `saccade` command as a test calls it, and run folders made in a second."""

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

import saccade
from saccade import config
from saccade.checkpoint import RunFolder, model_tensors
from saccade.cli.main import app
from saccade.recipe import Recipe, parse_recipe
from saccade.types import SPECIALS

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("ab", "cd e", "fa bc", "dead", "beef", "c", "a b c d", "face", "bead fed", "cafe")
RECIPE = """
data:
  kind: files
  train: {source: train.src, target: train.tgt}
  valid: {source: valid.src, target: valid.tgt}
  test: {source: test.src, target: test.tgt}
  on_bad: repair
text: {kind: char}
model:
  encoder: {kind: gru, width: 16}
  decoder: {kind: gru, width: 16, attention: {score: general}}
train:
  updates: 6
  batch_tokens: 128
  validate_every: 3
  log_every: 2
  optimizer: {kind: adamw, rate: 1e-2}
  schedule: {kind: constant}
decode: {beam: 3, max_length: 12}
"""


class _Runner(CliRunner):
    """Typer's own makes all commands anew for each call, which takes longer than most of them."""

    def invoke(self, app: Any, *arguments: Any, **settings: Any) -> Result:
        with mock.patch.object(typer.testing, "_get_command", _command):
            return super().invoke(app, *arguments, **settings)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_command = cache(typer.main.get_command)


def saccade_command(*arguments: str | Path, stdin: bytes | str = b"") -> Result:
    """The command in this process: its output, its status. One that was stopped leaves signals to its process's end."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    try:
        return _Runner().invoke(app, [str(each) for each in arguments], input=stdin, prog_name="saccade")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def saccade_process(
    *arguments: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """The command as a process of its own, all streams piped."""
    return subprocess.Popen(
        [sys.executable, "-m", "saccade.cli", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **(env or {})},
    )


def write_corpus(folder: Path) -> Path:
    """A few pairs in files, and a recipe beside them that trains on them in a second."""
    lines = [f"{word} {other}" for word in WORDS for other in WORDS]
    for split, some in (("train", lines), ("valid", lines[::9]), ("test", [*lines[::7], ""])):
        (folder / f"{split}.src").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
        (folder / f"{split}.tgt").write_text("".join(f"{line[::-1]}\n" for line in some), encoding="utf-8")
    recipe = folder / "train.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    return recipe


def parsed(text: str) -> Recipe:
    return parse_recipe(config.parse_yaml(text, "test"), "test")


def shake(run: Path, *, by: float, seed: int = 0, likes: bytes = b"") -> None:
    """Put noise on all weights, and a bias towards some bytes: a model that writes anything, broken UTF-8 included."""
    model = saccade.load(run, "cpu").loaded.model
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
        for byte in likes:
            model.get_parameter("decoder.output.bias")[len(SPECIALS) + byte] += 8.0
    RunFolder(run).publish(model_tensors(model))
