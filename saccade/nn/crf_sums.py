"""The sums of a conditional random field as products of matrices: the fast twin of `crf.partition` and `crf.marginals`.

logsumexp_j(α(j) + A[j, k]) = m + c(k) + log Σ_j exp(α(j) − m) · exp(A[j, k] − c(k)), with m the largest α and c(k) the
largest of a column: K² exponentials a pass instead of a word, and one small product a word. In double precision: what
is less than e^−690 of the largest sum counts as that much. The gradient is made of the sums from both ends (Baum 1972).
Shapes: B sentences, T words, K tags.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from saccade.nn import triton_crf
from saccade.nn.masks import valid_BT
from saccade.types import Layout

TINY = 1e-300
STEEPEST = 600.0
"""The largest exponent that is taken: beyond it the other factor is 0 but for rounding."""


def log_partition(P_BTK: Tensor, start_K: Tensor, pairs_KK: Tensor, end_K: Tensor, layout: Layout) -> Tensor:
    """Log Z of each sentence (B); 0 for one without words."""
    if layout.longest == 0:
        return P_BTK.new_zeros(len(P_BTK))
    total_B: Tensor = _LogPartition.apply(P_BTK, start_K, pairs_KK, end_K, layout)  # type: ignore[no-untyped-call]
    return total_B


def word_marginals(P_BTK: Tensor, start_K: Tensor, pairs_KK: Tensor, end_K: Tensor, layout: Layout) -> Tensor:
    """Of each word, the probability of each tag (B, T, K); 0 on padding. Without a gradient."""
    if layout.longest == 0:
        return P_BTK.new_zeros(P_BTK.shape)
    with torch.no_grad():
        sums = _Sums(P_BTK.double(), start_K.double(), pairs_KK.double(), end_K.double(), layout)
        both_BTK = sums.from_the_left() + sums.from_the_right()
        return (both_BTK.softmax(-1) * sums.valid[:, :, None]).to(P_BTK.dtype)


class _Sums:
    """One way through all sentences, from either end."""

    def __init__(self, P_BTK: Tensor, start_K: Tensor, pairs_KK: Tensor, end_K: Tensor, layout: Layout) -> None:
        self.P_BTK, self.start_K, self.pairs_KK, self.end_K = P_BTK, start_K, pairs_KK, end_K
        self.valid, self.lengths_B = valid_BT(layout), layout.lengths_B

    def from_the_left(self) -> Tensor:
        """α: the log of the sum over all beginnings that end in each tag; behind a sentence's end as at it."""
        column_K = self.pairs_KK.amax(0)
        step_KK = (self.pairs_KK - column_K).exp()
        if triton_crf.available(self.P_BTK):
            return self._walked(self.start_K, step_KK, column_K, left=True)
        alpha_BK = self.start_K + self.P_BTK[:, 0]
        alphas = [alpha_BK]
        for t in range(1, self.P_BTK.shape[1]):
            next_BK = _log_product(alpha_BK, step_KK) + (column_K + self.P_BTK[:, t])
            alpha_BK = torch.where(self.valid[:, t, None], next_BK, alpha_BK)
            alphas.append(alpha_BK)
        return torch.stack(alphas, dim=1)

    def from_the_right(self) -> Tensor:
        """β: the log of the sum over all ends that follow each tag."""
        row_K = self.pairs_KK.amax(1)
        step_KK = (self.pairs_KK - row_K[:, None]).exp().t().contiguous()
        if triton_crf.available(self.P_BTK):
            return self._walked(self.end_K, step_KK, row_K, left=False)
        beta_BK = self.end_K.expand(len(self.P_BTK), -1)
        betas = [beta_BK]
        for t in range(self.P_BTK.shape[1] - 1, 0, -1):
            before_BK = _log_product(self.P_BTK[:, t] + beta_BK, step_KK) + row_K
            beta_BK = torch.where(self.valid[:, t, None], before_BK, beta_BK)
            betas.append(beta_BK)
        return torch.stack(betas[::-1], dim=1)

    def _walked(self, edge_K: Tensor, step_KK: Tensor, shift_K: Tensor, *, left: bool) -> Tensor:
        return triton_crf.walk(self.P_BTK, edge_K, step_KK, shift_K, self.lengths_B, left=left, tiny=TINY)

    def pairs(self, alpha_BTK: Tensor, beta_BTK: Tensor, total_B: Tensor, weight_B: Tensor) -> Tensor:
        """How often each step is expected (K, K), each sentence's counted with its weight."""
        column_K = self.pairs_KK.amax(0)
        largest_BT1 = alpha_BTK[:, :-1].amax(-1, keepdim=True)
        before_BTK = (alpha_BTK[:, :-1] - largest_BT1).exp()
        rest_BTK = self.P_BTK[:, 1:] + beta_BTK[:, 1:] + column_K + (largest_BT1 - total_B[:, None, None])
        after_BTK = rest_BTK.clamp(max=STEEPEST).exp() * (self.valid[:, 1:] * weight_B[:, None])[:, :, None]
        return before_BTK.flatten(0, 1).t() @ after_BTK.flatten(0, 1) * (self.pairs_KK - column_K).exp()


def _log_product(x_BK: Tensor, step_KK: Tensor) -> Tensor:
    largest_B1 = x_BK.amax(-1, keepdim=True)
    return ((x_BK - largest_B1).exp() @ step_KK).clamp_(min=TINY).log_() + largest_B1


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, P_BTK: Tensor, start_K: Tensor, pairs_KK: Tensor, end_K: Tensor, layout: Layout) -> Tensor:
        sums = _Sums(P_BTK.double(), start_K.double(), pairs_KK.double(), end_K.double(), layout)
        alpha_BTK = sums.from_the_left()
        total_B = (alpha_BTK[:, -1] + sums.end_K).logsumexp(-1)
        ctx.save_for_backward(P_BTK, start_K, pairs_KK, end_K, alpha_BTK, total_B)
        ctx.layout = layout
        return torch.where(layout.lengths_B > 0, total_B, 0.0).to(P_BTK.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        P_BTK, start_K, pairs_KK, end_K, alpha_BTK, total_B = ctx.saved_tensors
        sums = _Sums(P_BTK.double(), start_K.double(), pairs_KK.double(), end_K.double(), ctx.layout)
        beta_BTK = sums.from_the_right()
        weight_B = torch.where(ctx.layout.lengths_B > 0, gradient_B.double(), 0.0)
        by_P_BTK = (alpha_BTK + beta_BTK).softmax(-1) * (sums.valid * weight_B[:, None])[:, :, None]
        by_end_BK = (alpha_BTK[:, -1] + sums.end_K).softmax(-1) * weight_B[:, None]
        by_pairs_KK = sums.pairs(alpha_BTK, beta_BTK, total_B, weight_B)
        by_start_K, by_end_K = by_P_BTK[:, 0].sum(0), by_end_BK.sum(0)
        every = (by_P_BTK, by_start_K, by_pairs_KK, by_end_K)
        by_P_BTK, by_start_K, by_pairs_KK, by_end_K = (each.to(P_BTK.dtype) for each in every)
        return by_P_BTK, by_start_K, by_pairs_KK, by_end_K, None
