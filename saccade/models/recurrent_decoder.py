"""A recurrent decoder, without attention or with it, as in Luong et al. (2015).

The path is h_t → a_t → c_t → h̃_t = tanh(W [c_t; h_t]) → logits. With input feeding h̃_{t−1} is part of the next input;
without it the recurrence does not read the context, and all steps of a given target run at once.
Shapes: B sentences, N hypotheses, T target tokens, S source tokens, D width, E memory width, V vocabulary.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.config import Section
from saccade.models.bridge import Bridge, BridgeKind
from saccade.models.encoders import EncoderConfig
from saccade.nn import masks
from saccade.nn.attention import attend, make_score
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.recurrent import Memory, RecurrentLayers
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout, State, Tokens, Tree


class AttentionConfig(Section):
    score: Literal["dot", "general", "additive"] = "additive"
    """How the current state meets a key: dot, general (Luong et al. 2015) or additive (Bahdanau et al. 2015)."""
    scope: Literal["global"] = "global"
    """Which source tokens are looked at: all of them."""
    width: int | None = Field(None, ge=1)
    """Inner width of the additive score; the decoder's width where not given."""


class RecurrentDecoderConfig(Section):
    kind: Literal["elman", "lstm", "gru"] = "lstm"
    """Which recurrent cell."""
    layers: int = Field(1, ge=1)
    """How many layers are stacked."""
    width: int = Field(256, ge=1)
    """Width of each layer."""
    attention: AttentionConfig | None = None
    """How the decoder looks back at the source; none: it sees the source through its first state alone."""
    feed_input: bool = False
    """Feed the attentional vector of the last step into the next (Luong et al. 2015, section 3.3)."""
    bridge: BridgeKind = "linear"
    """What the first state is made of: the encoder's final states mapped or copied, the memory's mean, or zeros."""
    embedding: int | None = Field(None, ge=1)
    """Width of the token vectors; the layers' width where not given."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on token vectors, between layers and before the output."""

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    def check_with(self, encoder: EncoderConfig) -> None:
        """Refuse what makes no sense with this encoder, with the reason."""
        if self.attention is None and self.feed_input:
            raise ValueError("decoder.feed_input is on, but there is no decoder.attention whose vector could be fed")
        if self.attention is None and self.bridge == "zero":
            raise ValueError(
                "decoder.bridge is zero and there is no decoder.attention: nothing of the source reaches the decoder"
            )
        if self.bridge in ("linear", "copy") and not encoder.ends_in_states:
            raise ValueError(
                f"decoder.bridge is {self.bridge}, but a {encoder.kind} encoder ends in no state: use mean or zero"
            )
        theirs, mine = (encoder.kind, encoder.layers, encoder.width), (self.kind, self.layers, self.width)
        if self.bridge == "copy" and theirs != mine:
            raise ValueError(
                "decoder.bridge is copy: encoder and decoder must have the same kind, layers and width "
                f"(they have {theirs} and {mine}); or use bridge linear"
            )
        if self.attention and self.attention.score == "dot" and encoder.width != self.width:
            raise ValueError(
                f"decoder.attention.score is dot, which needs encoder.width ({encoder.width}) = decoder.width "
                f"({self.width}); make them equal or use general"
            )


class Reader(nn.Module):
    """The context of a query, and the attentional vector h̃ made of both."""

    def __init__(self, config: AttentionConfig, width: int, memory_width: int) -> None:
        super().__init__()
        self.score = make_score(config.score, width, memory_width, config.width or width)
        self.combine = nn.Linear(memory_width + width, width, bias=False)

    def prepare(self, encoded: Encoded) -> dict[str, Tensor]:
        memory_BSE = masks.pad(encoded.memory, encoded.layout)
        source = {"memory": memory_BSE, "keys": self.score.prepare(memory_BSE)}
        may_look = masks.keys_B1S(encoded.layout)
        return source if may_look is None else source | {"may_look": may_look}

    def forward(self, queries_BTD: Tensor, source: dict[str, Tensor], watch: Watch | None = None) -> Tensor:
        scores_BTS = self.score(queries_BTD, source["keys"])
        context_BTE, weights_BTS = attend(scores_BTS, source["memory"], source.get("may_look"))
        if watch is not None:
            watch.saw_attention("cross", weights_BTS[:, None])
        return torch.tanh(self.combine(torch.cat([context_BTE, queries_BTD], dim=-1)))


