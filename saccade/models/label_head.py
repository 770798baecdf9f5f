"""A vector of the whole → a score for each label.

Shapes: B rows, D width, L labels.
"""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from saccade.models.reading import output_layer
from saccade.nn.dropout import Dropout

HeadActivation = Literal["tanh", "relu", "gelu"]


class LabelHead(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂, or W x + b without a hidden layer; dropout before each."""

    def __init__(self, width: int, labels: int, *, hidden: int | None, activation: HeadActivation, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.hidden = None if hidden is None else nn.Linear(width, hidden)
        self.activation: HeadActivation = activation
        self.output = output_layer(width if hidden is None else hidden, labels)

    def forward(self, x_BD: Tensor) -> Tensor:
        x_BD = self.dropout(x_BD)
        if self.hidden is not None:
            x_BD = self.dropout(activated(self.hidden(x_BD), self.activation))
        scores_BL: Tensor = self.output(x_BD)
        return scores_BL


def activated(x: Tensor, activation: HeadActivation) -> Tensor:
    match activation:
        case "tanh":
            return x.tanh()
        case "relu":
            return x.relu()
        case "gelu":
            return F.gelu(x)
