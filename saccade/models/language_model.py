"""Language models: a decoder that reads a text and says of every token how probable it was, given those before it.

A batch's `source` is what is read and its `target` what follows each token of it; both are laid out alike. Read from
the beginning of a text, or on from what was carried over from the stretch before it.
Shapes: B texts, N hypotheses, T tokens, V vocabulary.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config import Section
from saccade.errors import SaccadeError
from saccade.loss import Loss, output_loss
from saccade.models.causal_transformer import CausalTransformer
from saccade.models.reading import Carried
from saccade.models.recurrent_writer import RecurrentWriter, RecurrentWriterConfig
from saccade.models.trainable import Trainable
from saccade.models.transformer_config import TransformerConfig
from saccade.models.vectors import VectorsConfig, check_free
from saccade.models.window_decoder import WindowConfig, WindowDecoder
from saccade.nn.masks import valid_BT
from saccade.nn.watch import Watch
from saccade.types import PAD, Batch, State, Tokens

WriterConfig = Annotated[WindowConfig | RecurrentWriterConfig | TransformerConfig, Field(discriminator="kind")]
Writer = WindowDecoder | RecurrentWriter | CausalTransformer


class LanguageModelConfig(Section):
    decoder: WriterConfig
    """How text is read and written."""
    tie: Literal["none", "output"] = "none"
    """Share weights: output = the token vectors also score the output (Press & Wolf 2017, Inan et al. 2017)."""
    vectors: VectorsConfig | None = None
    """Pretrained word vectors that the token vectors begin with; for text of kind word."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "LanguageModelConfig":
        self.decoder.check_causal()
        check_free(self.vectors, tied=self.tie == "output")
        into, out = self.decoder.embedding_width, self.decoder.output_width(0)
        if self.tie == "output" and into != out:
            raise ValueError(
                f"tie is output: the token vectors (decoder.embedding {into}) also score the output, "
                f"so they must be as wide as what the output layer reads ({out})"
            )
        return self


class LanguageModel(Trainable):
    def __init__(self, decoder: Writer, tie: Literal["none", "output"]) -> None:
        super().__init__()
        self.decoder = decoder
        self._streams: dict[str, str] = {}
        """What is carried on in training → the buffer that holds it."""
        if tie == "output":
            decoder.output.weight = decoder.embed.table.weight

    # ---- streams: training goes on from where the last batch ended

    def stream(self, rows: int) -> None:
        """From now on `loss` reads so many texts side by side, each batch going on where the one before it ended.

        What is carried on are buffers, not part of the model: where graphs are captured, they read and write it there.
        """
        for number, (name, value) in enumerate(self.begin(rows).items()):
            self._streams[name] = f"carried_{number}"
            self.register_buffer(self._streams[name], value, persistent=False)

    @property
    def carries(self) -> bool:  # type: ignore[override]
        return bool(self._streams)

    @property
    def fills(self) -> bool:  # type: ignore[override]
        return not self._streams

    def carried(self) -> Carried:
        return {name: self.get_buffer(buffer) for name, buffer in self._streams.items()}

    def carry(self, saved: dict[str, Tensor]) -> None:
        own = self.carried()
        if {name: value.shape for name, value in saved.items()} != {name: value.shape for name, value in own.items()}:
            raise SaccadeError(
                "the state that was carried on does not fit the model or the number of streams. "
                "Resume with the recipe it was trained with, or begin anew."
            )
        for name, value in own.items():
            value.copy_(saved[name])

    def at_batch(self, batch: Batch) -> None:
        if self._streams and batch.begins:
            self.carry(self.begin(len(batch)))

    # ---- texts

    def begin(self, rows: int) -> Carried:
        """What is carried into the beginning of so many texts."""
        return self.decoder.begin(rows)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """What training minimises, each row being a text from its beginning; or the next stretch of its stream."""
        if not self._streams:
            return self.loss_from(batch, self.begin(len(batch)), smoothing)[0]
        before = {name: value.clone() for name, value in self.carried().items()}  # which is written to below
        loss, after = self.loss_from(batch, before, smoothing)
        for name, value in self.carried().items():
            value.copy_(_numbers(after[name]))
        return loss

    def loss_from(self, batch: Batch, carried: Carried, smoothing: float = 0.0) -> tuple[Loss, Carried]:
        """The same, each row going on from what was carried; and what is carried on from here, without a gradient.

        So truncated backpropagation through time (Williams & Peng 1990) is a loop over the chunks of a text: what was
        read before acts on the loss, and is not changed by it.
        """
        reading = self.decoder.read(batch.source, carried)
        loss = output_loss(reading.features, self.output, batch.target, smoothing)
        counted = Loss(loss.total, loss.nll, _counted(batch.target)).plus(reading.terms)
        return counted, {name: _kept(value, carried[name]) for name, value in reading.carried.items()}

    def features(self, given: Tokens, watch: Watch | None = None) -> Tensor:
        """What `output` scores for every next token: (…, D), laid out as the tokens."""
        rows = len(given.layout.lengths_B)
        return self.decoder.read(given, self.begin(rows), watch).features

    def forward(self, given: Tokens, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of every next token, texts read from their beginning."""
        logits: Tensor = self.output(self.features(given, watch))
        return logits

    # ---- step by step; there is no source, so that `start` asks for the number of texts

    def start(self, rows: int, max_steps: int) -> State:
        return self.decoder.start(rows, max_steps)

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.step(last_N, state)

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        return self.decoder.prefill(prefix_NT, state)

    @property
    def output(self) -> nn.Linear:
        return self.decoder.output

    @property
    def forgets(self) -> bool:
        """Whether what is carried on is not all that a chunk came to, so that it matters where chunks end."""
        return self.decoder.forgets


def _counted(target: Tokens) -> Tensor:
    """Tokens that the loss counts: PAD stands behind a text's end, and where a token is context alone."""
    counted = target.ids != PAD
    return (counted if target.layout.is_packed else counted & valid_BT(target.layout)).sum()


def _numbers(value: Tensor) -> Tensor:
    """What is no finite number becomes 0: an update that has to be skipped must not spoil all that follow."""
    return value.nan_to_num(0.0, 0.0, 0.0) if value.is_floating_point() else value


def _kept(value: Tensor, before: Tensor) -> Tensor:
    """In the precision that it came in: half precision, where it computes so, is not carried on."""
    return value.detach().to(before.dtype)
