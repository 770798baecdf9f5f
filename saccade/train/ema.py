"""The moving average of a model's weights: a smoother model than the one that is trained."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from saccade.errors import SaccadeError


def decay_at(update: int, decay: float) -> float:
    """min(decay, (1 + t) / (10 + t)) at update t, counted from 1: the first weights are soon forgotten."""
    return min(decay, (1 + update) / (10 + update))


class MovingAverage:
    """average ← d · average + (1 − d) · weights after each update, with d of `decay_at`.

    Begins as a copy of the weights. Only what is trained has an average, and weights used in two places have one.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._averages = {name: parameter.detach().clone() for name, parameter in _trained(model)}

    @torch.no_grad()
    def update(self, model: nn.Module, update: int, not_finite: Tensor | None = None) -> None:
        """Move towards the weights after `update`; not where the tensor says that this update was skipped."""
        weights: list[Tensor] = [parameter for _, parameter in _trained(model)]
        averages = list(self._averages.values())
        share = 1 - decay_at(update, self.decay)
        if not_finite is None:
            torch._foreach_lerp_(averages, weights, share)
        else:  # the share must be a tensor then: nothing waits for the device to tell
            here = share * (1 - not_finite.to(torch.float32))
            shares: list[Tensor] = [here.to(each.dtype) for each in averages]
            torch._foreach_lerp_(averages, weights, shares)

    def tensors(self) -> dict[str, Tensor]:
        """The averages by the names of their weights, to be saved."""
        return dict(self._averages)

    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` gave."""
        if {name: each.shape for name, each in saved.items()} != {n: a.shape for n, a in self._averages.items()}:
            differing = sorted(saved.keys() ^ self._averages.keys()) or ["shapes"]
            raise SaccadeError(
                f"the moving average does not fit the model ({', '.join(differing[:3])}). "
                "Resume with the recipe it was trained with, or begin anew."
            )
        for name, average in self._averages.items():
            average.copy_(saved[name])

    def swapped(self, model: nn.Module) -> AbstractContextManager[None]:
        """While entered, the model has the averaged weights; after it its own again, to the bit."""
        return swapped(model, self._averages)


@contextmanager
def swapped(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """While entered, the model has these weights for those it is trained in; after it its own again, to the bit.

    Weights are copied in place: compiled regions and captured graphs hold on to their addresses.
    """
    own = {name: parameter.detach().clone() for name, parameter in _trained(model)}
    _put(model, weights)
    try:
        yield
    finally:
        _put(model, own)


@torch.no_grad()
def _put(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, parameter in _trained(model):
        parameter.copy_(values[name])


def _trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
