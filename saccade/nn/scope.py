"""Where attention may look: everywhere, or near a place that is the step's own or predicted (Luong et al. 2015, 3.2).

All places are counted from 0. The windows are masks: what they save is not time, but wrong places.
Shapes: B sentences, Q queries of a sentence, S source tokens, D query width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn.scores import weigh

ScopeKind = Literal["global", "local-m", "local-p"]


@dataclass(frozen=True)
class Window:
    """What a scope says of every query and key."""

    may_look_BQS: Tensor
    log_favour_BQS: Tensor | None = None
    """The logarithm of what weights are multiplied with."""
    renormalise: bool = False
    """Whether they are then divided by their sum."""

    def weigh(self, scores_BQS: Tensor, real_B1S: Tensor | None) -> Tensor:
        """Softmax over the window, times the favour; `real_B1S` says which keys there are at all."""
        may_look_BQS = self.may_look_BQS if real_B1S is None else self.may_look_BQS & real_B1S
        if self.log_favour_BQS is None:
            return weigh(scores_BQS, may_look_BQS)
        if self.renormalise:
            return weigh(scores_BQS + self.log_favour_BQS, may_look_BQS)
        return weigh(scores_BQS, may_look_BQS) * self.log_favour_BQS.exp()


class LocalM(nn.Module):
    """Monotonic: |s − p| ≤ D around p = t, the target's own place.

    Behind the source's end, where the paper's window would be empty, p stays at the last token; so a window as wide as
    the source always is the whole of it.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, place_BQ: Tensor, lengths_B: Tensor, longest: int) -> Window:
        centre_BQ = torch.minimum(place_BQ, lengths_B[:, None] - 1)
        return Window(_distance(centre_BQ, longest).abs() <= self.window)


class LocalP(nn.Module):
    """Predictive: p = S · σ(v · tanh(W q)), real; |s − p| ≤ D, and weights times exp(−(s − p)² / 2σ²), σ = D / 2.

    The softmax is taken over the window and then multiplied, as printed: weights sum to less than 1. With
    `renormalise` they are divided by their sum. Only through the Gaussian do W and v learn.
    """

    def __init__(self, query_width: int, window: int, *, renormalise: bool = False) -> None:
        super().__init__()
        self.window, self.renormalise = window, renormalise
        self.of_query = nn.Linear(query_width, query_width, bias=False)
        self.v = nn.Linear(query_width, 1, bias=False)

    def predict(self, queries_BQD: Tensor, lengths_B: Tensor) -> Tensor:
        share_BQ = torch.sigmoid(self.v(torch.tanh(self.of_query(queries_BQD))).squeeze(-1))
        return share_BQ * lengths_B[:, None]

    def forward(self, queries_BQD: Tensor, lengths_B: Tensor, longest: int) -> Window:
        away_BQS = _distance(self.predict(queries_BQD, lengths_B), longest)
        spread = self.window / 2
        return Window(away_BQS.abs() <= self.window, -away_BQS.square() / (2 * spread**2), self.renormalise)


def make_scope(kind: ScopeKind, query_width: int, window: int, *, renormalise: bool) -> LocalM | LocalP | None:
    match kind:
        case "global":
            return None
        case "local-m":
            return LocalM(window)
        case "local-p":
            return LocalP(query_width, window, renormalise=renormalise)


def _distance(centre_BQ: Tensor, longest: int) -> Tensor:
    return torch.arange(longest, device=centre_BQ.device) - centre_BQ[..., None]
