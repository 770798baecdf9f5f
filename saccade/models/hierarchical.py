"""The hierarchical attention network (Yang et al. 2016): words make sentences, sentences make a document, → a label.

A batch's `source` holds a document a row, whose tokens are sentences; `inside` holds the words of each.
Shapes: B documents, S sentences of each, N all sentences, D and E width of words' and sentences' vectors, L labels.
"""

from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor

from saccade.config import Section
from saccade.errors import SaccadeError
from saccade.loss import Loss, label_loss
from saccade.models.classifier import (
    Pooled,
    Reader,
    by_row,
    check_pooling,
    ends_at_last,
    nothing_read,
    probabilities,
)
from saccade.models.label_head import HeadActivation, LabelHead
from saccade.models.over_vectors import RecurrentOverVectors, TransformerOverVectors, VectorEncoderConfig
from saccade.models.trainable import Trainable
from saccade.models.vectors import VectorsConfig
from saccade.nn.pooling import PoolingKind, make_pooling
from saccade.nn.watch import Watch
from saccade.types import Batch, Layout, Tokens

_OF_TOKENS = {"embedding": None, "embedding_dropout": 0.0, "segments": 0}
"""Settings of encoders that concern token vectors alone → what they are where they are not set."""


class SentencesConfig(Section):
    """The upper level: from the vectors of sentences to that of the document."""

    encoder: VectorEncoderConfig
    """How sentences are read one after the other."""
    pooling: PoolingKind = "attention"
    """What stands for a document, of the vectors of its sentences."""
    attention_width: int | None = Field(None, ge=1)
    """Of `pooling: attention`: width of its hidden layer; the encoder's where not given."""

    @model_validator(mode="after")
    def _pools(self) -> "SentencesConfig":
        check_pooling(self.encoder, self.pooling, self.attention_width)
        for name, unset in _OF_TOKENS.items():
            value = getattr(self.encoder, name, unset)
            if value != unset:
                raise ValueError(
                    f"the sentences' encoder has {name}: {value}, but reads vectors of sentences: leave it out"
                )
        return self


class HierarchicalConfig(Section):
    kind: Literal["hierarchical"] = "hierarchical"
    """A text is a document of sentences, each read for itself (Yang et al. 2016)."""
    words: Pooled
    """From the words of a sentence to its vector."""
    sentences: SentencesConfig
    """From the vectors of its sentences to a document's."""
    hidden: int | None = Field(None, ge=1)
    """Width of a hidden layer behind the document's vector; none where not given."""
    activation: HeadActivation = "tanh"
    """Of the hidden layer."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the vectors of sentences and of the document, and on the hidden layer."""
    vectors: VectorsConfig | None = None
    """Pretrained word vectors that the token vectors begin with; for text of kind word."""

    @model_validator(mode="after")
    def _has_what_it_sets(self) -> "HierarchicalConfig":
        if self.hidden is None and self.activation != "tanh":
            raise ValueError(f"activation is {self.activation}, but there is no hidden layer: set hidden")
        return self

    @property
    def starts(self) -> bool:
        return self.words.starts

    @property
    def ends(self) -> bool:
        """A sentence is its words and nothing else, as in the paper."""
        return False

    @property
    def reads(self) -> Literal["sequence", "apart", "document"]:
        return "document"

    @property
    def nests(self) -> bool:
        return True


class HierarchicalClassifier(Trainable):
    """s_i = Σ_t α_it h_it, v = Σ_i α_i h_i, p = softmax(W v + b): equations 1 to 11 of the paper."""

    def __init__(
        self,
        config: HierarchicalConfig,
        words: Reader,
        sentences: RecurrentOverVectors | TransformerOverVectors,
        labels: int,
    ) -> None:
        super().__init__()
        lower, upper = config.words, config.sentences
        self.words = words
        self.word_pooling = make_pooling(
            lower.pooling,
            lower.encoder.width,
            lower.attention_width or lower.encoder.width,
            ends_at_last(lower.encoder),
        )
        self.sentences = sentences
        self.sentence_pooling = make_pooling(
            upper.pooling,
            upper.encoder.width,
            upper.attention_width or upper.encoder.width,
            ends_at_last(upper.encoder),
        )
        self.head = LabelHead(
            upper.encoder.width, labels, hidden=config.hidden, activation=config.activation, dropout=config.dropout
        )

    def features(self, source: Tokens, watch: Watch | None = None) -> Tensor:
        """One vector a document: (B, E)."""
        if source.inside is None:
            raise SaccadeError("documents are read, but what was given has no sentences inside (Tokens.inside)")
        if not source.inside.layout.longest:
            return nothing_read(self.head, source, self.sentences.width)
        below, above = (None if watch is None else Watch() for _ in range(2))
        read = self.words(source.inside, below)
        sentence_ND = self.word_pooling(read.memory, read.layout, below)
        vectors_BSD, layout = _together(by_row(self.head.dropout(sentence_ND), source), source)
        passed = self.sentences(vectors_BSD, layout, above)
        document_BE: Tensor = self.sentence_pooling(passed.memory, passed.layout, above)
        if watch is not None and below is not None and above is not None:
            for level, notes in (("words", below), ("sentences", above)):
                watch.attention.update({f"{level}.{kind}": weights for kind, weights in notes.attention.items()})
                watch.states.update({f"{level}.{name}": values for name, values in notes.states.items()})
        return document_BE

    def forward(self, source: Tokens, watch: Watch | None = None) -> Tensor:
        """Scores (B, L) of the labels, the first of which has the id 1."""
        scores_BL: Tensor = self.head(self.features(source, watch))
        return scores_BL

    def predict(self, source: Tokens) -> Tensor:
        """Probabilities (B, L) of the labels."""
        return probabilities(self(source))

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        return label_loss(self(batch.source), batch.target, smoothing)


def _together(vectors_BSD: Tensor, source: Tokens) -> tuple[Tensor, Layout]:
    """The sentences that have words, in their order, and then nothing: one without words is as if it were not there."""
    assert source.inside is not None
    longest = source.layout.longest
    words_BS1 = by_row(source.inside.layout.lengths_B[:, None].float(), source)
    has_BS = words_BS1.squeeze(-1) > 0
    order_BS = (~has_BS).long().argsort(dim=1, stable=True)
    moved_BSD = vectors_BSD.gather(1, order_BS[:, :, None].expand_as(vectors_BSD))
    return moved_BSD, Layout(has_BS.sum(1), longest)
