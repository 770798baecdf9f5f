"""Several step functions become one: ensembles, and a language model beside a translator (shallow fusion).

Whatever can be stepped can be joined: nothing here knows an architecture. What is said of steps holds for `prefill`
as well, which takes several tokens at once. Shapes: N hypotheses, V vocabulary, … any leading dimensions.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.types import PAD, State, Step

Mix = Literal["log-linear", "linear"]
LEAST = -1e30
"""Stands for the logarithm of 0: weights times it are still numbers, and so are sums of them over an output."""


def even_weights(count: int, weights: Sequence[float] | None = None) -> tuple[float, ...]:
    """The members' weights, which sum to 1: 1/count each, or those given, each divided by their sum."""
    if weights is None:
        return (1.0 / count,) * count
    if len(weights) != count:
        raise UsageError(f"weights: there are {len(weights)} of them for {count} models; give one for each, in order.")
    wrong = next((each for each in weights if not (math.isfinite(each) and each > 0.0)), None)
    if wrong is not None:
        raise UsageError(f"weights: {wrong:g} is not a positive number; to leave a model out, do not name it.")
    most = max(weights)  # of which no sum overflows
    whole = math.fsum(each / most for each in weights)
    return tuple(each / most / whole for each in weights)


def mixed(logits: Sequence[Tensor], weights: Sequence[float], mix: Mix) -> Tensor:
    """Log-probabilities (…, V) of all members together, in float32. The weights w sum to 1.

    log-linear:  log p(y) = Σ w_i log p_i(y) − log Σ_y' exp Σ w_i log p_i(y'), the weighted geometric mean, renormalised
                 over the vocabulary, so that scores are log-probabilities; a token that any member rules out is out.
    linear:      log p(y) = log Σ w_i p_i(y), the weighted mean of the probabilities; a token that any member wants is
                 in. Computed as a log-sum-exp of log w_i + log p_i(y): no probability is ever held.
    """
    every = [each.float().log_softmax(-1) for each in logits]
    match mix:
        case "log-linear":
            parts = [weight * log_p.clamp(min=LEAST) for weight, log_p in zip(weights, every, strict=True)]
            return torch.stack(parts).sum(0).log_softmax(-1)
        case "linear":
            parts = [math.log(weight) + log_p for weight, log_p in zip(weights, every, strict=True)]
            return torch.stack(parts).logsumexp(0)


def ensemble(
    members: Sequence[tuple[Step, State]], *, weights: Sequence[float] | None = None, mix: Mix = "log-linear"
) -> tuple[Step, State]:
    """One step function of many, see `mixed`; its state holds theirs side by side, so that searches select as ever.

    All must have one hypothesis a sentence, and tokens must mean the same to them. A single member stays as it is.
    """
    shares = even_weights(len(members), weights)
    if len(members) == 1:
        return members[0]
    steps = [step for step, _ in members]

    def step(last: Tensor, state: State) -> tuple[Tensor, State]:
        found = _stepped(steps, [last] * len(steps), state)
        return mixed([logits for logits, _ in found], shares, mix), _beside([after for _, after in found])

    return step, _beside([state for _, state in members])


def fused(translator: tuple[Step, State], language_model: tuple[Step, State], *, weight: float) -> tuple[Step, State]:
    """Shallow fusion (Gulcehre et al. 2015): the score of a token is log p(y | x, y_<t) + λ log p_LM(y | y_<t).

    It is not renormalised, so it is no log-probability: what λ takes from an improbable text is lost for good. Searches
    take the log-softmax of what a step gives; so that this changes nothing, what the fused probabilities lack of 1 is
    given to PAD, which no search chooses. They never sum to more, since λ ≥ 0. λ = 0 leaves the translator as it is.
    """
    if not (math.isfinite(weight) and weight >= 0.0):
        raise UsageError(f"the language model's weight is {weight:g}; it must be a number that is not negative.")
    if weight == 0.0:
        return translator
    steps = [translator[0], language_model[0]]

    def step(last: Tensor, state: State) -> tuple[Tensor, State]:
        (given, of_first), (prior, of_second) = _stepped(steps, [last, last], state)
        log_p, log_lm = (each.float().log_softmax(-1).clamp(min=LEAST) for each in (given, prior))
        score = log_p + weight * log_lm
        score[..., PAD] = -torch.inf
        score[..., PAD] = _rest(score.logsumexp(-1))
        return score, _beside([of_first, of_second])

    return step, _beside([translator[1], language_model[1]])


def _rest(log_sum: Tensor) -> Tensor:
    """log(1 − e^x) for x ≤ 0, also where x is next to 0 or rounded to a little more."""
    return torch.log(-torch.expm1(log_sum.clamp(max=0.0)))


def _stepped(steps: Sequence[Step], last: Sequence[Tensor], state: State) -> list[tuple[Tensor, State]]:
    own = zip(state.source, state.hypothesis, strict=True)
    return [step(ids, State(*trees)) for step, ids, trees in zip(steps, last, own, strict=True)]


def _beside(states: Sequence[State]) -> State:
    return State(tuple(state.source for state in states), tuple(state.hypothesis for state in states))
