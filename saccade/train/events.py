"""What happens in a training, one thing at a time: everything that shows, logs or saves listens to these."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

StopReason = Literal["updates", "minutes", "patience", "interrupted"]


@dataclass(frozen=True)
class Prepared:
    """The data are tokens and the model stands; training begins or goes on."""

    pairs: int
    parameters: int
    vocabularies: tuple[int, int]
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


@dataclass(frozen=True)
class Logged:
    """The means over the updates since the last such line."""

    update: int
    epoch: int
    loss: float
    gradient_norm: float
    rate: float
    tokens_per_second: float
    """Target tokens, padding not counted."""
    seconds: float


@dataclass(frozen=True)
class Validated:
    update: int
    values: dict[str, float]
    best: bool
    averaged: int = 0
    """Of how many checkpoints this is the mean; 0: the model as it stands."""


@dataclass(frozen=True)
class SaveDue:
    """The loop stands between two updates; now is the time to save."""

    update: int


@dataclass(frozen=True)
class Saved:
    update: int
    path: Path


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


Event = Prepared | Logged | Validated | Saved | Finished
"""What a run tells."""
LoopEvent = Updated | Validated | SaveDue | Stopped
"""What the loop tells."""
