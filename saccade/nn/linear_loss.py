"""Output layer and cross-entropy in one: the logits are made, used for loss and gradient, and dropped, chunk by chunk.

With p = softmax(W x + b) and label smoothing ε over V tokens the gradient by the logits is p − (1 − ε)·onehot − ε/V
(Szegedy et al. 2016). Its last part is the same for all tokens, so that it acts through sums over W and x alone, and
the smoothed loss needs the logits' mean alone, which is x·mean(W) + mean(b): neither costs a pass over the logits.
Shapes: N tokens, D width, V vocabulary, R rows of a chunk.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from saccade.nn import triton_loss
from saccade.types import PAD

CHUNK_ON_CPU, CHUNK_ON_GPU = 1 << 22, 1 << 28
"""Logits that are held at once: what a CPU's cache may hold, and 512 MiB on a GPU in half precision."""

ROWS_OF_A_TILE = 16


class Sums(NamedTuple):
    total: Tensor
    """What is trained on, smoothing included."""
    nll: Tensor
    """Negative log-likelihood; without a gradient."""


def linear_cross_entropy(x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, gold_N: Tensor, smoothing: float) -> Sums:
    """Both summed over the tokens that are not PAD, in float32 at least."""
    if torch.is_autocast_enabled(x_ND.device.type):
        x_ND = x_ND.to(torch.get_autocast_dtype(x_ND.device.type))
    if torch.is_grad_enabled():
        sums: tuple[Tensor, Tensor] = _Fused.apply(x_ND, weight_VD, bias_V, gold_N, smoothing)  # type: ignore[no-untyped-call]
        return Sums(*sums)
    return _pass(x_ND, weight_VD, bias_V, gold_N, smoothing).forward()


def _pass(
    x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, gold_N: Tensor, smoothing: float
) -> "_Pass | _PassWithKernel":
    if triton_loss.available(x_ND, len(weight_VD)):
        return _PassWithKernel(x_ND, weight_VD, bias_V, gold_N, smoothing)
    return _Pass(x_ND, weight_VD, bias_V, gold_N, smoothing)


class _Fused(torch.autograd.Function):
    """The gradient is made on the way forward; on the way back it is only scaled."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, gold_N: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        run = _pass(x_ND, weight_VD, bias_V, gold_N, smoothing)
        sums = run.with_gradient(weight_VD.dtype)
        ctx.save_for_backward(run.dx_ND, run.dweight_VD, run.dbias_V)
        ctx.mark_non_differentiable(sums.nll)
        return sums.total, sums.nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """A factor like 1 / tokens is not rounded to half precision: it would turn all gradients by as much."""
        dx_ND, dweight_VD, dbias_V = ctx.saved_tensors
        by_x_ND = (dx_ND.to(gradient.dtype) * gradient).to(dx_ND.dtype)
        return by_x_ND, dweight_VD * gradient, dbias_V * gradient, None, None


class _Pass:
    """One way through all chunks."""

    def __init__(self, x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, gold_N: Tensor, smoothing: float) -> None:
        self.x_ND, self.gold_N, self.smoothing = x_ND, gold_N, smoothing
        self.weight_VD, self.bias_V = weight_VD.to(x_ND.dtype), bias_V.to(x_ND.dtype)
        self.precise = torch.promote_types(x_ND.dtype, torch.float32)
        self.valid_N1 = (gold_N != PAD)[:, None]
        # A GPU is not asked: its answer would have to be waited for.
        self.some_ignored = x_ND.is_cuda or not bool(self.valid_N1.all())
        if smoothing:
            self.mean_weight_D = weight_VD.detach().to(self.precise).mean(0)
            self.mean_bias = bias_V.detach().to(self.precise).mean()

    def forward(self) -> Sums:
        """The sums alone."""
        return self._through(with_gradient=False)

    def with_gradient(self, weight_dtype: torch.dtype) -> Sums:
        """The sums, and the gradient of the total in `dx_ND`, `dweight_VD` and `dbias_V`."""
        self.dx_ND = torch.empty_like(self.x_ND)
        self.dweight_VD = torch.zeros_like(self.weight_VD, dtype=weight_dtype)
        self.dbias_V = torch.zeros_like(self.bias_V, dtype=weight_dtype)
        return self._through(with_gradient=True)

    def _through(self, *, with_gradient: bool) -> Sums:
        N, V = len(self.x_ND), len(self.weight_VD)
        chunk = max(1, (CHUNK_ON_GPU if self.x_ND.is_cuda else CHUNK_ON_CPU) // V)
        total = torch.zeros((), dtype=self.precise, device=self.x_ND.device)
        nll = torch.zeros_like(total)
        for begin in range(0, N, chunk):
            rows = slice(begin, begin + chunk)
            log_p_RV = self._log_probabilities(rows)
            nll_R1 = -log_p_RV.gather(1, self.gold_N[rows, None])
            nll += torch.where(self.valid_N1[rows], nll_R1, 0.0).sum()
            if self.smoothing:
                total += self._smoothed(rows, log_p_RV, nll_R1)
            if with_gradient:
                self._add_gradient(rows, log_p_RV.exp_())
        if with_gradient and self.smoothing:
            self._add_even_gradient()
        return Sums(total if self.smoothing else nll.clone(), nll)

    def _log_probabilities(self, rows: slice) -> Tensor:
        logits_RV = torch.addmm(self.bias_V, self.x_ND[rows], self.weight_VD.t()).to(self.precise)
        return torch.log_softmax(logits_RV, -1, out=logits_RV)

    def _smoothed(self, rows: slice, log_p_RV: Tensor, nll_R1: Tensor) -> Tensor:
        """(1 − ε)·nll + ε·(mean over V of −log p): the mean is the normaliser less the logits' mean."""
        x_RD, gold_R = self.x_ND[rows].to(self.precise), self.gold_N[rows]
        gold_logit_R1 = (x_RD * self.weight_VD[gold_R]).sum(-1, keepdim=True) + self.bias_V[gold_R, None]
        normaliser_R1 = nll_R1 + gold_logit_R1
        mean_R1 = (x_RD * self.mean_weight_D).sum(
            -1, keepdim=True
        ) + self.mean_bias  # no product: autocast rounds those
        smooth_R1 = (1 - self.smoothing) * nll_R1 + self.smoothing * (normaliser_R1 - mean_R1)
        return torch.where(self.valid_N1[rows], smooth_R1, 0.0).sum()

    def _add_gradient(self, rows: slice, p_RV: Tensor) -> None:
        """(p − (1 − ε)·onehot), row by row; the probabilities are overwritten."""
        gold_R1 = self.gold_N[rows, None]
        less = p_RV.new_full((len(p_RV), 1), -(1 - self.smoothing))
        by_logit_RV, kept_RD = p_RV.scatter_add_(1, gold_R1, less), self.x_ND[rows]
        if self.some_ignored:  # filled, not multiplied, with zeros: what stands there may be anything, even no number
            by_logit_RV.masked_fill_(~self.valid_N1[rows], 0.0)
            kept_RD = kept_RD.masked_fill(~self.valid_N1[rows], 0.0)
        by_logit_RV = by_logit_RV.to(self.x_ND.dtype)
        self.dx_ND[rows] = by_logit_RV @ self.weight_VD
        if self.dweight_VD.dtype == by_logit_RV.dtype:
            self.dweight_VD.addmm_(by_logit_RV.t(), kept_RD)
        else:
            self.dweight_VD += by_logit_RV.t() @ kept_RD
        self.dbias_V += by_logit_RV.new_ones(len(by_logit_RV)) @ by_logit_RV  # faster on a CPU than a sum

    def _add_even_gradient(self) -> None:
        """−ε/V on every logit of every token that counts."""
        share, valid_N1 = self.smoothing / len(self.weight_VD), self.valid_N1
        self.dx_ND -= (self.smoothing * self.mean_weight_D * valid_N1).to(self.dx_ND.dtype)
        kept_ND = self.x_ND.to(self.precise).masked_fill(~valid_N1, 0.0)
        self.dweight_VD -= (share * kept_ND.sum(0)).to(self.dweight_VD.dtype)
        self.dbias_V -= share * valid_N1.sum().to(self.dbias_V.dtype)


