"""How weights move along their gradients.

No step waits for the device: whether a gradient is finite is told by a tensor, and a step that must not happen is
taken back there.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config import Section
from saccade.errors import UsageError

Rate = Annotated[float, Field(gt=0.0)]
Decay = Annotated[float, Field(ge=0.0)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Epsilon = Annotated[float, Field(gt=0.0)]


class AdamConfig(Section):
    kind: Literal["adamw", "adam"] = "adamw"
    """Adam with weight decay apart from the gradient (Loshchilov & Hutter 2019), or inside it (Kingma & Ba 2015)."""
    rate: Rate = 1e-3
    """Learning rate, before the schedule."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay of the running mean and of the running square of the gradient."""
    epsilon: Epsilon = 1e-9
    """Added to the root of the running square."""
    decay: Decay = 0.0
    """Weight decay, on matrices alone: never on biases and norms."""


class SgdConfig(Section):
    kind: Literal["sgd"] = "sgd"
    """Plain stochastic gradient descent."""
    rate: Rate = 1.0
    """Learning rate, before the schedule."""
    momentum: Beta = 0.0
    """Share of the last step that is kept."""
    decay: Decay = 0.0
    """Weight decay, on matrices alone: never on biases and norms."""


class OtherWeights(Section):
    """AdamW for the weights that Muon is not made for."""

    rate: Rate = 1e-3
    """Learning rate, before the schedule."""
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    """Decay of the running mean and of the running square of the gradient."""
    epsilon: Epsilon = 1e-9
    """Added to the root of the running square."""
    decay: Decay = 0.0
    """Weight decay, on matrices alone: never on biases and norms."""


class MuonConfig(Section):
    kind: Literal["muon"] = "muon"
    """Steps of equal size in all directions of a hidden matrix (Jordan et al. 2024); AdamW for all other weights."""
    rate: Rate = 0.02
    """Learning rate of the hidden matrices, before the schedule."""
    momentum: Beta = 0.95
    """Share of the running mean of the gradient that is kept."""
    nesterov: bool = True
    """Whether the gradient is mixed in once more after the mean was taken."""
    decay: Decay = 0.0
    """Weight decay of the hidden matrices, apart from the gradient."""
    steps: Annotated[int, Field(ge=1, lt=100)] = 5
    """Newton-Schulz iterations that make the step orthogonal."""
    adjust: Literal["original", "match-rms-adamw"] = "original"
    """Rate of an A×B matrix: · √max(1, A/B), or · 0.2 √max(A, B), which steps as far as AdamW (Liu et al. 2025)."""
    others: OtherWeights = OtherWeights()
    """AdamW for token and place vectors, the output layer, biases and norms."""


class AveragedSgdConfig(Section):
    kind: Literal["nt-asgd"] = "nt-asgd"
    """Gradient descent, then the mean of its weights, once validation stops to improve (Merity et al. 2018)."""
    rate: Rate = 30.0
    """Learning rate, before the schedule; the paper's is constant."""
    decay: Decay = 0.0
    """Weight decay, on matrices alone: never on biases and norms."""
    patience: Annotated[int, Field(ge=1)] = 5
    """The mean begins when a validation's loss is above one that is more than so many validations old."""


OptimizerConfig = Annotated[AdamConfig | SgdConfig | MuonConfig | AveragedSgdConfig, Field(discriminator="kind")]


