"""The Transformer's block (Vaswani et al. 2017): self-attention, cross-attention where there is a memory, feed-forward.

Encoder and decoder are the same block: the decoder's is causal and looks at a memory.
Shapes: B sentences, N hypotheses (B × beam), T tokens, S source tokens, M places of the cache, H heads, K head width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import masks
from saccade.nn.attention import FeedForward, MultiHead
from saccade.nn.watch import Watch
from saccade.types import Layout

NormPlace = Literal["pre", "post"]


@dataclass(frozen=True)
class Memory:
    """What cross-attention reads: keys and values of the source, and which of them are real."""

    k_BHSK: Tensor
    v_BHSK: Tensor
    may_look_B1S: Tensor | None


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far, in places made beforehand, and where the next ones go."""

    k_NHMK: Tensor
    v_NHMK: Tensor
    place_N: Tensor

    def write(self, k_NHTK: Tensor, v_NHTK: Tensor) -> None:
        tokens = k_NHTK.shape[2]
        at_NT = self.place_N[:, None] + torch.arange(tokens, device=k_NHTK.device)
        at_NHTK = at_NT[:, None, :, None].expand_as(k_NHTK)
        self.k_NHMK.scatter_(2, at_NHTK, k_NHTK.to(self.k_NHMK.dtype))
        self.v_NHMK.scatter_(2, at_NHTK, v_NHTK.to(self.v_NHMK.dtype))

    def may_look(self, tokens: int) -> Tensor:
        """(N, 1, T, M): each new token sees the places up to its own."""
        at_NT = self.place_N[:, None] + torch.arange(tokens, device=self.place_N.device)
        places_M = torch.arange(self.k_NHMK.shape[2], device=self.place_N.device)
        return (places_M <= at_NT[:, :, None])[:, None]


class Residual(nn.Module):
    """x + Drop(f(norm x)) before the sum (pre) or norm(x + Drop(f x)) behind it (post; the paper's)."""

    def __init__(self, width: int, dropout: float, place: NormPlace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
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

    def remember(self, memory_BSE: Tensor, layout: Layout) -> Memory:
        """The source as this block's cross-attention reads it: made once, not once a step."""
        if self.look_memory is None:
            raise TypeError("a block without cross-attention has no memory")
        k_BHSK, v_BHSK = self.look_memory.keys_values(memory_BSE, layout)
        return Memory(k_BHSK, v_BHSK, masks.keys_B1S(layout))

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
        q_BHTK = self.look_self.queries(x, layout)
        k_BHSK, v_BHSK = self.look_self.keys_values(x, layout)
        kind = "decoder" if self.causal else "encoder"
        if cache is not None:
            cache.write(k_BHSK, v_BHSK)
            seen = cache.may_look(q_BHTK.shape[2])
            return self.look_self.mix(q_BHTK, cache.k_NHMK, cache.v_NHMK, may_look=seen, watch=watch, kind=kind)
        # Padding stands behind the real tokens, so a causal mask alone keeps it out of sight.
        keys = None if self.causal else masks.keys_B1S(layout)
        may_look = None if keys is None else keys[:, None]  # (B,1,S) -> (B,1,1,S)
        mixed = self.look_self.mix(
            q_BHTK, k_BHSK, v_BHSK, may_look=may_look, causal=self.causal, watch=watch, kind=kind
        )
        return masks.pack(mixed, layout)

    def _mix_memory(self, x: Tensor, layout: Layout, memory: Memory, watch: Watch | None) -> Tensor:
        assert self.look_memory is not None  # a block has both or neither
        q_NHTK = self.look_memory.queries(x, layout)
        N, H, T, K = q_NHTK.shape
        # The hypotheses of one sentence are further queries to the same memory, which is never repeated.
        beam = N // len(memory.k_BHSK)
        q_BHQK = q_NHTK.reshape(-1, beam, H, T, K).transpose(1, 2).reshape(-1, H, beam * T, K)
        may_look = None if memory.may_look_B1S is None else memory.may_look_B1S[:, None]
        mixed_BQD = self.look_memory.mix(
            q_BHQK, memory.k_BHSK, memory.v_BHSK, may_look=may_look, watch=watch, kind="cross"
        )
        return masks.pack(mixed_BQD.reshape(N, T, -1), layout)
