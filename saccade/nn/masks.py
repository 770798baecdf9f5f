"""Lengths → masks and positions, in this one place. True = may look.

Shapes: B sentences, T queries, S keys, N all tokens of a packed batch.
"""

from typing import Any

import torch
from torch import Tensor

from saccade.types import Layout


def valid_BT(layout: Layout) -> Tensor:
    """True where a padded batch holds a real token."""
    return torch.arange(layout.longest, device=layout.lengths_B.device) < layout.lengths_B[:, None]


def keys_B1S(layout: Layout) -> Tensor | None:
    """Which keys every query of a sentence may look at; None where that is all of them."""
    return None if layout.even else valid_BT(layout)[:, None]


def causal_TS(queries: int, keys: int, device: torch.device) -> Tensor:
    """Query t may look at keys up to its own place; the last query stands at the last key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def shade(may_look: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores so that nothing is seen but where one may look: for masks that many layers share.

    A row that may look nowhere sees everything alike; whoever has such rows takes care that there is nothing to see.
    """
    return torch.zeros(may_look.shape, dtype=dtype, device=may_look.device).masked_fill(
        ~may_look, torch.finfo(dtype).min
    )


def positions(layout: Layout) -> Tensor:
    """Each token's place in its sentence, from 0: (T,) where padded, (N,) where packed."""
    if layout.slots_N is None:
        return torch.arange(layout.longest, device=layout.lengths_B.device)
    return layout.slots_N % max(1, layout.longest)


def pad(x: Tensor, layout: Layout) -> Tensor:
    """(N, …) -> (B, T, …), zeros behind each sentence; a padded tensor is returned as it is."""
    if layout.slots_N is None:
        return x
    rows = len(layout.lengths_B)
    padded: Tensor = _Spread.apply(x, layout.slots_N, rows * layout.longest)  # type: ignore[no-untyped-call]
    return padded.view(rows, layout.longest, *x.shape[1:])


def pack(x: Tensor, layout: Layout) -> Tensor:
    """(B, T, …) -> (N, …) where the layout is packed; else the tensor as it is."""
    if layout.slots_N is None:
        return x
    packed: Tensor = _Gather.apply(x.flatten(0, 1), layout.slots_N)  # type: ignore[no-untyped-call]
    return packed


def before(marked: Tensor, layout: Layout) -> Tensor:
    """How many of the marked tokens of its sentence stand before each token, laid out as the tokens."""
    so_far = pack(pad(marked.long(), layout).cumsum(1), layout)
    return so_far - marked.long()


def ends_B(layout: Layout) -> Tensor:
    """Where each sentence's last token lies, counted through all places; somewhere, for a sentence without tokens."""
    begins_B = layout.offsets_B
    if begins_B is None:
        begins_B = torch.arange(len(layout.lengths_B), device=layout.lengths_B.device) * layout.longest
    return (begins_B + layout.lengths_B - 1).clamp(min=0)


def at(x_ND: Tensor, places_K: Tensor) -> Tensor:
    """The rows of places that are named once each: (N, …) -> (K, …)."""
    picked: Tensor = _Gather.apply(x_ND, places_K)  # type: ignore[no-untyped-call]
    return picked


class _Spread(torch.autograd.Function):
    """Rows to places of their own among zeros. No place is taken twice, so that its gradient is a plain gathering."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots_N: Tensor, places: int) -> Tensor:
        ctx.save_for_backward(slots_N)
        return x.new_zeros(places, *x.shape[1:]).index_copy_(0, slots_N, x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slots_N,) = ctx.saved_tensors
        return gradient.index_select(0, slots_N), None, None


class _Gather(torch.autograd.Function):
    """Rows from places of their own; its gradient spreads without the sum that torch's would take."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots_N: Tensor) -> Tensor:
        ctx.save_for_backward(slots_N)
        ctx.places = len(x)
        return x.index_select(0, slots_N)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slots_N,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.places, *gradient.shape[1:]).index_copy_(0, slots_N, gradient), None


def reverse(x_BTD: Tensor, layout: Layout) -> Tensor:
    """Each sentence back to front; its padding stays behind it."""
    if layout.even:
        return x_BTD.flip(1)
    place_T = torch.arange(layout.longest, device=x_BTD.device)
    mirrored_BT = layout.lengths_B[:, None] - 1 - place_T
    place_BT = torch.where(mirrored_BT >= 0, mirrored_BT, place_T)
    return x_BTD.gather(1, place_BT[:, :, None].expand_as(x_BTD))


def last(x_BTD: Tensor, layout: Layout) -> Tensor:
    """The vector at each sentence's last token: (B, T, D) -> (B, D); zeros for a sentence without tokens."""
    if layout.even:
        return x_BTD[:, -1]
    place_B11 = (layout.lengths_B - 1).clamp(min=0)[:, None, None]
    at_end_BD = x_BTD.gather(1, place_B11.expand(-1, 1, x_BTD.shape[-1])).squeeze(1)
    return at_end_BD * (layout.lengths_B > 0)[:, None]
