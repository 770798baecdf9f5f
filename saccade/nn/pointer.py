"""Copying from the source: the vocabulary's distribution mixed with the attention's (See et al. 2017, section 2.2).

p(w) = g · softmax(logits)(w) + (1 − g) · Σ_{s: x_s = w} a_s, with g = σ(w_c · c + w_h · h + w_x · x + b).

Source and target must share one vocabulary. It is not extended by the words of the source that it lacks: with subwords
there are none, and elsewhere they are copied as the unknown token that they are read as.
Shapes: … any leading dimensions, S source tokens, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Pointer(nn.Module):
    def __init__(self, context_width: int, state_width: int, token_width: int) -> None:
        super().__init__()
        self.of_context = nn.Linear(context_width, 1)
        self.of_state = nn.Linear(state_width, 1, bias=False)
        self.of_token = nn.Linear(token_width, 1, bias=False)

    def forward(self, context: Tensor, state: Tensor, token: Tensor) -> Tensor:
        """(…): the log-odds of g, of generating against copying."""
        odds: Tensor = self.of_context(context) + self.of_state(state) + self.of_token(token)
        return odds.squeeze(-1)


def mixture(logits: Tensor, odds: Tensor, weights: Tensor, source: Tensor) -> Tensor:
    """Log-probabilities (…, V); `source` are the ids (…, S) that the weights (…, S) fall on.

    Tokens that are not in the source are given a share of the least number there is, so that a logarithm exists.
    """
    generated = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    odds, weights = odds[..., None].to(generated.dtype), weights.to(generated.dtype)
    copied = torch.zeros_like(generated).scatter_add(-1, source, weights)
    copied = copied.clamp(min=torch.finfo(copied.dtype).tiny).log()
    return torch.logaddexp(F.logsigmoid(odds) + generated, F.logsigmoid(-odds) + copied)
