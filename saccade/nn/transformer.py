"""The Transformer's block (Vaswani et al. 2017): self-attention, cross-attention where there is a memory, feed-forward.

Encoder and decoder are the same block: the decoder's is causal and looks at a memory.
Shapes: B sentences, N hypotheses (B × beam), T tokens, S source tokens, M places of the cache, H heads, K head width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from saccade.nn import kernels, masks
from saccade.nn.attention import CrossAttention, FeedForward, SelfAttention
from saccade.nn.dropout import Dropout
from saccade.nn.kernels import Activation, Product
from saccade.nn.linformer import Linformer
from saccade.nn.norms import Norm, NormKind, make_norm, normed
from saccade.nn.patterns import Pattern
from saccade.nn.positions import NoPlaces
from saccade.nn.watch import Watch
from saccade.types import Layout

NormPlace = Literal["pre", "post"]


@dataclass(frozen=True)
class Memory:
    """What cross-attention reads: keys and values of the source, (…, 2, H, K), and where they lie."""

    kv: Tensor
    layout: Layout
    shade_B11S: Tensor | None = None
    """The mask of the source's padding, made once for all blocks (`masks.shade`); None: each makes its own."""


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far, in places made beforehand, and where the next ones go."""

    k_NMHK: Tensor
    v_NMHK: Tensor
    place_NT: Tensor
    """Where the new tokens stand."""
    shade_N1TM: Tensor
    """That none of them looks at what stands behind it: made once for all blocks (`masks.shade`)."""

    @staticmethod
    def each(keys: Sequence[Tensor], values: Sequence[Tensor], place_NT: Tensor) -> "list[Cache]":
        """One a block."""
        key_M = torch.arange(keys[0].shape[1], device=place_NT.device)
        shade_N1TM = masks.shade(key_M <= place_NT[:, None, :, None], keys[0].dtype)
        return [Cache(k_NMHK, v_NMHK, place_NT, shade_N1TM) for k_NMHK, v_NMHK in zip(keys, values, strict=True)]

    def write(self, k_NTHK: Tensor, v_NTHK: Tensor) -> None:
        at_NTHK = self.place_NT[:, :, None, None].expand_as(k_NTHK)
        self.k_NMHK.scatter_(1, at_NTHK, k_NTHK.to(self.k_NMHK.dtype))
        self.v_NMHK.scatter_(1, at_NTHK, v_NTHK.to(self.v_NMHK.dtype))


class Stream(NamedTuple):
    """What runs between the parts of a block: what the next part's output is added to, and what that part reads."""

    sum: Tensor
    read: Tensor