def make_optimizer(
    config: OptimizerConfig, model: nn.Module, factors: Mapping[str, float] | None = None
) -> torch.optim.Optimizer:
    """The optimiser of all weights that are trained; each group notes its own rate as `base_rate`.

    `factors`: by name of a weight, what its rate is multiplied with.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    factor_of = {id(p): (factors or {}).get(name, 1.0) for name, p in model.named_parameters()}

    def groups(parameters: list[nn.Parameter], decay: float, rate: float) -> list[dict[str, Any]]:
        return [
            {**group, "params": some, "lr": rate * factor}
            for group in _decayed(parameters, decay)
            for factor, some in _by_factor(group["params"], factor_of)
        ]

    optimizer: torch.optim.Optimizer
    match config:
        case AdamConfig(kind="adamw"):
            optimizer = _adamw(config, groups(trained, config.decay, config.rate))
        case AdamConfig():
            some = groups(trained, config.decay, config.rate)
            optimizer = torch.optim.Adam(some, config.rate, betas=config.betas, eps=config.epsilon, fused=True)
        case SgdConfig():
            some = groups(trained, config.decay, config.rate)
            optimizer = torch.optim.SGD(some, config.rate, momentum=config.momentum, fused=True)
            if config.momentum:
                _begin_momentum(optimizer, trained)
        case MuonConfig():
            hidden = hidden_matrices(model)
            chosen = {id(p) for p in hidden}
            rest = [p for p in trained if id(p) not in chosen]
            others = _adamw(config.others, groups(rest, config.others.decay, config.others.rate))
            matrices = [{"params": some, "lr": config.rate * factor} for factor, some in _by_factor(hidden, factor_of)]
            optimizer = MuonWithAdamW(_muon(config, matrices), others)
        case AveragedSgdConfig():
            sgd = torch.optim.SGD(groups(trained, config.decay, config.rate), config.rate, fused=True)
            optimizer = AveragedSgd(sgd, config.patience)
    for group in optimizer.param_groups:
        group["base_rate"] = group["lr"]
    return optimizer


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Every group's own rate times the schedule's factor."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_rate"] * factor


def step_if_finite(optimizer: torch.optim.Optimizer, not_finite: Tensor) -> None:
    """Step, unless the tensor (one truth value, on the weights' device) says no: then nothing changes at all.

    The fused optimisers read `found_inf`, as mixed precision uses it, inside their kernels.
    """
    if isinstance(optimizer, MuonWithAdamW | AveragedSgd):
        with torch.no_grad():
            optimizer.step_if_finite(not_finite)
        return
    optimizer.grad_scale, optimizer.found_inf = None, not_finite.to(torch.float32)  # type: ignore[attr-defined]
    try:
        optimizer.step()
    finally:
        del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the hidden matrices and AdamW for the rest, with one list of groups and one memory."""

    def __init__(self, muon: torch.optim.Optimizer, adamw: torch.optim.Optimizer) -> None:
        super().__init__([*muon.param_groups, *adamw.param_groups], {})
        self._muon, self._adamw = muon, adamw
        muon.state = adamw.state = self.state
        _begin_momentum(muon, self._hidden())

    def _hidden(self) -> list[Tensor]:
        return [p for group in self._muon.param_groups for p in group["params"]]

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here evaluates a loss again
        self._muon.step()
        self._adamw.step()

    def step_if_finite(self, not_finite: Tensor) -> None:
        """Muon has no such switch: its weights and memory are kept aside, and put back where the step must not be."""
        moved = [p for p in self._hidden() if p.grad is not None]
        changing = [each for p in moved for each in (p, self.state[p]["momentum_buffer"])]
        before = [each.clone() for each in changing]
        self._muon.step()
        undo = not_finite.to(torch.bool)
        for now, old in zip(changing, before, strict=True):
            torch.where(undo, old, now, out=now)
        step_if_finite(self._adamw, not_finite)


class AveragedSgd(torch.optim.Optimizer):
    """NT-ASGD (Merity et al. 2018, algorithm 1): gradient descent whose weights' mean is what counts in the end.

    With v_t the loss of validation t, the mean begins at the first t > n with v_t > min(v_0 … v_{t−n−1}), n being the
    patience. From that moment T on it is Σ w_i / (k − T + 1) over the weights w_T … w_k. Training itself goes on from
    w_k, at the same rate.

    All that it remembers are tensors by parameter: `mean` of each, and of the first also how many weights that is the
    mean of (`averaged`), or before that the losses: `loss-1` the last, … `loss-n`, and `lowest` of all before them.
    """

    def __init__(self, sgd: torch.optim.Optimizer, patience: int) -> None:
        super().__init__(sgd.param_groups, {})
        self._sgd, self.patience = sgd, patience
        self._weights: list[Tensor] = [p for group in self.param_groups for p in group["params"]]

    @property
    def averages(self) -> bool:
        return "averaged" in self.state[self._weights[0]]

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here evaluates a loss again
        self._sgd.step()
        self._add_to_mean(None)

    def step_if_finite(self, not_finite: Tensor) -> None:
        step_if_finite(self._sgd, not_finite)
        self._add_to_mean(not_finite)

    @torch.no_grad()
    def _add_to_mean(self, skipped: Tensor | None) -> None:
        """The mean m becomes m + (w − m) / count; nothing changes where the tensor says that the step was skipped."""
        if not self.averages:
            return
        counts = torch.ones((), device=self._weights[0].device) if skipped is None else 1.0 - skipped.float()
        averaged = self.state[self._weights[0]]["averaged"]
        averaged += counts
        means: list[Tensor] = [self.state[p]["mean"] for p in self._weights]
        shares: list[Tensor] = [(counts / averaged).to(each.dtype) for each in means]
        torch._foreach_lerp_(means, self._weights, shares)

    def validated(self, loss: float) -> None:
        """Told after each validation: begin the mean where it is time."""
        if self.averages:
            return
        memory = self.state[self._weights[0]]
        if "lowest" in memory and loss > float(memory["lowest"]):
            self._begin_mean()
            return
        oldest = memory.get(f"loss-{self.patience}")
        if oldest is not None:
            memory["lowest"] = min(memory.get("lowest", oldest), oldest, key=float)
        for age in range(self.patience, 1, -1):
            if f"loss-{age - 1}" in memory:
                memory[f"loss-{age}"] = memory[f"loss-{age - 1}"]
        memory["loss-1"] = torch.tensor(loss, dtype=torch.float64)

    def _begin_mean(self) -> None:
        self.state[self._weights[0]].clear()
        for parameter in self._weights:
            self.state[parameter]["mean"] = parameter.detach().clone()
        self.state[self._weights[0]]["averaged"] = torch.ones((), device=self._weights[0].device)


def note_validation(optimizer: torch.optim.Optimizer, loss: float) -> None:
    """Tell the optimiser how a validation went; most do not ask."""
    if isinstance(optimizer, AveragedSgd):
        optimizer.validated(loss)


def mean_weights(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """By name, the weights that are validated and published in place of those of the last step; none for most."""
    if not isinstance(optimizer, AveragedSgd) or not optimizer.averages:
        return {}
    return {name: optimizer.state[p]["mean"] for name, p in model.named_parameters() if p.requires_grad}


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The trained matrices that map hidden vectors to hidden vectors: what Muon is made for.

    Out are the tables of `nn.Embedding`, whatever layer called `output` writes the result, and all that is tied to one
    of these; and a matrix of one row or column, which is a vector.
    """
    out = {
        id(parameter)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) or name.rpartition(".")[2] == "output"
        for parameter in module.parameters()
    }
    matrices = (p for p in model.parameters() if p.requires_grad and p.ndim == 2 and min(p.shape) > 1)
    return [p for p in matrices if id(p) not in out]


def _muon(config: MuonConfig, matrices: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if not hasattr(torch.optim, "Muon"):
        raise UsageError(
            f"train.optimizer.kind is muon, which torch {torch.__version__} does not have. "
            "Install a newer torch, or choose adamw."
        )
    return torch.optim.Muon(
        matrices,
        config.rate,
        weight_decay=config.decay,
        momentum=config.momentum,
        nesterov=config.nesterov,
        ns_steps=config.steps,
        adjust_lr_fn=config.adjust.replace("-", "_"),
    )


def _adamw(config: AdamConfig | OtherWeights, groups: list[dict[str, Any]]) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups, config.rate, betas=config.betas, eps=config.epsilon, fused=True)


def _decayed(parameters: list[nn.Parameter], decay: float) -> list[dict[str, Any]]:
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _by_factor(
    parameters: list[nn.Parameter], factor_of: Mapping[int, float]
) -> list[tuple[float, list[nn.Parameter]]]:
    """Weights of one rate together; one group at least, since there may be no such weight."""
    every = dict.fromkeys(factor_of[id(p)] for p in parameters) or {1.0: None}
    return [(factor, [p for p in parameters if factor_of[id(p)] == factor]) for factor in every]


def _begin_momentum(optimizer: torch.optim.Optimizer, parameters: Iterable[Tensor]) -> None:
    """A mean of zeros from the start: made at the first step, it would be left undefined if that step is skipped."""
    for parameter in parameters:
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def named_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's memory as `parameter/entry: tensor`, for a file that holds tensors alone."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{entry}": value
        for parameter, entries in optimizer.state.items()
        for entry, value in entries.items()
        if isinstance(value, Tensor)
    }


def restore_state(optimizer: torch.optim.Optimizer, model: nn.Module, saved: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for key, value in saved.items():
        name, _, entry = key.rpartition("/")
        parameter = parameters[name]
        # Adam's step counter lives on the parameter's device when it is fused.
        optimizer.state[parameter][entry] = value.to(parameter.device)
