"""How large the steps of the optimiser are over time: the learning rate at each update."""

import math
from typing import Annotated, Literal

from pydantic import Field

from saccade.config import Section

Warmup = Annotated[int, Field(ge=0)]


class ConstantSchedule(Section):
    kind: Literal["constant"] = "constant"
    """The same rate throughout."""
    warmup: Warmup = 0
    """Updates over which the rate grows from zero."""


class InverseSqrtSchedule(Section):
    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    """Grows to `rate` over the warm-up, then falls as 1/√update."""
    warmup: Annotated[int, Field(ge=1)] = 1000
    """Updates over which the rate grows from zero."""


class NoamSchedule(Section):
    kind: Literal["noam"] = "noam"
    """rate · width^−½ · min(update^−½, update · warmup^−1½), as printed in Vaswani et al. (2017)."""
    warmup: Annotated[int, Field(ge=1)] = 4000
    """Update at which the rate is highest."""


class LinearSchedule(Section):
    kind: Literal["linear"] = "linear"
    """Grows to `rate` over the warm-up, then falls along a line until the last of `train.updates`, as BERT's."""
    warmup: Warmup = 0
    """Updates over which the rate grows from zero."""
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of `rate` that is left at the end."""


class CosineSchedule(Section):
    kind: Literal["cosine"] = "cosine"
    """Grows to `rate` over the warm-up, then falls along half a cosine until the last of `train.updates`."""
    warmup: Warmup = 0
    """Updates over which the rate grows from zero."""
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Share of `rate` that is left at the end."""


class PlateauSchedule(Section):
    kind: Literal["plateau"] = "plateau"
    """Cut the rate whenever validation has stopped to improve."""
    warmup: Warmup = 0
    """Updates over which the rate grows from zero."""
    factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """What the rate is multiplied with."""
    patience: Annotated[int, Field(ge=0)] = 2
    """Validations without improvement that are borne before a cut."""


class StepSchedule(Section):
    kind: Literal["step"] = "step"
    """The same rate for some time, then cut at even distances (Sutskever et al. 2014, Luong et al. 2015)."""
    warmup: Warmup = 0
    """Updates over which the rate grows from zero."""
    after: Annotated[int, Field(ge=0)] = 10_000
    """The first cut comes after this update."""
    every: Annotated[int, Field(ge=1)] = 1000
    """Updates from one cut to the next."""
    factor: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    """What the rate is multiplied with."""


ScheduleConfig = Annotated[
    ConstantSchedule
    | InverseSqrtSchedule
    | NoamSchedule
    | LinearSchedule
    | CosineSchedule
    | PlateauSchedule
    | StepSchedule,
    Field(discriminator="kind"),
]


def rate_factor(config: ScheduleConfig, update: int, *, updates: int, width: int, cuts: int) -> float:
    """What the learning rate is multiplied with at `update`, counted from 1. `cuts`: how often a plateau was met."""
    match config:
        case NoamSchedule():
            return float(width**-0.5 * min(update**-0.5, update * config.warmup**-1.5))
        case InverseSqrtSchedule():
            return min(update / config.warmup, math.sqrt(config.warmup / update))
        case ConstantSchedule():
            return _grown(update, config.warmup)
        case PlateauSchedule():
            return _grown(update, config.warmup) * config.factor**cuts
        case StepSchedule():
            made = 0 if update <= config.after else 1 + (update - config.after - 1) // config.every
            return _grown(update, config.warmup) * config.factor**made
        case LinearSchedule() | CosineSchedule():
            if update <= config.warmup:
                return _grown(update, config.warmup)
            done = min(1.0, (update - config.warmup) / max(1, updates - config.warmup))
            left = 1 - done if isinstance(config, LinearSchedule) else 0.5 * (1 + math.cos(math.pi * done))
            return config.floor + (1 - config.floor) * left


def _grown(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0
