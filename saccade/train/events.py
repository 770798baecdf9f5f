"""What happens in a training, one thing at a time: everything that shows, logs or saves listens to these."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

StopReason = Literal["updates", "minutes", "patience", "interrupted", "not finite"]


@dataclass(frozen=True)
class Prepared:
    """The data are tokens and the model stands; training begins or goes on."""

    examples: int
    unit: str
    """What the examples are, as in `pairs`."""
    parameters: int
    vocabularies: dict[str, int]
    """How many tokens or labels there are, by what they are for; each vocabulary once."""
    updates: int
    done: int
    """Updates already made, where a run is resumed."""
    device: str
    remarks: tuple[str, ...] = ()
    """What was done to the data, in words."""


@dataclass(frozen=True)
class Updated:
    """One step of the optimiser. Numbers stay on the device until somebody reads them."""

    update: int
    epoch: int
    nll: Tensor
    tokens: int
    gradient_norm: Tensor
    rate: float
    not_finite: Tensor
    """Whether the update was skipped because its loss or gradient was not finite."""
    worked: int = 0
    """Tokens that speed is told in; `tokens` are those that the loss counts."""


@dataclass(frozen=True)
class Logged:
    """The means over the updates since the last such line."""

    update: int
    epoch: int
    loss: float
    gradient_norm: float
    rate: float
    tokens_per_second: float
    """Padding not counted: target tokens of pairs, tokens of texts, words of sentences."""
    seconds: float
    skipped: int = 0
    """How many of the updates were skipped; they are not part of the means, which are NaN where all were."""


@dataclass(frozen=True)
class Validated:
    update: int
    values: dict[str, float]
    best: bool
    averaged: int = 0
    """Of how many checkpoints this is the mean; 0: the model as it stands."""


@dataclass(frozen=True)
class Shrunk:
    """Memory ran out: from here on batches are worked off in pieces of at most so many rows × longest side."""

    update: int
    fits: int


@dataclass(frozen=True)
class SaveDue:
    """The loop stands between two updates; now is the time to save."""

    update: int


@dataclass(frozen=True)
class Saved:
    update: int
    path: Path


@dataclass(frozen=True)
class Profiled:
    """Where the time of the updates went."""

    updates: int
    tokens: int
    """Padding not counted: target tokens of pairs, tokens of texts, words of sentences."""
    seconds: float
    parts: dict[str, float]
    """Seconds by part: data, forward, backward, optimizer, waiting."""
    flops_per_token: float
    """Floating-point operations of the model's matrix products, forward and backward, for one target token."""
    peak: float
    """Operations a second of a large product, measured here."""

    @property
    def utilisation(self) -> float:
        return self.flops_per_token * self.tokens / self.seconds / self.peak


@dataclass(frozen=True)
class Stopped:
    reason: StopReason
    update: int


@dataclass(frozen=True)
class Finished:
    reason: StopReason
    update: int
    best_update: int
    best: dict[str, float]
    seconds: float
    tokens: int
    path: Path
    averaged: int = 0
    remarks: tuple[str, ...] = field(default=())


Event = Prepared | Logged | Validated | Saved | Shrunk | Profiled | Finished
"""What a run tells."""
LoopEvent = Updated | Shrunk | Validated | SaveDue | Stopped
"""What the loop tells."""
