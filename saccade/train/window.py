"""What is logged: the means over a few updates."""

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade.train.events import Logged, Updated


@dataclass
class Window:
    """The updates since the last line of the log. All sums stay on the device until the window is closed."""

    last: Updated | None = None
    sums: Tensor | None = None
    """Of the updates that were not skipped: negative log-likelihood, tokens, gradient norm, their number."""
    updates: int = 0
    tokens: int = 0
    """Those that speed is told in."""
    began: float = field(default_factory=time.monotonic)

    def add(self, event: Updated) -> None:
        nll, norm = event.nll.double(), event.gradient_norm.double()
        one = torch.ones_like(nll)
        counted = torch.where(event.not_finite, 0.0, torch.stack([nll, one * event.tokens, norm, one]))
        self.sums = counted if self.sums is None else self.sums + counted
        self.updates += 1
        self.tokens += event.worked
        self.last = event

    def restart(self) -> None:
        """Time spent on validation and saving is not training's."""
        self.began = time.monotonic()

    def close(self, seconds: float) -> Logged | None:
        if self.last is None or self.sums is None:
            return None
        nll, tokens, norms, finite = self.sums.tolist()
        speed = self.tokens / max(time.monotonic() - self.began, 1e-9)
        logged = Logged(
            self.last.update,
            self.last.epoch,
            loss=nll / tokens if finite else float("nan"),
            gradient_norm=norms / finite if finite else float("nan"),
            rate=self.last.rate,
            tokens_per_second=speed,
            seconds=seconds,
            skipped=self.updates - round(finite),
        )
        self.last = self.sums = None
        self.updates = self.tokens = 0
        self.restart()
        return logged