class Residual(nn.Module):
    """The norm and the dropout around a part: x + Drop(f(norm x)) (pre) or norm(x + Drop(f x)) (post; the paper's)."""

    def __init__(
        self, width: int, dropout: float, place: NormPlace, kind: NormKind = "layer", epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        self.kind = kind
        self.norm = make_norm(kind, width, epsilon)
        self.dropout = Dropout(dropout)
        self.place = place

    def without_twin(self, device: torch.device) -> list[str]:
        if device.type != "cuda" or kernels.takes_norm(self.norm):
            return []
        norm = (
            "layer norm as wide" if self.kind == "layer" else "no norm" if self.kind == "none" else f"{self.kind} norm"
        )
        return [f"residual sum with {norm} takes several passes over memory"]

    def join(self, stream: Stream, part: Product, following: Norm | None, layout: Layout) -> Stream:
        """Behind the part: the sum, and what the next part reads. Pre-norm takes the norm of that part, `following`.

        So that either way sum and norm are one pass over memory; without a next part there is no norm to take.
        """
        if self.place == "post":
            return Stream(*kernels.residual_norm(stream.sum, part, self.norm, self.dropout, layout)[1:])
        if following is None:
            y = kernels.residual(stream.sum, part, self.dropout)
            return Stream(y, y)
        return Stream(*kernels.residual_norm(stream.sum, part, following, self.dropout, layout)[:2])


class Block(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        dropout: float,
        attention_dropout: float = 0.0,
        norm: NormPlace,
        activation: Activation,
        memory_width: int | None,
        causal: bool,
        gated: bool = False,
        norm_kind: NormKind = "layer",
        epsilon: float = 1e-5,
        places: NoPlaces | None = None,
        pattern: Pattern | None = None,
        slots: Linformer | None = None,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.look_self = SelfAttention(
            width, heads, dropout=attention_dropout, places=places, pattern=pattern, slots=slots
        )
        self.around_self = Residual(width, dropout, norm, norm_kind, epsilon)
        self.look_memory = self.around_memory = None
        if memory_width is not None:
            self.look_memory = CrossAttention(width, heads, memory_width, dropout=attention_dropout)
            self.around_memory = Residual(width, dropout, norm, norm_kind, epsilon)
        self.feed_forward = FeedForward(width, inner, dropout, activation, gated=gated)
        self.around_feed_forward = Residual(width, dropout, norm, norm_kind, epsilon)

    def remember(self, memory: Tensor, layout: Layout) -> Memory:
        """The source as this block's cross-attention reads it: made once, not once a step."""
        if self.look_memory is None:
            raise TypeError("a block without cross-attention has no memory")
        return Memory(self.look_memory.keys_values(memory), layout)

    def enter(self, x: Tensor, layout: Layout) -> Stream:
        return Stream(x, x if self.around_self.place == "post" else normed(self.around_self.norm, x, layout))

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        *,
        memory: Memory | None = None,
        cache: Cache | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        """A block by itself; in a stack, `advance` also takes the norm that follows."""
        return self.advance(self.enter(x, layout), layout, None, memory=memory, cache=cache, watch=watch).sum

    def advance(
        self,
        stream: Stream,
        layout: Layout,
        following: Norm | None,
        *,
        memory: Memory | None = None,
        cache: Cache | None = None,
        watch: Watch | None = None,
        between_BTT: Tensor | None = None,
    ) -> Stream:
        last = self.around_feed_forward.norm
        mixed = self._mix_self(stream.read, layout, cache, watch, between_BTT)
        if self.around_memory is None or memory is None:
            stream = self.around_self.join(stream, mixed, last, layout)
        else:
            stream = self.around_self.join(stream, mixed, self.around_memory.norm, layout)
            mixed = self._mix_memory(stream.read, layout, memory, watch)
            stream = self.around_memory.join(stream, mixed, last, layout)
        return self.around_feed_forward.join(stream, self.feed_forward(stream.read), following, layout)

    def _mix_self(
        self, x: Tensor, layout: Layout, cache: Cache | None, watch: Watch | None, between_BTT: Tensor | None
    ) -> Product:
        qkv = self.look_self.project(x)
        if cache is None:
            kind = "decoder" if self.causal else "encoder"
            mixed = self.look_self.look(
                qkv, layout, causal=self.causal, watch=watch, kind=kind, between_BTT=between_BTT
            )
        else:
            q_NTHK, k_NTHK, v_NTHK = self.look_self.places.turn(qkv, cache.place_NT).unbind(-3)
            cache.write(k_NTHK, v_NTHK)
            mixed = self.look_self.look_back(q_NTHK, cache.k_NMHK, cache.v_NMHK, cache.place_NT, cache.shade_N1TM)
        return self.look_self.heads.join(mixed)

    def _mix_memory(self, x: Tensor, layout: Layout, memory: Memory, watch: Watch | None) -> Product:
        assert self.look_memory is not None  # a block has both or neither
        mine, q = self.look_memory, self.look_memory.queries(x)
        if layout.is_packed:
            return mine.heads.join(mine.look(q, memory.kv, layout, memory.layout, watch))
        N, T, H, K = q.shape
        # The hypotheses of one sentence are further queries to the same memory, which is never repeated.
        B = len(memory.layout.lengths_B)
        further = layout if N == B else Layout(memory.layout.lengths_B, N // B * T)
        q_BQHK = q.reshape(B, -1, H, K)
        mixed_BQHK = mine.look(q_BQHK, memory.kv, further, memory.layout, watch, memory.shade_B11S)
        return mine.heads.join(mixed_BQHK.reshape(N, T, H, K))


class Stack(nn.Module):
    """Blocks on one another; a pre-norm stack leaves its sum unnormalised, so that one norm stands behind it."""

    def __init__(
        self,
        blocks: Sequence[Block],
        width: int,
        norm: NormPlace,
        norm_kind: NormKind = "layer",
        epsilon: float = 1e-5,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = make_norm(norm_kind, width, epsilon) if norm == "pre" else None

    def __iter__(self) -> Iterator[Block]:
        return (block for block in self.blocks if isinstance(block, Block))

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        *,
        memories: Sequence[Memory] | None = None,
        caches: Sequence[Cache] | None = None,
        watch: Watch | None = None,
        between_BTT: Tensor | None = None,
    ) -> Tensor:
        """One memory and one cache a block; how words stand in their trees (nn/tree.py) is the same for all."""
        blocks = list(self)
        norms = [*(block.around_self.norm for block in blocks[1:]), self.norm]  # what follows each block
        stream = blocks[0].enter(x, layout)
        for level, (block, following) in enumerate(zip(blocks, norms, strict=True)):
            stream = block.advance(
                stream,
                layout,
                following,
                memory=None if memories is None else memories[level],
                cache=None if caches is None else caches[level],
                watch=watch,
                between_BTT=between_BTT,
            )
        return stream.read
