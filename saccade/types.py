"""The few things that travel between the rooms of the house.

Shapes: B sentences, N hypotheses (B × beam, those of one sentence side by side), S source length, T target length,
D width, E width of the memory, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

    Padded: tensors are (B, T, …), and `offsets_B` and `slots_N` are None. Packed: tensors are (N, …), sentence b begins
    at `offsets_B[b]`, and nothing is padding.
    """

    lengths_B: Tensor
    longest: int
    even: bool = False
    """Known on the host: all lengths equal `longest`, so that no mask is needed."""
    offsets_B: Tensor | None = None
    slots_N: Tensor | None = None
    """Of each packed token, its place in the padded twin, counted through its B × `longest` places."""

    @staticmethod
    def padded(lengths: list[int] | Tensor, longest: int | None = None, device: torch.device | None = None) -> "Layout":
        lengths_B = torch.as_tensor(lengths, dtype=torch.long)
        longest = int(lengths_B.max()) if longest is None else longest
        return Layout(lengths_B.to(device), longest, even=bool((lengths_B == longest).all()))

    def packed(self) -> "Layout":
        """The same sentences without padding. Made on the host: it needs to know how many tokens there are."""
        offsets_B = self.lengths_B.cumsum(0) - self.lengths_B
        begins_B = torch.arange(len(self.lengths_B), device=self.lengths_B.device) * self.longest
        moved_N = (begins_B - offsets_B).repeat_interleave(self.lengths_B)
        slots_N = moved_N + torch.arange(len(moved_N), device=self.lengths_B.device)
        return Layout(self.lengths_B, self.longest, self.even, offsets_B, slots_N)

    def unpacked(self) -> "Layout":
        """The padded twin."""
        return Layout(self.lengths_B, self.longest, self.even)

    @property
    def is_packed(self) -> bool:
        return self.slots_N is not None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Layout":
        offsets_B = None if self.offsets_B is None else change(self.offsets_B)
        slots_N = None if self.slots_N is None else change(self.slots_N)
        return Layout(change(self.lengths_B), self.longest, self.even, offsets_B, slots_N)

    def to(self, device: torch.device) -> "Layout":
        return self.map(lambda x: x.to(device, non_blocking=True))


@dataclass(frozen=True)
class Parse:
    """The dependency trees of a batch of sentences, laid out as their tokens; 0 on padding.

    Places are counted within the sentence. A token that is no part of a word, as END and PAD, is a word by itself and a
    root.
    """

    words: Tensor
    """Of each token, the place of the first token of its word, from 0: what names the word."""
    heads: Tensor
    """Of each token, the first token of the word that its own word depends on, counted from 1; 0 for a root."""

    def map(self, change: Callable[[Tensor], Tensor]) -> "Parse":
        return Parse(change(self.words), change(self.heads))

    @staticmethod
    def of(rows: Sequence[np.ndarray[Any, Any]], longest: int) -> "Parse":
        """Padded; each row is (tokens, 2): word and head of each token."""
        both = np.zeros((len(rows), longest, 2), dtype=np.int64)
        for b, row in enumerate(rows):
            both[b, : len(row)] = row
        return Parse(*torch.from_numpy(both).unbind(-1))


@dataclass(frozen=True)
class Tokens:
    """A batch of token sequences: ids as the layout says, (B, T) filled up with PAD or (N,), and where they end."""

    ids: Tensor
    layout: Layout
    parse: Parse | None = None
    """Of a source that was read with its dependency trees, for encoders that look at them."""
    inside: "Tokens | None" = None
    """What each token is made of, one row a token, in the order of the packed tokens: the characters or pieces of
    words, the words of sentences."""

    @property
    def count(self) -> Tensor:
        """How many real tokens there are, on the device."""
        return self.layout.lengths_B.sum()

    def map(self, change: Callable[[Tensor], Tensor]) -> "Tokens":
        parse = None if self.parse is None else self.parse.map(change)
        inside = None if self.inside is None else self.inside.map(change)
        return Tokens(change(self.ids), self.layout.map(change), parse, inside)

    def to(self, device: torch.device) -> "Tokens":
        return self.map(lambda x: x.to(device, non_blocking=True))

    @staticmethod
    def of(
        rows: Sequence[Sequence[int] | np.ndarray[Any, Any]],
        parses: Sequence[np.ndarray[Any, Any]] | None = None,
        *,
        longest: int | None = None,
    ) -> "Tokens":
        """Padded to the longest row, or further; with trees as `Parse.of` takes them."""
        longest = max((len(row) for row in rows), default=0) if longest is None else longest
        ids = np.full((len(rows), longest), PAD, dtype=np.int64)
        for b, row in enumerate(rows):
            ids[b, : len(row)] = row
        parse = None if parses is None else Parse.of(parses, longest)
        return Tokens(torch.from_numpy(ids), Layout.padded([len(row) for row in rows], longest), parse)

    def packed(self) -> "Tokens":
        """The same tokens without padding."""
        if self.layout.slots_N is not None:
            return self
        layout = self.layout.packed()
        slots_N = layout.slots_N
        assert slots_N is not None
        parse = None if self.parse is None else self.parse.map(lambda x: x.flatten()[slots_N])
        inside = None if self.inside is None else self.inside.packed()
        return Tokens(self.ids.flatten()[slots_N], layout, parse, inside)

    def rows(self, begin: int, end: int) -> "Tokens":
        """Some neighbouring sentences of packed tokens, as a batch of their own."""
        lengths_B = self.layout.lengths_B[begin:end]
        first = int(self.layout.lengths_B[:begin].sum())
        mine = slice(first, first + int(lengths_B.sum()))
        parse = None if self.parse is None else self.parse.map(lambda x: x[mine])
        inside = None if self.inside is None else self.inside.rows(mine.start, mine.stop)
        return Tokens(self.ids[mine], Layout.padded(lengths_B).packed(), parse, inside)


