"""The gradient of one update: forward, loss and backward of its batches, in pieces that fit into memory."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.loss import Loss
from saccade.models.trainable import Trainable
from saccade.train.graphs import Graphs
from saccade.train.numerics import autocast, seed_everything
from saccade.train.profile import Profile
from saccade.train.settings import Precision
from saccade.types import Batch, Tokens


def cost(batch: Batch) -> int:
    """Rows × longest side: what a batch takes of memory goes by it, packed or padded."""
    return len(batch) * max(_widest(batch.source), batch.target.layout.longest)


def _widest(side: Tokens) -> int:
    """Tokens of the longest row; of rows whose tokens are made of others, no fewer than its share of those."""
    inside = 0 if side.inside is None else -(-len(side.inside.ids) // max(1, len(side.layout.lengths_B)))
    return max(side.layout.longest, inside)


def pieces(batch: Batch, fits: int | None) -> Iterator[Batch]:
    """Neighbouring rows together as long as they cost no more than fits; a row that costs more stands alone."""
    if fits is None or cost(batch) <= fits:
        yield batch
        return
    batch = batch.packed()
    begin = longest = 0
    widths = torch.maximum(batch.source.layout.lengths_B, batch.target.layout.lengths_B).tolist()
    for row, width in enumerate(widths):
        longest = max(longest, width)
        if row > begin and (row + 1 - begin) * longest > fits:
            yield batch.rows(begin, row)
            begin, longest = row, width
    yield batch.rows(begin, len(batch))


@dataclass
class Gradient:
    model: Trainable
    device: torch.device
    precision: Precision
    smoothing: float
    seed: int
    fits: int | None = None
    """The most that a piece may cost. Found by what did not fit, and kept: a resumed run makes the same pieces."""
    profile: Profile | None = None
    captures: bool = True
    """On a GPU: replay what a size of batch launches, once it has come twice."""
    _at_hand: int = field(default=0, init=False)
    """What the piece costs that is being worked on; 0 where it is one row, which cannot be cut."""
    _graphs: Graphs | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        # Sentences that fill a batch up to a graph's size must not be seen by the others.
        if self.device.type == "cuda" and not self.model.mixes_sentences:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            tight = self.model.computes_padding
            captures = self.captures and self.model.captured
            self._graphs = Graphs(
                self._forward, trained, self.device, tight=tight, fills=self.model.fills, captures=captures
            )

    def clear(self) -> None:
        """Begin a new sum."""
        if self._graphs is None:
            self.model.zero_grad(set_to_none=True)
        else:
            self._graphs.clear()

    def accumulate(self, batches: list[Batch], update: int) -> Tensor:
        """Add the gradient of the mean loss over all tokens of the batches; the summed negative log-likelihood.

        Where memory runs out, everything is made anew in pieces of half the size.
        """
        self.model.at_update(update)
        learnt = [buffer.clone() for buffer in self.model.buffers()]
        while True:
            try:
                return self._attempt(batches, update)
            except RuntimeError as error:
                if not _is_out_of_memory(error):
                    raise
                why = str(error)
            # Here, where the error and with it all that it held is gone:
            if not self.give_way():
                self._shrink(why)
                self._forget()
            self._put_back(learnt)

    def give_way(self) -> bool:
        """Where other work needs memory: let go of captured graphs; False where there are none."""
        return self._graphs is not None and self._graphs.give_way()

    def rehearse(self, batches: list[Batch]) -> None:
        """Find out what fits before it matters: the gradient of the largest batches, made and thrown away.

        The memory that the optimiser will take at its first step is held meanwhile.
        """
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        reserve = [torch.empty_like(parameter) for parameter in trained for _ in range(2)]
        learnt = [buffer.clone() for buffer in self.model.buffers()]
        profile, self.profile = self.profile, None  # nor is its time the training's
        self.model.train()
        for batch in batches:
            self.accumulate([batch], update=0)
            self._forget()
        self._put_back(learnt)
        self.profile = profile
        del reserve

    def _put_back(self, learnt: list[Tensor]) -> None:
        """What a model has learnt on its way forward, beside its weights, from batches that do not count."""
        for buffer, before in zip(self.model.buffers(), learnt, strict=True):
            buffer.copy_(before)

    def _forget(self) -> None:
        """Give back all that gradients have taken of memory."""
        if self._graphs is None:
            self.model.zero_grad(set_to_none=True)
        else:
            self._graphs.reset()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _attempt(self, batches: list[Batch], update: int) -> Tensor:
        tokens = max(1, sum(batch.tokens for batch in batches))
        nll = torch.zeros((), device=self.device)
        whole = self.model.carries
        every_piece = (piece for batch in batches for piece in ((batch,) if whole else pieces(batch, self.fits)))
        for number, piece in enumerate(every_piece):
            self._at_hand = cost(piece) if len(piece) > 1 and not whole else 0
            nll = nll + self._add(piece, tokens, key=(self.seed, update, number))
        return nll

    def _add(self, piece: Batch, tokens: int, key: tuple[int, ...]) -> Tensor:
        seed_everything(*key)
        self.model.at_batch(piece)
        if self._graphs is not None:
            return self._graphs.add(piece, 1.0 / tokens, self._part)
        with self._part("forward"):
            loss = self._forward(piece.to(self.device))
        with self._part("backward"):
            torch.autograd.backward(loss.total / tokens)
        return loss.nll

    def _forward(self, batch: Batch) -> Loss:
        with autocast(self.precision, self.device):
            return self.model.loss(batch, self.smoothing)

    def _part(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.profile is None else self.profile.part(name)

    def _shrink(self, why: str) -> None:
        if self.model.carries:
            raise SaccadeError(
                "a batch of all streams does not fit into the device's memory, and streams cannot be read apart: "
                f"{why.splitlines()[0]} Lower read.streams or read.steps, or make the model smaller."
            )
        if self._at_hand < 2:
            raise SaccadeError(
                "one row of the data alone does not fit into the device's memory: "
                f"{why.splitlines()[0]} Lower data.max_length or make the model smaller."
            )
        self.fits = self._at_hand // 2


def _is_out_of_memory(error: RuntimeError) -> bool:
    """A CPU's allocator has no error of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)
