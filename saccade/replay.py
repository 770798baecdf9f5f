"""Kernels that the host starts as one: CUDA graphs, and loops that are made of them.

A GPU takes microseconds for a small kernel, and so does the host to start it. A graph is recorded once and started as
a whole, but it has fixed shapes and reads and writes at fixed addresses.
"""

import gc
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.errors import SaccadeError
from saccade.types import Tree

Advance = Callable[[Tree], tuple[Tree, Tree]]
"""A step of a loop: the carry → the carry, in the same shapes, and what is told. It may write into what it is given."""
Recorder = Callable[[Callable[[], Tree]], Callable[[], Tree]]
"""A function that reads and writes tensors of fixed addresses → what does the same again."""

Begin = Callable[[Hashable, Advance, Tree], "Loop"]
"""What begins a loop: `Loops.begin`, or what adds to its name."""

LAUNCHED = 2
"""Steps of a loop before it is recorded: they build kernels, and what ends so soon is not worth a graph."""
MOST, MOST_BYTES = 128, 4 << 30
"""How many loops are kept, and what their carries may hold together; beyond it the oldest are forgotten."""


@contextmanager
def recording(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, pool: Any) -> Iterator[None]:
    """`torch.cuda.graph` without its waiting, collecting and emptying of caches: new shapes are no rare event."""
    collects = gc.isenabled()
    gc.disable()  # what it would free may belong to the device
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                with warnings.catch_warnings():  # of a capture that failed at once, before it held anything
                    warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
                    graph.capture_end()
    finally:
        torch.cuda.current_stream(stream.device).wait_stream(stream)
        if collects:
            gc.enable()


