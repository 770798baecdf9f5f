"""NT-ASGD against its paper's algorithm, through a file, over a skipped step, and in a whole training."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.testing import assert_close

import saccade
from saccade.config import parse
from saccade.disk import read_tensors
from saccade.errors import UsageError
from saccade.train.optimizer import (
    AdamConfig,
    AveragedSgd,
    AveragedSgdConfig,
    SgdConfig,
    make_optimizer,
    mean_weights,
    named_state,
    note_validation,
    restore_state,
    set_rates,
    step_if_finite,
)
from saccade.train.settings import TrainConfig
from tests.support.tiny import notes, recipe, write_corpus

CONFIG = AveragedSgdConfig(rate=0.5, decay=0.1, patience=2)


class Tied(nn.Module):
    """A matrix used twice, a bias, and a weight that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.read = nn.Embedding(5, 3)
        self.output = nn.Linear(3, 5)
        self.output.weight = self.read.weight
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


def made(config: AveragedSgdConfig = CONFIG) -> tuple[Tied, AveragedSgd]:
    model = Tied().double()
    optimizer = make_optimizer(config, model)
    assert isinstance(optimizer, AveragedSgd)
    return model, optimizer


def give(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


def begin_mean(optimizer: AveragedSgd) -> None:
    for loss in (1.0, 2.0, 2.0, 2.0):
        note_validation(optimizer, loss)
    assert optimizer.averages


# ---- when the mean begins


def published(losses: list[float], n: int) -> int | None:
    """Algorithm 1: the first t > n, counted from 0, with v_t > min of logs 0 … t − n − 1."""
    for t, loss in enumerate(losses):
        if t > n and loss > min(losses[: t - n]):
            return t
    return None


@given(losses=st.lists(st.integers(0, 9).map(float), max_size=20), n=st.integers(1, 5))
def test_the_mean_begins_when_the_paper_says(losses: list[float], n: int) -> None:
    _, optimizer = made(CONFIG.model_copy(update={"patience": n}))
    began = None
    for t, loss in enumerate(losses):
        optimizer.validated(loss)
        if optimizer.averages and began is None:
            began = t
    assert began == published(losses, n)


def test_other_optimisers_do_not_ask() -> None:
    model = Tied()
    for config in (SgdConfig(), AdamConfig()):
        optimizer = make_optimizer(config, model)
        for loss in range(20):
            note_validation(optimizer, float(loss))
        assert not named_state(optimizer, model)
        assert not mean_weights(optimizer, model)


# ---- what it is the mean of


def test_until_then_it_is_gradient_descent_to_the_bit() -> None:
    (model, optimizer), plain = made(), Tied().double()
    sgd = make_optimizer(SgdConfig(rate=0.5, decay=0.1), plain)
    for update in range(5):
        give(model, update)
        give(plain, update)
        optimizer.step()
        sgd.step()
        note_validation(optimizer, 1.0)
    assert equal(values(model), values(plain))
    assert not mean_weights(optimizer, model)


def test_the_mean_is_that_of_all_weights_from_that_moment_on() -> None:
    model, optimizer = made()
    plain = Tied().double()
    sgd = make_optimizer(SgdConfig(rate=0.5, decay=0.1), plain)
    history: list[dict[str, Tensor]] = []
    for update in range(9):
        set_rates(optimizer, 1 / (1 + update))
        set_rates(sgd, 1 / (1 + update))
        give(model, update)
        give(plain, update)
        optimizer.step()
        sgd.step()
        if update == 3:
            begin_mean(optimizer)
        if update >= 3:
            history.append(values(model))
            by_hand = {name: torch.stack([each[name] for each in history]).mean(0) for name in history[0]}
            assert_close(mean_weights(optimizer, model), by_hand)
    assert equal(values(model), values(plain))  # training itself goes on as before
    assert not equal(mean_weights(optimizer, model), values(model))


@pytest.mark.parametrize("averaging", [False, True])
def test_a_step_that_is_not_finite_changes_nothing(averaging: bool) -> None:
    (model, optimizer), (clean, other) = made(), made()
    no, yes = torch.tensor(False), torch.tensor(True)
    if averaging:
        begin_mean(optimizer)
        begin_mean(other)
    for seed in range(5):
        if seed in (0, 3):
            before, remembered = values(model), {k: v.clone() for k, v in named_state(optimizer, model).items()}
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, float("nan")) if parameter.requires_grad else None
            step_if_finite(optimizer, yes)
            assert equal(values(model), before)
            assert equal(named_state(optimizer, model), remembered)
        give(model, seed)
        step_if_finite(optimizer, no)
        give(clean, seed)
        other.step()
    assert equal(values(model), values(clean))
    assert equal(named_state(optimizer, model), named_state(other, clean))


