"""Source tokens → one vector a token, and the final states of recurrent layers.

Shapes: B sentences, S source tokens, D width, C width of what is known of a token beside its id.
"""

from typing import Annotated

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.models.cells import (
    RecurrentConfig,
    locked_dropout,
    output_dropout,
    recurrent_embedding,
    recurrent_layers,
)
from saccade.models.transformer_config import TransformerConfig
from saccade.nn import masks
from saccade.nn.watch import Watch
from saccade.types import Encoded, Tokens


class RecurrentEncoderConfig(RecurrentConfig):
    bidirectional: bool = True
    """Read the source from both ends."""
    reverse: bool = False
    """Read the source back to front (Sutskever et al. 2014)."""

    @property
    def ends_in_states(self) -> bool:
        return True

    @property
    def reads_parse(self) -> bool:
        """No recurrent encoder looks at dependency trees."""
        return False

    @model_validator(mode="after")
    def _halves(self) -> "RecurrentEncoderConfig":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width is {self.width}; a bidirectional encoder gives each direction half: make it even")
        return self


EncoderConfig = Annotated[RecurrentEncoderConfig | TransformerConfig, Field(discriminator="kind")]


class RecurrentEncoder(nn.Module):
    computes_padding, mixes_sentences, reads_parse = True, False, False

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int, beside: int = 0) -> None:
        """`beside`: how wide the vectors are that `forward` is given of each token beside its id."""
        super().__init__()
        self.width = config.width
        self.embed = recurrent_embedding(config, vocabulary)
        self.locked = locked_dropout(config)
        self.layers = recurrent_layers(
            config, config.embedding_width + beside, bidirectional=config.bidirectional, role="encoder"
        )
        self.dropout = output_dropout(config)
        self.reverse = config.reverse

    @property
    def levels(self) -> list[list[nn.Module]]:
        """Its parts from the token vectors up, one entry a level, each layer in both directions."""
        return [[part for part in self.children() if part is not self.layers], *self.layers.levels]

    def forward(self, source: Tokens, watch: Watch | None = None, beside: Tensor | None = None) -> Encoded:
        """The memory is always padded: so it is made, and so a recurrent decoder reads it.

        `beside`: vectors (…, C), laid out as the source, that are read together with those of the ids.
        """
        layout = source.layout.unpacked()
        x = self.embed(source.ids, masks.positions(source.layout))
        if beside is not None:
            x = torch.cat([x, self.embed.dropout(beside)], dim=-1)
        x_BSD = self.locked(masks.pad(x, source.layout))

        def turned(x_BSD: Tensor) -> Tensor:
            return masks.reverse(x_BSD, layout) if self.reverse else x_BSD

        walked = self.layers.walk(turned(x_BSD), layout, watch=watch)
        # The memory lies in the source's own order, whichever way it was read.
        memory_BSD = self.dropout(turned(walked.out))
        cells_BSD = None if walked.cells_BTD is None else turned(walked.cells_BTD)
        final = tuple({name: each[name] for name in self.layers.first.states} for each in walked.finals)
        return Encoded(memory_BSD, layout, final, cells_BSD)