class _PassWithKernel:
    """The same on a GPU: a kernel reads a chunk of logits once and leaves their gradient in their place."""

    def __init__(self, x_ND: Tensor, weight_VD: Tensor, bias_V: Tensor, gold_N: Tensor, smoothing: float) -> None:
        self.x_ND, self.gold_N, self.smoothing = x_ND, gold_N, smoothing
        self.weight_VD, self.bias_V = weight_VD.to(x_ND.dtype), bias_V.to(x_ND.dtype)
        self.one = torch.ones((), device=x_ND.device)

    def forward(self) -> Sums:
        return self._through(with_gradient=False)

    def with_gradient(self, weight_dtype: torch.dtype) -> Sums:
        self.dx_ND = torch.empty_like(self.x_ND)
        self.dweight_VD = torch.zeros_like(self.weight_VD, dtype=torch.float32)
        self.dbias_RV = self.bias_V.new_zeros(ROWS_OF_A_TILE, len(self.bias_V), dtype=torch.float32)
        sums = self._through(with_gradient=True)
        self.dweight_VD, self.dbias_V = self.dweight_VD.to(weight_dtype), self.dbias_RV[0].to(weight_dtype)
        return sums

    def _through(self, *, with_gradient: bool) -> Sums:
        chunk = max(1, CHUNK_ON_GPU // len(self.weight_VD))
        total, nll = torch.zeros_like(self.one), torch.zeros_like(self.one)
        for rows in (slice(begin, begin + chunk) for begin in range(0, len(self.x_ND), chunk)):
            logits_RV = torch.addmm(self.bias_V, self.x_ND[rows], self.weight_VD.t())
            loss_R, nll_R = triton_loss.cross_entropy_inplace(
                logits_RV, self.gold_N[rows], self.one, smoothing=self.smoothing
            )
            total += loss_R.sum()
            nll += nll_R.sum()
            if with_gradient:
                self._add_gradient(rows, logits_RV)
        return Sums(total, nll)

    def _add_gradient(self, rows: slice, by_logit_RV: Tensor) -> None:
        torch.mm(by_logit_RV, self.weight_VD, out=self.dx_ND[rows])
        self.dweight_VD = _added(self.dweight_VD, by_logit_RV.t(), self.x_ND[rows])
        # The sum over rows as a product with ones, of as many rows as a tile of the tensor cores has.
        ones = by_logit_RV.new_ones(ROWS_OF_A_TILE, len(by_logit_RV))
        self.dbias_RV = _added(self.dbias_RV, ones, by_logit_RV)


def _added(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Total + a b, summed in float32 whatever a and b are."""
    if a.dtype == torch.float32:
        return total.addmm_(a, b)
    return torch.addmm(total, a, b, out_dtype=torch.float32)
