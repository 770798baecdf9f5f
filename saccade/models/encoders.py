"""Source tokens → one vector a token, and the final states of recurrent layers.

Shapes: B sentences, S source tokens, D width.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import nn

from saccade.config import Section
from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.recurrent import RecurrentLayers
from saccade.nn.transformer import Block, Stack
from saccade.nn.watch import Watch
from saccade.types import Encoded, Tokens


class RecurrentEncoderConfig(Section):
    kind: Literal["elman", "lstm", "gru"] = "lstm"
    """Which recurrent cell."""
    layers: int = Field(1, ge=1)
    """How many layers are stacked."""
    width: int = Field(256, ge=1)
    """Width of each layer's output; with two directions each has half of it."""
    bidirectional: bool = True
    """Read the source from both ends."""
    embedding: int | None = Field(None, ge=1)
    """Width of the token vectors; the layers' width where not given."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on token vectors, between layers and on the memory; final states are handed over whole."""
    reverse: bool = False
    """Read the source back to front (Sutskever et al. 2014)."""

    @property
    def ends_in_states(self) -> bool:
        return True

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    @model_validator(mode="after")
    def _halves(self) -> "RecurrentEncoderConfig":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width is {self.width}; a bidirectional encoder gives each direction half: make it even")
        return self


class TransformerConfig(Section):
    """What the Transformer's encoder and decoder have in common."""

    kind: Literal["transformer"] = "transformer"
    """The Transformer of Vaswani et al. (2017)."""
    layers: int = Field(3, ge=1)
    """How many blocks are stacked."""
    width: int = Field(256, ge=2)
    """Width of the token vectors and of every block."""
    heads: int = Field(4, ge=1)
    """How many attentions side by side; must divide the width."""
    feedforward: int | None = Field(None, ge=1)
    """Inner width of the feed-forward part; four times the width where not given."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Dropout on embeddings, inside the feed-forward part and before each residual sum; none on attention weights."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norm before each part (pre) or behind each sum (post, as in the paper)."""
    activation: Literal["relu", "gelu"] = "relu"
    """Between the two layers of the feed-forward part."""
    positions: Literal["none", "sinusoidal", "learned"] = "sinusoidal"
    """How tokens know their place."""
    places: int = Field(1024, ge=1)
    """How many places `positions: learned` has; tokens beyond share the last."""

    @model_validator(mode="after")
    def _fits(self) -> "TransformerConfig":
        if self.width % self.heads:
            raise ValueError(f"width is {self.width} and heads is {self.heads}: heads must divide the width")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"width is {self.width}; sinusoidal positions come in pairs: make it even")
        return self

    @property
    def ends_in_states(self) -> bool:
        return False

    @property
    def embedding_width(self) -> int:
        return self.width

    def check_with(self, encoder: "EncoderConfig") -> None:
        """As a decoder, it reads the memory of any encoder."""

    @property
    def inner(self) -> int:
        return 4 * self.width if self.feedforward is None else self.feedforward


EncoderConfig = Annotated[RecurrentEncoderConfig | TransformerConfig, Field(discriminator="kind")]


class RecurrentEncoder(nn.Module):
    computes_padding = True

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.width = config.width
        embedding = config.embedding_width
        self.embed = TokenEmbedding(vocabulary, embedding, dropout=config.dropout)
        self.layers = RecurrentLayers(
            config.kind,
            embedding,
            config.width,
            config.layers,
            bidirectional=config.bidirectional,
            dropout=config.dropout,
        )
        self.dropout = Dropout(config.dropout)
        self.reverse = config.reverse

    def forward(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        """The memory is always padded: so it is made, and so a recurrent decoder reads it."""
        layout = source.layout.unpacked()
        x_BSD = masks.pad(self.embed(source.ids, masks.positions(source.layout)), source.layout)
        if self.reverse:
            x_BSD = masks.reverse(x_BSD, layout)
        memory_BSD, final = self.layers(x_BSD, layout, watch=watch)
        if self.reverse:  # the memory lies in the source's own order, whichever way it was read
            memory_BSD = masks.reverse(memory_BSD, layout)
        return Encoded(self.dropout(memory_BSD), layout, final)


class TransformerEncoder(nn.Module):
    computes_padding = False

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.width = config.width
        self.embed = embedding_of(config, vocabulary)
        self.stack = stack_of(config, memory_width=None, causal=False)

    def forward(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        layout = source.layout
        x = self.embed(source.ids, masks.positions(layout), layout.longest)  # (B, S, D) or (N, D)
        return Encoded(self.stack(x, layout, watch=watch), layout)


def embedding_of(config: TransformerConfig, vocabulary: int) -> TokenEmbedding:
    """Token vectors are scaled by √width, so that they are as large as the positions added to them."""
    return TokenEmbedding(
        vocabulary,
        config.width,
        scaled=True,
        positions=config.positions,
        places=config.places,
        dropout=config.dropout,
    )


def stack_of(config: TransformerConfig, *, memory_width: int | None, causal: bool) -> Stack:
    blocks = [
        Block(
            config.width,
            config.heads,
            config.inner,
            dropout=config.dropout,
            norm=config.norm,
            activation=config.activation,
            memory_width=memory_width,
            causal=causal,
        )
        for _ in range(config.layers)
    ]
    return Stack(blocks, config.width, config.norm)
