"""Token ids → vectors, with or without their places.

Shapes: … any leading dimensions, D width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import kernels
from saccade.nn.dropout import Dropout

PositionKind = Literal["none", "sinusoidal", "learned"]


class Sinusoidal(nn.Module):
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(same): interleaved, as printed in Vaswani et al. (2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        self.register_buffer("rates", rates.float(), persistent=False)
        self.rates: Tensor

    def forward(self, place: Tensor) -> Tensor:
        angle = place[..., None].float() * self.rates
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # (…, D/2, 2) -> (…, D)


class Learned(nn.Module):
    """One free vector a place; places beyond the last share it."""

    def __init__(self, width: int, places: int) -> None:
        super().__init__()
        self.table = nn.Embedding(places, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, place: Tensor) -> Tensor:
        vectors: Tensor = self.table(place.clamp(max=self.table.num_embeddings - 1))
        return vectors


class Segments(nn.Module):
    """One free vector a segment, added to every token of it; segments beyond the last share its vector."""

    def __init__(self, width: int, segments: int) -> None:
        super().__init__()
        self.table = nn.Embedding(segments, width)
        nn.init.normal_(self.table.weight, std=0.02)

    def without_twin(self, device: torch.device) -> list[str]:
        return ["segment vectors take several passes over memory"] if device.type == "cuda" else []

    def forward(self, segment: Tensor) -> Tensor:
        vectors: Tensor = self.table(segment.clamp(max=self.table.num_embeddings - 1))
        return vectors


class TokenEmbedding(nn.Module):
    """E[id] · scale + position, then dropout. The table is drawn from N(0, 1/D), so that it can serve as output too.

    `word_dropout`: in training, that share of the ids has zeros for a vector, wherever they stand in the batch, and the
    other vectors are divided by the share that is left (Gal & Ghahramani 2016). The table as output is left alone.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        scaled: bool = False,
        positions: PositionKind = "none",
        places: int = 0,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        self.scale = width**0.5 if scaled else 1.0
        self.positions = _make_positions(positions, width, places)
        self.dropout = Dropout(dropout)
        self.word_dropout = Dropout(word_dropout)

    def without_twin(self, device: torch.device) -> list[str]:
        learned = isinstance(self.positions, Learned)
        return ["learned positions take several passes over memory"] if learned and device.type == "cuda" else []

    def forward(self, ids: Tensor, place: Tensor, places: int | None = None, *, added: Tensor | None = None) -> Tensor:
        """`place` is broadcast against `ids`; all of them are below `places`, where that is known on the host.

        `added`: further vectors, one a token, that were made elsewhere.
        """
        table_VD = self.table.weight
        if self.word_dropout.acts:
            table_VD = table_VD * self.word_dropout(table_VD.new_ones(len(table_VD), 1))
        if self.positions is None:
            return kernels.embed(ids, table_VD, None, added, self.scale, self.dropout)
        if added is not None:
            return kernels.embed(ids, table_VD, None, self.positions(place) + added, self.scale, self.dropout)
        if places is None or place.numel() <= places:
            return kernels.embed(ids, table_VD, None, self.positions(place), self.scale, self.dropout)
        each = self.positions(torch.arange(places, device=ids.device))  # once a place, not once a token
        return kernels.embed(ids, table_VD, place, each, self.scale, self.dropout)


def _make_positions(kind: PositionKind, width: int, places: int) -> Sinusoidal | Learned | None:
    match kind:
        case "none":
            return None
        case "sinusoidal":
            return Sinusoidal(width)
        case "learned":
            return Learned(width, places)
