"""Logits, or what they are made of, and targets → a sum and a token count. Division happens once, in the training loop.

Shapes: B sentences, T tokens, N packed tokens, D width, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn.linear_loss import linear_cross_entropy
from saccade.nn.masks import valid_BT
from saccade.types import PAD, Tokens


@dataclass(frozen=True)
class Loss:
    total: Tensor
    """What is trained on, summed over real tokens; smoothing included."""
    nll: Tensor
    """Negative log-likelihood, summed over real tokens: what perplexity is reported from."""
    tokens: Tensor


def output_loss(features: Tensor, output: nn.Linear, target: Tokens, smoothing: float = 0.0) -> Loss:
    """`cross_entropy` of `output(features)`, laid out as the target, without ever holding all logits."""
    gold = target.ids
    if not target.layout.is_packed:
        gold = gold.masked_fill(~valid_BT(target.layout), PAD)
    x_ND = features.flatten(0, -2)
    sums = linear_cross_entropy(x_ND, output.weight, output.bias, gold.flatten(), smoothing)
    return Loss(sums.total, sums.nll, target.count)


def cross_entropy(logits_BTV: Tensor, target: Tokens, smoothing: float = 0.0) -> Loss:
    """The readable path. Label smoothing moves the mass ε evenly onto all V tokens (Szegedy et al. 2016)."""
    logits_BTV = logits_BTV.to(torch.promote_types(logits_BTV.dtype, torch.float32))
    valid = valid_BT(target.layout)
    if smoothing == 0.0:
        nll_BT = F.cross_entropy(logits_BTV.transpose(1, 2), target.ids, reduction="none")
        nll = (nll_BT * valid).sum()
        return Loss(nll, nll.detach(), target.count)
    normaliser_BT = logits_BTV.logsumexp(-1)
    nll_BT = normaliser_BT - logits_BTV.gather(-1, target.ids[:, :, None]).squeeze(-1)
    even_BT = normaliser_BT - logits_BTV.mean(-1)
    smooth_BT = (1 - smoothing) * nll_BT + smoothing * even_BT
    return Loss((smooth_BT * valid).sum(), (nll_BT.detach() * valid).sum(), target.count)
