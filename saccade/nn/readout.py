"""From the context and the decoder's state to what the output layer reads.

Shapes: … any leading dimensions; C context width, D state width, X token width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

ReadoutKind = Literal["luong", "concat", "maxout"]


class LuongReadout(nn.Module):
    """h̃ = tanh(W [c; h]) (Luong et al. 2015, equation 5)."""

    def __init__(self, context_width: int, state_width: int, width: int) -> None:
        super().__init__()
        self.combine = nn.Linear(context_width + state_width, width, bias=False)

    def forward(self, context: Tensor, state: Tensor, token: Tensor) -> Tensor:
        return torch.tanh(self.combine(torch.cat([context, state], dim=-1)))


class ConcatReadout(nn.Module):
    """[c; h], straight to the output layer."""

    def forward(self, context: Tensor, state: Tensor, token: Tensor) -> Tensor:
        return torch.cat([context, state.to(context.dtype)], dim=-1)


class MaxoutReadout(nn.Module):
    """t̃ = U h + V x + C c, and of each pair of neighbours the larger (Bahdanau et al. 2015, appendix A.2.2)."""

    def __init__(self, context_width: int, state_width: int, token_width: int, width: int) -> None:
        super().__init__()
        self.of_context = nn.Linear(context_width, 2 * width, bias=False)
        self.of_state = nn.Linear(state_width, 2 * width, bias=False)
        self.of_token = nn.Linear(token_width, 2 * width, bias=False)

    def forward(self, context: Tensor, state: Tensor, token: Tensor) -> Tensor:
        deep: Tensor = self.of_state(state) + self.of_token(token) + self.of_context(context)
        return torch.maximum(deep[..., ::2], deep[..., 1::2])


Readout = LuongReadout | ConcatReadout | MaxoutReadout


def make_readout(kind: ReadoutKind, context_width: int, state_width: int, token_width: int, width: int) -> Readout:
    match kind:
        case "luong":
            return LuongReadout(context_width, state_width, width)
        case "concat":
            return ConcatReadout()
        case "maxout":
            return MaxoutReadout(context_width, state_width, token_width, width)
