"""How often each source token was looked at, and what it costs to look too often or too seldom.

Shapes: B sentences, T target tokens, S source tokens.
"""

import torch
from torch import Tensor


def overlap(weights: Tensor, coverage: Tensor) -> Tensor:
    """Σ_s min(a_ts, c_ts) (See et al. 2017, equation 12): what of a look falls on what was looked at before."""
    return torch.minimum(weights, coverage).sum(-1)


def unevenness(weights_BTS: Tensor, counted_BT: Tensor, source_BS: Tensor) -> Tensor:
    """Σ_s (1 − Σ_t a_ts)² of each sentence: the doubly stochastic term (Xu et al. 2015, section 4.2.1).

    `counted_BT` says which target tokens are real, `source_BS` which source tokens.
    """
    seen_BS = (weights_BTS * counted_BT[:, :, None]).sum(1)
    return ((1 - seen_BS).square() * source_BS).sum(-1)
