"""The Transformer's decoder: causal blocks that look at the memory.

Shapes: B sentences, N hypotheses, T target tokens, S source tokens, M places of the cache, D width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from saccade.models.encoders import TransformerConfig, blocks_of, embedding_of, final_norm
from saccade.nn import masks
from saccade.nn.transformer import Block, Cache, Memory
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout, State, Tokens, Tree


class TransformerDecoder(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int, memory_width: int) -> None:
        super().__init__()
        self.width = config.width
        self.heads = config.heads
        self.embed = embedding_of(config, vocabulary)
        self.blocks = blocks_of(config, memory_width=memory_width, causal=True)
        self.norm = final_norm(config)
        self.output = nn.Linear(config.width, vocabulary)

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def start(self, encoded: Encoded, max_steps: int) -> State:
        layout = encoded.layout
        memory_BSE = masks.pad(encoded.memory, layout)
        memories = [block.remember(memory_BSE, layout.unpacked()) for block in self._blocks()]
        source: Tree = {"k": tuple(memory.k for memory in memories), "v": tuple(memory.v for memory in memories)}
        if not layout.even:
            source["lengths"] = layout.lengths_B
        rows, H = len(layout.lengths_B), self.heads
        empty = tuple(memory_BSE.new_zeros(rows, max_steps, H, self.width // H) for _ in memories)
        place_N = torch.zeros(rows, dtype=torch.long, device=memory_BSE.device)
        return State(source, {"k": empty, "v": tuple(x.clone() for x in empty), "place": place_N})

    def features(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """What the output layer scores for every next token, given the gold ones before it; laid out as those."""
        # What stands behind a target's end is never looked at: to the blocks, padded rows are all as long.
        layout = given.layout if given.layout.is_packed else _even(given.ids)
        x: Tensor = self.embed(given.ids, masks.positions(layout))  # (B, T, D) or (N, D)
        for block in self._blocks():
            memory = block.remember(encoded.memory, encoded.layout)
            x = block(x, layout, memory=memory, watch=watch)
        out: Tensor = self.norm(x)
        return out

    def forward(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every next token."""
        logits: Tensor = self.output(self.features(given, encoded, watch))
        return logits

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        layout, place_N = _even(prefix_NT), state.hypothesis["place"]
        at_NT = place_N[:, None] + torch.arange(prefix_NT.shape[1], device=prefix_NT.device)
        x_NTD = self.embed(prefix_NT, at_NT)
        S = state.source["k"][0].shape[1]
        lengths_B = state.source.get("lengths")
        read = _even(state.source["k"][0][:, :, 0, 0]) if lengths_B is None else Layout(lengths_B, S)
        for level, block in enumerate(self._blocks()):
            memory = Memory(state.source["k"][level], state.source["v"][level], read)
            cache = Cache(state.hypothesis["k"][level], state.hypothesis["v"][level], place_N)
            x_NTD = block(x_NTD, layout, memory=memory, cache=cache)
        hypothesis = state.hypothesis | {"place": place_N + prefix_NT.shape[1]}
        return self.output(self.norm(x_NTD)), State(state.source, hypothesis)


def _even(ids_NT: Tensor) -> Layout:
    """Every row is as long as the longest: what stands behind a target's end is never looked at."""
    rows, tokens = ids_NT.shape
    return Layout(torch.full((rows,), tokens, device=ids_NT.device), tokens, even=True)
