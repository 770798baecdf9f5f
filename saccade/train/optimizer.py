"""How weights move along their gradients, and how large the steps are over time."""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config import Section

Rate = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class AdamConfig(Section):
    kind: Literal["adamw", "adam"] = "adamw"
    """Adam with weight decay apart from the gradient (Loshchilov & Hutter 2019), or inside it (Kingma & Ba 2015)."""
    rate: Rate = 1e-3
    """Learning rate, before the schedule."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay of the running mean and of the running square of the gradient."""
    epsilon: Annotated[float, Field(gt=0.0)] = 1e-9
    """Added to the root of the running square."""
    decay: Decay = 0.0
    """Weight decay, on matrices alone: never on biases and norms."""


class SgdConfig(Section):
    kind: Literal["sgd"] = "sgd"
    """Plain stochastic gradient descent."""
    rate: Rate = 1.0
    """Learning rate, before the schedule."""
    momentum: Beta = 0.0
    """Share of the last step that is kept."""
    decay: Decay = 0.0
    """Weight decay, on matrices alone: never on biases and norms."""


OptimizerConfig = Annotated[AdamConfig | SgdConfig, Field(discriminator="kind")]


def make_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    match config:
        case AdamConfig(kind="adamw"):
            return torch.optim.AdamW(groups, config.rate, betas=config.betas, eps=config.epsilon, fused=True)
        case AdamConfig():
            return torch.optim.Adam(groups, config.rate, betas=config.betas, eps=config.epsilon, fused=True)
        case SgdConfig():
            return torch.optim.SGD(groups, config.rate, momentum=config.momentum, fused=True)


def named_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's memory as `parameter/entry: tensor`, for a file that holds tensors alone."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{entry}": value
        for parameter, entries in optimizer.state.items()
        for entry, value in entries.items()
        if isinstance(value, Tensor)
    }


def restore_state(optimizer: torch.optim.Optimizer, model: nn.Module, saved: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for key, value in saved.items():
        name, _, entry = key.rpartition("/")
        parameter = parameters[name]
        # Adam's step counter lives on the parameter's device when it is fused.
        optimizer.state[parameter][entry] = value.to(parameter.device)


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


ScheduleConfig = Annotated[
    ConstantSchedule | InverseSqrtSchedule | NoamSchedule | CosineSchedule | PlateauSchedule,
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
        case CosineSchedule():
            if update <= config.warmup:
                return _grown(update, config.warmup)
            done = min(1.0, (update - config.warmup) / max(1, updates - config.warmup))
            return config.floor + (1 - config.floor) * 0.5 * (1 + math.cos(math.pi * done))


def _grown(update: int, warmup: int) -> float:
    return min(1.0, update / warmup) if warmup else 1.0
