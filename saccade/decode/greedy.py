"""Greedy decoding: the most probable token at each step, with no way back.

Shapes: N sentences (one hypothesis each), T steps, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.decode.rules import Rules, Wishes
from saccade.replay import Begin
from saccade.types import END, START, Hypothesis, State, Step

LOOK_EVERY = 4
"""Replayed steps between two looks at whether any sentence is still open: each look waits for the device."""


class _Row(NamedTuple):
    """Behind t tokens."""

    last_N: Tensor
    state: State
    alive_N: Tensor
    limit_N: Tensor
    t: Tensor


class _Said(NamedTuple):
    token_N: Tensor
    score_N: Tensor
    open: Tensor


@torch.inference_mode()
def greedy(
    step: Step,
    state: State,
    *,
    limits: list[int],
    last_N: Tensor | None = None,
    wishes: Wishes | None = None,
    begin: Begin | None = None,
) -> list[list[Hypothesis]]:
    """One hypothesis a sentence; sentence n gets at most `limits[n]` tokens.

    `last_N`: the token before the first of each sentence; START where not given. It is no part of the output.
    `begin`: steps may be replayed, and are where nothing but the model is asked.
    """
    rows = len(limits)
    device = state.device
    rules = Rules.of(wishes or Wishes(), limits, beam=1, device=device)
    row_N = torch.arange(rows, device=device)
    last_N = torch.full((rows,), START, device=device) if last_N is None else last_N.to(device)
    row = _Row(last_N, state, rules.limit_B > 0, rules.limit_B, torch.zeros((), dtype=torch.long, device=device))
    replayed = begin is not None and rules.ask_nothing
    loop = begin("greedy", lambda row: _step(step, row, rules), row) if begin is not None and replayed else None
    said = list[_Said]()
    for t in range(max(limits, default=0)):
        if loop is None:
            row, here = _step(step, row, rules)
            rules = rules.advance(row_N, here.token_N)
        else:
            here = _Said(*(each.clone() for each in loop.next()))  # the next step writes there
        said.append(here)
        if (loop is None or t % LOOK_EVERY == LOOK_EVERY - 1) and not here.open:
            break
    if not said:
        return [[Hypothesis((), 0.0, 0.0, (), ended=False)] for _ in limits]
    tokens_NT, scores_NT = (
        torch.stack([each.token_N for each in said], 1),
        torch.stack([each.score_N for each in said], 1),
    )
    return [
        [_hypothesis(row, score, limit)]
        for row, score, limit in zip(tokens_NT.tolist(), scores_NT.tolist(), limits, strict=True)
    ]


def _step(step: Step, row: _Row, rules: Rules) -> tuple[_Row, _Said]:
    """A sentence that is over says END, for nothing."""
    logits_NV, state = step(row.last_N, row.state)
    best_N, token_N = rules.log_probabilities(logits_NV).max(-1)
    last_N = torch.where(row.alive_N, token_N, END)
    t = row.t + 1
    alive_N = row.alive_N & (last_N != END) & (t < row.limit_N)
    said = _Said(last_N, torch.where(row.alive_N, best_N, 0.0), alive_N.any())
    return _Row(last_N, state, alive_N, row.limit_N, t), said


def _hypothesis(tokens: list[int], scores: list[float], limit: int) -> Hypothesis:
    ended = END in tokens[:limit]
    length = tokens.index(END) if ended else min(limit, len(tokens))
    kept = scores[: length + 1] if ended else scores[:length]
    total = sum(kept)
    return Hypothesis(tuple(tokens[:length]), total, total, tuple(kept), ended)