@dataclass(frozen=True)
class Batch:
    """What is read, and what is to be said of it.

    Sentence pairs: `source` and `target` end in END; the decoder's input is `target` shifted right behind START. Of
    other tasks the target is the text that follows, tags, or a label; PAD stands where nothing is to be said.
    """

    source: Tokens
    target: Tokens
    index: tuple[int, ...] = ()
    """Which rows of the data set these are."""
    begins: bool = True
    """False where rows go on from the batch before: streams of text, whose state is carried over."""
    rate: float = 1.0
    """What the learning rate is multiplied with for this batch."""

    def __len__(self) -> int:
        return len(self.source.layout.lengths_B)

    @property
    def tokens(self) -> int:
        """Targets that count, PAD being none: what a loss is divided by. To be asked on the host."""
        counted = self.target.ids != PAD
        if not self.target.layout.is_packed:
            counted &= torch.arange(counted.shape[1]) < self.target.layout.lengths_B[:, None]
        return int(counted.sum())

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(self, source=self.source.map(change), target=self.target.map(change))

    def to(self, device: torch.device) -> "Batch":
        """To a GPU in one transfer from page-locked memory, so that nobody waits for it."""
        if device.type != "cuda" or self.source.ids.is_cuda:
            return self.map(lambda x: x.to(device))
        return self.holding(self.flat(pinned=True).to(device, non_blocking=True))

    def flat(self, *, pinned: bool = False) -> Tensor:
        """All ids, lengths and places one behind the other; `holding` of it is the batch again."""
        every: list[Tensor] = []

        def note(x: Tensor) -> Tensor:
            every.append(x.flatten())
            return x

        self.map(note)
        size = sum(len(each) for each in every)
        return torch.cat(every, out=torch.empty(size, dtype=torch.long, pin_memory=pinned))

    def holding(self, flat: Tensor) -> "Batch":
        """A batch of these shapes, as views of what `flat` made of another."""
        begin = 0

        def next_view(like: Tensor) -> Tensor:
            nonlocal begin
            begin += like.numel()
            return flat[begin - like.numel() : begin].view(like.shape)

        return self.map(next_view)

    def packed(self) -> "Batch":
        return replace(self, source=self.source.packed(), target=self.target.packed())

    def rows(self, begin: int, end: int) -> "Batch":
        """Some neighbouring pairs of a packed batch."""
        source, target = self.source.rows(begin, end), self.target.rows(begin, end)
        return replace(self, source=source, target=target, index=self.index[begin:end])

    @property
    def decoder_input(self) -> Tokens:
        ids, layout = self.target.ids, self.target.layout
        before = ids.roll(1, -1)
        if layout.slots_N is None:
            before[:, :1] = START
        else:
            before.masked_fill_(layout.slots_N % layout.longest == 0, START)
        return Tokens(before, layout)


@dataclass(frozen=True)
class Encoded:
    """What an encoder hands to a decoder: one vector a source token, and the final states of its layers, if any."""

    memory: Tensor
    """(B, S, E) or (N, E), as the layout says."""
    layout: Layout
    final: tuple[dict[str, Tensor], ...] = ()
    """One entry a layer, bottom first; each maps a state's name (`h`, `c`) to (B, width)."""
    cells: Tensor | None = None
    """(B, S, E): beside each vector of the memory its memory cell, of an encoder that keeps them."""
    source: Tokens | None = None
    """What was read, for decoders that copy from it."""


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
    """`cross` is (layer, head, target, source); `encoder` and `decoder` are self-attention, (layer, head, n, n).

    `pooling` of a classifier is as `cross`: its target is the label, or what that is made of.
    """
    title: str = ""
    cut: bool = False
    """Whether the source was longer than the model reads, so that the rest of it is not in here."""