LOSSES = [5.0, 3.0, 4.0, 2.0, 6.0, 7.0, 8.0, 9.0, 10.0]


@pytest.mark.parametrize("cut", range(9))
def test_a_memory_that_went_through_a_file_goes_on_the_same(cut: int) -> None:
    """Before the mean has begun, and behind."""

    def train(model: nn.Module, optimizer: AveragedSgd, updates: range) -> None:
        for update in updates:
            give(model, update)
            optimizer.step()
            note_validation(optimizer, LOSSES[update])

    alone, first = made()
    train(alone, first, range(9))
    assert first.averages
    halfway, second = made()
    train(halfway, second, range(cut))
    tensors = load(save(named_state(second, halfway)))
    resumed, third = made()
    resumed.load_state_dict(halfway.state_dict())
    restore_state(third, resumed, tensors)
    train(resumed, third, range(cut, 9))
    assert equal(values(resumed), values(alone))
    assert equal(named_state(third, resumed), named_state(first, alone))
    assert equal(mean_weights(third, resumed), mean_weights(first, alone))


# ---- in a training


@pytest.fixture
def training(tmp_path: Path) -> Callable[..., Path]:
    corpus = write_corpus(tmp_path / "corpus")

    def train(name: str, updates: int, *, resume: bool = False) -> Path:
        settings = (
            f"train.updates={updates}",
            "train.validate_every=2",
            "train.keep=99",
            "train.clip=null",
            "train.schedule={kind: constant}",
            "train.optimizer={kind: nt-asgd, rate: 4.0, patience: 1}",
        )
        saccade.train(recipe(corpus, "lstm", *settings), tmp_path / name, resume=resume, device="cpu")
        return tmp_path / name

    return train


def test_the_mean_is_what_is_validated_and_published(training: Callable[..., Path]) -> None:
    run = training("run", 30)
    checks = notes(run, "validated")
    losses = [check["loss"] for check in checks]
    began = published(losses, 1)
    assert began is not None, "the test is to see a mean"
    for k, check in enumerate(checks):
        memory = read_tensors(run / "checkpoints" / f"step-{check['update']}" / "optimizer.safetensors")
        assert any(name.endswith("/mean") for name in memory) == (k >= began)
    best = max((check["update"] for check in checks if check["best"]), default=0)
    assert best > checks[began]["update"], "the test is to publish a mean"
    model, step = read_tensors(run / "model.safetensors"), run / "checkpoints" / f"step-{best}"
    memory, trained = read_tensors(step / "optimizer.safetensors"), read_tensors(step / "model.safetensors")
    for name, weight in model.items():
        assert torch.equal(weight, memory[f"{name}/mean"])
        assert not torch.equal(weight, trained[name])


def test_a_resumed_training_is_the_same(training: Callable[..., Path]) -> None:
    whole = training("whole", 30)
    for update in (5, 18, 30):
        halved = training("halved", update, resume=update > 5)
    for name in ("model.safetensors", "checkpoints/step-30/optimizer.safetensors"):
        assert (halved / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("setting", [{"ema": 0.9}, {"average": 3}])
def test_two_means_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="a mean of its own"):
        parse(TrainConfig, {"optimizer": {"kind": "nt-asgd"}} | setting)


@pytest.mark.parametrize(
    ("tree", "told"), [({"patience": 0}, "patience is 0"), ({"rate": 0}, "rate is 0"), ({"momentum": 0.9}, "momentum")]
)
def test_settings_that_make_no_sense_are_refused(tree: dict[str, float], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(AveragedSgdConfig, tree)
