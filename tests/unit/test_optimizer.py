"""Optimisers against their papers' equations, schedules against hand-worked numbers, their memory through a file."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.config import Section, parse
from saccade.errors import UsageError
from saccade.models.build import build_translator
from saccade.models.translator import TranslatorConfig
from saccade.train.optimizer import (
    AdamConfig,
    MuonConfig,
    OptimizerConfig,
    OtherWeights,
    SgdConfig,
    hidden_matrices,
    make_optimizer,
    named_state,
    restore_state,
    set_rates,
    step_if_finite,
)
from saccade.train.schedule import (
    ConstantSchedule,
    CosineSchedule,
    InverseSqrtSchedule,
    LinearSchedule,
    NoamSchedule,
    PlateauSchedule,
    ScheduleConfig,
    StepSchedule,
    rate_factor,
)

OPTIMIZERS: dict[str, AdamConfig | SgdConfig] = {
    "adamw": AdamConfig(rate=0.05, betas=(0.8, 0.95), epsilon=1e-3, decay=0.3),
    "adamw, no mean of the gradient": AdamConfig(rate=0.05, betas=(0.0, 0.95), epsilon=1e-3, decay=0.3),
    "adam": AdamConfig(kind="adam", rate=0.05, betas=(0.8, 0.95), epsilon=1e-3, decay=0.3),
    "sgd": SgdConfig(rate=0.05, momentum=0.7, decay=0.3),
    "sgd, no momentum": SgdConfig(rate=0.05),
}
OTHERS = OtherWeights(rate=0.03, betas=(0.7, 0.9), epsilon=1e-4, decay=0.1)
MUON = MuonConfig(rate=0.1, momentum=0.8, decay=0.2, steps=4, others=OTHERS)
ALL: dict[str, OptimizerConfig] = {
    **OPTIMIZERS,
    "muon": MUON,
    "muon, plain": MUON.model_copy(update={"nesterov": False, "adjust": "match-rms-adamw"}),
}


class Tied(nn.Module):
    """A matrix used twice, a bias, a norm's scale and something that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.read = nn.Linear(3, 3, bias=False)
        self.write = nn.Linear(3, 3)
        self.write.weight = self.read.weight
        self.scale = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3, 3), requires_grad=False)
        with torch.no_grad():
            for parameter in (self.read.weight, self.write.bias):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def forward(self, x_BD: Tensor) -> Tensor:
        out_BD: Tensor = self.write(torch.tanh(self.read(x_BD)) * self.scale) @ self.frozen
        return out_BD


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, gradient: Callable[[Tensor], Tensor]) -> None:
    for parameter in model.parameters():
        parameter.grad = gradient(parameter) if parameter.requires_grad else None
    optimizer.step()


# Optimisers


class Adam:
    """Kingma & Ba (2015), algorithm 1; with decay apart, Loshchilov & Hutter (2019), algorithm 2."""

    def __init__(self, config: AdamConfig) -> None:
        self.config, self.t = config, 0
        self.m = self.v = torch.zeros(())

    def __call__(self, weight: Tensor, gradient: Tensor) -> Tensor:
        config, (first, second), decay = self.config, self.config.betas, self.config.decay * (weight.ndim > 1)
        self.t += 1
        if config.kind == "adam":
            gradient = gradient + decay * weight
        self.m = first * self.m + (1 - first) * gradient
        self.v = second * self.v + (1 - second) * gradient**2
        m, v = self.m / (1 - first**self.t), self.v / (1 - second**self.t)
        apart = config.rate * decay * weight if config.kind == "adamw" else 0.0
        return weight - apart - config.rate * m / (v.sqrt() + config.epsilon)


