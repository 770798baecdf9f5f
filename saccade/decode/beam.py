"""Beam search: the k best prefixes side by side.

At each step the 2k best continuations of a sentence are looked at: those that end may be finished, the first k of the
others live on. `BeamRule.stop` says when a sentence leaves.
Shapes: B sentences side by side, k beam, N = B·k hypotheses, G groups, V vocabulary, c continuations that END closes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.decode.control import Choice
from saccade.decode.finished import Chosen, Finished, Stop
from saccade.decode.rules import Rules, Wishes
from saccade.decode.scores import LengthRule, length_penalty
from saccade.decode.survivors import survivors
from saccade.replay import Begin
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


class _Beams(NamedTuple):
    last_N: Tensor
    state: State
    score_Bk: Tensor

    @staticmethod
    def first(last_B: Tensor, state: State, score_Bk: Tensor) -> "_Beams":
        """Of one hypothesis a sentence."""
        k = score_Bk.shape[1]
        return _Beams(last_B.repeat_interleave(k), state.widen(k), score_Bk)

    def keep(self, rows_B: Tensor, rows_N: Tensor) -> "_Beams":
        k = self.score_Bk.shape[1]
        return _Beams(self.last_N[rows_N], self.state.select_sentences(rows_B, beam=k), self.score_Bk[rows_B])


class _Stepped(NamedTuple):
    """What a step makes of beams. Their state is still that of the parents: who goes on from whom, `rows_N` says."""

    beams: _Beams
    rows_N: Tensor
    rules: Rules
    told_BP: Tensor
    """All that the host must know of it."""


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
    begin: Begin | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first. `state` has one hypothesis a sentence.

    `last_N`: the token before the first of each sentence; START where not given. It is no part of the output.
    `begin`: steps may be replayed, and are where nothing but the model is asked.
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
    rules = Rules.of(wishes, [limit for limit in limits if limit > 0], beam=k, device=device)
    score_Bk = torch.full((len(finished.searched_B), k), -torch.inf, device=device)
    score_Bk[:, :: rule.width] = 0.0  # all prefixes of a group are equal at first: only one of them counts
    if len(score_Bk):
        # Made in the call, so that nothing but the search itself holds what it begins with.
        if begin is not None and rules.ask_nothing and penalty is None:
            _replayed(step, _Beams.first(last_N, state, score_Bk), rules, rule, finished, begin)
        else:
            _launched(step, _Beams.first(last_N, state, score_Bk), rules, rule, finished, penalty)
    return finished.hypotheses()


def _launched(
    step: Step, beams: _Beams, rules: Rules, rule: BeamRule, finished: Finished, penalty: Penalty | None
) -> None:
    """Kernel by kernel; a sentence that is done leaves at once."""
    k = rule.beam
    while True:
        beams, rows_N, rules, told_BP = _step(step, beams, rules, rule, penalty)
        chosen = _chosen(told_BP, rule, penalised=penalty is not None, cuts=rules.choose)
        stays_B = finished.add(chosen)
        if not stays_B.any():
            return
        if (chosen.parent_Bk != np.arange(k)).any():
            beams = beams._replace(state=beams.state.select_hypotheses(rows_N))
        if not stays_B.all():
            stay_B, stay_N = _places(np.flatnonzero(stays_B), k, rows_N.device)
            beams, rules = beams.keep(stay_B, stay_N), rules.keep(stay_B, stay_N)


def _replayed(step: Step, beams: _Beams, rules: Rules, rule: BeamRule, finished: Finished, begin: Begin) -> None:
    """As graphs, which have fixed shapes: sentences that are done stay, unheard, until half of the rows can go."""

    def advance(beams: _Beams) -> tuple[_Beams, Tensor]:
        after, rows_N, _, told_BP = _step(step, beams, rules, rule, None)
        return after._replace(state=after.state.select_hypotheses(rows_N)), told_BP

    name = ("beam", rule.beam, rule.groups, rule.diversity, rule.stop != "count")
    rows, device = len(beams.score_Bk), beams.last_N.device
    loop, heard = begin(name, advance, beams), np.arange(rows)
    del beams
    while True:
        stays_B = finished.add(_chosen(loop.next(), rule, rows=heard))
        heard = heard[stays_B]
        if not len(heard):
            return
        if len(heard) <= rows // 2:
            done = np.setdiff1d(np.arange(rows), heard)
            while len(heard) <= rows // 2:
                rows //= 2
            # To halves exactly, done ones among them: so that the rows of all batches go through the same sizes.
            kept = np.concatenate([heard, done[: rows - len(heard)]])
            loop = begin(name, advance, loop.carry.keep(*_places(kept, rule.beam, device)))
            heard = np.arange(len(heard))


def _places(rows: NDArray[np.int64], beam: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Sentences, and all of their hypotheses."""
    rows_B = torch.from_numpy(rows).to(device)
    return rows_B, (rows_B[:, None] * beam + torch.arange(beam, device=device)).flatten()


