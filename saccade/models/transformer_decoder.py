"""The Transformer's decoder: causal blocks that look at the memory.

Shapes: B sentences, N hypotheses, T target tokens, S source tokens, M places of the cache, D width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from saccade.models.encoders import TransformerConfig, embedding_of, stack_of
from saccade.nn import masks
from saccade.nn.transformer import Cache, Memory
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout, State, Tokens, Tree


class TransformerDecoder(nn.Module):
    computes_padding = False

    def __init__(self, config: TransformerConfig, vocabulary: int, memory_width: int) -> None:
        super().__init__()
        self.width = config.width
        self.heads = config.heads
        self.embed = embedding_of(config, vocabulary)
        self.stack = stack_of(config, memory_width=memory_width, causal=True)
        self.output = nn.Linear(config.width, vocabulary)

    def start(self, encoded: Encoded, max_steps: int) -> State:
        layout = encoded.layout
        memory_BSE = masks.pad(encoded.memory, layout)
        source: Tree = {"kv": tuple(block.remember(memory_BSE, layout.unpacked()).kv for block in self.stack)}
        if not layout.even:
            source["lengths"] = layout.lengths_B
        rows, H = len(layout.lengths_B), self.heads
        empty = tuple(memory_BSE.new_zeros(rows, max_steps, H, self.width // H) for _ in self.stack)
        place_N = torch.zeros(rows, dtype=torch.long, device=memory_BSE.device)
        return State(source, {"k": empty, "v": tuple(x.clone() for x in empty), "place": place_N})

    def features(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """What the output layer scores for every next token, given the gold ones before it; laid out as those."""
        # What stands behind a target's end is never looked at: to the blocks, padded rows are all as long.
        layout = given.layout if given.layout.is_packed else _even(given.ids)
        x = self.embed(given.ids, masks.positions(layout), layout.longest)  # (B, T, D) or (N, D)
        memories = [block.remember(encoded.memory, encoded.layout) for block in self.stack]
        out: Tensor = self.stack(x, layout, memories=memories, watch=watch)
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
        memories = [Memory(kv_BS2HK, _read(kv_BS2HK, state)) for kv_BS2HK in state.source["kv"]]
        places = zip(state.hypothesis["k"], state.hypothesis["v"], strict=True)
        caches = [Cache(k_NMHK, v_NMHK, place_N) for k_NMHK, v_NMHK in places]
        out_NTD = self.stack(x_NTD, layout, memories=memories, caches=caches)
        hypothesis = state.hypothesis | {"place": place_N + prefix_NT.shape[1]}
        return self.output(out_NTD), State(state.source, hypothesis)


def _read(kv_BS2HK: Tensor, state: State) -> Layout:
    """Where the source lies that is read."""
    rows, S = kv_BS2HK.shape[:2]
    lengths_B = state.source.get("lengths")
    if lengths_B is None:
        return Layout(torch.full((rows,), S, device=kv_BS2HK.device), S, even=True)
    return Layout(lengths_B, S)


def _even(ids_NT: Tensor) -> Layout:
    """Every row is as long as the longest: what stands behind a target's end is never looked at."""
    rows, tokens = ids_NT.shape
    return Layout(torch.full((rows,), tokens, device=ids_NT.device), tokens, even=True)
