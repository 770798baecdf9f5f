"""Sequence to sequence: an encoder and a decoder that know nothing of each other but `Encoded`.

Shapes: B sentences, T target tokens, V vocabulary.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config import Section
from saccade.models.encoders import EncoderConfig, RecurrentEncoder, TransformerConfig, TransformerEncoder
from saccade.models.recurrent_decoder import RecurrentDecoder, RecurrentDecoderConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.nn.watch import Watch
from saccade.types import Batch, Encoded, State, Tokens

DecoderConfig = Annotated[RecurrentDecoderConfig | TransformerConfig, Field(discriminator="kind")]


class TranslatorConfig(Section):
    encoder: EncoderConfig
    """How the source is read."""
    decoder: DecoderConfig
    """How the target is written."""
    tie: Literal["none", "output", "all"] = "none"
    """Share weights: output = the target's token vectors also score the output; all = the source's too."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "TranslatorConfig":
        self.decoder.check_with(self.encoder)
        self._tying_fits()
        return self

    def _tying_fits(self) -> None:
        if self.tie == "none":
            return
        into = self.decoder.embedding_width
        if into != self.decoder.width:
            raise ValueError(
                f"tie is {self.tie}: the token vectors (decoder.embedding {into}) also score the output, "
                f"so they must be as wide as the decoder ({self.decoder.width})"
            )
        if self.tie == "all" and self.encoder.embedding_width != into:
            raise ValueError(
                f"tie is all: the source's token vectors ({self.encoder.embedding_width}) "
                f"must be as wide as the target's ({into})"
            )


class Translator(nn.Module):
    """A batch of pairs → logits of the target; or, step by step, whatever `decode/` asks for."""

    def __init__(
        self,
        encoder: RecurrentEncoder | TransformerEncoder,
        decoder: RecurrentDecoder | TransformerDecoder,
        tie: Literal["none", "output", "all"],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        nn.init.normal_(decoder.output.weight, std=decoder.width**-0.5)
        nn.init.zeros_(decoder.output.bias)
        if tie != "none":
            decoder.output.weight = decoder.embed.table.weight
        if tie == "all":
            encoder.embed.table.weight = decoder.embed.table.weight

    def encode(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        encoded: Encoded = self.encoder(source, watch)
        return encoded

    def features(self, batch: Batch) -> Tensor:
        """What `output` scores for every target token: (…, D), laid out as the target."""
        return self.decoder.features(batch.decoder_input, self.encode(batch.source))

    @property
    def output(self) -> nn.Linear:
        return self.decoder.output

    @property
    def computes_padding(self) -> bool:
        """Whether some part of it fills sentences up to the longest, so that its cost goes by rows × longest."""
        return self.encoder.computes_padding or self.decoder.computes_padding

    def forward(self, batch: Batch, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every target token, laid out as the target."""
        logits: Tensor = self.decoder(batch.decoder_input, self.encode(batch.source, watch), watch)
        return logits

    def start(self, encoded: Encoded, max_steps: int) -> State:
        return self.decoder.start(encoded, max_steps)

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.step(last_N, state)

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.prefill(prefix_NT, state)
