"""The vectors of a sequence → one vector. A sequence without tokens gives zeros.

Shapes: B sequences, T tokens, N all tokens of a packed batch, D width, A attention width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import masks
from saccade.nn.scores import weigh
from saccade.nn.watch import Watch
from saccade.types import Layout

PoolingKind = Literal["last", "first", "mean", "max", "attention"]


class Last(nn.Module):
    """The state behind the last token that was read.

    Whatever was read from the beginning on ends at the last token; whatever was read from the end on, as by a
    bidirectional encoder's second half, ends at the first. `ends_at_last` says which part of the width the former is.
    """

    def __init__(self, ends_at_last: tuple[int, int]) -> None:
        super().__init__()
        self.ends_at_last = ends_at_last

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Tensor:
        begin, end = self.ends_at_last
        if (begin, end) == (0, x.shape[-1]):
            return at_last(x, layout)
        first_BD = at_first(x, layout)
        if begin == end:
            return first_BD
        last_BD = at_last(x, layout)
        return torch.cat([first_BD[:, :begin], last_BD[:, begin:end], first_BD[:, end:]], dim=-1)

    def extra_repr(self) -> str:
        return f"at the last token: {self.ends_at_last[0]} to {self.ends_at_last[1]}"


class First(nn.Module):
    """The vector of the first token, which stands for the whole (BERT's [CLS]; Devlin et al. 2019)."""

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Tensor:
        return at_first(x, layout)


class Mean(nn.Module):
    """Σ h_t / T over the real tokens."""

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Tensor:
        x_BTD = masks.pad(x, layout)
        count_B1 = layout.lengths_B.clamp(min=1)[:, None]
        return _real(x_BTD, layout, 0.0).sum(1) / count_B1


class Max(nn.Module):
    """max_t h_t, feature by feature, over the real tokens."""

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Tensor:
        x_BTD = masks.pad(x, layout)
        if not x_BTD.shape[1]:
            return x_BTD.sum(1)
        lowest = torch.finfo(x_BTD.dtype).min  # not -inf: a sequence without tokens must not become NaN below
        return _real(x_BTD, layout, lowest).amax(1) * (layout.lengths_B > 0)[:, None]


class AttentionPooling(nn.Module):
    """u_t = tanh(W h_t + b), α = softmax_t(u_t · c), Σ α_t h_t: Yang et al. (2016), equations 5 to 7.

    c is a vector that is learnt: it asks which tokens tell something. With c = 0 it is the mean.
    """

    def __init__(self, width: int, attention_width: int) -> None:
        super().__init__()
        self.of_state = nn.Linear(width, attention_width)
        nn.init.xavier_uniform_(self.of_state.weight)
        nn.init.zeros_(self.of_state.bias)
        self.context = nn.Parameter(torch.empty(attention_width))
        nn.init.normal_(self.context, std=attention_width**-0.5)

    def forward(self, x: Tensor, layout: Layout, watch: Watch | None = None) -> Tensor:
        scores = torch.tanh(self.of_state(x)) @ self.context  # (B, T) or (N,)
        scores_BT, x_BTD = masks.pad(scores, layout), _real(masks.pad(x, layout), layout, 0.0)
        weights_BT = weigh(scores_BT, None if layout.even else masks.valid_BT(layout))
        if watch is not None:
            watch.saw_attention("pooling", weights_BT[:, None, None])
        return (weights_BT.to(x_BTD.dtype)[:, None] @ x_BTD).squeeze(1)


Pooling = Last | First | Mean | Max | AttentionPooling


def make_pooling(kind: PoolingKind, width: int, attention_width: int, ends_at_last: tuple[int, int]) -> Pooling:
    match kind:
        case "last":
            return Last(ends_at_last)
        case "first":
            return First()
        case "mean":
            return Mean()
        case "max":
            return Max()
        case "attention":
            return AttentionPooling(width, attention_width)


def at_first(x: Tensor, layout: Layout) -> Tensor:
    """The vector at each sequence's first token: (B, D); zeros for one without tokens."""
    return _at(x, layout, torch.zeros_like(layout.lengths_B))


def at_last(x: Tensor, layout: Layout) -> Tensor:
    """The vector at each sequence's last token: (B, D); zeros for one without tokens."""
    return _at(x, layout, (layout.lengths_B - 1).clamp(min=0))


def _at(x: Tensor, layout: Layout, place_B: Tensor) -> Tensor:
    """Of a packed batch read where it lies: nothing is padded for one vector a sequence."""
    if not x.shape[-2]:
        return x.new_zeros(len(place_B), x.shape[-1])
    if layout.offsets_B is not None:
        at_B = (layout.offsets_B + place_B).clamp(max=len(x) - 1)  # a last sequence without tokens begins behind all
        found_BD = x.index_select(0, at_B)
    else:
        found_BD = x.gather(1, place_B[:, None, None].expand(-1, 1, x.shape[-1])).squeeze(1)
    return found_BD if layout.even else _real(found_BD[:, None], _whole(layout), 0.0).squeeze(1)


def _whole(layout: Layout) -> Layout:
    """Each sequence as one thing, that is there or not."""
    return Layout((layout.lengths_B > 0).long(), 1)


def _real(x_BTD: Tensor, layout: Layout, otherwise: float) -> Tensor:
    """What stands in the padding is replaced: no number of it, not even one that is none, is seen behind."""
    return x_BTD if layout.even else x_BTD.masked_fill(~masks.valid_BT(layout)[:, :, None], otherwise)
