"""Logits, or what they are made of, and targets → a sum and a token count. Division happens once, in the training loop.

Shapes: B sentences, T tokens, N packed tokens, D width, V vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from saccade.nn.linear_loss import linear_cross_entropy
from saccade.nn.masks import pack, valid_BT
from saccade.types import PAD, Tokens

CHUNK = 1 << 22
"""Log-probabilities that `token_losses` holds at once."""


@dataclass(frozen=True)
class Loss:
    total: Tensor
    """What is trained on, summed over real tokens; smoothing and the terms of `extra` included."""
    nll: Tensor
    """Negative log-likelihood, summed over real tokens: what perplexity is reported from."""
    tokens: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """What mechanisms of the model have added to the total, by name, weighted."""

    def plus(self, terms: Mapping[str, Tensor]) -> "Loss":
        """The same with further terms."""
        return Loss(sum(terms.values(), self.total), self.nll, self.tokens, {**self.extra, **terms})


def output_loss(features: Tensor, output: nn.Linear, target: Tokens, smoothing: float = 0.0) -> Loss:
    """`cross_entropy` of `output(features)`, laid out as the target, without ever holding all logits."""
    gold = target.ids
    if not target.layout.is_packed:
        gold = gold.masked_fill(~valid_BT(target.layout), PAD)
    x_ND = features.flatten(0, -2)
    sums = linear_cross_entropy(x_ND, output.weight, output.bias, gold.flatten(), smoothing)
    return Loss(sums.total, sums.nll, target.count)


def token_losses(
    log_p: Callable[..., Tensor], parts: tuple[Tensor, ...], gold_N: Tensor, smoothing: float, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """Of every token, what is trained on and its negative log-likelihood (N); both 0 where the gold token is PAD.

    `log_p` makes log-probabilities (R, V) of some rows of the parts. It is called chunk by chunk, and once more on the
    way back, so that they are never all held. For outputs that are no plain softmax or are asked for token by token.
    """
    rows = max(1, CHUNK // vocabulary)

    def of_rows(gold_R: Tensor, *some: Tensor) -> tuple[Tensor, Tensor]:
        log_p_RV = log_p(*some)
        nll_R = -log_p_RV.gather(-1, gold_R[:, None]).squeeze(-1)
        return (1 - smoothing) * nll_R - smoothing * log_p_RV.mean(-1) if smoothing else nll_R, nll_R

    losses = []
    for begin in range(0, len(gold_N), rows):
        some = [each[begin : begin + rows] for each in (gold_N, *parts)]
        losses.append(checkpoint(of_rows, *some, use_reentrant=False, preserve_rng_state=False))
    loss_N, nll_N = (torch.cat(each) for each in zip(*losses, strict=True))
    counted_N = gold_N != PAD
    return torch.where(counted_N, loss_N, 0.0), torch.where(counted_N, nll_N, 0.0)


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


def label_loss(logits_BL: Tensor, target: Tokens, smoothing: float = 0.0) -> Loss:
    """Of each row one label: label i of the target is column i − 1 of the logits, and PAD, 0, is not counted.

    A row of the target may hold more than one place, where it was filled up with PAD, or none.
    """
    logits_BL = logits_BL.to(torch.promote_types(logits_BL.dtype, torch.float32))
    layout, gold = target.layout, target.ids
    if not layout.is_packed:
        gold = gold.masked_fill(~valid_BT(layout), PAD)
    logits_BTL = logits_BL[:, None].expand(-1, layout.longest, -1)
    logits_NL, gold_N = pack(logits_BTL, layout).flatten(0, -2), gold.flatten()
    total, nll = (
        F.cross_entropy(logits_NL, gold_N - 1, reduction="sum", ignore_index=PAD - 1, label_smoothing=each)
        for each in (smoothing, 0.0)
    )
    return Loss(total, nll.detach(), (gold_N != PAD).sum())
