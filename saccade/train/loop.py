"""The training loop: a generator of events. It knows no file, no text and no decoding; validation is a function."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from saccade.data.batching import Cursor
from saccade.models.trainable import Trainable
from saccade.train.ema import MovingAverage
from saccade.train.events import LoopEvent, SaveDue, Shrunk, Stopped, StopReason, Updated, Validated
from saccade.train.gradient import Gradient
from saccade.train.numerics import numerics
from saccade.train.optimizer import set_rates, step_if_finite
from saccade.train.profile import Profile
from saccade.train.schedule import PlateauSchedule, rate_factor
from saccade.train.settings import LOWER_IS_BETTER, TrainConfig
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
    skipped: int = 0
    """Updates that were skipped because their gradient was not finite."""
    skipped_in_a_row: int = 0
    """How many of them were the last ones."""
    fits: int | None = None
    """Rows × longest side that a piece of a batch may have, where memory has once run out."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Skips:
    """Counts updates that were skipped, on the device: nobody waits for the count until it is read."""

    def __init__(self, progress: Progress, device: torch.device) -> None:
        self.all = torch.tensor(progress.skipped, device=device)
        self.in_a_row = torch.tensor(progress.skipped_in_a_row, device=device)

    def count(self, not_finite: Tensor) -> None:
        self.all += not_finite
        self.in_a_row = (self.in_a_row + 1) * not_finite


class Trainer:
    """What one training works on."""

    def __init__(
        self,
        model: Trainable,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        progress: Progress,
        *,
        seed: int,
        width: int,
        device: torch.device,
        average: MovingAverage | None = None,
        profile: Profile | None = None,
        worked: Callable[[Batch], int] = lambda batch: batch.tokens,
    ) -> None:
        """`width` is the model's, for schedules that go by it; `worked` counts the tokens that speed is told in."""
        self.model, self.optimizer, self.config, self.progress = model, optimizer, config, progress
        self.width, self.device, self.average, self.profile, self.worked = width, device, average, profile, worked
        self.gradient = Gradient(
            model, device, config.precision, config.smoothing, seed, progress.fits, profile, config.graphs
        )
        self.skips = Skips(progress, device)
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def run(self, stream: Stream, validate: Validate, stop: Callable[[], bool]) -> Iterator[LoopEvent]:
        """Update until a reason to stop; `stop` is asked between updates."""
        progress, config = self.progress, self.config
        clock = _Clock(progress.seconds)
        while True:
            reason = self._reason_to_stop(stop)
            if reason is not None:
                self._read_skips()  # what was skipped since the last line of the log is saved with the rest
                yield Stopped(reason, progress.update)
                return
            updated = self._profiled_update(stream)
            yield from self._shrunk()
            progress.seconds = clock.seconds
            last = progress.update >= config.updates or self._out_of_time()
            validates = last or progress.update % config.validate_every == 0
            saves = last or progress.update % config.saves_every == 0
            if validates or saves or progress.update % config.log_every == 0:
                self._read_skips()
            yield updated
            if validates:
                yield self._validated(validate)
                progress.seconds = clock.seconds
            if saves:
                # The clock is not read again before the next update: the last update is always a validated one.
                yield SaveDue(progress.update)

    def _profiled_update(self, stream: Stream) -> Updated:
        numbers = numerics(self.config.precision, self.device, deterministic=self.config.deterministic)
        if self.profile is None:
            with numbers:
                return self._update(stream)
        with numbers, self.profile.update():
            updated = self._update(stream)
        self.profile.tokens += updated.worked
        return updated

    def _shrunk(self) -> Iterator[Shrunk]:
        if self.gradient.fits != self.progress.fits:
            self.progress.fits = self.gradient.fits
            yield Shrunk(self.progress.update, self.gradient.fits or 0)

    def _read_skips(self) -> None:
        self.progress.skipped = int(self.skips.all)
        self.progress.skipped_in_a_row = int(self.skips.in_a_row)

    def _out_of_time(self) -> bool:
        return self.config.minutes is not None and self.progress.seconds >= 60 * self.config.minutes

    def _reason_to_stop(self, stop: Callable[[], bool]) -> StopReason | None:
        if self.progress.update >= self.config.updates:
            return "updates"
        if self._out_of_time():
            return "minutes"
        if self.progress.skipped_in_a_row >= self.config.skip_limit:
            return "not finite"
        if self.config.patience is not None and self.progress.stale >= self.config.patience:
            return "patience"
        return "interrupted" if stop() else None

    def _update(self, stream: Stream) -> Updated:
        progress, config = self.progress, self.config
        with self._part("data"):
            steps = [next(stream) for _ in range(config.accumulate)]
        epoch, update = progress.cursor.epoch, progress.update + 1
        factor = rate_factor(config.schedule, update, updates=config.updates, width=self.width, cuts=progress.cuts)
        factor *= sum(batch.rate for _, batch in steps) / len(steps)
        set_rates(self.optimizer, factor)
        tokens = sum(batch.tokens for _, batch in steps)
        worked = sum(self.worked(batch) for _, batch in steps)
        if not self.model.training:  # asked first: to tell every module takes as long as a small model's graph
            self.model.train()
        self.gradient.clear()
        nll = self.gradient.accumulate([batch for _, batch in steps], update)
        with self._part("optimizer"):
            norm = nn.utils.clip_grad_norm_(self.trained, config.clip or float("inf"))
            not_finite = self._step(update, norm + 0.0 * nll)
        progress.update = update
        progress.cursor = steps[-1][0]
        progress.tokens += worked
        return Updated(update, epoch, nll, tokens, norm, config.optimizer.rate * factor, not_finite, worked)

    def _step(self, update: int, sign: Tensor) -> Tensor:
        """Move the weights, unless something was not finite; whether it was, told on the device."""
        not_finite = ~sign.isfinite()
        step_if_finite(self.optimizer, not_finite)
        self.skips.count(not_finite)
        if self.average is not None:
            self.average.update(self.model, update, not_finite)
        return not_finite

    def _part(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.profile is None else self.profile.part(name)

    def _values(self, validate: Validate) -> dict[str, float]:
        """What graphs hold of memory nothing else can use: they go where it is needed."""
        try:
            return validate()
        except torch.OutOfMemoryError:
            if not self.gradient.give_way():
                raise
        return validate()

    def _validated(self, validate: Validate) -> Validated:
        progress, config = self.progress, self.config
        values = self._values(validate)
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
    """By the metric, and between equals by the loss; NaN is never better."""
    if math.isnan(values[metric]) or not best:
        return not math.isnan(values[metric])
    if values[metric] == best[metric]:
        return values["loss"] < best["loss"]
    return values[metric] < best[metric] if metric in LOWER_IS_BETTER else values[metric] > best[metric]


class _Clock:
    """Seconds of training, those before a resume included."""

    def __init__(self, before: float) -> None:
        self.began = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began
