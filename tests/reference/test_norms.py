"""Norms = torch's on copied weights, or their equations; batch norm measures real tokens alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.checkpoint import model_tensors, restore_model
from saccade.nn.masks import pack, valid_BT
from saccade.nn.norms import BatchNorm, NormKind, make_norm, normed
from saccade.types import Layout

ragged = Layout.padded([4, 7, 1, 3])


def drawn(kind: NormKind, epsilon: float = 1e-5) -> nn.Module:
    torch.manual_seed(0)
    norm = make_norm(kind, 6, epsilon).double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return norm


def same_gradients(one: Tensor, other: Tensor, inputs: list[Tensor], others: list[Tensor]) -> None:
    upstream = torch.randn_like(one)
    mine, theirs = torch.autograd.grad(one, inputs, upstream), torch.autograd.grad(other, others, upstream)
    for a, b in zip(mine, theirs, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_rms_norm_equals_torch(epsilon: float) -> None:
    norm = drawn("rms", epsilon)
    twin = nn.RMSNorm(6, eps=epsilon).double()
    twin.load_state_dict(norm.state_dict())
    x = (torch.randn(3, 5, 6, dtype=torch.float64) * 3 + 1).requires_grad_()
    assert_close(norm(x), twin(x))
    same_gradients(norm(x), twin(x), [x, *norm.parameters()], [x, *twin.parameters()])


def test_layer_norm_has_the_epsilon_asked_for() -> None:
    norm, x = drawn("layer", 0.5), torch.randn(3, 6, dtype=torch.float64)
    assert isinstance(norm, nn.LayerNorm)
    expected = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 0.5).sqrt()
    assert_close(norm(x), expected * norm.weight + norm.bias)


def test_detached_norm_is_layer_norm_with_statistics_that_are_constants() -> None:
    norm = drawn("detached")
    twin = nn.LayerNorm(6).double()
    twin.load_state_dict(norm.state_dict())
    x = (torch.randn(3, 5, 6, dtype=torch.float64) * 3 + 1).requires_grad_()
    assert_close(norm(x), twin(x))
    upstream = torch.randn_like(x)
    (mine,) = torch.autograd.grad(norm(x), x, upstream)
    spread = (x.detach().var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    assert_close(mine, upstream * twin.weight / spread)
    (theirs,) = torch.autograd.grad(twin(x), x, upstream)
    assert not torch.allclose(mine, theirs, atol=1e-2)
    weights = torch.autograd.grad(norm(x), list(norm.parameters()), upstream)
    for a, b in zip(weights, torch.autograd.grad(twin(x), list(twin.parameters()), upstream), strict=True):
        assert_close(a, b)


def test_no_norm_is_no_norm() -> None:
    x = torch.randn(3, 6)
    assert normed(make_norm("none", 6), x, Layout.padded([3])) is x


# ---- batch norm


def batch_twin(norm: BatchNorm) -> nn.BatchNorm1d:
    twin = nn.BatchNorm1d(6, eps=norm.epsilon, momentum=norm.momentum).double()
    with torch.no_grad():
        twin.weight.copy_(norm.weight)
        twin.bias.copy_(norm.bias)
        assert twin.running_mean is not None
        assert twin.running_var is not None
        twin.running_mean.copy_(norm.running_mean)
        twin.running_var.copy_(norm.running_variance)
    return twin


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_batch_norm_equals_torch_on_the_real_tokens(packed: bool) -> None:
    """Outputs, gradients and running statistics, over three batches; then in evaluation."""
    norm = drawn("batch")
    assert isinstance(norm, BatchNorm)
    twin, valid, layout = batch_twin(norm), valid_BT(ragged), ragged.packed()
    for _ in range(3):
        x = (torch.randn(4, 7, 6, dtype=torch.float64) * 3 + 1).requires_grad_()
        out = norm(pack(x, layout), layout) if packed else norm(x, ragged)[valid]
        expected = twin(x[valid])
        assert_close(out, expected)
        same_gradients(out, expected, [x, norm.weight, norm.bias], [x, twin.weight, twin.bias])
        assert_close(norm.running_mean, nn.Parameter(twin.running_mean, requires_grad=False))  # type: ignore[arg-type]
        assert_close(norm.running_variance, nn.Parameter(twin.running_var, requires_grad=False))  # type: ignore[arg-type]
    norm.eval()
    twin.eval()
    assert_close(norm(x, ragged)[valid], twin(x[valid]))


def test_batch_norm_sees_no_padding() -> None:
    norm, x = make_norm("batch", 6), torch.randn(4, 7, 6)
    assert isinstance(norm, BatchNorm)
    other, valid = x.masked_fill(~valid_BT(ragged)[:, :, None], 1e3), valid_BT(ragged)
    assert_close(norm(x, ragged)[valid], norm(other, ragged)[valid])
    (gradient,) = torch.autograd.grad(norm(x.requires_grad_(), ragged)[valid].square().sum(), x)
    assert (gradient[~valid] == 0).all()


def test_running_statistics_follow_training_alone() -> None:
    norm, even = make_norm("batch", 6), Layout.padded([5, 5])
    assert isinstance(norm, BatchNorm)
    x = torch.randn(2, 5, 6) + 4

    def unmoved() -> bool:
        return torch.equal(norm.running_mean, torch.zeros(6)) and torch.equal(norm.running_variance, torch.ones(6))

    with torch.no_grad():
        norm(x, even)
    norm(x * torch.inf, even)
    norm.eval()(x, even)
    assert unmoved()
    norm.train()(x, even)
    assert not unmoved()
    assert not norm.running_mean.requires_grad


def test_running_statistics_are_saved_with_the_weights() -> None:
    norm, other = make_norm("batch", 6), make_norm("batch", 6)
    norm(torch.randn(2, 5, 6) + 4, Layout.padded([5, 5]))
    restore_model(other, model_tensors(norm), "here")
    x = torch.randn(2, 5, 6)
    even = Layout.padded([5, 5])
    assert torch.equal(norm.eval()(x, even), other.eval()(x, even))
    assert set(model_tensors(norm)) == {"weight", "bias", "running_mean", "running_variance"}