class Sgd:
    """The step is the gradient and a share of the last step."""

    def __init__(self, config: SgdConfig) -> None:
        self.config = config
        self.last = torch.zeros(())

    def __call__(self, weight: Tensor, gradient: Tensor) -> Tensor:
        gradient = gradient + self.config.decay * (weight.ndim > 1) * weight
        self.last = self.config.momentum * self.last + gradient
        return weight - self.config.rate * self.last


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_optimiser_follows_its_equations(name: str) -> None:
    config = OPTIMIZERS[name]
    model = Tied().double()
    optimizer = make_optimizer(config, model)
    trained = [key for key, parameter in model.named_parameters() if parameter.requires_grad]
    by_hand = {key: Adam(config) if isinstance(config, AdamConfig) else Sgd(config) for key in trained}
    expected = values(model)
    generator = torch.Generator().manual_seed(2)
    for _ in range(6):
        gradients = {id(p): torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in model.parameters()}
        for key, parameter in model.named_parameters():
            if key in by_hand:
                expected[key] = by_hand[key](expected[key], gradients[id(parameter)])
        step(model, optimizer, lambda parameter, of=gradients: of[id(parameter)])  # type: ignore[misc]
        assert_close(values(model), expected)


@pytest.mark.parametrize("kind", ["adamw", "adam", "sgd"])
def test_decay_is_on_matrices_alone(kind: str) -> None:
    config = SgdConfig(rate=0.1, decay=0.5) if kind == "sgd" else AdamConfig(kind=kind, rate=0.1, decay=0.5)
    model = Tied()
    before = values(model)
    step(model, make_optimizer(config, model), torch.zeros_like)
    after = values(model)
    for name in ("write.bias", "scale", "frozen"):
        assert torch.equal(after[name], before[name])
    matrix = before["read.weight"]
    # decay inside Adam's gradient is scaled to a whole step; apart from it, and in SGD, it shrinks by rate × decay
    assert_close(after["read.weight"], matrix - 0.1 * matrix.sign() if kind == "adam" else matrix * (1 - 0.1 * 0.5))


@pytest.mark.parametrize("name", ALL)
def test_a_memory_that_went_through_a_file_goes_on_the_same(name: str) -> None:
    def train(model: Tied, optimizer: torch.optim.Optimizer, updates: range) -> None:
        for update in updates:
            x_BD = torch.randn(4, 3, generator=torch.Generator().manual_seed(update))
            optimizer.zero_grad()
            torch.autograd.backward(model(x_BD).pow(2).mean())
            optimizer.step()

    alone = Tied()
    first = make_optimizer(ALL[name], alone)
    train(alone, first, range(3))
    tensors = load(save(named_state(first, alone)))
    halfway = Tied()
    halfway.load_state_dict(alone.state_dict())
    second = make_optimizer(ALL[name], halfway)
    restore_state(second, halfway, tensors)
    train(alone, first, range(3, 7))
    train(halfway, second, range(3, 7))
    assert values(alone)["scale"].isfinite().all()
    assert all(torch.equal(value, values(halfway)[key]) for key, value in values(alone).items())
    if "no momentum" not in name:  # without its memory it would have gone elsewhere
        assert any(key.startswith("read.weight/") for key in tensors)
        assert not any(key.startswith(("write.weight/", "frozen/")) for key in tensors)
        forgetful = Tied()
        train(forgetful, make_optimizer(ALL[name], forgetful), range(3))
        train(forgetful, make_optimizer(ALL[name], forgetful), range(3, 7))
        assert not torch.equal(forgetful.read.weight, alone.read.weight)


# Muon


