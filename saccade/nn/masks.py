"""Lengths → masks and positions, in this one place. True = may look.

Shapes: B sentences, T queries, S keys, N all tokens of a packed batch.
"""

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


def positions(layout: Layout) -> Tensor:
    """Each token's place in its sentence, from 0: (T,) where padded, (N,) where packed."""
    if layout.offsets_B is None:
        return torch.arange(layout.longest, device=layout.lengths_B.device)
    begins_N = layout.offsets_B.repeat_interleave(layout.lengths_B)
    return torch.arange(len(begins_N), device=begins_N.device) - begins_N


def pad(x: Tensor, layout: Layout) -> Tensor:
    """(N, …) -> (B, T, …), zeros behind each sentence; a padded tensor is returned as it is."""
    if not layout.is_packed:
        return x
    valid = valid_BT(layout)
    padded = x.new_zeros(*valid.shape, *x.shape[1:])
    padded[valid] = x
    return padded


def pack(x: Tensor, layout: Layout) -> Tensor:
    """(B, T, …) -> (N, …) where the layout is packed; else the tensor as it is."""
    return x[valid_BT(layout)] if layout.is_packed else x


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
