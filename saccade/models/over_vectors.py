"""Encoders whose input is vectors, not tokens: the upper level where a sequence is made of sequences.

Shapes: B sequences, S vectors each, N all vectors of a packed batch, I width of the input, D width.
"""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from saccade.models.cells import locked_dropout, output_dropout, recurrent_layers
from saccade.models.encoders import RecurrentEncoderConfig
from saccade.models.transformer_config import TransformerConfig, stack_of
from saccade.models.transformer_encoder import entrance_of
from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import Learned, Sinusoidal
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout

VectorEncoderConfig = Annotated[RecurrentEncoderConfig | TransformerConfig, Field(discriminator="kind")]


class RecurrentOverVectors(nn.Module):
    """The recurrent encoder behind its token vectors."""

    computes_padding, mixes_sentences = True, False

    def __init__(self, config: RecurrentEncoderConfig, input_width: int) -> None:
        super().__init__()
        self.width = config.width
        self.before = Dropout(0.0 if config.locked else config.dropout)
        self.locked = locked_dropout(config)
        self.layers = recurrent_layers(config, input_width, bidirectional=config.bidirectional, role="encoder")
        self.dropout = output_dropout(config)
        self.reverse = config.reverse

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Encoded:
        x_BSI, layout = masks.pad(x, layout), layout.unpacked()
        x_BSI = self.locked(self.before(x_BSI))

        def turned(x_BSD: Tensor) -> Tensor:
            return masks.reverse(x_BSD, layout) if self.reverse else x_BSD

        walked = self.layers.walk(turned(x_BSI), layout, watch=watch)
        final = tuple({name: each[name] for name in self.layers.first.states} for each in walked.finals)
        return Encoded(self.dropout(turned(walked.out)), layout, final)


class TransformerOverVectors(nn.Module):
    """The Transformer's encoder behind its token vectors; vectors of another width are mapped to its own first.

    They are not multiplied by √width: unlike token vectors, they are as large as positions already.
    """

    def __init__(self, config: TransformerConfig, input_width: int) -> None:
        super().__init__()
        self.width = config.width
        self.computes_padding, self.mixes_sentences = config.computes_padding, config.mixes_sentences
        self.map = nn.Linear(input_width, config.width) if input_width != config.width else None
        self.positions = _positions(config)
        self.enter = entrance_of(config)
        self.dropout = Dropout(0.0 if config.norm_embedding else config.dropout)  # the entrance has its own
        self.stack = stack_of(config, memory_width=None, causal=False)

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Encoded:
        x = x if self.map is None else self.map(x)
        if self.positions is not None:
            x = x + self.positions(masks.positions(layout))
        x = self.dropout(x)
        if self.enter is not None:
            x = self.enter(x, layout)
        return Encoded(self.stack(x, layout, watch=watch), layout)


def _positions(config: TransformerConfig) -> Sinusoidal | Learned | None:
    match config.positions:
        case "sinusoidal":
            return Sinusoidal(config.width)
        case "learned":
            return Learned(config.width, config.places)
        case _:
            return None