def _step(step: Step, beams: _Beams, rules: Rules, rule: BeamRule, penalty: Penalty | None) -> _Stepped:
    B, k = beams.score_Bk.shape
    logits_NV, state = step(beams.last_N, beams.state)
    penalty_N = None if penalty is None else penalty(state)
    log_p_BkV = rules.log_probabilities(logits_NV).view(B, k, -1)
    total_BkV = beams.score_Bk[:, :, None] + log_p_BkV
    choice, V = _choose(total_BkV, rules, rule), log_p_BkV.shape[-1]
    parent_Bk, token_Bk = choice.living_Bk // V, choice.living_Bk % V
    rows_N = (torch.arange(B, device=parent_Bk.device)[:, None] * k + parent_Bk).flatten()
    rules = rules.advance(rows_N, token_Bk.flatten())
    own_BC, total_BC = log_p_BkV.flatten(1), total_BkV.flatten(1)
    score_Bk = total_BC.gather(1, choice.living_Bk).masked_fill(~choice.alive_Bk, -torch.inf)
    told = [
        parent_Bk,
        token_Bk,
        own_BC.gather(1, choice.living_Bk),
        score_Bk,
        choice.ended_Bc // V,
        own_BC.gather(1, choice.ended_Bc),
        total_BC.gather(1, choice.ended_Bc).masked_fill(~choice.closed_Bc, -torch.inf),
    ]
    if penalty_N is not None:
        told.append(penalty_N.view(B, k))
    if rules.control is not None and rules.choose:
        told.append(score_Bk.masked_fill(~rules.control.whole().view(B, k), -torch.inf))
    told_BP = torch.cat([part.double() for part in told], dim=1)  # which holds every token's number exactly
    return _Stepped(_Beams(token_Bk.flatten(), state, score_Bk), rows_N, rules, told_BP)


def _choose(total_BkV: Tensor, rules: Rules, rule: BeamRule) -> Choice:
    if rules.control is not None and rules.choose:
        return rules.control.choose(total_BkV, rules.written)
    every_end = rule.stop != "count"
    return survivors(total_BkV, groups=rule.groups, diversity=rule.diversity, every_end=every_end)


def _chosen(
    told_BP: Tensor,
    rule: BeamRule,
    *,
    penalised: bool = False,
    cuts: bool = False,
    rows: NDArray[np.int64] | None = None,
) -> Chosen:
    """What `_step` tells, in one transfer to the host; of all sentences, or of some."""
    host, k = told_BP.to("cpu", copy=True).numpy(), rule.beam  # a copy: the next step may write there
    host = host if rows is None or len(rows) == len(host) else host[rows]
    more = k * (penalised + cuts)
    c = (host.shape[1] - 4 * k - more) // 3
    ends = np.cumsum([k, k, k, k, c, c, c] + [k] * (penalised + cuts))[:-1]
    parent, token, own, total, ended, ended_own, ended_total, *rest = np.split(host, ends, axis=1)
    of_groups = (len(host), rule.groups, -1)
    return Chosen(
        parent_Bk=parent.astype(np.int64),
        token_Bk=token.astype(np.int64),
        own_Bk=own,
        total_Bk=total,
        cut_Bk=rest[-1] if cuts else total,
        ended_parent_BGc=ended.astype(np.int64).reshape(of_groups),
        ended_own_BGc=ended_own.reshape(of_groups),
        ended_total_BGc=ended_total.reshape(of_groups),
        penalty_Bk=rest[0] if penalised else None,
    )
