"""Sequence to sequence: an encoder and a decoder that know nothing of each other but `Encoded`.

Shapes: B sentences, T target tokens, V vocabulary.
"""

from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config import Section
from saccade.loss import Loss
from saccade.models.encoders import EncoderConfig, RecurrentEncoder
from saccade.models.recurrent_decoder import RecurrentDecoder, RecurrentDecoderConfig
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn.kernels import Twinned
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

    @property
    def copies(self) -> bool:
        """Whether source tokens are copied into the target, which asks for one vocabulary."""
        return self.decoder.copies

    def _tying_fits(self) -> None:
        if self.tie == "none":
            return
        into = self.decoder.embedding_width
        out = self.decoder.output_width(self.encoder.width)
        if into != out:
            raise ValueError(
                f"tie is {self.tie}: the token vectors (decoder.embedding {into}) also score the output, "
                f"so they must be as wide as the decoder's output ({out})"
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
        nn.init.normal_(decoder.output.weight, std=decoder.output.in_features**-0.5)
        nn.init.zeros_(decoder.output.bias)
        if tie != "none":
            decoder.output.weight = decoder.embed.table.weight
        if tie == "all":
            encoder.embed.table.weight = decoder.embed.table.weight

    def encode(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        encoded: Encoded = self.encoder(source, watch)
        return replace(encoded, source=source)

    def at_update(self, update: int) -> None:
        """Told before the gradient of each update, counted from 1, for what changes as training goes on."""
        self.decoder.at_update(update)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """What training minimises: that of the target, and what mechanisms of the model ask for beside it."""
        return self.decoder.loss(batch.decoder_input, self.encode(batch.source), batch.target, smoothing)

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

    @property
    def mixes_sentences(self) -> bool:
        """Whether a sentence's numbers depend, in training, on the others of its batch."""
        return self.encoder.mixes_sentences or self.decoder.mixes_sentences

    def without_twin(self, device: torch.device) -> list[str]:
        """What of it no fast kernel for this device takes, in words, a part at a time: each answers for itself."""
        sides = {"encoder": self.encoder, "decoder": self.decoder}
        told = (
            f"{side}: {what}"
            for side, whole in sides.items()
            for part in whole.modules()
            if isinstance(part, Twinned)
            for what in part.without_twin(device)
        )
        return list(dict.fromkeys(told))

    @property
    def reads_parse(self) -> bool:
        """Whether a source has to come with its dependency trees."""
        return self.encoder.reads_parse

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
