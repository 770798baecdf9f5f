"""Saving beside the training: what is to be saved is copied at once, and a thread of its own writes it down.

The thread does one thing after the other, in the order they were asked for: a checkpoint that says which model is the
best comes after that model. Once something failed it writes nothing more, and the error comes up in the training.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.checkpoint import RunFolder
from saccade.train.events import Saved
from saccade.train.log import Log

Kind = Literal["save", "publish"]


@dataclass(frozen=True)
class Snapshot:
    """Tensors as they were at one moment, on their way to the host's memory or there."""

    copies: dict[str, Tensor]
    arrived: tuple[torch.cuda.Event, ...]
    """One for each GPU that copies come from."""

    def tensors(self) -> dict[str, Tensor]:
        """The copies, once they are there."""
        for event in self.arrived:
            event.synchronize()
        return self.copies


class Room:
    """Host memory that snapshots are made in, again and again: memory that a GPU can write to is slow to get.

    A GPU's copies are queued behind the work it has been given and before what it will be given: no later update can
    change them, and nobody waits for them here.
    """

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def snapshot(self, tensors: Mapping[str, Tensor]) -> Snapshot:
        self._held = {name: self._for(name, tensor) for name, tensor in tensors.items()}
        devices = {tensor.device for tensor in tensors.values() if tensor.is_cuda}
        for name, tensor in tensors.items():
            self._held[name].copy_(tensor.detach(), non_blocking=tensor.is_cuda)
        return Snapshot(dict(self._held), tuple(_mark(device) for device in devices))

    def _for(self, name: str, tensor: Tensor) -> Tensor:
        held = self._held.get(name)
        if held is not None and (held.shape, held.dtype) == (tensor.shape, tensor.dtype):
            return held
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


def _mark(device: torch.device) -> torch.cuda.Event:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


@dataclass(frozen=True)
class Order:
    """One checkpoint to be saved, and what happens around it."""

    update: int
    state: dict[str, Any]
    keep: int
    spare: Callable[[], Collection[Path]]
    """Checkpoints not to be removed, asked for when the new one is in its place."""
    not_finite: Callable[[], Exception]
    """The error where some weights are no longer numbers."""


class Saver:
    """Writes checkpoints and the best model of one run. At most one of each is under way."""

    def __init__(self, folder: RunFolder, log: Log) -> None:
        self.folder, self.log = folder, log
        self._rooms = {name: Room() for name in ("model", "optimizer", "published")}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saccade-saving")
        self._under_way: deque[tuple[Kind, Future[Saved | None]]] = deque()
        self._failed = False

    def publish(self, model: Mapping[str, Tensor]) -> Iterator[Saved]:
        """Make these weights the run's model. Tells of checkpoints that have been saved meanwhile."""
        yield from self.wait()
        snapshot = self._rooms["published"].snapshot(model)
        self._begin("publish", lambda: self.folder.publish(snapshot.tensors()))

    def save(self, order: Order, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> Iterator[Saved]:
        """Save a checkpoint. Waits for the one before it alone: this moment's best model may still be on its way."""
        while any(kind == "save" for kind, _ in self._under_way):
            yield from self._next()
        weights, memory = self._rooms["model"].snapshot(model), self._rooms["optimizer"].snapshot(optimizer)
        self._begin("save", lambda: self._save(order, weights, memory))

    def _save(self, order: Order, weights: Snapshot, memory: Snapshot) -> Saved:
        model = weights.tensors()
        if not all(bool(tensor.isfinite().all()) for tensor in model.values()):
            raise order.not_finite()
        self.log.flush()  # of which the checkpoint says how long it was
        path = self.folder.save_checkpoint(order.update, model, memory.tensors(), order.state)
        self.folder.prune(order.keep, spare=order.spare())
        return Saved(order.update, path)

    def _begin(self, kind: Kind, work: Callable[[], Saved | None]) -> None:
        self._under_way.append((kind, self._thread.submit(self._unless_failed, work)))

    def _unless_failed(self, work: Callable[[], Saved | None]) -> Saved | None:
        if self._failed:
            return None
        try:
            return work()
        except BaseException:
            self._failed = True
            raise

    def finished(self) -> Iterator[Saved]:
        """Checkpoints saved since this was last asked; an error where one could not be."""
        while self._under_way and self._under_way[0][1].done():
            yield from self._next()

    def wait(self) -> Iterator[Saved]:
        """As `finished`, when everything is written."""
        while self._under_way:
            yield from self._next()

    def _next(self) -> Iterator[Saved]:
        _, future = self._under_way.popleft()
        saved = future.result()
        if saved is not None:
            yield saved

    def close(self) -> None:
        """Finish what is under way, and be silent about it: the training has ended, perhaps by an error of its own."""
        self._thread.shutdown(wait=True)
