"""Dropout: the right share and scale, the same mask back as forth, nothing that keyed seeding does not govern."""

import pytest
import torch

from saccade.nn.attention import FeedForward
from saccade.nn.dropout import Dropout, relu_dropout

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@devices
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_and_the_scale(rate: float, device: str) -> None:
    torch.manual_seed(0)
    n = 400_001
    x = torch.ones(n, device=device, requires_grad=True)
    out = Dropout(rate)(x)
    dropped = (out == 0).float().mean().item()
    assert dropped == pytest.approx(rate, abs=5 * (rate * (1 - rate) / n) ** 0.5)
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - rate)))
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(gradient, out)


@devices
def test_the_mask_follows_torchs_seed_and_differs_from_call_to_call(device: str) -> None:
    x, layer = torch.ones(50, 7, device=device), Dropout(0.5)

    def twice() -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)
        return layer(x), layer(x)

    first, second = twice()
    again = twice()
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])
    assert not torch.equal(first, second)


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero() -> None:
    x = torch.randn(5, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_neighbouring_values_are_dropped_independently() -> None:
    """Four values come from one draw of 64 bits: within and across draws, values know nothing of each other."""
    torch.manual_seed(1)
    kept = (Dropout(0.3)(torch.ones(1_000_000)) != 0).float()
    for distance in (1, 2, 3, 4, 8):
        both = (kept[:-distance] * kept[distance:]).mean().item()
        assert both == pytest.approx(0.49, abs=0.003)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_and_odd_sizes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape in ((), (1,), (3,), (2, 0, 3), (5, 7)):
        x = torch.ones(shape, dtype=dtype, requires_grad=True)
        out = Dropout(0.5)(x)
        assert out.shape == shape
        assert out.dtype == dtype
        assert set(out.flatten().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_relu_in_one_it_is_the_same(dtype: torch.dtype) -> None:
    x = torch.randn(40, 7, dtype=dtype, requires_grad=True)
    torch.manual_seed(5)
    in_one = relu_dropout(x.clone(), 0.3)
    torch.manual_seed(5)
    apart = Dropout(0.3)(torch.relu(x))
    assert torch.equal(in_one, apart)
    upstream = torch.randn_like(apart)
    (mine,), (theirs,) = (torch.autograd.grad(each, x, upstream) for each in (in_one, apart))
    torch.testing.assert_close(mine, theirs)
    assert (mine == 0).any()


def test_a_feed_forward_part_drops_inside_in_training_alone() -> None:
    """Also where its first layer's output is overwritten: the gradient of every weight is as if it had not been."""
    torch.manual_seed(0)
    part, x = FeedForward(6, 50, 0.4), torch.randn(9, 6, requires_grad=True)
    torch.manual_seed(2)
    out = part(x).whole()
    torch.manual_seed(2)
    inner = Dropout(0.4)(torch.relu(part.widen(x)))
    expected = part.narrow(inner)
    assert torch.equal(out, expected)
    inputs = (x, *part.parameters())
    for mine, theirs in zip(
        torch.autograd.grad(out.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(part.eval()(x).whole(), part.narrow(torch.relu(part.widen(x))))