class Small(nn.Module):
    """One of each: a table that also writes the output, a hidden matrix, a matrix of one row, a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(7, 4)
        self.places = nn.Embedding(5, 4)
        self.hidden = nn.Linear(4, 6)
        self.back = nn.Linear(6, 4, bias=False)
        self.v = nn.Linear(6, 1, bias=False)
        self.norm = nn.LayerNorm(4)
        self.output = nn.Linear(4, 7)
        self.output.weight = self.table.weight

    def forward(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.table(ids_BT) + self.places(torch.arange(ids_BT.shape[1]))
        inner_BTI = torch.tanh(self.hidden(x_BTD))
        out_BTV: Tensor = self.output(self.norm(x_BTD + self.back(inner_BTI)) * self.v(inner_BTI))
        return out_BTV


def noisy(seed: int) -> Callable[[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda parameter: torch.randn(parameter.shape, generator=generator)


@pytest.mark.parametrize("name", ["muon", "muon, plain"])
def test_muon_is_torchs_on_hidden_matrices_and_adamw_on_the_rest(name: str) -> None:
    config = ALL[name]
    assert isinstance(config, MuonConfig)
    model, twin = Small(), Small()
    optimizer = make_optimizer(config, model)
    matrices = [twin.hidden.weight, twin.back.weight]
    tables = [twin.table.weight, twin.places.weight, twin.v.weight]
    vectors = [twin.hidden.bias, twin.norm.weight, twin.norm.bias, twin.output.bias]
    rule = "original" if config.adjust == "original" else "match_rms_adamw"
    muon = torch.optim.Muon(
        matrices, 0.1, weight_decay=0.2, momentum=0.8, nesterov=config.nesterov, ns_steps=4, adjust_lr_fn=rule
    )
    groups = [{"params": tables, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, 0.03, betas=(0.7, 0.9), eps=1e-4, fused=True)
    for update in range(4):
        step(model, optimizer, noisy(update))
        step(twin, muon, noisy(update))
        adamw.step()
    assert equal(values(model), values(twin))


def test_muon_steps_by_nearly_the_same_length_in_every_direction() -> None:
    """A step along a gradient of singular values 1 to 100 has some between 0.6 and 1.3 times the rate."""
    model = nn.Linear(8, 8, bias=False)
    before = model.weight.detach().clone()
    u, _, v = torch.linalg.svd(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)))
    gradient = u @ torch.diag(torch.logspace(0, 2, 8)) @ v
    step(model, make_optimizer(MuonConfig(rate=0.5, steps=9), model), lambda _: gradient)
    lengths = torch.linalg.svdvals((before - model.weight).detach()) / 0.5
    assert lengths.min() > 0.6
    assert lengths.max() < 1.3


@pytest.mark.parametrize("tie", ["none", "output", "all"])
@pytest.mark.parametrize(
    "side",
    [
        {"kind": "lstm", "layers": 1, "width": 8},
        {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "feedforward": 16, "positions": "learned"},
    ],
    ids=["lstm", "transformer"],
)
def test_hidden_matrices_are_all_but_tables_and_outputs(side: dict[str, Any], tie: str) -> None:
    model = build_translator(parse(TranslatorConfig, {"encoder": side, "decoder": side, "tie": tie}), 31, 31)
    chosen = hidden_matrices(model)
    tables = {m.weight for m in model.modules() if isinstance(m, nn.Embedding)} | {model.decoder.output.weight}
    assert len(chosen) > 3
    assert len({id(each) for each in chosen}) == len(chosen)
    for parameter in model.parameters():
        is_matrix = parameter.ndim == 2 and 1 not in parameter.shape
        assert (any(parameter is each for each in chosen)) == (is_matrix and parameter not in tables)


def test_a_torch_without_muon_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(UsageError, match=r"kind is muon, which torch .* does not have.*adamw"):
        make_optimizer(MuonConfig(), Small())


# Rates, and steps that must not be


def test_every_group_moves_with_the_schedule_from_its_own_rate() -> None:
    optimizer = make_optimizer(MUON, Small())
    for factor in (0.5, 0.25, 1.0):  # each from the start, not from the last
        set_rates(optimizer, factor)
        assert [group["lr"] for group in optimizer.param_groups] == [0.1 * factor, 0.03 * factor, 0.03 * factor]
    model, slow = Small(), Small()
    fast = make_optimizer(MUON, model)
    set_rates(fast, 0.5)
    others = MUON.others.model_copy(update={"rate": 0.015})
    step(model, fast, noisy(0))
    step(slow, make_optimizer(MUON.model_copy(update={"rate": 0.05, "others": others}), slow), noisy(0))
    assert equal(values(model), values(slow))


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


def memory(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in named_state(optimizer, model).items()}


devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@devices
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later step"])
@pytest.mark.parametrize("name", ALL)
def test_a_step_that_is_not_finite_changes_nothing(name: str, first: bool, device: str) -> None:
    """The run with a spoilt gradient in it goes on as the one that never saw it, bit for bit."""
    model, clean = Small().to(device), Small().to(device)
    optimizer, other = make_optimizer(ALL[name], model), make_optimizer(ALL[name], clean)
    no, yes = torch.zeros((), dtype=torch.bool, device=device), torch.ones((), dtype=torch.bool, device=device)

    def gradients(seed: int) -> Callable[[Tensor], Tensor]:
        drawn = noisy(seed)
        return lambda parameter: drawn(parameter).to(device)

    def give(to: nn.Module, gradient: Callable[[Tensor], Tensor]) -> None:
        for parameter in to.parameters():
            parameter.grad = gradient(parameter)

    seeds = range(4)
    for seed in seeds:
        if seed == (0 if first else 2):
            before, remembered = values(model), memory(model, optimizer)
            give(model, lambda parameter: torch.full_like(parameter, float("nan")))
            with no_waiting(device):
                step_if_finite(optimizer, yes)
            assert equal(values(model), before)
            after = memory(model, optimizer)
            assert equal({key: after[key] for key in remembered}, remembered)
            assert all(not value.any() for key, value in after.items() if key not in remembered)
        give(model, gradients(seed))
        with no_waiting(device):
            step_if_finite(optimizer, no)
        give(clean, gradients(seed))
        other.step()
    assert equal(values(model), values(clean))
    assert equal(memory(model, optimizer), memory(clean, other))
    assert not hasattr(optimizer, "found_inf")


@contextmanager
def no_waiting(device: str) -> Iterator[None]:
    """On a GPU, whatever waits for it raises an error."""
    if device == "cpu":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype feature")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


# Schedules


def factors(config: ScheduleConfig, *updates: int, cuts: int = 0) -> list[float]:
    return [rate_factor(config, update, updates=110, width=512, cuts=cuts) for update in updates]


def test_schedules_by_hand() -> None:
    assert factors(ConstantSchedule(), 1, 2, 999) == [1.0, 1.0, 1.0]
    assert factors(ConstantSchedule(warmup=4), 1, 2, 3, 4, 5, 99) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert factors(InverseSqrtSchedule(warmup=4), 1, 3, 4, 16, 400) == [0.25, 0.75, 1.0, 0.5, 0.1]
    assert factors(CosineSchedule(), 55, 110) == pytest.approx([0.5, 0.0])
    assert factors(LinearSchedule(), 1, 55, 110, 500) == pytest.approx([109 / 110, 0.5, 0.0, 0.0])
    assert factors(LinearSchedule(warmup=10, floor=0.2), 5, 10, 60, 110) == pytest.approx([0.5, 1.0, 0.6, 0.2])
    halves = factors(CosineSchedule(warmup=10, floor=0.2), 5, 10, 35, 60, 85, 110, 500)
    root = math.sqrt(0.5)
    assert halves == pytest.approx([0.5, 1.0, 0.6 + 0.4 * root, 0.6, 0.6 - 0.4 * root, 0.2, 0.2])
    assert factors(PlateauSchedule(factor=0.5), 1, 9, cuts=3) == [0.125, 0.125]
    assert factors(StepSchedule(after=10, every=4, factor=0.5), 1, 10, 11, 14, 15, 18, 19) == [
        1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125
    ]  # fmt: skip
    assert factors(StepSchedule(after=0, every=1, factor=0.1), 1, 2) == pytest.approx([0.1, 0.01])
    assert factors(StepSchedule(warmup=4, after=2, every=2), 1, 2, 3, 4, 5) == [0.25, 0.5, 0.375, 0.5, 0.25]
    assert factors(PlateauSchedule(factor=0.1, warmup=4), 1, 2, 4, cuts=1) == pytest.approx([0.025, 0.05, 0.1])


def test_the_schedule_of_the_transformer_has_the_numbers_of_its_paper() -> None:
    """Width 512, 4,000 updates of warm-up: (512 · 4000)^−½ at the peak, and 4000 times less at the first."""
    first, peak, later = factors(NoamSchedule(), 1, 4000, 16_000)
    assert peak == pytest.approx(6.98771e-4, rel=1e-5)
    assert first == pytest.approx(peak / 4000)
    assert later == pytest.approx(peak / 2)


WARMUPS = st.integers(1, 300)


@given(warmup=WARMUPS, update=st.integers(1, 1000), floor=st.floats(0.0, 1.0), updates=st.integers(1, 1000))
def test_schedules_rise_to_their_peak_at_the_end_of_the_warm_up_and_never_again(
    warmup: int, update: int, floor: float, updates: int
) -> None:
    schedules: list[ScheduleConfig] = [
        ConstantSchedule(warmup=warmup),
        InverseSqrtSchedule(warmup=warmup),
        NoamSchedule(warmup=warmup),
        LinearSchedule(warmup=warmup, floor=floor),
        CosineSchedule(warmup=warmup, floor=floor),
        PlateauSchedule(warmup=warmup),
    ]
    for config in schedules:

        def rate(at: int, config: ScheduleConfig = config) -> float:
            return rate_factor(config, at, updates=updates, width=64, cuts=0)

        peak = rate(warmup)
        assert peak == pytest.approx(0.125 * warmup**-0.5 if isinstance(config, NoamSchedule) else 1.0)
        assert rate(update) <= peak * (1 + 1e-12)
        if update < warmup:
            assert rate(update) == pytest.approx(peak * update / warmup)
        else:
            assert rate(update + 1) <= rate(update) * (1 + 1e-12)
            to_the_end = isinstance(config, CosineSchedule | LinearSchedule)
            fastest = math.pi / 2 / max(1, updates - warmup) if to_the_end else 0.3
            assert rate(update) - rate(update + 1) <= peak * fastest + 1e-12  # no jump: 1 − 1/√2 at a warm-up of 1
        if isinstance(config, CosineSchedule | LinearSchedule) and updates > warmup:
            assert rate(updates) == pytest.approx(floor)


@pytest.mark.parametrize(
    ("section", "tree", "told"),
    [
        (AdamConfig, {"rate": 0}, "rate is 0"),
        (AdamConfig, {"betas": [0.9, 1.0]}, "betas.1 is 1.0"),
        (AdamConfig, {"epsilon": 0}, "epsilon is 0"),
        (AdamConfig, {"decay": -1}, "decay is -1"),
        (AdamConfig, {"momentum": 0.9}, "momentum is not a setting"),
        (SgdConfig, {"momentum": 1.0}, "momentum is 1.0"),
        (MuonConfig, {"momentum": 1.0}, "momentum is 1.0"),
        (MuonConfig, {"steps": 0}, "steps is 0"),
        (MuonConfig, {"steps": 100}, "steps is 100"),
        (MuonConfig, {"adjust": "none"}, "adjust is 'none'"),
        (MuonConfig, {"others": {"rate": 0}}, "others.rate is 0"),
        (ConstantSchedule, {"warmup": -1}, "warmup is -1"),
        (InverseSqrtSchedule, {"warmup": 0}, "warmup is 0"),
        (NoamSchedule, {"warmup": 0}, "warmup is 0"),
        (CosineSchedule, {"floor": 1.5}, "floor is 1.5"),
        (LinearSchedule, {"floor": -0.5}, "floor is -0.5"),
        (PlateauSchedule, {"factor": 1.0}, "factor is 1.0"),
        (PlateauSchedule, {"patience": -1}, "patience is -1"),
        (StepSchedule, {"every": 0}, "every is 0"),
        (StepSchedule, {"after": -1}, "after is -1"),
        (StepSchedule, {"factor": 1.0}, "factor is 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(section: type[Section], tree: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse(section, tree)


# Rates by weight


@pytest.mark.parametrize("name", ALL)
def test_a_factor_scales_the_rate_of_its_weights_alone(name: str) -> None:
    """One step with factors moves each weight as far as one at that rate moves it, all others apart."""
    torch.manual_seed(0)
    start = Small()
    slow = {each: 0.25 for each, _ in start.named_parameters() if each.startswith("table")}
    assert slow

    def moved(config: OptimizerConfig, factors: dict[str, float] | None) -> dict[str, Tensor]:
        model = Small()
        model.load_state_dict(start.state_dict())
        optimizer = make_optimizer(config, model, factors)
        set_rates(optimizer, 1.0)
        step(model, optimizer, torch.ones_like)
        return {each: p.detach().clone() for each, p in model.named_parameters()}

    config = ALL[name]
    changes: dict[str, Any] = {"rate": config.rate * 0.25}
    if isinstance(config, MuonConfig):
        changes["others"] = config.others.model_copy(update={"rate": config.others.rate * 0.25})
    mixed, full = moved(config, slow), moved(config, None)
    quarter = moved(config.model_copy(update=changes), None)
    for each, weight in mixed.items():
        assert torch.equal(weight, quarter[each] if each in slow else full[each]), each
    assert any(not torch.equal(full[each], quarter[each]) for each in slow)
