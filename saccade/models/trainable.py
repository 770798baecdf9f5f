"""What training asks of every model, whatever its task."""

import torch
from torch import Tensor, nn

from saccade.loss import Loss
from saccade.nn.kernels import Twinned
from saccade.types import Batch


class Trainable(nn.Module):
    """A module whose loss on a batch is trained on. Each task's model says for itself what stands here as a rule."""

    carries = False
    """Whether something is carried from a batch to the next: the rows of a batch must then not be worked off apart."""
    fills = False
    """Whether sentences of PAD may fill a batch up to a size (data/sizes.py): no number of the others may change."""
    captured = True
    """Whether what a batch launches on a GPU is the same for all batches of its size, dropout's draws included."""
    reads_parse = False
    """Whether a source has to come with its dependency trees."""

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """What training minimises, summed over what the batch's target counts."""
        raise NotImplementedError

    def at_update(self, update: int) -> None:
        """Told before the gradient of each update, counted from 1, for what changes as training goes on."""

    def at_batch(self, batch: Batch) -> None:
        """Told before each batch, outside of what is captured: for what begins anew with it."""

    def carried(self) -> dict[str, Tensor]:
        """What is carried on, for a checkpoint to hold beside the weights."""
        return {}

    def carry(self, saved: dict[str, Tensor]) -> None:
        """Take over what `carried` gave."""

    def readable(self, batch: Batch) -> None:
        """All products of a step on the way forward, where the model can without fused kernels: to be counted."""
        self.loss(batch)

    @property
    def computes_padding(self) -> bool:
        """Whether some part of it fills sentences up to the longest, so that its cost goes by rows × longest."""
        return any(getattr(part, "computes_padding", False) for part in self.children())

    @property
    def mixes_sentences(self) -> bool:
        """Whether a sentence's numbers depend, in training, on the others of its batch."""
        return any(getattr(part, "mixes_sentences", False) for part in self.children())

    def without_twin(self, device: torch.device) -> list[str]:
        """What of it no fast kernel for this device takes, in words, a part at a time: each answers for itself."""
        told = (
            f"{name}: {what}"
            for name, whole in self.named_children()
            for part in whole.modules()
            if isinstance(part, Twinned)
            for what in part.without_twin(device)
        )
        return list(dict.fromkeys(told))