class GraphRecorder:
    """Records CUDA graphs, which share their memory: what one tells stands until the next is started.

    Nobody else may draw random numbers on the device while one is recorded.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        self._living: WeakSet[torch.cuda.CUDAGraph] = WeakSet()
        """Graphs of this pool."""

    def __call__(self, run: Callable[[], Tree]) -> Callable[[], Tree]:
        try:
            return self._recorded(run)
        except torch.OutOfMemoryError:
            pass  # what the failed capture held goes with its traceback, at the end of this clause
        torch.cuda.empty_cache()  # what launches have left there a capture cannot take, and cannot give back
        return self._recorded(run)

    def _recorded(self, run: Callable[[], Tree]) -> Callable[[], Tree]:
        if not self._living:  # a pool ends with the last graph that was recorded into it
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with recording(graph, self.stream, self.pool):
                told = run()
        except BaseException:
            self._living = WeakSet()  # the pool of a failed capture cannot be used again
            raise
        self._living.add(graph)

        def replay() -> Tree:
            graph.replay()
            return told

        return replay


@dataclass(frozen=True)
class _Recorded:
    carry: list[Tensor]
    """Where the graph reads and writes it."""
    replay: Callable[[], Tree]

    @property
    def bytes(self) -> int:
        return sum(each.nbytes for each in self.carry)


class Loops:
    """Loops by name and shapes, recorded once and replayed for all that are alike. Not for two threads at a time."""

    def __init__(self, record: Recorder) -> None:
        self.record = record
        self._recorded: dict[Hashable, _Recorded] = {}
        self._refused: set[Hashable] = set()

    @property
    def kept(self) -> int:
        """How many recorded loops there are."""
        return len(self._recorded)

    def clear(self) -> None:
        """Forget all, and give their memory back."""
        self._recorded.clear()

    def begin(self, name: Hashable, advance: Advance, carry: Tree) -> "Loop":
        """`name` says all that `advance` depends on beside the carry: its numbers, the addresses of its weights."""
        return Loop(self, name, advance, carry)

    def recorded(self, key: Hashable, carry: Tree) -> _Recorded | None:
        """That of a like loop, which from now on has this carry."""
        found = self._recorded.pop(key, None)
        if found is not None:
            self._recorded[key] = found  # the last used is the last to be forgotten
            torch._foreach_copy_(found.carry, pytree.tree_leaves(carry))
        return found

    def try_to_record(self, key: Hashable, advance: Advance, carry: Tree) -> _Recorded | None:
        """None where there is no memory for it, or was none before."""
        if key in self._refused:
            return None
        try:
            found = self._record(advance, carry)
        except torch.OutOfMemoryError as error:
            self._refused.add(key)
            reason = str(error).split(". ")[0]
            warnings.warn(
                f"a search is not captured as a CUDA graph, which is slower: {reason}.", RuntimeWarning, stacklevel=2
            )
            return None
        except RuntimeError as error:
            cause = error.__context__ or error  # the end of a spoilt capture raises an error of its own
            raise SaccadeError(
                f"a search of this model cannot be captured as a CUDA graph: {str(cause).splitlines()[0]} "
                "Set decode.graphs=false and begin anew."
            ) from error
        self._recorded[key] = found
        while len(self._recorded) > MOST or sum(each.bytes for each in self._recorded.values()) > MOST_BYTES:
            del self._recorded[next(iter(self._recorded))]  # whoever replays it holds it as long
        return found

    def _record(self, advance: Advance, carry: Tree) -> _Recorded:
        leaves, spec = pytree.tree_flatten(carry)
        mine: list[Tensor] = [leaf.clone() for leaf in leaves]  # never what someone else may still read or own
        places = {leaf.untyped_storage().data_ptr() for leaf in mine}

        def run() -> Tree:
            after, told = advance(pytree.tree_unflatten(mine, spec))
            moved = [(to, new) for to, new in zip(mine, pytree.tree_leaves(after), strict=True) if to is not new]
            # A part of the carry that becomes another one is copied first, lest it be written over before it is read.
            new = [new.clone() if new.untyped_storage().data_ptr() in places else new for _, new in moved]
            torch._foreach_copy_([to for to, _ in moved], new)
            return told

        return _Recorded(mine, self.record(run))


class Replays:
    """Loops of one model's searches. Graphs have one carry: while one thread replays, others launch."""

    def __init__(self, model: nn.Module, loops: Loops) -> None:
        self.model, self.loops = model, loops
        self._lock = Lock()

    @staticmethod
    def on(device: torch.device, model: nn.Module) -> "Replays | None":
        """Where that is faster: on a GPU."""
        return Replays(model, Loops(GraphRecorder(device))) if device.type == "cuda" else None

    @contextmanager
    def lent(self) -> Iterator[Begin | None]:
        """None where another thread has them, and where autocast keeps copies of weights that graphs would outlive."""
        if torch.is_autocast_enabled("cuda") or not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            # Graphs read weights where these were when they were recorded: the addresses are a part of the name.
            weights = tuple(each.data_ptr() for each in (*self.model.parameters(), *self.model.buffers()))
            mode = self.model.training, weights
            yield lambda name, advance, carry: self.loops.begin((name, mode), advance, carry)
        finally:
            self._lock.release()


class Loop:
    """One loop under way: launched step by step at first, then replayed."""

    def __init__(self, loops: Loops, name: Hashable, advance: Advance, carry: Tree) -> None:
        self._loops, self._advance, self._carry = loops, advance, carry
        self._key = name, _shapes(carry), _numbers()
        self._spec = pytree.tree_flatten(carry)[1]
        self._launched = 0
        self._recorded: _Recorded | None = None
        self._replay(loops.recorded(self._key, carry))

    def next(self) -> Tree:
        """One step; what it tells stands until the next."""
        if self._recorded is None and self._launched == LAUNCHED and self._key[1] == _shapes(self._carry):
            self._replay(self._loops.try_to_record(self._key, self._advance, self._carry))
        if self._recorded is not None:
            return self._recorded.replay()
        self._launched += 1
        self._carry, told = self._advance(self._carry)
        return told

    def _replay(self, recorded: _Recorded | None) -> None:
        self._recorded = recorded
        if recorded is not None:
            self._carry = None  # as large as all the rest together

    @property
    def carry(self) -> Tree:
        """As the last step left it; the next writes there."""
        if self._recorded is None:
            return self._carry
        return pytree.tree_unflatten(self._recorded.carry, self._spec)


def _shapes(carry: Tree) -> Hashable:
    leaves, spec = pytree.tree_flatten(carry)
    return str(spec), tuple((tuple(leaf.shape), leaf.dtype, leaf.device) for leaf in leaves)


def _numbers() -> Hashable:
    """How products are rounded here."""
    return torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
