"""Truncated backpropagation through time (Williams & Peng 1990): chunk after chunk, the state carried on.

Every chunk's loss goes back to the chunk's own beginning; the state that it began with is a number like any other.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade.data.streams import Chunk
from saccade.errors import SaccadeError
from saccade.loss import Loss
from saccade.models.language_model import LanguageModel
from saccade.models.reading import Carried
from saccade.train.numerics import autocast, seed_everything
from saccade.train.settings import Precision


@dataclass
class Reader:
    """Reads a stream of chunks and keeps what is carried from one to the next."""

    model: LanguageModel
    device: torch.device
    precision: Precision = "fp32"
    smoothing: float = 0.0
    carried: Carried = field(default_factory=dict)

    def loss(self, chunk: Chunk) -> Loss:
        """The chunk's loss, with its gradient; afterwards the state is that behind the chunk."""
        batch = chunk.batch.to(self.device)
        before = self.model.begin(len(batch)) if chunk.begins else self.carried
        with autocast(self.precision, self.device):
            loss, after = self.model.loss_from(batch, before, self.smoothing)
        self.carried = {name: _numbers(value) for name, value in after.items()}
        return loss

    def add_gradient(self, chunk: Chunk, tokens: int, key: tuple[int, ...]) -> Tensor:
        """Add that of the chunk's loss over `tokens`, those of the whole update; the negative log-likelihood.

        `key`, as (seed, update, micro-batch), is what all that is drawn by chance goes by.
        """
        seed_everything(*key)
        loss = self.loss(chunk)
        torch.autograd.backward(loss.total / tokens)
        return loss.nll

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold beside weights and optimiser."""
        return dict(self.carried)

    def restore(self, saved: Mapping[str, Tensor], rows: int) -> None:
        """Take over what `tensors` gave, of so many streams; nothing, where no chunk had been read."""
        wanted = {name: value.shape for name, value in self.model.begin(rows).items()}
        if saved and {name: value.shape for name, value in saved.items()} != wanted:
            raise SaccadeError(
                "the state that was carried on does not fit the model or the number of streams. "
                "Resume with the recipe it was trained with, or begin anew."
            )
        self.carried = {name: value.to(self.device) for name, value in saved.items()}


def _numbers(value: Tensor) -> Tensor:
    """What is no finite number becomes 0: an update that has to be skipped must not spoil all that follow."""
    return value.nan_to_num(0.0, 0.0, 0.0) if value.is_floating_point() else value


@torch.inference_mode()
def stream_loss(
    model: LanguageModel, chunks: Iterable[Chunk], precision: Precision, device: torch.device
) -> dict[str, float]:
    """Mean negative log-likelihood of a token, the state carried on through the whole text; and its perplexity."""
    reader = Reader(model, device, precision)
    nll, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    for chunk in chunks:
        nll += reader.loss(chunk).nll
        tokens += chunk.tokens
    loss = nll.item() / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
