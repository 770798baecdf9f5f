"""The moving average of weights: by hand, through a file, swapped in and out, and unmoved by a skipped update."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.config import parse
from saccade.errors import SaccadeError, UsageError
from saccade.train.ema import MovingAverage, decay_at
from saccade.train.settings import TrainConfig


class Tied(nn.Module):
    """One matrix used twice, a bias, and a weight that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Embedding(5, 3)
        self.output = nn.Linear(3, 5)
        self.output.weight = self.read.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


@torch.no_grad()
def move(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.copy_(torch.randn(parameter.shape, generator=generator))


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@given(update=st.integers(1, 10**7), decay=st.floats(0.5, 0.99999))
def test_the_decay_grows_to_what_was_asked_for(update: int, decay: float) -> None:
    now, later = decay_at(update, decay), decay_at(update + 1, decay)
    assert 0 < now <= later <= decay
    assert now == decay or now == pytest.approx(1 - 9 / (10 + update))


def test_the_average_by_hand() -> None:
    """A weight of 0, then 11, 24 and 24: kept are 2/11, 3/12 and 0.3 of it."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = MovingAverage(model, 0.3)
    found = []
    for update, weight in enumerate([11.0, 24.0, 24.0], start=1):
        nn.init.constant_(model.weight, weight)
        average.update(model, update)
        found.append(average.tensors()["weight"].item())
    assert found == pytest.approx([9.0, 0.25 * 9 + 0.75 * 24, 0.3 * 20.25 + 0.7 * 24])


def test_the_average_of_many_updates_is_the_weighted_sum_of_all_weights() -> None:
    model = Tied()
    move(model, 0)
    seen, kept = [values(model)], []
    average = MovingAverage(model, 0.9)
    for update in range(1, 120):
        move(model, update)
        average.update(model, update)
        seen.append(values(model))
        kept.append(decay_at(update, 0.9))
    assert kept[-1] == 0.9
    shares = [torch.tensor(kept, dtype=torch.float64)[t:].prod() * (1 - kept[t - 1] if t else 1) for t in range(120)]
    for name, found in average.tensors().items():
        expected = sum(share * each[name].double() for share, each in zip(shares, seen, strict=True))
        assert isinstance(expected, Tensor)
        assert_close(found, expected.float(), atol=1e-6, rtol=1e-5)


def test_tied_weights_have_one_average_and_what_is_not_trained_has_none() -> None:
    assert list(MovingAverage(Tied(), 0.9).tensors()) == ["read.weight", "output.bias"]


def test_a_skipped_update_does_not_move_the_average() -> None:
    model = Tied()
    average, plain = MovingAverage(model, 0.99), MovingAverage(model, 0.99)
    for update in range(1, 30):
        move(model, update)
        before = {name: each.clone() for name, each in average.tensors().items()}
        average.update(model, update, torch.tensor(True))
        assert equal(average.tensors(), before)
        average.update(model, update, torch.tensor(False))
        plain.update(model, update)
        assert equal(average.tensors(), plain.tensors())


def test_swapped_weights_come_back_to_the_bit() -> None:
    model = Tied()
    average = MovingAverage(model, 0.5)
    move(model, 1)
    average.update(model, 1)
    before, addresses = values(model), [parameter.data_ptr() for parameter in model.parameters()]
    averages = {name: each.clone() for name, each in average.tensors().items()}
    with average.swapped(model):
        inside = values(model)
        assert inside.pop("frozen").eq(1).all()
        assert equal(inside, averages)
        assert not torch.equal(inside["read.weight"], before["read.weight"])
        assert torch.equal(model.output.weight, model.read.weight)
    assert equal(values(model), before)
    with pytest.raises(RuntimeError, match="astray"), average.swapped(model):
        raise RuntimeError("astray")
    assert equal(values(model), before)
    assert equal(average.tensors(), averages)
    assert [parameter.data_ptr() for parameter in model.parameters()] == addresses


def test_an_average_that_went_through_a_file_goes_on_the_same() -> None:
    model = Tied()
    first = MovingAverage(model, 0.9)
    for update in range(1, 5):
        move(model, update)
        first.update(model, update)
    tensors = load(save(first.tensors()))
    second = MovingAverage(model, 0.9)
    assert not equal(second.tensors(), first.tensors())
    second.restore(tensors)
    for update in range(5, 9):
        move(model, update)
        first.update(model, update)
        second.update(model, update)
    assert equal(first.tensors(), second.tensors())


@pytest.mark.parametrize("change", ["name", "shape"])
def test_an_average_of_another_model_is_refused(change: str) -> None:
    average = MovingAverage(Tied(), 0.9)
    tensors = average.tensors()
    bias = tensors.pop("output.bias")
    tensors["bias" if change == "name" else "output.bias"] = bias if change == "name" else bias[:2]
    with pytest.raises(SaccadeError, match="does not fit the model"):
        average.restore(tensors)


@pytest.mark.parametrize("share", [0, 1, 1.5])
def test_a_share_that_keeps_nothing_or_all_is_refused(share: float) -> None:
    assert parse(TrainConfig, {"ema": 0.999}).ema == 0.999
    with pytest.raises(UsageError, match="ema is"):
        parse(TrainConfig, {"ema": share})
