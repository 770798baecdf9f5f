"""Greedy decoding: the most probable token at each step, with no way back.

Shapes: N sentences (one hypothesis each), T steps, V vocabulary.
"""

import torch
from torch import Tensor

from saccade.decode.rules import Rules, Wishes
from saccade.types import END, START, Hypothesis, State, Step


@torch.inference_mode()
def greedy(
    step: Step, state: State, *, limits: list[int], last_N: Tensor | None = None, wishes: Wishes | None = None
) -> list[list[Hypothesis]]:
    """One hypothesis a sentence; sentence n gets at most `limits[n]` tokens.

    `last_N`: the token before the first of each sentence; START where not given. It is no part of the output.
    """
    rows = len(limits)
    device = state.device
    rules = Rules.of(wishes or Wishes(), limits, beam=1, device=device)
    row_N = torch.arange(rows, device=device)
    last_N = torch.full((rows,), START, device=device) if last_N is None else last_N.to(device)
    alive_N = rules.limit_B > 0
    tokens, scores = [], []
    for t in range(max(limits, default=0)):
        logits_NV, state = step(last_N, state)
        best_N, token_N = rules.log_probabilities(logits_NV).max(-1)
        last_N = torch.where(alive_N, token_N, END)
        tokens.append(last_N)
        scores.append(torch.where(alive_N, best_N, 0.0))
        rules = rules.advance(row_N, last_N)
        alive_N = alive_N & (last_N != END) & (t + 1 < rules.limit_B)
        if not alive_N.any():
            break
    if not tokens:
        return [[Hypothesis((), 0.0, 0.0, (), ended=False)] for _ in limits]
    return [
        [_hypothesis(row, score, limit)]
        for row, score, limit in zip(
            torch.stack(tokens, 1).tolist(), torch.stack(scores, 1).tolist(), limits, strict=True
        )
    ]


def _hypothesis(tokens: list[int], scores: list[float], limit: int) -> Hypothesis:
    ended = END in tokens[:limit]
    length = tokens.index(END) if ended else min(limit, len(tokens))
    kept = scores[: length + 1] if ended else scores[:length]
    total = sum(kept)
    return Hypothesis(tuple(tokens[:length]), total, total, tuple(kept), ended)
