"""Where the time of a training goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from saccade.models.flops import training_flops
from saccade.models.trainable import Trainable
from saccade.train.events import Profiled
from saccade.train.numerics import autocast
from saccade.train.settings import Precision
from saccade.types import Batch

PARTS = ("data", "forward", "backward", "optimizer", "waiting")
"""Reading batches; the model and its loss; its gradients; the step; the rest: on a GPU, work not yet done or given."""


@dataclass
class Profile:
    """Seconds by part, as the device spent them: a GPU's are taken between events on its stream."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    updates: int = 0
    tokens: int = 0
    total: float = 0.0
    """Wall clock of all updates, reading included."""
    _events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        if self.device.type == "cuda" and name != "data":
            begin, end = _event(), _event()
            begin.record()
            yield
            end.record()
            self._events.append((name, begin, end))
            return
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began

    @contextmanager
    def update(self) -> Iterator[None]:
        """One whole update; on a GPU it is waited for, so that the parts add up."""
        began = time.perf_counter()
        yield
        if self._events:
            torch.cuda.synchronize(self.device)
            for name, begin, end in self._events:
                self.seconds[name] += begin.elapsed_time(end) / 1000
            self._events.clear()
        self.total += time.perf_counter() - began
        self.updates += 1

    def shares(self) -> dict[str, float]:
        """Seconds of every part; what no other part accounts for is waiting."""
        known = {name: seconds for name, seconds in self.seconds.items() if name != "waiting"}
        return known | {"waiting": max(0.0, self.total - sum(known.values()))}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def profiled(profile: Profile, model: Trainable, example: Batch, tokens: int, precision: Precision) -> Profiled:
    """The sums, and how much of the device's rate for large products the model's own products made use of.

    `tokens`: those of the example, as speed is told in.
    """
    flops = training_flops(model, example.to(profile.device)) / tokens
    with autocast(precision, profile.device):
        peak = matrix_rate(profile.device, torch.bfloat16 if precision == "bf16" else torch.float32)
    return Profiled(profile.updates, profile.tokens, profile.total, profile.shares(), flops, peak)


def matrix_rate(device: torch.device, dtype: torch.dtype, size: int = 2048, seconds: float = 0.3) -> float:
    """FLOP/s of a large square product here and now: what utilisation is measured against."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best, spent, repeats = 0.0, 0.0, 20 if device.type == "cuda" else 1
    while spent < seconds or best == 0.0:
        began = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took = time.perf_counter() - began
        spent, best = spent + took, max(best, 2 * size**3 * repeats / took)
    return best
