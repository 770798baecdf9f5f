"""The Transformer's decoder: causal blocks that look at the memory.

Shapes: B sentences, N hypotheses, T target tokens, S source tokens, M places of the cache, D width, V vocabulary.
"""

import torch
from torch import Tensor, nn

from saccade.loss import Loss, output_loss
from saccade.models.transformer_config import TransformerConfig, embedding_of, stack_of
from saccade.models.transformer_encoder import entrance_of
from saccade.nn import masks
from saccade.nn.transformer import Cache, Memory
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout, State, Tokens, Tree


class TransformerDecoder(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int, memory_width: int | None) -> None:
        """`memory_width` is None where there is no memory to look at: models/causal_transformer.py."""
        super().__init__()
        config.check_causal()
        self.width = config.width
        self.heads = config.heads
        self.computes_padding, self.mixes_sentences = config.computes_padding, config.mixes_sentences
        self.embed = embedding_of(config, vocabulary)
        self.enter = entrance_of(config)
        self.stack = stack_of(config, memory_width=memory_width, causal=True)
        self.output = nn.Linear(config.width, vocabulary)

    def start(self, encoded: Encoded, max_steps: int) -> State:
        layout = encoded.layout
        memory_BSE = masks.pad(encoded.memory, layout)
        source: Tree = {"kv": tuple(block.remember(memory_BSE, layout.unpacked()).kv for block in self.stack)}
        if not layout.even:
            source["lengths"] = layout.lengths_B
            # Of a sentence without tokens there is nothing to see, wherever one looks.
            empty_B1111 = (layout.lengths_B == 0)[:, None, None, None, None]
            source["kv"] = tuple(kv_BS2HK.masked_fill(empty_B1111, 0.0) for kv_BS2HK in source["kv"])
        return State(source, self.nothing_yet(memory_BSE, max_steps))

    def nothing_yet(self, like: Tensor, max_steps: int) -> Tree:
        """Caches for as many rows as `like` has, and the place of the first token."""
        rows, H = len(like), self.heads
        empty = tuple(like.new_zeros(rows, max_steps, H, self.width // H) for _ in self.stack)
        place_N = torch.zeros(rows, dtype=torch.long, device=like.device)
        return {"k": empty, "v": tuple(x.clone() for x in empty), "place": place_N}

    def features(self, given: Tokens, encoded: Encoded | None, watch: Watch | None = None) -> Tensor:
        """What the output layer scores for every next token, given the gold ones before it; laid out as those."""
        layout = given.layout
        x = self.entered(given.ids, masks.positions(layout), layout, layout.longest)  # (B, T, D) or (N, D)
        memories = None
        if encoded is not None:
            memories = [block.remember(encoded.memory, encoded.layout) for block in self.stack]
        out: Tensor = self.stack(x, layout, memories=memories, watch=watch)
        return out

    def entered(self, ids: Tensor, place: Tensor, layout: Layout, places: int | None = None) -> Tensor:
        x: Tensor = self.embed(ids, place, places)
        return x if self.enter is None else self.enter(x, layout)

    def at_update(self, update: int) -> None:
        """Nothing of it changes as training goes on."""

    def loss(self, given: Tokens, encoded: Encoded, target: Tokens, smoothing: float) -> Loss:
        return output_loss(self.features(given, encoded), self.output, target, smoothing)

    def forward(self, given: Tokens, encoded: Encoded | None, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every next token."""
        logits: Tensor = self.output(self.features(given, encoded, watch))
        return logits

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    @property
    def cross_layers(self) -> int:
        return len(self.stack.blocks)

    def prefill(self, prefix_NT: Tensor, state: State, watch: Watch | None = None) -> tuple[Tensor, State]:
        layout, place_N = _even(prefix_NT), state.hypothesis["place"]
        at_NT = place_N[:, None] + torch.arange(prefix_NT.shape[1], device=prefix_NT.device)
        x_NTD = self.entered(prefix_NT, at_NT, layout)
        caches = Cache.each(state.hypothesis["k"], state.hypothesis["v"], at_NT)
        out_NTD = self.stack(x_NTD, layout, memories=_memories(state), caches=caches, watch=watch)
        hypothesis = state.hypothesis | {"place": place_N + prefix_NT.shape[1]}
        return self.output(out_NTD), State(state.source, hypothesis)


def _memories(state: State) -> list[Memory] | None:
    """One a block; where the source lies that is read, and the mask of its padding, are the same for all."""
    every: tuple[Tensor, ...] = state.source.get("kv", ())
    if not every:
        return None
    rows, S = every[0].shape[:2]
    lengths_B = state.source.get("lengths")
    if lengths_B is None:
        layout = Layout(torch.full((rows,), S, device=every[0].device), S, even=True)
        return [Memory(kv_BS2HK, layout) for kv_BS2HK in every]
    layout = Layout(lengths_B, S)
    shade_B11S = masks.shade(masks.valid_BT(layout)[:, None, None], every[0].dtype)
    return [Memory(kv_BS2HK, layout, shade_B11S) for kv_BS2HK in every]


def _even(ids_NT: Tensor) -> Layout:
    """Every row is as long as the longest."""
    rows, tokens = ids_NT.shape
    return Layout(torch.full((rows,), tokens, device=ids_NT.device), tokens, even=True)
