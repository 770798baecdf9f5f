"""Linformer: keys and values summed up along the length, into a few slots that all queries look at.

Shapes: B sentences, S tokens, M slots, L places, H heads, K head width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import masks
from saccade.types import Layout

Sharing = Literal["none", "headwise", "key-value", "layerwise"]


class Linformer(nn.Module):
    """softmax(q (E k)ᵀ / √K) (F v) with E, F of M × L (Wang et al. 2020, section 4), drawn from N(0, 1/M).

    Keys and values are projected behind their own maps, biases included, as the paper writes it. A sentence of n tokens
    takes the first n columns; tokens beyond the last share it. What is padding is 0 before it is summed up: a slot
    holds something of every token, so that there is nothing to mask behind. `sharing`: matrices for each head and for
    keys and values (none), for all heads (headwise), one for both (key-value), or that one in all layers (layerwise:
    the stack hands the same module to each).
    """

    def __init__(self, slots: int, places: int, heads: int, sharing: Sharing) -> None:
        super().__init__()
        shape = (heads if sharing == "none" else 1, slots, places)
        self.of_keys_HML = nn.Parameter(torch.randn(shape) * slots**-0.5)
        both = sharing in ("key-value", "layerwise")
        self.own_of_values_HML = None if both else nn.Parameter(torch.randn(shape) * slots**-0.5)

    @property
    def of_values_HML(self) -> Tensor:
        return self.of_keys_HML if self.own_of_values_HML is None else self.own_of_values_HML

    def forward(self, k_BSHK: Tensor, v_BSHK: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Padded keys and values -> those of the slots, (B, M, H, K)."""
        if not layout.even:
            real_BS11 = masks.valid_BT(layout)[:, :, None, None]
            k_BSHK, v_BSHK = k_BSHK * real_BS11, v_BSHK * real_BS11
        return self._summed(self.of_keys_HML, k_BSHK), self._summed(self.of_values_HML, v_BSHK)

    def _summed(self, of_HML: Tensor, x_BSHK: Tensor) -> Tensor:
        of_HMS = self.columns(of_HML, x_BSHK.shape[1]).to(x_BSHK.dtype)
        return (of_HMS @ x_BSHK.transpose(1, 2)).transpose(1, 2)

    def columns(self, of_HML: Tensor, tokens: int) -> Tensor:
        places = of_HML.shape[-1]
        if tokens <= places:
            return of_HML[..., :tokens]
        return torch.cat([of_HML, of_HML[..., -1:].expand(-1, -1, tokens - places)], dim=-1)

    def seen(self, weights_BHTM: Tensor, layout: Layout) -> Tensor:
        """How much of each token's value there is in each query's mean, (B, H, T, S): of either sign, in any sum."""
        of_HMS = self.columns(self.of_values_HML, layout.longest).to(weights_BHTM.dtype)
        return weights_BHTM @ of_HMS * masks.valid_BT(layout)[:, None, None]
