"""The feed-forward part = its equation, in double precision: every activation, with and without a gate."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.nn.attention import FeedForward
from saccade.nn.kernels import Activation

FORMULAS: dict[Activation, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "gelu-tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swish": lambda x: x / (1 + math.exp(-x)),
}
activations = pytest.mark.parametrize("activation", list(FORMULAS))
gates = pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])


def part(activation: Activation, gated: bool) -> FeedForward:
    torch.manual_seed(0)
    made = FeedForward(4, 7, 0.0, activation, gated=gated).double()
    for bias in (made.widen.bias, made.narrow.bias):
        torch.nn.init.normal_(bias)
    return made


@activations
@gates
@torch.no_grad()
def test_it_is_the_equation(activation: Activation, gated: bool) -> None:
    """W₂ φ(W₁ x + b₁) + b₂, or W₂ (φ(W₁ x + b₁) ⊙ (V x + c)) + b₂: ReGLU, GEGLU, SwiGLU (Shazeer 2020)."""
    ours, x = part(activation, gated), torch.randn(3, 4, dtype=torch.float64)
    w, b = ours.widen.weight, ours.widen.bias
    assert w.shape == (14 if gated else 7, 4)
    expected = []
    for row in x:
        inner: list[float] = []
        for i in range(7):
            value = FORMULAS[activation](float(w[i] @ row + b[i]))
            inner.append(value * float(w[7 + i] @ row + b[7 + i]) if gated else value)
        expected.append(ours.narrow.weight @ torch.tensor(inner, dtype=torch.float64) + ours.narrow.bias)
    assert_close(ours(x).whole(), torch.stack(expected))


@activations
@gates
def test_its_gradient_is_right(activation: Activation, gated: bool) -> None:
    ours = part(activation, gated)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def out(x: Tensor) -> Tensor:
        product: Tensor = ours(x).whole()
        return product

    assert torch.autograd.gradcheck(out, (x,))


def test_both_halves_of_a_gated_layer_are_drawn_as_if_alone() -> None:
    torch.manual_seed(0)
    gate, value = FeedForward(200, 300, 0.0, gated=True).widen.weight.chunk(2)
    bound = math.sqrt(6 / 500)
    for half in (gate, value):
        assert half.abs().max() <= bound
        assert half.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)


@gates
def test_dropout_acts_behind_the_activation(gated: bool) -> None:
    ours = FeedForward(4, 5000, 0.5, "swish", gated=gated)
    inner: list[Tensor] = []
    ours.narrow.register_forward_pre_hook(lambda _module, inputs: inner.append(inputs[0]))
    ours(torch.randn(1, 4))
    ours.eval()(torch.randn(1, 4))
    dropped, whole = ((each == 0).float().mean().item() for each in inner)
    assert dropped == pytest.approx(0.5, abs=0.05)
    assert whole == 0
