"""The training loop: a generator of events. It knows no file, no text and no decoding; validation is a function."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from saccade.data.batching import Cursor
from saccade.loss import cross_entropy
from saccade.train.events import LoopEvent, SaveDue, Stopped, StopReason, Updated, Validated
from saccade.train.optimizer import PlateauSchedule, rate_factor
from saccade.train.settings import Precision, TrainConfig
from saccade.types import Batch

Stream = Iterator[tuple[Cursor, Batch]]
Validate = Callable[[], dict[str, float]]


@dataclass
class Progress:
    """Everything about a training that is not in the model or the optimiser."""

    update: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    seconds: float = 0.0
    tokens: int = 0
    best_update: int = 0
    best: dict[str, float] = field(default_factory=dict)
    """All metrics of the best validation so far; empty before the first."""
    averaged: int = 0
    """Of how many checkpoints the best weights are the mean; 0: they are those of `best_update`."""
    averaged_at: int = -1
    """The update after which the mean of the last checkpoints was tried."""
    stale: int = 0
    """Validations since the last new best."""
    flat: int = 0
    """Validations since the last new best or cut of the rate."""
    cuts: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Progress":
        return Progress(**{**values, "cursor": Cursor(**values["cursor"])})


@dataclass(frozen=True)
class Trainer:
    """What one training works on."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    config: TrainConfig
    progress: Progress
    seed: int
    width: int
    """The model's width, for schedules that go by it."""
    device: torch.device

    def run(self, stream: Stream, validate: Validate, stop: Callable[[], bool]) -> Iterator[LoopEvent]:
        """Update until a reason to stop; `stop` is asked between updates."""
        progress, config = self.progress, self.config
        clock = _Clock(progress.seconds)
        while True:
            reason = self._reason_to_stop(stop)
            if reason is not None:
                yield Stopped(reason, progress.update)
                return
            with numerics(config.precision, self.device):
                updated = self._update(stream)
            progress.seconds = clock.seconds
            yield updated
            last = progress.update >= config.updates or self._out_of_time()
            if last or progress.update % config.validate_every == 0:
                yield self._validated(validate)
                progress.seconds = clock.seconds
            if last or progress.update % config.saves_every == 0:
                # The clock is not read again before the next update: the last update is always a validated one.
                yield SaveDue(progress.update)

    def _out_of_time(self) -> bool:
        return self.config.minutes is not None and self.progress.seconds >= 60 * self.config.minutes

    def _reason_to_stop(self, stop: Callable[[], bool]) -> StopReason | None:
        if self.progress.update >= self.config.updates:
            return "updates"
        if self._out_of_time():
            return "minutes"
        if self.config.patience is not None and self.progress.stale >= self.config.patience:
            return "patience"
        return "interrupted" if stop() else None

    def _update(self, stream: Stream) -> Updated:
        progress, config = self.progress, self.config
        steps = [next(stream) for _ in range(config.accumulate)]
        epoch = progress.cursor.epoch
        update = progress.update + 1
        rate = self._set_rate(update)
        tokens = sum(int(batch.target.layout.lengths_B.sum()) for _, batch in steps)
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        nll = torch.zeros((), device=self.device)
        for micro, (_, batch) in enumerate(steps):
            nll = nll + self._accumulate(batch, tokens, key=(self.seed, update, micro))
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip or float("inf"))
        self.optimizer.step()
        progress.update = update
        progress.cursor = steps[-1][0]
        progress.tokens += tokens
        return Updated(update, epoch, nll, tokens, norm, rate)

    def _accumulate(self, batch: Batch, tokens: int, key: tuple[int, ...]) -> Tensor:
        """Add one micro-batch's share of the gradient; the loss is divided by all tokens of the update."""
        seed_everything(*key)
        on_device = batch.to(self.device)
        with autocast(self.config.precision, self.device):
            logits_BTV = self.model(on_device)
        loss = cross_entropy(logits_BTV, on_device.target, self.config.smoothing)
        torch.autograd.backward(loss.total / tokens)
        return loss.nll.detach()

    def _set_rate(self, update: int) -> float:
        config = self.config
        factor = rate_factor(config.schedule, update, updates=config.updates, width=self.width, cuts=self.progress.cuts)
        rate = config.optimizer.rate * factor
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        return rate

    def _validated(self, validate: Validate) -> Validated:
        progress, config = self.progress, self.config
        values = validate()
        better = is_better(values, progress.best, config.metric)
        if better:
            progress.best_update, progress.best, progress.averaged = progress.update, values, 0
            progress.stale = progress.flat = 0
        else:
            progress.stale += 1
            progress.flat += 1
            if isinstance(config.schedule, PlateauSchedule) and progress.flat > config.schedule.patience:
                progress.cuts, progress.flat = progress.cuts + 1, 0
        return Validated(progress.update, values, better)


def is_better(values: dict[str, float], best: dict[str, float], metric: str) -> bool:
    """Higher is better, but for the loss, which also decides between equals; NaN is never better."""
    if math.isnan(values[metric]) or not best:
        return not math.isnan(values[metric])
    if values[metric] == best[metric]:
        return values["loss"] < best["loss"]
    return values[metric] < best[metric] if metric == "loss" else values[metric] > best[metric]


class _Clock:
    """Seconds of training, those before a resume included."""

    def __init__(self, before: float) -> None:
        self.began = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


def seed_everything(*key: int) -> None:
    """Key every generator by what is about to be computed, so that nothing depends on what was computed before."""
    digest = hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little") >> 1
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would note a stack trace for a GPU that is not there
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def numerics(precision: Precision, device: torch.device) -> Iterator[None]:
    """While entered, float32 products are as precise as asked for, and numbers next to zero are zero.

    These are settings of the whole process: they are put back, so that others in it compute as before.
    """
    products, tf32, flushes = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, _flushes()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.set_flush_denormal(True)  # sums of vanishing gradients would slow a CPU a hundredfold
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = tf32
        torch.set_flush_denormal(flushes)


def _flushes() -> bool:
    """Whether the processor takes the smallest numbers for zero; torch can set that, but not tell it."""
    return math.ulp(0.0) + 0.0 == 0.0


def fingerprint(model: nn.Module) -> str:
    """A checksum of every weight, bit for bit."""
    total = hashlib.sha256()
    for name, parameter in model.named_parameters():
        total.update(name.encode())
        total.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
