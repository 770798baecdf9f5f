"""Sequence to sequence: an encoder and a decoder that know nothing of each other but `Encoded`.

Shapes: B sentences, T target tokens, V vocabulary.
"""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config import Section
from saccade.loss import Loss
from saccade.models.encoders import EncoderConfig, RecurrentEncoder
from saccade.models.recurrent_decoder import RecurrentDecoder, RecurrentDecoderConfig
from saccade.models.trainable import Trainable
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.vectors import VectorsConfig, check_free
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
    vectors: VectorsConfig | None = None
    """Pretrained word vectors that the source's token vectors begin with; for text of kind word."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "TranslatorConfig":
        self.decoder.check_with(self.encoder)
        self._tying_fits()
        check_free(self.vectors, tied=self.tie == "all")
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


class Translator(Trainable):
    """A batch of pairs → logits of the target; or, step by step, whatever `decode/` asks for."""

    fills = True

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
        self.decoder.at_update(update)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """What training minimises: that of the target, and what mechanisms of the model ask for beside it."""
        return self.decoder.loss(batch.decoder_input, self.encode(batch.source), batch.target, smoothing)

    def readable(self, batch: Batch) -> None:
        self(batch, Watch())

    def features(self, batch: Batch) -> Tensor:
        """What `output` scores for every target token: (…, D), laid out as the target."""
        return self.decoder.features(batch.decoder_input, self.encode(batch.source))

    @property
    def output(self) -> nn.Linear:
        return self.decoder.output

    @property
    def reads_parse(self) -> bool:  # type: ignore[override]
        return self.encoder.reads_parse

    def forward(self, batch: Batch, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every target token, laid out as the target."""
        logits: Tensor = self.decoder(batch.decoder_input, self.encode(batch.source, watch), watch)
        return logits

    def start(self, encoded: Encoded, max_steps: int) -> State:
        return self.decoder.start(encoded, max_steps)

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.step(last_N, state)

    @property
    def cross_layers(self) -> int:
        """How many of the decoder's layers look at the source and can tell where."""
        return self.decoder.cross_layers

    def looking_step(self, last_N: Tensor, state: State, layer: int) -> tuple[Tensor, State, Tensor]:
        """A step, and where one of the layers looked meanwhile: the mean of its heads' weights, (N, S)."""
        watch = Watch()
        logits_N1V, state = self.decoder.prefill(last_N[:, None], state, watch)
        weights_BHQS = watch.attention["cross"][layer]  # the queries to one source may be those of its hypotheses
        return logits_N1V[:, 0], state, weights_BHQS.float().mean(1).reshape(len(last_N), -1)

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.prefill(prefix_NT, state)
