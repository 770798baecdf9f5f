"""Beam search: the k best prefixes side by side.

At each step the 2k best continuations of a sentence are looked at: those that end and rank among the first k are
finished, the first k of the others live on. A sentence leaves once it has k finished hypotheses or reaches its limit.
Shapes: B sentences still searched, k beam, N = B·k hypotheses, V vocabulary, M longest output.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade.decode.scores import LengthRule, allowed_log_probabilities, normalised
from saccade.types import END, PAD, START, Hypothesis, State, Step


@dataclass(frozen=True)
class BeamRule:
    beam: int = 5
    length: LengthRule = "average"
    alpha: float = 1.0
    n_best: int = 1


@dataclass
class _Prefixes:
    """The living hypotheses of all sentences still searched; those of one sentence side by side, best first."""

    score_Bk: Tensor
    tokens_BkM: Tensor
    scores_BkM: Tensor

    def select(self, rows: Tensor) -> "_Prefixes":
        return _Prefixes(self.score_Bk[rows], self.tokens_BkM[rows], self.scores_BkM[rows])


@dataclass
class _Sentence:
    index: int
    limit: int
    finished: list[Hypothesis] = field(default_factory=list)


@torch.inference_mode()
def beam_search(step: Step, state: State, *, limits: list[int], rule: BeamRule) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence, best first. `state` has one hypothesis a sentence."""
    k = rule.beam
    searched = [_Sentence(index, limit) for index, limit in enumerate(limits) if limit > 0]
    results: list[list[Hypothesis]] = [[Hypothesis((), 0.0, 0.0, (), ended=False)] for _ in limits]
    device = state.device
    if len(searched) < len(limits) and searched:
        state = state.select_sentences(torch.tensor([s.index for s in searched], device=device), beam=1)
    state = state.widen(k)
    alive = _begin(len(searched), k, max(limits, default=0), device)
    last_N = torch.full((len(searched) * k,), START, device=device)
    t = 0
    while searched:
        logits_NV, state = step(last_N, state)
        alive, from_Bk, ended = _advance(alive, allowed_log_probabilities(logits_NV), t, k)
        t += 1
        _collect(searched, ended, rule)
        done = [len(s.finished) >= k or t >= s.limit for s in searched]
        for b, sentence in enumerate(searched):
            if done[b]:
                if t >= sentence.limit:
                    sentence.finished += _cut_off(alive, b, t, rule)
                results[sentence.index] = sorted(sentence.finished, key=lambda h: -h.score)[: rule.n_best]
        rows_N = (torch.arange(len(searched), device=device)[:, None] * k + from_Bk).flatten()
        state = state.select_hypotheses(rows_N)
        if any(done):
            stay = torch.tensor([b for b, over in enumerate(done) if not over], dtype=torch.long, device=device)
            searched = [s for s, over in zip(searched, done, strict=True) if not over]
            state, alive = state.select_sentences(stay, beam=k), alive.select(stay)
        last_N = alive.tokens_BkM[:, :, t - 1].flatten()
    return results


def _begin(sentences: int, k: int, longest: int, device: torch.device) -> _Prefixes:
    score_Bk = torch.full((sentences, k), -torch.inf, device=device)
    score_Bk[:, 0] = 0.0  # all k prefixes are equal at first: only one of them counts
    tokens_BkM = torch.full((sentences, k, longest), PAD, device=device)
    return _Prefixes(score_Bk, tokens_BkM, torch.zeros(sentences, k, longest, device=device))


@dataclass(frozen=True)
class _Ended:
    """The hypotheses that END closed at this step: sentence by sentence, with everything they need, on the host."""

    sentence: list[int]
    total: list[float]
    tokens: list[list[int]]
    scores: list[list[float]]


def _advance(alive: _Prefixes, log_p_NV: Tensor, t: int, k: int) -> tuple[_Prefixes, Tensor, _Ended]:
    """One step: the new prefixes, which old one each came from, and what ended."""
    B, V = len(alive.score_Bk), log_p_NV.shape[-1]
    log_p_BkV = log_p_NV.view(B, k, V)
    total_BkV = alive.score_Bk[:, :, None] + log_p_BkV
    total_Bc, flat_Bc = total_BkV.view(B, k * V).topk(min(2 * k, k * V), dim=-1)
    parent_Bc, token_Bc = flat_Bc // V, flat_Bc % V
    own_Bc = log_p_BkV.flatten(1).gather(1, flat_Bc)
    ends_Bc = token_Bc == END

    rank_c = torch.arange(total_Bc.shape[1], device=total_Bc.device)
    closed_Bc = ends_Bc & (rank_c < k) & total_Bc.isfinite()
    ended = _ended(alive, closed_Bc, total_Bc, parent_Bc, own_Bc, t)

    # The first k continuations that do not end, in order: a stable sort puts them in front. Where a vocabulary is too
    # small to fill the beam, what is left over can never win.
    order_Bk = ends_Bc.int().argsort(dim=1, stable=True)[:, :k]
    score_Bk = total_Bc.masked_fill(ends_Bc, -torch.inf).gather(1, order_Bk)
    from_Bk, token_Bk, own_Bk = (x.gather(1, order_Bk) for x in (parent_Bc, token_Bc, own_Bc))
    tokens_BkM = alive.tokens_BkM.gather(1, from_Bk[:, :, None].expand_as(alive.tokens_BkM))
    scores_BkM = alive.scores_BkM.gather(1, from_Bk[:, :, None].expand_as(alive.scores_BkM))
    tokens_BkM[:, :, t] = token_Bk
    scores_BkM[:, :, t] = own_Bk
    return _Prefixes(score_Bk, tokens_BkM, scores_BkM), from_Bk, ended


def _ended(alive: _Prefixes, closed_Bc: Tensor, total_Bc: Tensor, parent_Bc: Tensor, own_Bc: Tensor, t: int) -> _Ended:
    sentence_F, candidate_F = closed_Bc.nonzero(as_tuple=True)
    parent_F = parent_Bc[sentence_F, candidate_F]
    own_F1 = own_Bc[sentence_F, candidate_F][:, None]
    return _Ended(
        sentence_F.tolist(),
        total_Bc[sentence_F, candidate_F].tolist(),
        alive.tokens_BkM[sentence_F, parent_F, :t].tolist(),
        torch.cat([alive.scores_BkM[sentence_F, parent_F, :t], own_F1], dim=1).tolist(),
    )


def _collect(searched: list[_Sentence], ended: _Ended, rule: BeamRule) -> None:
    for b, total, tokens, scores in zip(ended.sentence, ended.total, ended.tokens, ended.scores, strict=True):
        if len(searched[b].finished) < rule.beam:
            score = normalised(total, len(tokens) + 1, rule.length, rule.alpha)
            searched[b].finished.append(Hypothesis(tuple(tokens), score, total, tuple(scores), ended=True))


def _cut_off(alive: _Prefixes, b: int, t: int, rule: BeamRule) -> list[Hypothesis]:
    """At the limit the living prefixes count as they are."""
    cut = []
    for total, tokens, scores in zip(
        alive.score_Bk[b].tolist(),
        alive.tokens_BkM[b, :, :t].tolist(),
        alive.scores_BkM[b, :, :t].tolist(),
        strict=True,
    ):
        if total > -torch.inf:
            score = normalised(total, t, rule.length, rule.alpha)
            cut.append(Hypothesis(tuple(tokens), score, total, tuple(scores), ended=False))
    return cut
