"""Sampling: the next token is drawn, at each step, from what a rule leaves of the model's distribution.

What is drawn for a row is a function of its own numbers and its own logits alone: neither of the rows beside it nor of
how many there are. Shapes: N rows (one hypothesis each), T steps, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from saccade.config import Section
from saccade.decode.scores import allowed_log_probabilities
from saccade.types import State, Step

KEYS = 1 << 32


class SampleConfig(Section):
    temperature: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    """Logits are divided by it: below 1 likely tokens become likelier; 0 takes the likeliest, always."""
    top_k: int | None = Field(None, ge=1)
    """Only the k likeliest tokens may be drawn (Fan et al. 2018)."""
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    """Only the fewest tokens that together have this probability may be drawn (nucleus, Holtzman et al. 2020)."""
    min_p: float | None = Field(None, gt=0.0, le=1.0)
    """Only tokens at least this share as probable as the likeliest may be drawn (Nguyen et al. 2024)."""
    typical: float | None = Field(None, gt=0.0, le=1.0)
    """Only the tokens whose surprise is nearest to what is expected, up to this probability (Meister et al. 2023)."""
    samples: int = Field(1, ge=1)
    """How many continuations of each prompt."""
    seed: int = Field(1, ge=0, lt=1 << 63)
    """The same seed draws the same again, whatever is drawn beside it."""
    max_tokens: int = Field(200, ge=1)
    """No continuation is longer than this many tokens."""
    stop: Literal["end", "line", "length"] = "end"
    """Where it ends before: at the end mark, at a line's end, too, or nowhere."""


@dataclass(frozen=True)
class Drawn:
    """One step: the rows that were still being written, and the token each of them got."""

    rows: tuple[int, ...]
    tokens: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    """What the model gives the tokens, before temperature and filters."""


def numbers(seed: int, keys: Sequence[tuple[int, int]], steps: int) -> Tensor:
    """(rows, steps) even numbers in [0, 1), in float64: of a row by the seed and its key alone.

    A key is (prompt, sample). The first of them do not depend on how many there are.
    """
    return torch.from_numpy(np.stack([_row(seed, *key, steps) for key in keys]))


def _row(seed: int, prompt: int, sample: int, steps: int) -> NDArray[np.float64]:
    key = np.array([seed, prompt * KEYS + sample], dtype=np.uint64)
    bits: NDArray[np.uint64] = np.random.Philox(key=key).random_raw(steps)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


@torch.inference_mode()
def sample(
    step: Step,
    state: State,
    *,
    last_N: Tensor,
    numbers_NT: Tensor,
    config: SampleConfig,
    stops: frozenset[int] = frozenset(),
) -> Iterator[Drawn]:
    """Draw as many tokens a row as there are numbers for it, or up to the first that is one of `stops`.

    `state` is that before `last_N`, with one hypothesis a sentence; to draw several, repeat the sentences.
    """
    device = last_N.device
    numbers_NT = numbers_NT.to(device)
    ends_V: Tensor | None = None
    row_N = torch.arange(len(last_N), device=device)
    alive_N = torch.ones_like(row_N, dtype=torch.bool)
    for t in range(numbers_NT.shape[1]):
        logits_NV, state = step(last_N, state)
        if ends_V is None:
            ends_V = _marked(stops, logits_NV.shape[-1], device)
        log_p_NV = allowed_log_probabilities(logits_NV)
        last_N = draw(filtered(log_p_NV, config), numbers_NT[row_N, t])
        own_N = log_p_NV.gather(-1, last_N[:, None]).squeeze(-1)
        yield Drawn(*(tuple(each[alive_N].tolist()) for each in (row_N, last_N, own_N)))
        alive_N = alive_N & ~ends_V[last_N]
        living = int(alive_N.sum())
        if not living:
            return
        if 2 * living <= len(alive_N):  # not at once: to let rows go, all that is kept of the others is copied
            stay_N = alive_N.nonzero().squeeze(-1)
            state = state.select_sentences(stay_N, beam=1)
            row_N, last_N, alive_N = row_N[stay_N], last_N[stay_N], alive_N[stay_N]


def _marked(tokens: frozenset[int], vocabulary: int, device: torch.device) -> Tensor:
    marked_V = torch.zeros(vocabulary, dtype=torch.bool, device=device)
    marked_V[sorted(tokens)] = True
    return marked_V


def filtered(log_p_NV: Tensor, config: SampleConfig) -> Tensor:
    """The distribution that is drawn from, as log-probabilities in float64; -inf where a token may not be drawn.

    First the temperature, then each filter in turn on what the one before has left, renormalised: top-k, top-p, min-p,
    typical. Of equals those with the smaller ids stay.
    """
    log_p_NV = log_p_NV.double()
    if config.temperature == 0.0:
        return _kept(log_p_NV, _first(log_p_NV, 1))
    # The likeliest stands at 0, which no temperature moves: however small it is, nothing becomes no number.
    log_p_NV = ((log_p_NV - log_p_NV.max(-1, keepdim=True).values) / config.temperature).log_softmax(-1)
    if config.top_k is not None:
        log_p_NV = _kept(log_p_NV, _first(log_p_NV, config.top_k))
    if config.top_p is not None and config.top_p < 1.0:
        log_p_NV = _kept(log_p_NV, _up_to(log_p_NV, log_p_NV, config.top_p))
    if config.min_p is not None:
        least_N1 = log_p_NV.max(-1, keepdim=True).values + math.log(config.min_p)
        log_p_NV = _kept(log_p_NV, log_p_NV >= least_N1)
    if config.typical is not None and config.typical < 1.0:
        entropy_N1 = torch.special.entr(log_p_NV.exp()).sum(-1, keepdim=True)
        near_NV = -(log_p_NV + entropy_N1).abs()  # −| −log p − H |; -inf where the probability is 0
        log_p_NV = _kept(log_p_NV, _up_to(near_NV, log_p_NV, config.typical))
    return log_p_NV


def _first(by_NV: Tensor, count: int) -> Tensor:
    order_NV = by_NV.argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(by_NV, dtype=torch.bool).scatter_(-1, order_NV[:, :count], True)


def _up_to(by_NV: Tensor, log_p_NV: Tensor, mass: float) -> Tensor:
    """The first tokens, in the order of `by_NV`, whose probabilities make up the mass; the one that reaches it too."""
    order_NV = by_NV.argsort(dim=-1, descending=True, stable=True)
    p_NV = log_p_NV.exp().gather(-1, order_NV)
    before_NV = p_NV.cumsum(-1) - p_NV
    return torch.zeros_like(by_NV, dtype=torch.bool).scatter_(-1, order_NV, before_NV < mass)


def _kept(log_p_NV: Tensor, keep_NV: Tensor) -> Tensor:
    return log_p_NV.masked_fill(~keep_NV, -torch.inf).log_softmax(-1)


def draw(log_p_NV: Tensor, number_N: Tensor) -> Tensor:
    """The token in whose part of [0, 1) the number lies, the parts being as wide as the probabilities."""
    up_to_NV = log_p_NV.exp().cumsum(-1)
    at_N1 = number_N[:, None] * up_to_NV[:, -1:]  # the sum may differ from 1 in its last digit
    token_N = torch.searchsorted(up_to_NV, at_N1, right=True).squeeze(-1)
    # Rounding may lead to the end of the last part; behind it are only tokens that may not be drawn.
    last_N = (log_p_NV > -torch.inf).int().cumsum(-1).argmax(-1)
    return torch.minimum(token_N, last_N)
