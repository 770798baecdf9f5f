"""Dropout that is drawn once for all steps of a recurrence.

Shapes: B sentences, T steps, D width.
"""

from torch import Tensor, nn

from saccade.nn.dropout import Dropout


class LockedDropout(nn.Module):
    """Variational dropout (Gal & Ghahramani 2016): one mask a sentence and feature, the same at every step."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropout = Dropout(rate)

    def mask_BD(self, width: int, like: Tensor) -> Tensor | None:
        """What each feature of a sentence is multiplied with, 0 or 1 / (1 − rate); None where nothing is dropped."""
        if not self.dropout.acts:
            return None
        mask: Tensor = self.dropout(like.new_ones(len(like), width))
        return mask

    def forward(self, x_BTD: Tensor) -> Tensor:
        mask_BD = self.mask_BD(x_BTD.shape[-1], x_BTD)
        return x_BTD if mask_BD is None else x_BTD * mask_BD[:, None]
