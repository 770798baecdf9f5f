"""A linear-chain conditional random field over tags (Lafferty et al. 2001; Huang et al. 2015, Lample et al. 2016).

s(x, y) = start[y₁] + Σ P[i, yᵢ] + Σ A[yᵢ₋₁, yᵢ] + end[yₙ] and p(y | x) = exp(s − log Z). A is indexed [from, to].
Behind a sentence's end nothing is added any more: the recursions copy what they have. `partition` and `marginals` are
the recursions as they are written; the model itself takes their twins in nn/crf_sums.py.
Shapes: B sentences, T words, K tags.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from saccade.nn import triton_crf
from saccade.nn.crf_sums import log_partition, word_marginals
from saccade.nn.masks import valid_BT
from saccade.types import Layout

BLOCKED = -1e4
"""What a forbidden step adds: as good as −∞, but two of them are worse than one, and no sum of them is NaN."""


class Allowed(NamedTuple):
    """Which tags may begin a sentence, follow one another, end a sentence: True = may."""

    first_K: Tensor
    pairs_KK: Tensor
    """[from, to]."""
    last_K: Tensor


def all_allowed(tags: int) -> Allowed:
    one = torch.ones(tags, dtype=torch.bool)
    return Allowed(one, one.expand(tags, tags), one)


class Steps(NamedTuple):
    """What every step of a path adds, beside the words' own scores."""

    start_K: Tensor
    pairs_KK: Tensor
    end_K: Tensor


class Best(NamedTuple):
    """The best path of each sentence."""

    tags_BT: Tensor
    """0 on padding."""
    score_B: Tensor


class Crf(nn.Module):
    """Scores of steps between tags. All functions take scores of words P_BTK, padded, and compute in float32 at least.

    `allowed` forbids steps in the search for the best path and in marginals; with `constrained` in training as well.
    """

    computes_padding = True

    def __init__(self, tags: int, allowed: Allowed | None = None, *, constrained: bool = False) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.zeros(tags))
        self.pairs = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        self.constrained = constrained
        # What is forbidden is kept with the weights: so the model is whole without the names of its tags.
        blocked = (None, None, None) if allowed is None else tuple(BLOCKED * (~each).float() for each in allowed)
        for name, each in zip(("no_start", "no_pair", "no_end"), blocked, strict=True):
            self.register_buffer(name, each)
        self.no_start: Tensor | None
        self.no_pair: Tensor | None
        self.no_end: Tensor | None

    def without_twin(self, device: torch.device) -> list[str]:
        tags = len(self.start)
        if device.type != "cuda" or tags <= triton_crf.MOST_TAGS:
            return []
        return [f"sums over {tags} tags, more than {triton_crf.MOST_TAGS}, launch several kernels a word"]

    def steps(self, *, constrained: bool) -> Steps:
        precise = torch.promote_types(self.pairs.dtype, torch.float32)
        own = Steps(self.start.to(precise), self.pairs.to(precise), self.end.to(precise))
        if not constrained or self.no_start is None or self.no_pair is None or self.no_end is None:
            return own
        return Steps(own.start_K + self.no_start, own.pairs_KK + self.no_pair, own.end_K + self.no_end)

    def nll(self, P_BTK: Tensor, tags_BT: Tensor, known_BT: Tensor, layout: Layout) -> Tensor:
        """−log p of each sentence's tags (B). Where a tag is not known, all are summed over: a sentence without any 0.

        So a batch may be filled up with sentences of nothing, and data be labelled in part.
        """
        steps, P_BTK = self.steps(constrained=self.constrained), _precise(P_BTK)
        all_B = log_partition(P_BTK, *steps, layout)
        if not known_BT.is_cuda and bool((known_BT | ~valid_BT(layout)).all()):
            return all_B - path_score(P_BTK, tags_BT, steps, layout)
        other_BTK = torch.ones_like(P_BTK, dtype=torch.bool).scatter(-1, tags_BT[:, :, None], False)
        gold_B = log_partition(P_BTK + BLOCKED * (other_BTK & known_BT[:, :, None]), *steps, layout)
        # What is filled up or unknown as a whole has equal sums; no rounding shall be left of it, nor a gradient.
        return torch.where((known_BT & valid_BT(layout)).any(1), all_B - gold_B, 0.0)

    def best(self, P_BTK: Tensor, layout: Layout) -> Best:
        return viterbi(_precise(P_BTK), self.steps(constrained=True), layout)

    def marginals(self, P_BTK: Tensor, layout: Layout) -> Tensor:
        """p(yᵢ = k | x), (B, T, K); 0 on padding."""
        return word_marginals(_precise(P_BTK), *self.steps(constrained=True), layout)

    def log_probability(self, P_BTK: Tensor, tags_BT: Tensor, layout: Layout) -> Tensor:
        """Of whole paths among those that are allowed (B)."""
        steps, P_BTK = self.steps(constrained=True), _precise(P_BTK)
        return path_score(P_BTK, tags_BT, steps, layout) - log_partition(P_BTK, *steps, layout)


