"""Going on from trained weights: one model's encoder becomes the beginning of another's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import difference
from saccade.errors import UsageError

PREFIX = "encoder."


@dataclass(frozen=True)
class Taken:
    """What became of the weights, by name."""

    taken: tuple[str, ...]
    left: tuple[str, ...]
    """Of the model they came from: what is no part of its encoder."""
    fresh: tuple[str, ...]
    """Of the model they went into: what it has beside its encoder, and learns from the beginning."""
    numbers: int
    """How many numbers were taken."""

    def told(self, origin: str) -> str:
        """In one sentence."""
        fresh = ", ".join(_parts(self.fresh)) or "nothing"
        return f"{self.numbers:,} weights of the encoder were taken from {origin}; learnt anew: {fresh}."


def check_alike(mine: Mapping[str, Any], theirs: Mapping[str, Any], origin: str) -> None:
    """Refuse where two encoders' settings differ in more than dropout: weights of one mean nothing in the other."""
    differing = {
        name: values
        for name, values in difference(mine, theirs).items()
        if not _is_of_training(name.rpartition(".")[2])
    }
    if differing:
        told = "; ".join(f"{name} is {there} there and {here} here" for name, (here, there) in differing.items())
        raise UsageError(
            f"init_from: the encoder in {origin} is another than model.encoder: {told}. Leave model.encoder out, and "
            "it is as it is there; dropout alone may differ."
        )


def _is_of_training(name: str) -> bool:
    """Whether a setting changes neither the weights' shapes nor what they compute once they are trained."""
    return name.endswith("dropout") or name == "locked"


def take_encoder(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> Taken:
    """Copy the weights of an encoder that were saved with a whole model into this model's encoder.

    All of it must be there, in the same shapes: else nothing is changed.
    """
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, nn.Module):
        raise UsageError("init_from: this model has no encoder that weights could be taken into.")
    lasting = encoder.state_dict().keys()
    buffers = {name: buffer for name, buffer in encoder.named_buffers() if name in lasting}
    wanted = {PREFIX + name: tensor for name, tensor in {**dict(encoder.named_parameters()), **buffers}.items()}
    given = {name: tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    _check_fit(wanted, given, origin)
    with torch.no_grad():
        for name, mine in wanted.items():
            mine.copy_(given[name])
    shared = {id(tensor) for tensor in wanted.values()}
    fresh = tuple(name for name, each in model.named_parameters() if id(each) not in shared)
    left = tuple(name for name in tensors if name not in given)
    return Taken(tuple(wanted), left, fresh, sum(each.numel() for each in wanted.values()))


def _check_fit(wanted: Mapping[str, Tensor], given: Mapping[str, Tensor], origin: str) -> None:
    if not given:
        raise UsageError(f"init_from: {origin} holds no encoder. Name a run of a task that has one.")
    if wanted.keys() != given.keys():
        missing, extra = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
        raise UsageError(
            f"init_from: the encoder in {origin} is another than model.encoder: it lacks {missing[:3]} and has "
            f"{extra[:3]} beside."
        )
    for name, mine in wanted.items():
        if mine.shape != given[name].shape:
            raise UsageError(
                f"init_from: {name} has shape {tuple(given[name].shape)} in {origin}, and {tuple(mine.shape)} here. "
                "Encoder and vocabulary must be the same."
            )


def _parts(names: tuple[str, ...]) -> list[str]:
    """The parts of a model that some weights belong to."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names))
