"""The loss = torch's, sentence by sentence, padding left out."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.loss import Loss, cross_entropy
from saccade.types import Layout, Tokens
from tests.cases import tokens

rates = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tokens]:
    torch.manual_seed(0)
    return torch.randn(3, 5, 11, dtype=dtype, requires_grad=True), tokens([3, 5, 1], 11)


@rates
def test_equals_torch(smoothing: float) -> None:
    logits, target = example()
    loss = cross_entropy(logits, target, smoothing)
    rows = [(logits[b, :n], target.ids_BT[b, :n]) for b, n in enumerate([3, 5, 1])]
    flat, ids = torch.cat([row for row, _ in rows]), torch.cat([row for _, row in rows])
    expected = F.cross_entropy(flat, ids, reduction="sum", label_smoothing=smoothing)
    assert loss.total.dtype == torch.float64
    assert_close(loss.total, expected, rtol=1e-12, atol=1e-12)
    assert_close(loss.nll, F.cross_entropy(flat, ids, reduction="sum").detach(), rtol=1e-12, atol=1e-12)
    assert not loss.nll.requires_grad
    assert loss.tokens.item() == 9
    (mine,), (theirs,) = (torch.autograd.grad(each, logits, retain_graph=True) for each in (loss.total, expected))
    assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@rates
def test_the_batchs_loss_is_the_sum_of_the_sentences(smoothing: float) -> None:
    logits, target = example()
    apart = [
        cross_entropy(logits[b : b + 1, :n], Tokens(target.ids_BT[b : b + 1, :n], Layout.padded([n])), smoothing)
        for b, n in enumerate([3, 5, 1])
    ]
    together = cross_entropy(logits, target, smoothing)
    for name in ("total", "nll", "tokens"):
        assert_close(getattr(together, name), torch.stack([getattr(each, name) for each in apart]).sum())


@rates
def test_ids_and_logits_on_padding_do_not_matter(smoothing: float) -> None:
    logits, target = example()
    padding = target.ids_BT == 0
    assert padding.sum() == 6
    other = Tokens(target.ids_BT.masked_fill(padding, 7), target.layout)

    def with_gradient(x: Tensor, gold: Tokens) -> tuple[Loss, Tensor]:
        loss = cross_entropy(x, gold, smoothing)
        return loss, torch.autograd.grad(loss.total, x)[0]

    loss, gradient = with_gradient(logits, target)
    same, same_gradient = with_gradient(logits, other)
    moved, _ = with_gradient(logits + 30.0 * padding[:, :, None] * torch.randn(11), target)
    assert torch.equal(loss.total, same.total)
    assert torch.equal(gradient, same_gradient)
    assert torch.equal(loss.total, moved.total)
    assert (gradient[padding] == 0).all()
    assert (gradient[~padding].abs().amax(-1) > 0).all()


def test_by_hand() -> None:
    """Two tokens out of three, probabilities ½, ¼, ¼: ln 2 and ln 4; smoothed by ε the mean of −ln p is added."""
    logits = torch.tensor([[[2.0, 1.0, 1.0], [2.0, 1.0, 1.0]]]).log()
    target = Tokens.of([[0, 1]])
    assert cross_entropy(logits, target).total.item() == pytest.approx(math.log(8))
    even = (math.log(2) + 2 * math.log(4)) / 3
    assert cross_entropy(logits, target, 0.3).total.item() == pytest.approx(0.7 * math.log(8) + 0.3 * 2 * even)


def test_a_uniform_model_has_the_vocabularys_perplexity() -> None:
    loss = cross_entropy(torch.zeros(2, 3, 13), tokens([3, 2], 13))
    assert (loss.nll / loss.tokens).exp().item() == pytest.approx(13)


def test_the_smoothed_minimum_is_the_entropy_of_the_smoothed_target() -> None:
    epsilon, V = 0.2, 5
    q = torch.full((V,), epsilon / V, dtype=torch.float64)
    q[3] += 1 - epsilon
    logits = q.log().view(1, 1, V).requires_grad_()
    loss = cross_entropy(logits, Tokens.of([[3]]), epsilon).total
    assert_close(loss.detach(), -(q * q.log()).sum())
    assert torch.autograd.grad(loss, logits)[0].abs().max() < 1e-12  # p − q


def test_half_precision_is_summed_in_single() -> None:
    logits, target = example(torch.bfloat16)
    for smoothing in (0.0, 0.1):
        loss = cross_entropy(logits, target, smoothing)
        assert loss.total.dtype == torch.float32
        assert_close(loss.total, cross_entropy(logits.float(), target, smoothing).total)
