"""Beam search: the k best prefixes side by side.

At each step the 2k best continuations of a sentence are looked at: those that end may be finished, the first k of the
others live on. `BeamRule.stop` says when a sentence leaves.
Shapes: B sentences still searched, k beam, N = B·k hypotheses, G groups, V vocabulary, c continuations that END closes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from saccade.decode.control import Choice
from saccade.decode.finished import Chosen, Finished, Stop
from saccade.decode.rules import Rules, Wishes
from saccade.decode.scores import LengthRule, length_penalty
from saccade.decode.survivors import survivors
from saccade.types import START, Hypothesis, State, Step

Penalty = Callable[[State], Tensor]
"""(N,), none above 0: what a hypothesis that ends at this state adds to its score, as a coverage penalty."""


@dataclass(frozen=True)
class BeamRule:
    beam: int = 5
    length: LengthRule = "average"
    alpha: float = 1.0
    n_best: int = 1
    stop: Stop = "count"
    """count: k hypotheses have finished, END being taken from the first k candidates alone. length: the limit alone.

    proven: none of the open prefixes can still come among the n best, log P(open) / lp(limit) ≤ the n-th best score.
    By `length` and `proven` END is taken from all 2k candidates, since a bad one does no harm.
    """
    groups: int = 1
    """So many beams of k / groups each, which `diversity` keeps apart."""
    diversity: float = 0.0

    @property
    def width(self) -> int:
        """Prefixes of a group."""
        return self.beam // self.groups


@torch.inference_mode()
def beam_search(
    step: Step,
    state: State,
    *,
    limits: list[int],
    rule: BeamRule,
    last_N: Tensor | None = None,
    wishes: Wishes | None = None,
    penalty: Penalty | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first. `state` has one hypothesis a sentence.

    `last_N`: the token before the first of each sentence; START where not given. It is no part of the output.
    """
    k, device, wishes = rule.beam, state.device, wishes or Wishes()
    finished = Finished(
        limits,
        groups=rule.groups,
        width=rule.width,
        n_best=rule.n_best,
        stop=rule.stop,
        penalty_of_length=lambda length: length_penalty(length, rule.length, rule.alpha),
    )
    last_N = torch.full((len(limits),), START, device=device) if last_N is None else last_N.to(device)
    if 0 < len(finished.searched_B) < len(limits):
        rows_B = torch.from_numpy(finished.searched_B).to(device)
        state, last_N = state.select_sentences(rows_B, beam=1), last_N[rows_B]
        wishes = wishes.rows(finished.searched_B.tolist(), rows_B)
    state, last_N = state.widen(k), last_N.repeat_interleave(k)
    B = len(finished.searched_B)
    rules = Rules.of(wishes, [limit for limit in limits if limit > 0], beam=k, device=device)
    score_Bk = torch.full((B, k), -torch.inf, device=device)
    score_Bk[:, :: rule.width] = 0.0  # all prefixes of a group are equal at first: only one of them counts
    while B:
        logits_NV, state = step(last_N, state)
        penalty_N = None if penalty is None else penalty(state)
        log_p_BkV = rules.log_probabilities(logits_NV).view(B, k, -1)
        total_BkV = score_Bk[:, :, None] + log_p_BkV
        choice = _choose(total_BkV, rules, rule)
        first_B1 = torch.arange(B, device=device)[:, None] * k
        rows_N = (first_B1 + choice.living_Bk // log_p_BkV.shape[-1]).flatten()
        last_N = (choice.living_Bk % log_p_BkV.shape[-1]).flatten()
        rules = rules.advance(rows_N, last_N)
        score_Bk = total_BkV.flatten(1).gather(1, choice.living_Bk).masked_fill(~choice.alive_Bk, -torch.inf)
        chosen = _on_host(choice, total_BkV, log_p_BkV, score_Bk, penalty_N, rules, rule)
        stays_B = finished.add(chosen)
        if not stays_B.any():
            break
        if (chosen.parent_Bk != np.arange(k)).any():
            state = state.select_hypotheses(rows_N)
        if not stays_B.all():
            stay_B = torch.from_numpy(np.flatnonzero(stays_B)).to(device)
            stay_N = (stay_B[:, None] * k + torch.arange(k, device=device)).flatten()
            state, rules = state.select_sentences(stay_B, beam=k), rules.keep(stay_B, stay_N)
            score_Bk, last_N, B = score_Bk[stay_B], last_N[stay_N], len(stay_B)
    return finished.hypotheses()


def _choose(total_BkV: Tensor, rules: Rules, rule: BeamRule) -> Choice:
    if rules.control is not None and rules.control.chooses:
        return rules.control.choose(total_BkV, rules.written)
    every_end = rule.stop != "count"
    return survivors(total_BkV, groups=rule.groups, diversity=rule.diversity, every_end=every_end)


def _on_host(
    choice: Choice,
    total_BkV: Tensor,
    log_p_BkV: Tensor,
    score_Bk: Tensor,
    penalty_N: Tensor | None,
    rules: Rules,
    rule: BeamRule,
) -> Chosen:
    """Everything the host must know of a step, in one transfer; float64 holds every token's number exactly."""
    B, k, V = total_BkV.shape
    own_BC, total_BC = log_p_BkV.flatten(1), total_BkV.flatten(1)
    ended_total_Bc = total_BC.gather(1, choice.ended_Bc).masked_fill(~choice.closed_Bc, -torch.inf)
    parts = [
        choice.living_Bk,
        own_BC.gather(1, choice.living_Bk),
        score_Bk,
        choice.ended_Bc,
        own_BC.gather(1, choice.ended_Bc),
        ended_total_Bc,
    ]
    if penalty_N is not None:
        parts.append(penalty_N.view(B, k))
    chooses = rules.control is not None and rules.control.chooses
    if rules.control is not None and chooses:
        parts.append(score_Bk.masked_fill(~rules.control.whole().view(B, k), -torch.inf))
    host = torch.cat([part.double() for part in parts], dim=1).cpu().numpy()
    ends = np.cumsum([part.shape[1] for part in parts])[:-1]
    living, own, total, ended, ended_own, ended_total, *rest = np.split(host, ends, axis=1)
    place, ended_place = living.astype(np.int64), ended.astype(np.int64).reshape(B, rule.groups, -1)
    return Chosen(
        parent_Bk=place // V,
        token_Bk=place % V,
        own_Bk=own,
        total_Bk=total,
        cut_Bk=rest[-1] if chooses else total,
        ended_parent_BGc=ended_place // V,
        ended_own_BGc=ended_own.reshape(ended_place.shape),
        ended_total_BGc=ended_total.reshape(ended_place.shape),
        penalty_Bk=rest[0] if penalty_N is not None else None,
    )
