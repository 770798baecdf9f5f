"""The fixed-window language model of Bengio et al. (2003): the next token from a few before it, and no state.

Shapes: B texts, N hypotheses, T tokens, X token width, C tokens of context (order − 1), D width, V vocabulary.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config import Section
from saccade.models.reading import Carried, Reading, output_layer
from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.watch import Watch
from saccade.types import START, Layout, State, Tokens


class WindowConfig(Section):
    kind: Literal["window"] = "window"
    """The feed-forward network over a fixed window: what recurrent networks are compared with."""
    order: int = Field(5, ge=2)
    """As of an n-gram: a token is predicted from the order − 1 tokens before it."""
    width: int = Field(256, ge=1)
    """Width of the hidden layer."""
    embedding: int | None = Field(None, ge=1)
    """Width of the token vectors; the hidden layer's width where not given."""
    direct: bool = False
    """Token vectors also act on the output directly, past the hidden layer."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on token vectors and on the hidden layer."""

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    def output_width(self, memory_width: int = 0) -> int:
        """How wide the vector is that the output layer reads."""
        return self.width + (self.embedding_width * (self.order - 1) if self.direct else 0)

    def check_causal(self) -> None:
        """A window lies before its token."""


class WindowDecoder(nn.Module):
    """y = b + W x + U tanh(d + H x), x being the token vectors of the window side by side, the oldest first.

    W is there with `direct` alone; U and W are one layer, which reads [tanh(d + H x); x]. Before a text's beginning
    stands START, as often as the window asks.
    """

    computes_padding, mixes_sentences, forgets = True, False, False

    def __init__(self, config: WindowConfig, vocabulary: int) -> None:
        super().__init__()
        self.context, self.direct, self.width = config.order - 1, config.direct, config.width
        self.embed = TokenEmbedding(vocabulary, config.embedding_width, dropout=config.dropout)
        self.hidden = nn.Linear(self.context * config.embedding_width, config.width)
        self.dropout = Dropout(config.dropout)
        self.output = output_layer(config.output_width(), vocabulary)

    def begin(self, rows: int) -> Carried:
        """The tokens before the first, less one: the newest of a window is given."""
        shape, device = (rows, self.context - 1), self.output.weight.device
        return {"context": torch.full(shape, START, device=device)}

    def read(self, given: Tokens, carried: Carried, watch: Watch | None = None) -> Reading:
        layout = given.layout
        ids_BL = torch.cat([carried["context"], masks.pad(given.ids, layout)], dim=1)
        features_BTF = self._seen(ids_BL)
        before = torch.arange(self.context - 1, device=ids_BL.device)
        last_BC = ids_BL.gather(1, layout.lengths_B[:, None] + before)  # behind each text's own end
        return Reading(masks.pack(features_BTF, layout), {"context": last_BC})

    def _seen(self, ids_BL: Tensor) -> Tensor:
        """Features (B, L − C + 1, F) of every whole window of the tokens."""
        x_BLX = self.embed(ids_BL, torch.zeros((), dtype=torch.long, device=ids_BL.device))
        window_BTX = x_BLX.unfold(1, self.context, 1).transpose(2, 3).flatten(2)  # (B, T, X, C) -> (B, T, C · X)
        hidden_BTD: Tensor = self.dropout(torch.tanh(self.hidden(window_BTX)))
        return torch.cat([hidden_BTD, window_BTX], dim=-1) if self.direct else hidden_BTD

    def start(self, rows: int, max_steps: int) -> State:
        return State({}, self.begin(rows))

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        rows, steps = prefix_NT.shape
        lengths_N = torch.full((rows,), steps, device=prefix_NT.device)
        reading = self.read(Tokens(prefix_NT, Layout(lengths_N, steps, even=True)), state.hypothesis)
        return self.output(reading.features), State(state.source, reading.carried)
