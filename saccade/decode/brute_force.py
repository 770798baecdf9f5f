"""Brute force: every output there is, written down. For tiny vocabularies and limits, to teach and to prove searches.

Shapes: N prefixes of one length, V vocabulary, C tokens that may follow and do not end.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from saccade.decode.scores import LengthRule, allowed_log_probabilities, normalised
from saccade.errors import SaccadeError, UsageError
from saccade.types import END, PAD, START, Hypothesis, State, Step

MOST = 1_000_000
"""More outputs than this are refused."""
_AT_ONCE = 4096


@dataclass(frozen=True)
class EveryOutput:
    outputs: tuple[Hypothesis, ...]
    """Those that END closes within the limit, and those that are cut off there; best score first."""
    lost: float
    """The probability of PAD and START after any prefix, which no output has."""

    @property
    def mode(self) -> Hypothesis:
        """The best output that has ended."""
        return next(each for each in self.outputs if each.ended)


@torch.inference_mode()
def brute_force(
    step: Step, state: State, *, limit: int, length: LengthRule = "none", alpha: float = 1.0
) -> EveryOutput:
    """Every output of one sentence, of at most `limit` tokens, END counted.

    The probabilities of all outputs and what is lost on PAD and START sum to 1, which is checked.
    """
    if limit < 1:
        raise UsageError(f"limit: must be at least 1; got {limit}.")
    prefixes: list[tuple[int, ...]] = [()]
    scores: list[tuple[float, ...]] = [()]
    last_N = torch.full((1,), START, device=state.device)
    outputs: list[Hypothesis] = []
    lost = 0.0

    def close(tokens: tuple[int, ...], own: tuple[float, ...], *, ended: bool) -> None:
        total = math.fsum(own)
        outputs.append(Hypothesis(tokens, normalised(total, len(own), length, alpha), total, own, ended))

    for _ in range(limit):
        log_p_NV, p_lost_N, state = _step(step, state, last_N)
        choices = [token for token in range(log_p_NV.shape[1]) if token not in (PAD, START, END)]
        _refuse_too_many(len(choices), limit)
        for tokens, own, end, p_lost in zip(
            prefixes, scores, log_p_NV[:, END].tolist(), p_lost_N.tolist(), strict=True
        ):
            close(tokens, (*own, end), ended=True)
            lost += math.exp(math.fsum(own)) * p_lost
        own_NC = log_p_NV[:, choices].tolist()
        scores = [(*own, each) for own, row in zip(scores, own_NC, strict=True) for each in row]
        last_N = torch.tensor(choices, device=last_N.device).repeat(len(prefixes))
        prefixes = [(*tokens, token) for tokens in prefixes for token in choices]
        state = state.widen(len(choices))
    for tokens, own in zip(prefixes, scores, strict=True):
        close(tokens, own, ended=False)
    total = math.fsum(math.exp(each.log_probability) for each in outputs) + lost
    if not abs(total - 1.0) < 1e-3:
        raise SaccadeError(
            f"the probabilities of all outputs sum to {total}, not to 1: the model's logits are no good."
        )
    return EveryOutput(tuple(sorted(outputs, key=lambda each: -each.score)), lost)


def _refuse_too_many(choices: int, limit: int) -> None:
    count = sum(choices**tokens for tokens in range(limit + 1))
    if count > MOST:
        raise UsageError(
            f"limit: with {choices} tokens to choose from, a limit of {limit} makes {count:,} outputs; brute force "
            f"writes down at most {MOST:,}. Lower the limit, or use exact_search."
        )


def _step(step: Step, state: State, last_N: Tensor) -> tuple[Tensor, Tensor, State]:
    """All prefixes of one length, some at a time. They share one source, so that any number of rows goes with it."""
    parts = []
    for begin in range(0, len(last_N), _AT_ONCE):
        rows_n = torch.arange(begin, min(begin + _AT_ONCE, len(last_N)), device=last_N.device)
        logits_nV, after = step(last_N[rows_n], state.select_hypotheses(rows_n))
        lost_n = logits_nV.float().softmax(-1)[:, [PAD, START]].sum(-1)
        parts.append((allowed_log_probabilities(logits_nV), lost_n, after.hypothesis))
    log_p, lost, hypotheses = zip(*parts, strict=True)
    joined = pytree.tree_map(lambda *leaves: torch.cat(leaves), *hypotheses)
    return torch.cat(log_p), torch.cat(lost), State(state.source, joined)
