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
from saccade.decode.rules import Rules, Wishes
from saccade.keyed import philox, shares
from saccade.types import END, START, Hypothesis, State, Step

KEYS = 1 << 32
ROWS = 1024
"""Hypotheses of a line that are drawn side by side: each needs a row of logits as wide as the vocabulary."""


class DrawConfig(Section):
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
    samples: int = Field(1, ge=1, lt=KEYS)
    """How many are drawn for each prompt or line."""
    seed: int = Field(1, ge=0, lt=1 << 63)
    """The same seed draws the same again, whatever is drawn beside it."""


class SampleConfig(DrawConfig):
    max_tokens: int = Field(200, ge=1, le=1_000_000)
    """No continuation is longer than this many tokens."""
    stop: Literal["end", "line", "length"] = "end"
    """Where it ends before: at the end mark, at a line's end, too, or nowhere."""


class RiskConfig(Section):
    """Minimum Bayes risk (Kumar and Byrne 2004; Eikema and Aziz 2020): argmax_c 1/N Σ_s u(c, sample s)."""

    utility: Literal["chrf", "bleu"] = "chrf"
    """How good a candidate is by a sample: sacrebleu's sentence chrF or sentence BLEU of the two texts."""
    candidates: Literal["samples", "beam", "both"] = "samples"
    """What is chosen among: the samples themselves, what a beam search finds, or both."""


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
    return shares(philox(seed, prompt * KEYS + sample).random_raw(steps))


def draw_outputs(
    step: Step,
    state: State,
    *,
    lines: Sequence[int],
    limits: Sequence[int],
    config: DrawConfig,
    last_N: Tensor | None = None,
    wishes: Wishes | None = None,
) -> list[list[Hypothesis]]:
    """`config.samples` hypotheses of each sentence in the order they were drawn; scored by their log-probability.

    Sentence n gets at most `limits[n]` tokens and draws by its number, `lines[n]`, from what the wishes leave. `state`
    has one hypothesis a sentence, and is not written into; `last_N` is the token before the first, START if not given.
    """
    found: list[list[Hypothesis]] = [[] for _ in limits]
    if last_N is None:
        last_N = torch.full((len(limits),), START, device=state.device)
    at_once = max(1, ROWS // max(1, len(limits)))
    for begin in range(0, config.samples, at_once):
        some = range(begin, min(begin + at_once, config.samples))
        if not limits or max(limits) == 0:
            return [[Hypothesis((), 0.0, 0.0, (), ended=False)] * config.samples for _ in limits]
        events = sample(
            step,
            state.widen(len(some)),
            last_N=last_N.to(state.device).repeat_interleave(len(some)),
            numbers_NT=numbers(config.seed, [(line, s) for line in lines for s in some], max(limits)),
            config=config,
            stops=frozenset((END,)),
            beam=len(some),
            rules=Rules.of(wishes or Wishes(), limits, beam=len(some), device=state.device),
        )
        for n, each in enumerate(_collected(events, len(limits) * len(some))):
            found[n // len(some)].append(each)
    return found


def _collected(events: Iterator[Drawn], rows: int) -> Iterator[Hypothesis]:
    tokens: list[list[int]] = [[] for _ in range(rows)]
    log_ps: list[list[float]] = [[] for _ in range(rows)]
    for event in events:
        for row, token, log_p in zip(event.rows, event.tokens, event.log_probabilities, strict=True):
            tokens[row].append(token)
            log_ps[row].append(log_p)
    for own, scores in zip(tokens, log_ps, strict=True):
        yield _hypothesis(own, scores)


def _hypothesis(tokens: list[int], scores: list[float]) -> Hypothesis:
    ended = tokens[-1:] == [END]
    total = math.fsum(scores)
    return Hypothesis(tuple(tokens[:-1] if ended else tokens), total, total, tuple(scores), ended)


@torch.inference_mode()
def sample(
    step: Step,
    state: State,
    *,
    last_N: Tensor,
    numbers_NT: Tensor,
    config: DrawConfig,
    stops: frozenset[int] = frozenset(),
    beam: int = 1,
    rules: Rules | None = None,
) -> Iterator[Drawn]:
    """Draw as many tokens a row as there are numbers for it, or up to the first that is one of `stops`.

    `state` is that before `last_N`, with `beam` hypotheses a sentence, side by side. `rules` say what else may not be
    drawn, and how many tokens at most.
    """
    device, steps = last_N.device, numbers_NT.shape[1]
    numbers_NT = numbers_NT.to(device)
    ends_V: Tensor | None = None
    row_N = torch.arange(len(last_N), device=device)
    rules = rules or Rules.of(Wishes(), [steps] * (len(last_N) // beam), beam=beam, device=device)
    alive_N = (rules.limit_B > 0).repeat_interleave(beam)
    for t in range(steps):
        logits_NV, state = step(last_N, state)
        if ends_V is None:
            ends_V = _marked(stops, logits_NV.shape[-1], device)
        log_p_NV = rules.log_probabilities(logits_NV)
        last_N = draw(filtered(log_p_NV, config), numbers_NT[row_N, t])
        own_N = log_p_NV.gather(-1, last_N[:, None]).squeeze(-1)
        yield Drawn(*(tuple(each[alive_N].tolist()) for each in (row_N, last_N, own_N)))
        rules = rules.advance(torch.arange(len(last_N), device=device), last_N)
        alive_N = alive_N & ~ends_V[last_N] & (t + 1 < rules.limit_B).repeat_interleave(beam)
        if not alive_N.any():
            return
        kept = _living(alive_N, beam)
        if kept is not None:
            rows_N, stay_B, left = kept
            stay_N = rows_N.view(-1, left)[stay_B].flatten()
            state = state.select_hypotheses(rows_N).select_sentences(stay_B, left)
            rules, beam = rules.keep(stay_B, stay_N), left
            row_N, last_N, alive_N = row_N[stay_N], last_N[stay_N], alive_N[stay_N]


def _living(alive_N: Tensor, beam: int) -> tuple[Tensor, Tensor, int] | None:
    """Of each sentence the rows to keep, the sentences that stay, and how many rows a sentence that makes.

    None where more than half of all rows would stay: to let some go, all that is kept of the others is copied. Every
    sentence keeps as many: a few rows that are over may stay beside the living.
    """
    alive_Bk = alive_N.view(-1, beam)
    count_B = alive_Bk.sum(1)
    stay_B = count_B.nonzero().squeeze(-1)
    left = int(count_B.max())
    if 2 * len(stay_B) * left > len(alive_N):
        return None
    first_Bk = alive_Bk.int().argsort(dim=1, descending=True, stable=True)[:, :left]
    begin_B1 = torch.arange(len(count_B), device=alive_N.device)[:, None] * beam
    return (begin_B1 + first_Bk).flatten(), stay_B, left


def _marked(tokens: frozenset[int], vocabulary: int, device: torch.device) -> Tensor:
    marked_V = torch.zeros(vocabulary, dtype=torch.bool, device=device)
    marked_V[sorted(tokens)] = True
    return marked_V


def filtered(log_p_NV: Tensor, config: DrawConfig) -> Tensor:
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
