"""Token vectors alone: an encoder in which no token knows of another. Pooled, it is a bag of words.

Shapes: … (B, S) or (N,), D width.
"""

from typing import Literal

from pydantic import Field
from torch import nn

from saccade.config import Section
from saccade.nn import masks
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.watch import Watch
from saccade.types import Encoded, Tokens


class BagConfig(Section):
    kind: Literal["bag"] = "bag"
    """Token vectors and nothing else: pooled, a bag of words, in which order is lost."""
    width: int = Field(256, ge=1)
    """Width of the token vectors."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on token vectors."""
    embedding_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the vocabulary whose vectors are 0 for a whole batch (word dropout of Iyyer et al. 2015)."""

    @property
    def embedding_width(self) -> int:
        return self.width

    @property
    def reads_parse(self) -> bool:
        return False


class BagEncoder(nn.Module):
    """h_t = E[w_t]: with the mean of them and a hidden layer, the deep averaging network of Iyyer et al. (2015)."""

    computes_padding, mixes_sentences, reads_parse = False, False, False

    def __init__(self, config: BagConfig, vocabulary: int) -> None:
        super().__init__()
        self.width = config.width
        self.embed = TokenEmbedding(
            vocabulary, config.width, dropout=config.dropout, word_dropout=config.embedding_dropout
        )

    def forward(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        return Encoded(self.embed(source.ids, masks.positions(source.layout)), source.layout)