def _precise(P_BTK: Tensor) -> Tensor:
    return P_BTK.to(torch.promote_types(P_BTK.dtype, torch.float32))


def partition(P_BTK: Tensor, steps: Steps, layout: Layout) -> Tensor:
    """Log Z (B): the log of the sum over all paths; 0 for a sentence without words."""
    alphas = _forwards(P_BTK, steps, layout)
    if not alphas:
        return P_BTK.new_zeros(len(P_BTK))
    total_B = (alphas[-1] + steps.end_K).logsumexp(-1)
    return total_B if layout.even else torch.where(layout.lengths_B > 0, total_B, 0.0)


def _forwards(P_BTK: Tensor, steps: Steps, layout: Layout) -> list[Tensor]:
    """α₁ = start + P₁; αᵢ(k) = logsumexp_j(αᵢ₋₁(j) + A[j, k]) + Pᵢ(k). One (B, K) a word."""
    alphas: list[Tensor] = []
    valid = None if layout.even else valid_BT(layout)
    for t, P_BK in enumerate(P_BTK.unbind(1)):
        if t == 0:
            alphas.append(steps.start_K + P_BK)
            continue
        next_BK = (alphas[-1][:, :, None] + steps.pairs_KK).logsumexp(1) + P_BK
        alphas.append(next_BK if valid is None else torch.where(valid[:, t, None], next_BK, alphas[-1]))
    return alphas


def path_score(P_BTK: Tensor, tags_BT: Tensor, steps: Steps, layout: Layout) -> Tensor:
    """s(x, y) of given paths (B); 0 for a sentence without words."""
    if layout.longest == 0:
        return P_BTK.new_zeros(len(P_BTK))
    valid = valid_BT(layout)
    own_BT = P_BTK.gather(-1, tags_BT[:, :, None]).squeeze(-1)
    pairs_BT = steps.pairs_KK[tags_BT[:, :-1], tags_BT[:, 1:]]
    last_B1 = tags_BT.gather(1, (layout.lengths_B - 1).clamp(min=0)[:, None])
    ends_B = steps.start_K[tags_BT[:, 0]] + steps.end_K[last_B1.squeeze(1)]
    inner_B = torch.where(valid, own_BT, 0.0).sum(1) + torch.where(valid[:, 1:], pairs_BT, 0.0).sum(1)
    return inner_B + torch.where(layout.lengths_B > 0, ends_B, 0.0)


def viterbi(P_BTK: Tensor, steps: Steps, layout: Layout) -> Best:
    """The path of the highest score, wholly on the device; between equals, the tag with the lower number."""
    rows, longest = P_BTK.shape[:2]
    if longest == 0:
        return Best(torch.zeros(rows, 0, dtype=torch.long, device=P_BTK.device), P_BTK.new_zeros(rows))
    valid, from_BTK = valid_BT(layout), []
    best_BK = steps.start_K + P_BTK[:, 0]
    stay_K = torch.arange(P_BTK.shape[-1], device=P_BTK.device)
    for t in range(1, longest):
        score_BK, from_BK = (best_BK[:, :, None] + steps.pairs_KK).max(1)
        best_BK = torch.where(valid[:, t, None], score_BK + P_BTK[:, t], best_BK)
        from_BTK.append(torch.where(valid[:, t, None], from_BK, stay_K))
    score_B, tag_B = (best_BK + steps.end_K).max(-1)
    tags = [tag_B]
    for from_BK in reversed(from_BTK):  # on padding each tag comes from itself: the last tag waits there
        tags.append(from_BK.gather(1, tags[-1][:, None]).squeeze(1))
    tags_BT = torch.stack(tags[::-1], dim=1)
    return Best(torch.where(valid, tags_BT, 0), torch.where(layout.lengths_B > 0, score_B, 0.0))


def marginals(P_BTK: Tensor, steps: Steps, layout: Layout) -> Tensor:
    """exp(α + β − log Z) with βₙ = end, βᵢ(j) = logsumexp_k(A[j, k] + Pᵢ₊₁(k) + βᵢ₊₁(k))."""
    if layout.longest == 0:
        return P_BTK.new_zeros(P_BTK.shape)
    valid = valid_BT(layout)
    alpha_BTK = torch.stack(_forwards(P_BTK, steps, layout), dim=1)
    beta_BK = steps.end_K.expand(len(P_BTK), -1)
    betas = [beta_BK]
    for t in range(layout.longest - 1, 0, -1):
        before_BK = (steps.pairs_KK + (P_BTK[:, t] + beta_BK)[:, None]).logsumexp(-1)
        beta_BK = torch.where(valid[:, t, None], before_BK, beta_BK)
        betas.append(beta_BK)
    both_BTK = alpha_BTK + torch.stack(betas[::-1], dim=1)
    return both_BTK.softmax(-1) * valid[:, :, None]  # every word's sum is Z
