"""Forward and backward passes as CUDA graphs: what a size of batch takes of the host is paid once, not at every update.

Launching some thousand kernels one by one takes longer than a GPU needs to run those of a small batch. A graph has
fixed shapes and addresses: batches are filled up to sizes (data/sizes.py), their numbers copied to where the graph
reads them, and gradients are added up in place.
"""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.data.sizes import Size, filled, size_for, size_of
from saccade.errors import SaccadeError
from saccade.loss import Loss
from saccade.replay import recording
from saccade.types import Batch

MOST = 512
"""Sizes that are captured; further ones are launched kernel by kernel."""
Part = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True)
class _Captured:
    inputs: Tensor
    """Where the graph reads the batch: all its numbers in a row."""
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    nll: Tensor


class Graphs:
    """Gradients of batches on a GPU, captured for every size that comes a second time.

    The first time launches kernel by kernel, which also builds them; both ways give the same numbers.
    """

    def __init__(
        self,
        forward: Callable[[Batch], Loss],
        weights: Sequence[Tensor],
        device: torch.device,
        *,
        tight: bool,
        fills: bool = True,
        captures: bool = True,
    ) -> None:
        """`weights`: what has a gradient. `tight`: the model computes on padding, see `size_for`.

        `fills`: batches may be filled up to a size; else one has to be of the very same size to be replayed.
        """
        self.forward, self.weights, self.device, self.tight = forward, list(weights), device, tight
        self.fills = fills
        self.captures = captures
        self.factor = torch.ones((), device=device)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.reset()

    def clear(self) -> None:
        """Begin a new sum of gradients, in the place of the last."""
        sums = [weight.grad for weight in self.weights if weight.grad is not None]
        if sums:
            torch._foreach_zero_(sums)

    def reset(self) -> None:
        """Forget all graphs, and give the gradients' memory back: what graphs read or wrote there has moved."""
        for weight in self.weights:
            weight.grad = None
        self.seen: set[Size] = set()
        self.captured: dict[Size, _Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()

    def give_way(self) -> bool:
        """Where memory has run out: let go of what graphs hold, and capture no more; False where they hold nothing."""
        if not self.captured:
            return False
        self._stop("what those held was needed for other work")
        self.reset()
        torch.cuda.empty_cache()
        return True

    def _stop(self, reason: str) -> None:
        self.captures = False
        told = f"no further batches are captured as CUDA graphs, which is slower: {reason}."
        warnings.warn(told, RuntimeWarning, stacklevel=3)

    def add(self, batch: Batch, factor: float, part: Part) -> Tensor:
        """Add the gradient of the factor times the batch's loss; its negative log-likelihood."""
        self.factor.fill_(factor)
        packed = batch.packed()
        size = size_for(packed, tight=self.tight) if self.fills else size_of(packed)
        batch = filled(packed, size) if self.fills else packed
        if size in self.captured:
            return self._replayed(self.captured[size], batch, part)
        if self.captures and size in self.seen and len(self.captured) < MOST:
            captured = self._capture(batch)
            if captured is not None:
                self.captured[size] = captured
                return self._replayed(captured, batch, part)
        self.seen.add(size)
        return self._launched(batch, part)

    def _launched(self, batch: Batch, part: Part) -> Tensor:
        with part("forward"):
            loss = self.forward(batch.to(self.device))
        with part("backward"):
            self._backward(loss)
        return loss.nll

    def _backward(self, loss: Loss) -> None:
        """`torch.autograd.backward` would add up weight by weight, each with a kernel of its own."""
        made = torch.autograd.grad(loss.total * self.factor, self.weights, allow_unused=True)
        sums, more = [], []
        for weight, gradient in zip(self.weights, made, strict=True):
            if gradient is None:
                continue
            if weight.grad is None:
                if torch.cuda.is_current_stream_capturing():
                    raise SaccadeError("a gradient was taken away that captured graphs add to. Train anew, or resume.")
                weight.grad = torch.zeros_like(weight)
            sums.append(weight.grad)
            more.append(gradient)
        torch._foreach_add_(sums, more)

    def _replayed(self, captured: _Captured, batch: Batch, part: Part) -> Tensor:
        with part("forward"):
            captured.inputs.copy_(batch.flat(pinned=True), non_blocking=True)
            captured.forward.replay()
        with part("backward"):
            captured.backward.replay()
        return captured.nll.clone()  # the next replay writes there

    def _capture(self, batch: Batch) -> _Captured | None:
        """None where there is no memory for it: training then goes on without."""
        for _ in range(2):
            try:
                return self._recorded(batch)
            except torch.OutOfMemoryError as error:
                reason = str(error).split(". ")[0]
            except RuntimeError as error:
                cause = error.__context__ or error  # the end of a spoilt capture raises an error of its own
                raise SaccadeError(
                    f"this model cannot be captured as a CUDA graph: {str(cause).splitlines()[0]} "
                    "Set train.graphs=false and resume."
                ) from error
            self.pool = torch.cuda.graph_pool_handle()  # the one of a failed capture cannot be used again
            torch.cuda.empty_cache()  # what launches have left there a capture cannot take, and cannot give back
        self._stop(reason)
        return None

    def _recorded(self, batch: Batch) -> _Captured:
        inputs = torch.empty_like(batch.flat(), device=self.device)
        static, forward, backward = batch.holding(inputs), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with recording(forward, self.stream, self.pool):
            loss = self.forward(static)
        with recording(backward, self.stream, self.pool):
            self._backward(loss)
        return _Captured(inputs, forward, backward, loss.nll)
