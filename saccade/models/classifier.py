"""A text, or two, → a label: an encoder, one vector of all that it read, and a score for each label.

Two texts are read joined, as one sequence `a END b END`, or apart, by the same encoder: a batch's `source` then holds
two tokens a row, and `inside` the two texts.
Shapes: B rows, T texts of all rows, D width of the encoder, L labels.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from saccade.config import Section
from saccade.errors import SaccadeError
from saccade.loss import Loss, label_loss
from saccade.models.bag import BagConfig, BagEncoder
from saccade.models.encoders import RecurrentEncoder, RecurrentEncoderConfig
from saccade.models.label_head import HeadActivation, LabelHead
from saccade.models.trainable import Trainable
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.vectors import VectorsConfig
from saccade.nn import masks
from saccade.nn.pooling import PoolingKind, make_pooling
from saccade.nn.watch import Watch
from saccade.types import Batch, Tokens

ReaderConfig = Annotated[RecurrentEncoderConfig | TransformerConfig | BagConfig, Field(discriminator="kind")]
Reader = RecurrentEncoder | TransformerEncoder | BagEncoder
Pair = Literal["joined", "apart"]


def check_pooling(encoder: ReaderConfig, pooling: PoolingKind, attention_width: int | None) -> None:
    """Refuse what cannot be, or would not be heard."""
    if attention_width is not None and pooling != "attention":
        raise ValueError(
            f"attention_width is {attention_width}, which is a setting of pooling: attention; pooling is {pooling}"
        )
    if encoder.reads_parse:
        raise ValueError(
            "the encoder's positions are tree, which read a dependency parse, and labelled texts come without: use "
            "other positions"
        )
    if isinstance(encoder, RecurrentEncoderConfig) and pooling == "first":
        raise ValueError(
            f"pooling is first and the encoder {encoder.kind}, whose state at the first token has read nothing else: "
            "use last, which takes each direction where it ends"
        )
    if isinstance(encoder, BagConfig) and pooling in ("last", "first"):
        raise ValueError(
            f"pooling is {pooling} and the encoder a bag, whose {pooling} vector knows nothing of the other tokens: "
            "use mean, max or attention"
        )


class Pooled(Section):
    """An encoder and what becomes of its vectors."""

    encoder: ReaderConfig
    """How text is read."""
    pooling: PoolingKind = "attention"
    """What stands for a text: its last state, its first vector, the mean, the maximum, or what attention picks."""
    attention_width: int | None = Field(None, ge=1)
    """Of `pooling: attention` (Yang et al. 2016): width of its hidden layer; the encoder's where not given."""

    @model_validator(mode="after")
    def _pools(self) -> "Pooled":
        check_pooling(self.encoder, self.pooling, self.attention_width)
        return self

    @property
    def starts(self) -> bool:
        """Whether a text begins with START, for a vector that stands for the whole."""
        return self.pooling == "first"


class ClassifierConfig(Pooled):
    kind: Literal["sequence"] = "sequence"
    """A text is one sequence."""
    pair: Pair = "joined"
    """Two texts: one sequence (joined), or each read for itself and compared (apart; Conneau et al. 2017)."""
    hidden: int | None = Field(None, ge=1)
    """Width of a hidden layer behind the pooling; none where not given."""
    activation: HeadActivation = "tanh"
    """Of the hidden layer; with `pooling: first` and tanh it is BERT's pooler."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on what was pooled and on the hidden layer."""
    vectors: VectorsConfig | None = None
    """Pretrained word vectors that the token vectors begin with; for text of kind word."""

    @model_validator(mode="after")
    def _has_what_it_sets(self) -> "ClassifierConfig":
        if self.hidden is None and self.activation != "tanh":
            raise ValueError(f"activation is {self.activation}, but there is no hidden layer: set hidden")
        return self

    @property
    def ends(self) -> bool:
        """Whether a text ends in END: so an empty one, too, is something to read."""
        return True

    @property
    def reads(self) -> Literal["sequence", "apart", "document"]:
        """What a row is: one sequence, two that are read apart, or a document of sentences."""
        return "apart" if self.pair == "apart" else "sequence"

    @property
    def nests(self) -> bool:
        """Whether a source is made of several sequences."""
        return self.reads != "sequence"


def ends_at_last(config: ReaderConfig) -> tuple[int, int]:
    """Which part of a vector holds what was read from the beginning on, so that it ends at the last token."""
    if not isinstance(config, RecurrentEncoderConfig):
        return 0, config.width
    half = config.width // 2 if config.bidirectional else config.width
    return (half, config.width) if config.reverse else (0, half)


def compared(pairs_BTD: Tensor) -> Tensor:
    """[u; v; |u − v|; u ⊙ v] of the first two vectors of each row: (B, T, D) -> (B, 4D)."""
    u_BD, v_BD = pairs_BTD[:, 0], pairs_BTD[:, 1]
    return torch.cat([u_BD, v_BD, (u_BD - v_BD).abs(), u_BD * v_BD], dim=-1)


def probabilities(scores_BL: Tensor) -> Tensor:
    return scores_BL.softmax(-1, dtype=torch.promote_types(scores_BL.dtype, torch.float32))


def nothing_read(like: LabelHead, source: Tokens, width: int) -> Tensor:
    """What stands for texts none of which has a token: zeros, as for one such text among others."""
    return like.output.weight.new_zeros(len(source.layout.lengths_B), width)


def by_row(x_TD: Tensor, source: Tokens) -> Tensor:
    """What was made of each row of `inside`, as the source lies: (T, D) -> (B, longest, D), zeros behind each."""
    layout = source.layout
    return masks.pad(x_TD, layout if layout.is_packed else layout.packed())


class Classifier(Trainable):
    def __init__(self, config: ClassifierConfig, encoder: Reader, labels: int) -> None:
        super().__init__()
        width = config.encoder.width
        self.pair: Pair = config.pair
        self.fills = not config.nests
        self.encoder = encoder
        self.pooling = make_pooling(
            config.pooling, width, config.attention_width or width, ends_at_last(config.encoder)
        )
        self.head = LabelHead(
            4 * width if config.nests else width,
            labels,
            hidden=config.hidden,
            activation=config.activation,
            dropout=config.dropout,
        )

    def features(self, source: Tokens, watch: Watch | None = None) -> Tensor:
        """One vector a row: (B, D), or (B, 4D) of texts that are read apart."""
        match self.pair:
            case "joined":
                return self._pooled(source, watch)
            case "apart":
                if source.inside is None:
                    raise SaccadeError("two texts are read apart, but what was given has none inside (Tokens.inside)")
                return compared(by_row(self._pooled(source.inside, watch), source))

    def _pooled(self, source: Tokens, watch: Watch | None) -> Tensor:
        if not source.layout.longest:
            return nothing_read(self.head, source, self.encoder.width)
        encoded = self.encoder(source, watch)
        vectors: Tensor = self.pooling(encoded.memory, encoded.layout, watch)
        return vectors

    def forward(self, source: Tokens, watch: Watch | None = None) -> Tensor:
        """Scores (B, L) of the labels, the first of which has the id 1."""
        scores_BL: Tensor = self.head(self.features(source, watch))
        return scores_BL

    def predict(self, source: Tokens) -> Tensor:
        """Probabilities (B, L) of the labels."""
        return probabilities(self(source))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        return label_loss(self(batch.source), batch.target, smoothing)
