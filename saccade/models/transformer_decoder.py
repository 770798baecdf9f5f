"""The Transformer's decoder: causal blocks that look at the memory.

Shapes: B sentences, N hypotheses, T target tokens, S source tokens, M places of the cache, D width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from saccade.models.encoders import TransformerConfig, blocks_of, embedding_of, final_norm
from saccade.nn.transformer import Block, Cache, Memory
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout, State


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
        memories = [block.remember(encoded.memory_BSE, encoded.layout) for block in self._blocks()]
        source = {"k": tuple(m.k_BHSK for m in memories), "v": tuple(m.v_BHSK for m in memories)}
        if memories[0].may_look_B1S is not None:
            source["may_look"] = (memories[0].may_look_B1S,)
        B, H = len(encoded.memory_BSE), self.heads
        empty = tuple(encoded.memory_BSE.new_zeros(B, H, max_steps, self.width // H) for _ in memories)
        place_N = torch.zeros(B, dtype=torch.long, device=encoded.memory_BSE.device)
        return State(source, {"k": empty, "v": tuple(x.clone() for x in empty), "place": place_N})

    def forward(self, input_BT: Tensor, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Logits (B, T, V) of every next token, given the gold ones before it."""
        layout = _even(input_BT)
        x_BTD = self.embed(input_BT, torch.arange(input_BT.shape[1], device=input_BT.device))
        for block in self._blocks():
            memory = block.remember(encoded.memory_BSE, encoded.layout)
            x_BTD = block(x_BTD, layout, memory=memory, watch=watch)
        logits_BTV: Tensor = self.output(self.norm(x_BTD))
        return logits_BTV

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        layout, place_N = _even(prefix_NT), state.hypothesis["place"]
        at_NT = place_N[:, None] + torch.arange(prefix_NT.shape[1], device=prefix_NT.device)
        x_NTD = self.embed(prefix_NT, at_NT)
        may_look = state.source["may_look"][0] if "may_look" in state.source else None
        for level, block in enumerate(self._blocks()):
            memory = Memory(state.source["k"][level], state.source["v"][level], may_look)
            cache = Cache(state.hypothesis["k"][level], state.hypothesis["v"][level], place_N)
            x_NTD = block(x_NTD, layout, memory=memory, cache=cache)
        hypothesis = state.hypothesis | {"place": place_N + prefix_NT.shape[1]}
        return self.output(self.norm(x_NTD)), State(state.source, hypothesis)


def _even(ids_NT: Tensor) -> Layout:
    """Every row is as long as the longest: what stands behind a target's end is never looked at."""
    rows, tokens = ids_NT.shape
    return Layout(torch.full((rows,), tokens, device=ids_NT.device), tokens, even=True)
