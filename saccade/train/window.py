"""What is logged: the means over a few updates."""

import time
from dataclasses import dataclass, field

from torch import Tensor

from saccade.train.events import Logged, Updated


@dataclass
class Window:
    """The updates since the last line of the log."""

    last: Updated | None = None
    nll: Tensor | None = None
    norm: Tensor | None = None
    updates: int = 0
    tokens: int = 0
    began: float = field(default_factory=time.monotonic)

    def add(self, event: Updated) -> None:
        self.nll = event.nll if self.nll is None else self.nll + event.nll
        self.norm = event.gradient_norm if self.norm is None else self.norm + event.gradient_norm
        self.updates += 1
        self.tokens += event.tokens
        self.last = event

    def restart(self) -> None:
        """Time spent on validation and saving is not training's."""
        self.began = time.monotonic()

    def close(self, seconds: float) -> Logged | None:
        if self.last is None or self.nll is None or self.norm is None:
            return None
        loss, norm = self.nll.item() / self.tokens, self.norm.item() / self.updates
        speed = self.tokens / max(time.monotonic() - self.began, 1e-9)
        logged = Logged(self.last.update, self.last.epoch, loss, norm, self.last.rate, speed, seconds)
        self.last = self.nll = self.norm = None
        self.updates = self.tokens = 0
        self.restart()
        return logged
