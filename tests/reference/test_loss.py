"""The loss = torch's, sentence by sentence, padding left out."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.loss import Loss, cross_entropy, output_loss
from saccade.nn import linear_loss
from saccade.nn.masks import pack
from saccade.types import PAD, Layout, Tokens
from tests.cases import tokens

rates = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tokens]:
    torch.manual_seed(0)
    return torch.randn(3, 5, 11, dtype=dtype, requires_grad=True), tokens([3, 5, 1], 11)


@rates
def test_equals_torch(smoothing: float) -> None:
    logits, target = example()
    loss = cross_entropy(logits, target, smoothing)
    rows = [(logits[b, :n], target.ids[b, :n]) for b, n in enumerate([3, 5, 1])]
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
        cross_entropy(logits[b : b + 1, :n], Tokens(target.ids[b : b + 1, :n], Layout.padded([n])), smoothing)
        for b, n in enumerate([3, 5, 1])
    ]
    together = cross_entropy(logits, target, smoothing)
    for name in ("total", "nll", "tokens"):
        assert_close(getattr(together, name), torch.stack([getattr(each, name) for each in apart]).sum())


@rates
def test_ids_and_logits_on_padding_do_not_matter(smoothing: float) -> None:
    logits, target = example()
    padding = target.ids == 0
    assert padding.sum() == 6
    other = Tokens(target.ids.masked_fill(padding, 7), target.layout)

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


# ---- output layer and loss in one


def output(V: int = 11, D: int = 6, dtype: torch.dtype = torch.float64) -> nn.Linear:
    torch.manual_seed(1)
    layer = nn.Linear(D, V, dtype=dtype)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
@pytest.mark.parametrize("packed", [False, True])
@rates
def test_in_one_equals_apart(
    smoothing: float, packed: bool, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, likelihood and every gradient, whatever the chunks; a gradient may come in with any factor."""
    monkeypatch.setattr(linear_loss, "CHUNK_ON_CPU", 11 * rows_at_once)
    layer, target = output(), tokens([3, 5, 1], 11)
    x = torch.randn(3, 5, 6, dtype=torch.float64, requires_grad=True)
    apart = cross_entropy(layer(x), target, smoothing)
    given = Tokens(target.ids.masked_fill(target.ids == PAD, 7), target.layout)  # ids on padding do not matter
    laid, gold = (pack(x, target.layout.packed()), target.packed()) if packed else (x, given)
    in_one = output_loss(laid, layer, gold, smoothing)
    assert_close(in_one.total, apart.total, rtol=1e-12, atol=1e-12)
    assert_close(in_one.nll, apart.nll, rtol=1e-12, atol=1e-12)
    assert in_one.tokens == apart.tokens
    assert not in_one.nll.requires_grad
    inputs = (x, layer.weight, layer.bias)
    for mine, theirs in zip(
        torch.autograd.grad(3 * in_one.total, inputs), torch.autograd.grad(3 * apart.total, inputs), strict=True
    ):
        assert_close(mine, theirs, rtol=1e-11, atol=1e-11)


@rates
def test_in_one_ignores_what_fills_up_a_packed_batch(smoothing: float) -> None:
    """A packed batch may be filled up with PAD to a size that was fixed beforehand."""
    layer, x = output(), torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([4, 5, 2, 6, 2, PAD, PAD, PAD, PAD])
    filled = Tokens(ids, Layout.padded([3, 2, 4]).packed())
    real = Tokens(ids[:5], Layout.padded([3, 2]).packed())
    loss, expected = output_loss(x, layer, filled, smoothing), output_loss(x[:5], layer, real, smoothing)
    assert_close(loss.total, expected.total)
    assert_close(loss.nll, expected.nll)
    mine = torch.autograd.grad(loss.total, (x, layer.weight, layer.bias))
    theirs = torch.autograd.grad(expected.total, (x, layer.weight, layer.bias))
    assert (mine[0][5:] == 0).all()
    for one, other in zip(mine, theirs, strict=True):
        assert_close(one, other)


@rates
def test_in_one_reads_nothing_where_nothing_counts(smoothing: float) -> None:
    """What stands behind the real tokens may be anything, even no number."""
    layer, x = output(), torch.randn(5, 6, dtype=torch.float64)
    target = Tokens(torch.tensor([4, 5, 2, PAD, PAD]), Layout.padded([3, 2]).packed())
    spoilt = x.clone()
    spoilt[3], spoilt[4] = float("nan"), float("inf")
    for each in (x, spoilt):
        each.requires_grad_()
    losses = [output_loss(each, layer, target, smoothing) for each in (x, spoilt)]
    assert losses[0].total == losses[1].total
    one, other = (
        torch.autograd.grad(loss.total, (each, layer.weight, layer.bias))
        for loss, each in zip(losses, (x, spoilt), strict=True)
    )
    for mine, theirs in zip(one, other, strict=True):
        assert torch.equal(mine, theirs)


def test_in_one_does_not_round_the_factor_of_the_gradient() -> None:
    """1 / tokens in bfloat16 is off by up to 0.4 %, and with it would be every gradient below the output layer."""
    layer, target = output(V=50, dtype=torch.float32), tokens([3, 5, 1], 50).packed()
    x = torch.randn(9, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = output_loss(x, layer, target)
    whole = torch.autograd.grad(loss.total, x, retain_graph=True)[0]
    shared = torch.autograd.grad(loss.total / 3001, x)[0]
    share = (shared.double().norm() / whole.double().norm() * 3001).item()
    assert share == pytest.approx(1.0, abs=5e-4)


@rates
def test_in_one_without_gradients_says_the_same(smoothing: float) -> None:
    layer, x, target = output(), torch.randn(9, 6, dtype=torch.float64), tokens([3, 5, 1], 11).packed()
    with torch.no_grad():
        loss = output_loss(x, layer, target, smoothing)
    expected = output_loss(x, layer, target, smoothing)
    assert not loss.total.requires_grad
    assert_close(loss.total, expected.total.detach())
    assert_close(loss.nll, expected.nll)


def test_in_one_survives_large_logits_and_small_probabilities() -> None:
    layer, target = output(dtype=torch.float32), tokens([3, 5, 1], 11).packed()
    x = torch.randn(9, 6) * 1e4
    x.requires_grad_()
    loss = output_loss(x, layer, target)
    expected = F.cross_entropy(layer(x), target.ids, reduction="sum")
    assert loss.total > 1e4
    assert_close(loss.total, expected)
    assert_close(torch.autograd.grad(loss.total, x)[0], torch.autograd.grad(expected, x)[0], rtol=1e-4, atol=1e-4)


def test_in_one_under_autocast_is_near() -> None:
    layer, target = output(V=50, dtype=torch.float32), tokens([3, 5, 1], 50).packed()
    x = torch.randn(9, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = output_loss(x, layer, target, 0.1)
    assert loss.total.dtype == torch.float32
    precise = output_loss(x, layer, target, 0.1)
    assert_close(loss.total, precise.total, rtol=0.02, atol=0.02)
    mine = torch.autograd.grad(loss.total, (x, layer.weight, layer.bias))
    theirs = torch.autograd.grad(precise.total, (x, layer.weight, layer.bias))
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype == torch.float32
        assert_close(one, other, rtol=0.05, atol=0.05)


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
