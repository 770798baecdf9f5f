"""Which tokens self-attention looks at where it does not look at all: cost that grows with n, not with n².

The readable form of a pattern is a mask, `may_look`. `by_blocks` computes the same without it: queries in blocks, each
with the keys of the few blocks it sees laid side by side, through dense kernels; that trains on a CPU, too.
Shapes: B sentences, H heads, T tokens, S keys, K head width, C tokens a block, N blocks of queries, W keys that a block
of queries sees, R blocks drawn at random.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.types import Layout

LEAST_BLOCK = 16  # tokens: smaller products do not pay

# queries (B, H, T, K), keys and values (B, H, S, K), may_look and distance broadcast to (B, H, T, S) -> (B, H, T, K)
Mix = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Window:
    """Each token sees `width` tokens on either side; a causal one sees as many back (Beltagy et al. 2020)."""

    width: int
    kind = "window"

    @property
    def block(self) -> int:
        return max(LEAST_BLOCK, -(-self.width // LEAST_BLOCK) * LEAST_BLOCK)

    reach = 1  # blocks on either side: a block is at least as wide as the window
    begins = 0
    drawn = 0

    def sees_all_of(self, tokens: int) -> bool:
        return tokens <= self.width + 1

    def may_look(self, query: Tensor, key: Tensor, lengths: Tensor, *, causal: bool) -> Tensor:
        """Places (…, T) and (…, S) -> (…, 1, T, S)."""
        return self.near(query[..., None, :, None], key[..., None, None, :])

    def near(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key).abs() <= self.width

    def draw(self, block: Tensor, whole: Tensor | None) -> Tensor:
        return block.new_empty(*block.shape[:-1], 1, block.shape[-1], 0)


@dataclass(frozen=True)
class BigBird:
    """Zaheer et al. (2020) in blocks, with tokens of the sequence itself as the global ones (ITC).

    A block sees itself and `reach` blocks on either side, the first `begins` blocks, which see everything and are seen
    by all, and `drawn` further blocks, drawn for each head and block of queries among those it does not see already.
    The paper's code has the first and the last block global; here they are the first ones, since where a sentence ends
    is no place of a padded batch or of a sentence that is still being written. Drawn are blocks that are whole. A
    causal one draws among earlier blocks. The draw is a function of seed, layer, head, block and number of blocks.
    """

    heads: int
    block: int
    reach: int
    begins: int
    drawn: int
    seed: int
    layer: int
    kind = "bigbird"

    @property
    def key(self) -> int:
        """What seed and layer make of the draw."""
        return int(_scrambled(self.seed, self.layer))

    def sees_all_of(self, tokens: int) -> bool:
        return -(-tokens // self.block) <= max(self.reach + 1, self.begins)

    def near(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Blocks are seen whole."""
        return None

    def may_look(self, query: Tensor, key: Tensor, lengths: Tensor, *, causal: bool) -> Tensor:
        """Places (…, T) and (…, S), lengths (…) -> (…, H, T, S)."""
        block, seen = query // self.block, (key // self.block)[..., None, None, :]
        drawn = self.draw(block, None if causal else lengths[..., None] // self.block)
        mine = block[..., None, :, None]
        whole_rows = (mine < self.begins) & (not causal)
        may_look = ((mine - seen).abs() <= self.reach) | (seen < self.begins) | whole_rows
        return may_look | (drawn[..., None] == seen[..., None, :]).any(-2)

    def draw(self, block: Tensor, whole: Tensor | None) -> Tensor:
        """For each block of queries (…, T) the blocks drawn, (…, H, T, R), all unlike; −1 where none is left.

        `whole`: how many whole blocks the sentence has; None where only earlier ones are seen.
        """
        mine = block[..., None, :]  # (…, 1, T)
        if whole is None:
            first = last = (mine - self.reach).clamp(min=self.begins)
            left = first - self.begins
        else:  # what is near and whole is left out
            end = whole[..., None, :].clamp(min=self.begins)
            first = (mine - self.reach).clamp(min=self.begins).minimum(end)
            last = (mine + self.reach + 1).clamp(min=self.begins).minimum(end)
            left = end - self.begins - (last - first)
        heads_H1 = torch.arange(self.heads, device=block.device)[:, None]
        key: Tensor = _scrambled(self.seed, self.layer, heads_H1, mine)  # as in nn/triton_draw.py
        taken: list[Tensor] = []
        for turn in range(self.drawn):
            pick = _scrambled(key, turn) % (left - turn).clamp(min=1)
            for earlier in torch.stack(taken).sort(0).values if taken else ():
                pick = pick + (pick >= earlier)
            taken.append(pick)
        if not taken:
            return block.new_empty(*key.shape, 0)
        picks = torch.stack(taken, dim=-1) + self.begins  # counted without those that are near
        picks = torch.where(picks >= first[..., None], picks + (last - first)[..., None], picks)
        return picks.where(torch.arange(self.drawn, device=block.device) < left[..., None], -1)


Pattern = Window | BigBird


def _scrambled(*parts: Any) -> Any:
    """Whole numbers or tensors of them in, one of 31 bits out that looks like chance; no product exceeds 63 bits."""
    mixed: Any = 0
    for part in parts:
        mixed = (mixed * 31 + part + 0x2545F491) & 0x7FFFFFFF
        for _ in range(2):
            mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
        mixed = mixed ^ (mixed >> 16)
    return mixed


def by_blocks(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHK: Tensor,
    layout: Layout,
    pattern: Pattern,
    mix: Mix,
    *,
    causal: bool,
    placed: bool,
) -> Tensor:
    """What each token sees (B, T, H, K), as `mix` takes it from the keys laid beside it.

    `placed`: it asks for distances; they are not made else.
    """
    tokens, C = q_BTHK.shape[1], pattern.block
    q, k, v = (F.pad(x.transpose(1, 2), (0, 0, 0, -tokens % C)) for x in (q_BTHK, k_BTHK, v_BTHK))  # (B, H, T, K)
    lengths_B = layout.lengths_B[:1] if layout.even else layout.lengths_B
    begin = pattern.begins * C
    parts = []
    if begin:
        parts.append(_first(q, k, v, begin, lengths_B, mix, causal=causal))
    if begin < q.shape[2]:
        parts.append(_rest(q, k, v, _Seen(pattern, q.shape[2] // C, lengths_B, causal), mix, placed=placed))
    return torch.cat(parts, dim=2)[:, :, :tokens].transpose(1, 2)


def _first(q: Tensor, k: Tensor, v: Tensor, begin: int, lengths_B: Tensor, mix: Mix, *, causal: bool) -> Tensor:
    """The global tokens: they see everything, a causal one everything before it."""
    q = q[:, :, :begin]
    k, v = (k[:, :, :begin], v[:, :, :begin]) if causal else (k, v)
    query, key = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
    distance_TS = key - query[:, None]
    may_look = distance_TS <= 0 if causal else (key < lengths_B[:, None])[:, None, None]
    return mix(q, k, v, may_look, distance_TS)


def _rest(q: Tensor, k: Tensor, v: Tensor, seen: "_Seen", mix: Mix, *, placed: bool) -> Tensor:
    """All other blocks: (B, H, T, K) -> (B, H, T less the first, K)."""
    B, H, T, K = q.shape
    begins, C = seen.pattern.begins, seen.pattern.block
    q_BNHCK = q.view(B, H, T // C, C, K)[:, :, begins:].transpose(1, 2)
    keys, values = (seen.beside(x).flatten(0, 1) for x in (k, v))
    may_look = seen.may_look()
    distance = seen.distance() if placed else None
    if distance is not None and distance.ndim > 2:
        distance = distance.expand(B, -1, -1, -1, -1).flatten(0, 1)
    mixed = mix(q_BNHCK.flatten(0, 1), keys, values, may_look.expand(B, -1, -1, -1, -1).flatten(0, 1), distance)
    return mixed.view(B, -1, H, C, K).transpose(1, 2).flatten(2, 3)


class _Seen:
    """The keys that each block of queries behind the first ones has beside it: the first, the near, those drawn."""

    def __init__(self, pattern: Pattern, blocks: int, lengths_B: Tensor, causal: bool) -> None:
        self.pattern, self.blocks, self.lengths_B, self.causal = pattern, blocks, lengths_B, causal
        self.ahead = 0 if causal else pattern.reach
        device = lengths_B.device
        self.within_C = torch.arange(pattern.block, device=device)
        self.block_N = torch.arange(pattern.begins, blocks, device=device)
        self.near_NJ = self.block_N[:, None] + torch.arange(-pattern.reach, self.ahead + 1, device=device)
        self.drawn_BHNR = pattern.draw(self.block_N[None], None if causal else lengths_B[:, None] // pattern.block)

    def beside(self, x: Tensor) -> Tensor:
        """(B, H, T, K) -> (B, N, H, W, K)."""
        B, H, _, K = x.shape
        begins, reach, C = self.pattern.begins, self.pattern.reach, self.pattern.block
        x = x.view(B, H, self.blocks, C, K).transpose(1, 2)
        wide = F.pad(x, (0, 0, 0, 0, 0, 0, reach, self.ahead))
        parts = [wide[:, begins + step : self.blocks + step] for step in range(reach + self.ahead + 1)]
        if begins:
            first = x[:, :begins].transpose(1, 2).reshape(B, 1, H, begins * C, K)
            parts.insert(0, first.expand(-1, len(self.block_N), -1, -1, -1))
        if self.pattern.drawn:  # by indices: the backward then sorts them, so that the same input gives the same bits
            sentence = torch.arange(B, device=x.device)[:, None, None, None]
            head = torch.arange(H, device=x.device)[:, None, None]
            some_BHNRCK = x[sentence, self.drawn_BHNR.clamp(min=0), head]
            parts.append(some_BHNRCK.transpose(1, 2).flatten(3, 4))
        return torch.cat(parts, dim=3)

    def _near_places(self) -> Tensor:
        """(N, JC)."""
        return (self.near_NJ[:, :, None] * self.pattern.block + self.within_C).flatten(1)

    def _query_places(self) -> Tensor:
        return self.block_N[:, None] * self.pattern.block + self.within_C

    def may_look(self) -> Tensor:
        """(B or 1, N, 1, C or 1, W): no block is there twice, no key behind the end or, where causal, ahead."""
        begins, C, N = self.pattern.begins, self.pattern.block, len(self.block_N)
        key_NW = self._near_places()
        inside = ((key_NW >= begins * C) & (key_NW < self.blocks * C))[:, None]  # (N, 1, W)
        query_NC1 = self._query_places()[:, :, None]
        band = self.pattern.near(query_NC1, key_NW[:, None])
        inside = inside if band is None else inside & band
        if self.causal:
            near = (inside & (key_NW[:, None] <= query_NC1))[None, :, None]
            first = near.new_ones(1, N, 1, 1, begins * C)
        else:
            near = (inside & (key_NW < self.lengths_B[:, None, None])[:, :, None])[:, :, None]
            places = torch.arange(begins * C, device=near.device)
            first = (places < self.lengths_B[:, None])[:, None, None, None].expand(-1, N, -1, -1, -1)
        there_BNR = (self.drawn_BHNR[:, 0] >= 0).repeat_interleave(C, dim=-1)
        rows, queries = near.shape[0], near.shape[3]
        every = (first, near, there_BNR[:, :, None, None])
        return torch.cat([part.expand(rows, -1, -1, queries, -1) for part in every], dim=-1)

    def distance(self) -> Tensor:
        """(B or 1, N, H or 1, C, W), or (C, W) where it is the same for all blocks."""
        begins, C, N = self.pattern.begins, self.pattern.block, len(self.block_N)
        if not begins and not self.pattern.drawn:
            return (self._near_places()[0] - self._query_places()[0][:, None]) if N else self.near_NJ.new_zeros(C, 0)
        drawn = (self.drawn_BHNR[..., None] * C + self.within_C).flatten(3).transpose(1, 2)  # (B, N, H, RC)
        first = torch.arange(begins * C, device=drawn.device)
        lead = drawn.shape[:3]
        key = torch.cat([first.expand(*lead, -1), self._near_places()[:, None].expand(*lead, -1), drawn], dim=-1)
        return key[..., None, :] - self._query_places()[:, None, :, None]
