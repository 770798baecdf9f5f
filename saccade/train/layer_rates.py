"""Layer-wise learning rates: the nearer a part of a trained encoder is to its input, the less it is changed.

What stands on the encoder learns at the full rate, the encoder's top layer at `decay` times that, each one below at
`decay` times the rate above it, and the token vectors least (discriminative fine-tuning, Howard & Ruder 2018, whose
decay is 1 / 2.6; Clark et al. 2020).
"""

from typing import Protocol, runtime_checkable

from torch import nn

from saccade.errors import UsageError


@runtime_checkable
class _Levelled(Protocol):
    """An encoder that tells its parts from the token vectors up."""

    @property
    def levels(self) -> list[list[nn.Module]]: ...


def rate_factors(model: nn.Module, decay: float) -> dict[str, float]:
    """By name, what the learning rate of each weight is multiplied with."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    factors = dict.fromkeys(names.values(), 1.0)
    if decay == 1.0:
        return factors
    levels = _levels(_encoder(model))
    for depth, parts in reversed(list(enumerate(levels))):  # what two levels share goes with the lower one
        for part in parts:
            for parameter in part.parameters():
                factors[names[id(parameter)]] = decay ** (len(levels) - depth)
    return factors


def freeze_encoder(model: nn.Module) -> None:
    """The encoder's weights stay as they are, and whatever is tied to them."""
    encoder = _encoder(model)
    if getattr(encoder, "mixes_sentences", False):
        raise UsageError(
            "freeze is true, but the encoder's norm_kind is batch, whose statistics follow every batch. "
            "Pre-train with another norm, or set freeze to false."
        )
    encoder.requires_grad_(False)


def _levels(encoder: nn.Module) -> list[list[nn.Module]]:
    """One that does not tell them apart is of one level."""
    return encoder.levels if isinstance(encoder, _Levelled) else [[encoder]]


def _encoder(model: nn.Module) -> nn.Module:
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, nn.Module):
        raise UsageError(
            "layer-wise rates and frozen weights are for models with an encoder; this one has none. "
            "Leave out train.layer_decay and freeze."
        )
    return encoder