class RecurrentDecoder(nn.Module):
    computes_padding = True

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, memory_width: int) -> None:
        super().__init__()
        self.width = config.width
        self.feeds = config.feed_input
        embedding = config.embedding_width
        self.embed = TokenEmbedding(vocabulary, embedding, dropout=config.dropout)
        self.layers = RecurrentLayers(
            config.kind,
            embedding + (config.width if config.feed_input else 0),
            config.width,
            config.layers,
            bidirectional=False,
            dropout=config.dropout,
        )
        states = self.layers.first.states
        self.bridge = Bridge(config.bridge, memory_width, config.width, config.layers, states)
        self.reader = None if config.attention is None else Reader(config.attention, config.width, memory_width)
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.width, vocabulary)

    def start(self, encoded: Encoded, max_steps: int) -> State:
        hypothesis: Tree = {"layers": self.bridge(encoded)}
        if self.feeds:
            hypothesis["fed"] = encoded.memory.new_zeros(len(encoded.layout.lengths_B), self.width)
        return State({} if self.reader is None else self.reader.prepare(encoded), hypothesis)

    def features(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """What the output layer scores for every next token, given the gold ones before it; laid out as those."""
        x_BTD = masks.pad(self.embed(given.ids, _nowhere(given.ids)), given.layout)
        out_BTD, _ = self._read_on(x_BTD, self.start(encoded, x_BTD.shape[1]), watch)
        out: Tensor = self.dropout(masks.pack(out_BTD, given.layout))
        return out

    def forward(self, given: Tokens, encoded: Encoded, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every next token."""
        logits: Tensor = self.output(self.features(given, encoded, watch))
        return logits

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        out_NTD, after = self._read_on(self.embed(prefix_NT, _nowhere(prefix_NT)), state, None)
        return self.output(self.dropout(out_NTD)), after

    def _read_on(self, x_NTD: Tensor, state: State, watch: Watch | None) -> tuple[Tensor, State]:
        if self.feeds:
            out_NTD, hypothesis = self._feeding(x_NTD, state, watch)
        else:
            top_NTD, layers = self._advance(x_NTD, state.hypothesis["layers"], watch)
            out_NTD, hypothesis = self._read(top_NTD, state.source, watch), {"layers": layers}
        return out_NTD, State(state.source, hypothesis)

    def _advance(
        self, x_NTD: Tensor, layers: tuple[Memory, ...], watch: Watch | None
    ) -> tuple[Tensor, tuple[Memory, ...]]:
        rows, steps = x_NTD.shape[:2]
        if steps == 1 and watch is None:  # a fused kernel has nothing to fuse over one step
            top_ND, after = self.layers.step(self.layers.first.project(x_NTD[:, 0]), layers)
            return top_ND[:, None], after
        # Every row is as long as the longest here: what stands behind a target's end is never read.
        lengths_N = torch.full((rows,), steps, device=x_NTD.device)
        top_NTD, after = self.layers(x_NTD, Layout(lengths_N, steps, even=True), layers, watch)
        return top_NTD, after

    def _read(self, top_NTD: Tensor, source: dict[str, Tensor], watch: Watch | None) -> Tensor:
        if self.reader is None:
            return top_NTD
        # The hypotheses of one sentence are further queries to the same memory, which is never repeated.
        queries_BQD = top_NTD.reshape(len(source["memory"]), -1, self.width)
        read_BQD: Tensor = self.reader(queries_BQD, source, watch)
        return read_BQD.reshape(top_NTD.shape)

    def _feeding(self, x_NTD: Tensor, state: State, watch: Watch | None) -> tuple[Tensor, Tree]:
        """Step by step, since h̃ of one step is an input of the next; the tokens' part of the gates is made at once."""
        layers, fed_ND = state.hypothesis["layers"], state.hypothesis["fed"]
        weight_GI, width = self.layers.first.weight_ih, x_NTD.shape[-1]
        of_token_GD, of_fed_GD = weight_GI[:, :width], weight_GI[:, width:]
        tokens_NTG = F.linear(x_NTD, of_token_GD, self.layers.first.bias_ih)
        outs, looks = [], None if watch is None else Watch()
        for token_NG in tokens_NTG.unbind(1):
            top_ND, layers = self.layers.step(token_NG + F.linear(fed_ND, of_fed_GD), layers)
            # What is fed on is the vector before the output's dropout; toolkits differ here.
            fed_ND = self._read(top_ND[:, None], state.source, looks)[:, 0]
            outs.append(fed_ND)
        if watch is not None and looks is not None:
            watch.saw_attention("cross", torch.cat(looks.attention["cross"], dim=2))
        return torch.stack(outs, dim=1), {"layers": layers, "fed": fed_ND}


def _nowhere(ids: Tensor) -> Tensor:
    """A recurrent decoder's tokens need no places: their order is that of the steps."""
    return torch.zeros((), dtype=torch.long, device=ids.device)
