"""The few things that travel between the rooms of the house.

Shapes: B sentences, N hypotheses (B × beam, those of one sentence side by side), S source length, T target length,
D width, E width of the memory, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Tree = Any  # nested dicts and tuples of tensors, batch first
Step = Callable[[Tensor, "State"], tuple[Tensor, "State"]]  # (last_N, state) -> (logits_NV, state)

PAD, START, END, UNKNOWN = 0, 1, 2, 3  # the first four ids of every vocabulary
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")


@dataclass(frozen=True)
class Layout:
    """Where the real tokens lie in a batch. Lengths are the only truth; masks are derived from them in nn/masks.py.

    Padded: tensors are (B, T, …) and `offsets_B` is None. Packed: tensors are (N, …), sentence b begins at
    `offsets_B[b]`, and nothing is padding.
    """

    lengths_B: Tensor
    longest: int
    even: bool = False
    """Known on the host: all lengths equal `longest`, so that no mask is needed."""
    offsets_B: Tensor | None = None

    @staticmethod
    def padded(lengths: list[int] | Tensor, longest: int | None = None, device: torch.device | None = None) -> "Layout":
        lengths_B = torch.as_tensor(lengths, dtype=torch.long)
        longest = int(lengths_B.max()) if longest is None else longest
        return Layout(lengths_B.to(device), longest, even=bool((lengths_B == longest).all()))

    def packed(self) -> "Layout":
        return Layout(self.lengths_B, self.longest, self.even, self.lengths_B.cumsum(0) - self.lengths_B)

    @property
    def is_packed(self) -> bool:
        return self.offsets_B is not None

    def to(self, device: torch.device) -> "Layout":
        offsets_B = None if self.offsets_B is None else self.offsets_B.to(device, non_blocking=True)
        return Layout(self.lengths_B.to(device, non_blocking=True), self.longest, self.even, offsets_B)


@dataclass(frozen=True)
class Tokens:
    """A batch of token sequences: ids (B, T), filled up with PAD, and where they end."""

    ids_BT: Tensor
    layout: Layout

    @property
    def count(self) -> Tensor:
        """How many real tokens there are, on the device."""
        return self.layout.lengths_B.sum()

    def to(self, device: torch.device) -> "Tokens":
        return Tokens(self.ids_BT.to(device, non_blocking=True), self.layout.to(device))

    @staticmethod
    def of(rows: Sequence[Sequence[int] | np.ndarray[Any, Any]]) -> "Tokens":
        longest = max((len(row) for row in rows), default=0)
        ids = np.full((len(rows), longest), PAD, dtype=np.int64)
        for b, row in enumerate(rows):
            ids[b, : len(row)] = row
        return Tokens(torch.from_numpy(ids), Layout.padded([len(row) for row in rows], longest))


@dataclass(frozen=True)
class Batch:
    """Sentence pairs. `source` and `target` end in END; the decoder's input is `target` shifted right behind START."""

    source: Tokens
    target: Tokens
    index: tuple[int, ...] = ()
    """Which rows of the data set these are."""

    def __len__(self) -> int:
        return len(self.source.ids_BT)

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.source.to(device), self.target.to(device), self.index)

    def pin(self) -> "Batch":
        def pinned(tokens: Tokens) -> Tokens:
            layout = tokens.layout
            held = Layout(layout.lengths_B.pin_memory(), layout.longest, layout.even, layout.offsets_B)
            return Tokens(tokens.ids_BT.pin_memory(), held)

        return Batch(pinned(self.source), pinned(self.target), self.index)

    @property
    def decoder_input_BT(self) -> Tensor:
        start_B1 = torch.full_like(self.target.ids_BT[:, :1], START)
        return torch.cat([start_B1, self.target.ids_BT[:, :-1]], dim=1)


@dataclass(frozen=True)
class Encoded:
    """What an encoder hands to a decoder: one vector a source token, and the final states of its layers, if any."""

    memory_BSE: Tensor
    layout: Layout
    final: tuple[dict[str, Tensor], ...] = ()
    """One entry a layer, bottom first; each maps a state's name (`h`, `c`) to (B, width)."""


@dataclass(frozen=True)
class State:
    """A decoder's memory between steps: trees of tensors, batch first.

    `source` has one row a sentence, shared by its hypotheses; `hypothesis` one row a hypothesis. A step may write into
    the tensors of the state it is given: whoever wants to branch from a state uses `select_hypotheses`, which copies.
    """

    source: Tree
    hypothesis: Tree

    @property
    def device(self) -> torch.device:
        leaves = pytree.tree_leaves((self.hypothesis, self.source))
        return next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), torch.device("cpu"))

    def select_hypotheses(self, rows_N: Tensor) -> "State":
        return State(self.source, pytree.tree_map(lambda x: x.index_select(0, rows_N), self.hypothesis))

    def select_sentences(self, rows_B: Tensor, beam: int) -> "State":
        """Keep some sentences, with all `beam` hypotheses of each."""
        rows_N = (rows_B[:, None] * beam + torch.arange(beam, device=rows_B.device)).flatten()
        kept = pytree.tree_map(lambda x: x.index_select(0, rows_B), self.source)
        return State(kept, self.select_hypotheses(rows_N).hypothesis)

    def widen(self, beam: int) -> "State":
        """From one hypothesis a sentence to `beam` equal ones."""
        return State(self.source, pytree.tree_map(lambda x: x.repeat_interleave(beam, 0), self.hypothesis))


pytree.register_pytree_node(
    State,
    lambda state: ([state.source, state.hypothesis], None),
    lambda children, _: State(*children),
    serialized_type_name="saccade.State",
    flatten_with_keys_fn=lambda state: (
        [(pytree.GetAttrKey("source"), state.source), (pytree.GetAttrKey("hypothesis"), state.hypothesis)],
        None,
    ),
)


class Decoder(Protocol):
    """What decoding sees of a model."""

    def start(self, encoded: Encoded, max_steps: int) -> State: ...

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]: ...

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One finished output of a search."""

    tokens: tuple[int, ...]
    """Without START and END."""
    score: float
    """What the search ranked by: the summed log-probability after length normalisation."""
    log_probability: float
    token_log_probabilities: tuple[float, ...]
    """One a token, END included where it was reached."""
    ended: bool
    """False where the search stopped at the longest allowed length instead of END."""


@dataclass(frozen=True)
class Trace:
    """The inside of one example, as plain arrays: what pictures are drawn from."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    attention: Mapping[str, np.ndarray[Any, np.dtype[np.float32]]] = field(default_factory=dict)
    """`cross` is (layer, head, target, source); `encoder` and `decoder` are self-attention, (layer, head, n, n)."""
    title: str = ""
