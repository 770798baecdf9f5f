"""The Transformer's encoder: blocks that look both ways.

Shapes: B sentences, S source tokens, N all tokens of a packed batch, D width, C width of what is known beside ids.
"""

from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.models.transformer_config import TransformerConfig, embedding_of, stack_of
from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import Segments
from saccade.nn.norms import make_norm, normed
from saccade.nn.tree import AbsoluteStructure, between, depths
from saccade.nn.watch import Watch
from saccade.types import END, Encoded, Layout, Tokens


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
    def __init__(self, config: TransformerConfig, vocabulary: int, beside: int = 0) -> None:
        """`beside`: how wide the vectors are that `forward` is given of each token beside its id."""
        super().__init__()
        self.width = config.width
        self.beside = nn.Linear(beside, config.width, bias=False) if beside else None
        self.computes_padding, self.mixes_sentences = config.computes_padding, config.mixes_sentences
        self.embed = embedding_of(config, vocabulary)
        self.enter = entrance_of(config)
        self.stack = stack_of(config, memory_width=None, causal=False)
        self.reads_parse, self.relates_words = config.reads_parse, config.relates_words
        self.structure = AbsoluteStructure(config.width) if config.adds_depths else None
        self.segments = Segments(config.width, config.segments) if config.segments else None

    @property
    def levels(self) -> list[list[nn.Module]]:
        """Its parts from the token vectors up, one entry a level: what is added to tokens, then block by block."""
        entrance = [part for part in self.children() if part is not self.stack]
        blocks: list[list[nn.Module]] = [[block] for block in self.stack]
        if self.stack.norm is not None:
            blocks[-1].append(self.stack.norm)
        return [entrance, *blocks]

    def forward(self, source: Tokens, watch: Watch | None = None, beside: Tensor | None = None) -> Encoded:
        """`beside`: vectors (…, C), laid out as the source, that are read together with those of the ids.

        W [E[id]; c] is a row of another table plus a product with c: so they are added.
        """
        layout, parse = source.layout, source.parse
        if self.reads_parse and parse is None:
            raise UsageError(
                "the encoder's positions are tree: its source must come with dependency trees (Tokens.parse)."
            )
        place = masks.positions(layout)
        added = between_BSS = None
        if self.structure is not None and parse is not None:
            added = self.structure(place, masks.pack(depths(parse, layout), layout))
        if self.segments is not None:
            vectors = self.segments(masks.before(source.ids == END, layout))
            added = vectors if added is None else added + vectors
        if self.relates_words and parse is not None:
            between_BSS = between(parse, layout)
        x = self.embed(source.ids, place, layout.longest, added=added)  # (B, S, D) or (N, D)
        if self.beside is not None and beside is not None:
            x = x + self.embed.dropout(self.beside(beside))
        if self.enter is not None:
            x = self.enter(x, layout)
        return Encoded(self.stack(x, layout, watch=watch, between_BTT=between_BSS), layout)
