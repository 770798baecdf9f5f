"""`doctor`: does everything work here? Versions, extras, and a tiny model trained, saved, loaded and used."""

import random
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from saccade.cli.options import Device
from saccade.cli.streams import say

if TYPE_CHECKING:
    from saccade.recipe import Recipe

EXTRAS = {"demo": ("babel", "the dates recipe"), "plots": ("matplotlib", "pictures as .png")}
PAIRS = {"train": 800, "valid": 50}
_RECIPE = """
data: {kind: files, train: {source: train.src, target: train.tgt}, valid: {source: valid.src, target: valid.tgt}}
text: {kind: char}
model:
  encoder: {kind: gru, width: 32}
  decoder: {kind: gru, width: 32, attention: {score: general}}
train:
  {updates: 60, batch_tokens: 1024, validate_every: 60, optimizer: {kind: adamw, rate: 1e-2},
   schedule: {kind: constant}}
decode: {beam: 2}
"""


def doctor(device: Device = "auto") -> None:
    """Check this installation.

    A self-test of about 20 seconds; status 1: something is broken.
    """
    checks: list[tuple[str, Callable[[], str]]] = [("versions", _versions), ("device", lambda: _device(device))]
    with tempfile.TemporaryDirectory(prefix="saccade-") as folder:
        trial = _Trial(Path(folder), device)
        checks += [
            ("train", trial.train),
            ("load and translate", trial.translate),
            ("score", trial.score),
            ("explain", trial.explain),
        ]
        failed = next((name for name, check in checks if not _passes(name, check)), None)
    for extra, (package, feature) in EXTRAS.items():
        if find_spec(package):
            say(f"ok      extra {extra}: {package} for {feature}")
        else:
            say(f"absent  extra {extra}: {package} for {feature}; pip install 'saccade[{extra}]'")
    if failed is not None:
        say(f"failed  at {failed}; what comes after it was not tried")
        raise typer.Exit(1)
    say("ok      everything")


def _passes(name: str, check: Callable[[], str]) -> bool:
    begin = time.monotonic()
    try:
        told = check()
    except Exception as error:
        say(f"failed  {name}: {type(error).__name__}: {error}")
        return False
    say(f"ok      {name}: {told} ({time.monotonic() - begin:.1f} s)")
    return True


def _versions() -> str:
    from saccade.train.environment import environment

    facts = environment()
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in facts["packages"].items())
    return f"saccade {facts['saccade']}, Python {facts['python']}, {packages}"


def _device(name: str) -> str:
    import torch

    from saccade.device import pick_device

    device = pick_device(name)
    ones = torch.ones(64, 64, device=device)
    assert float((ones @ ones).sum()) == 64**3
    if device.type != "cuda":
        return device.type
    from saccade.nn.triton_residual import works

    kernels = "run" if works() else "do not run: training is slower (is there a C compiler?)"
    return f"{torch.cuda.get_device_name(device)}, its kernels {kernels}"


class _Trial:
    """Words written backwards: learnt a little in a few seconds, and nothing needs to be downloaded."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self.run = folder / "run"

    def train(self) -> str:
        from saccade.api import train

        draw = random.Random(1)
        for split, pairs in PAIRS.items():
            words = ["".join(draw.choices("abcdef", k=draw.randint(2, 6))) for _ in range(pairs)]
            (self.folder / f"{split}.src").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
            (self.folder / f"{split}.tgt").write_text("".join(f"{word[::-1]}\n" for word in words), encoding="utf-8")
        done = train(self._recipe(), self.run, base=self.folder, device=self.device)
        loss = done.best["loss"]
        assert loss < 3.0, f"the loss is {loss:.3f} and should have fallen below 3"
        return f"{done.finished.update} updates, valid loss {loss:.3f}"

    def _recipe(self) -> "Recipe":
        from saccade import config
        from saccade.recipe import parse_recipe

        return parse_recipe(config.parse_yaml(_RECIPE, "doctor"), "doctor")

    def translate(self) -> str:
        from saccade.api import load

        done = load(self.run, self.device).translate(["abc", "", "fade"])
        assert len(done) == 3
        assert done[1].text == ""
        return f"abc → {done[0].text}"

    def score(self) -> str:
        from saccade.api import load

        (found,) = load(self.run, self.device).score(["abc"], ["cba"])
        assert found.log_probability < 0
        return f"log-probability of cba {found.log_probability:.2f}"

    def explain(self) -> str:
        from saccade.api import load

        weights = load(self.run, self.device).explain("abc").attention["cross"]
        assert abs(float(weights.sum(-1).mean()) - 1) < 1e-4
        return f"attention {' × '.join(map(str, weights.shape))}"
