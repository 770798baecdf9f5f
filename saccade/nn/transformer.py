"""The Transformer's block (Vaswani et al. 2017): self-attention, cross-attention where there is a memory, feed-forward.

Encoder and decoder are the same block: the decoder's is causal and looks at a memory.
Shapes: B sentences, N hypotheses (B × beam), T tokens, S source tokens, M places of the cache, H heads, K head width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import kernels
from saccade.nn.attention import FeedForward, MultiHead
from saccade.nn.dropout import Dropout
from saccade.nn.watch import Watch
from saccade.types import Layout

NormPlace = Literal["pre", "post"]


@dataclass(frozen=True)
class Memory:
    """What cross-attention reads: keys and values of the source, (…, H, K), and where they lie."""

    k: Tensor
    v: Tensor
    layout: Layout


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far, in places made beforehand, and where the next ones go."""

    k_NMHK: Tensor
    v_NMHK: Tensor
    place_N: Tensor

    def write(self, k_NTHK: Tensor, v_NTHK: Tensor) -> None:
        tokens = k_NTHK.shape[1]
        at_NT = self.place_N[:, None] + torch.arange(tokens, device=k_NTHK.device)
        at_NTHK = at_NT[:, :, None, None].expand_as(k_NTHK)
        self.k_NMHK.scatter_(1, at_NTHK, k_NTHK.to(self.k_NMHK.dtype))
        self.v_NMHK.scatter_(1, at_NTHK, v_NTHK.to(self.v_NMHK.dtype))

    def may_look(self, tokens: int) -> Tensor:
        """(N, 1, T, M): each new token sees the places up to its own."""
        at_NT = self.place_N[:, None] + torch.arange(tokens, device=self.place_N.device)
        places_M = torch.arange(self.k_NMHK.shape[1], device=self.place_N.device)
        return (places_M <= at_NT[:, :, None])[:, None]


class Residual(nn.Module):
    """x + Drop(f(norm x)) before the sum (pre) or norm(x + Drop(f x)) behind it (post; the paper's)."""

    def __init__(self, width: int, dropout: float, place: NormPlace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.place = place

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        if self.place == "pre":
            before: Tensor = x + self.dropout(f(self.norm(x)))
            return before
        behind: Tensor = self.norm(x + self.dropout(f(x)))
        return behind


class Block(nn.Module):
    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        dropout: float,
        norm: NormPlace,
        activation: Literal["relu", "gelu"],
        memory_width: int | None,
        causal: bool,
    ) -> None:
        super().__init__()
        self.causal = causal
        self.look_self = MultiHead(width, heads)
        self.around_self = Residual(width, dropout, norm)
        self.look_memory = None if memory_width is None else MultiHead(width, heads, memory_width=memory_width)
        self.around_memory = None if memory_width is None else Residual(width, dropout, norm)
        self.feed_forward = FeedForward(width, inner, dropout, activation)
        self.around_feed_forward = Residual(width, dropout, norm)

    def remember(self, memory: Tensor, layout: Layout) -> Memory:
        """The source as this block's cross-attention reads it: made once, not once a step."""
        if self.look_memory is None:
            raise TypeError("a block without cross-attention has no memory")
        return Memory(*self.look_memory.keys_values(memory), layout)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        *,
        memory: Memory | None = None,
        cache: Cache | None = None,
        watch: Watch | None = None,
    ) -> Tensor:
        x = self.around_self(x, lambda y: self._mix_self(y, layout, cache, watch))
        if self.around_memory is not None and memory is not None:
            x = self.around_memory(x, lambda y: self._mix_memory(y, layout, memory, watch))
        out: Tensor = self.around_feed_forward(x, self.feed_forward)
        return out

    def _mix_self(self, x: Tensor, layout: Layout, cache: Cache | None, watch: Watch | None) -> Tensor:
        mine = self.look_self
        q, (k, v) = mine.queries(x), mine.keys_values(x)
        if cache is not None:
            cache.write(k, v)
            seen = cache.may_look(q.shape[1])
            return mine.join(kernels.dot_product(q, cache.k_NMHK, cache.v_NMHK, seen, causal=False))
        kind = "decoder" if self.causal else "encoder"
        return mine.look(q, k, v, layout, layout, causal=self.causal, watch=watch, kind=kind)

    def _mix_memory(self, x: Tensor, layout: Layout, memory: Memory, watch: Watch | None) -> Tensor:
        assert self.look_memory is not None  # a block has both or neither
        q = self.look_memory.queries(x)
        if layout.is_packed:
            return self.look_memory.look(q, memory.k, memory.v, layout, memory.layout, watch=watch, kind="cross")
        N, T, H, K = q.shape
        # The hypotheses of one sentence are further queries to the same memory, which is never repeated.
        B = len(memory.layout.lengths_B)
        further = layout if N == B else Layout(memory.layout.lengths_B, N // B * T)
        mixed_BQD = self.look_memory.look(
            q.reshape(B, -1, H, K), memory.k, memory.v, further, memory.layout, watch=watch, kind="cross"
        )
        return mixed_BQD.reshape(N, T, -1)
