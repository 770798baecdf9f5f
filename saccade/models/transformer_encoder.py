"""The Transformer's encoder: blocks that look both ways.

Shapes: B sentences, S source tokens, N all tokens of a packed batch, D width.
"""

from torch import Tensor, nn

from saccade.models.transformer_config import TransformerConfig, embedding_of, stack_of
from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.norms import make_norm, normed
from saccade.nn.watch import Watch
from saccade.types import Encoded, Layout, Tokens


class Entrance(nn.Module):
    """The norm and the dropout behind token vectors and positions, as BERT has them."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = make_norm(config.norm_kind, config.width, config.epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        dropped: Tensor = self.dropout(normed(self.norm, x, layout))
        return dropped


def entrance_of(config: TransformerConfig) -> Entrance | None:
    return Entrance(config) if config.norm_embedding else None


class TransformerEncoder(nn.Module):
    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        self.width = config.width
        self.computes_padding, self.mixes_sentences = config.computes_padding, config.mixes_sentences
        self.embed = embedding_of(config, vocabulary)
        self.enter = entrance_of(config)
        self.stack = stack_of(config, memory_width=None, causal=False)

    def forward(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        layout = source.layout
        x = self.embed(source.ids, masks.positions(layout), layout.longest)  # (B, S, D) or (N, D)
        if self.enter is not None:
            x = self.enter(x, layout)
        return Encoded(self.stack(x, layout, watch=watch), layout)
