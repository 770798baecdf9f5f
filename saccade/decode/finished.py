"""The host's side of a beam search: the tree of what was chosen, what has finished in it, and which sentences are done.

All sentences at once, in numpy: nothing here loops over hypotheses until the search is over.
Shapes: A all sentences, B those still searched, G groups, w prefixes of a group, k = G·w, c candidates of a group,
F finished hypotheses kept of a group: w by count, else the n best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saccade.types import Hypothesis

Stop = Literal["count", "length", "proven"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NO_OUTPUT = Hypothesis((), 0.0, 0.0, (), ended=False)
"""Where not a single token is allowed."""


@dataclass(frozen=True)
class Chosen:
    """What a step has chosen for the sentences still searched; −inf as total: it does not count."""

    parent_Bk: Ints
    token_Bk: Ints
    own_Bk: Floats
    """The log-probability of the token alone."""
    total_Bk: Floats
    cut_Bk: Floats
    """As `total_Bk`, of those that may be returned where the limit cuts them off."""
    ended_parent_BGc: Ints
    ended_own_BGc: Floats
    ended_total_BGc: Floats
    penalty_Bk: Floats | None
    """What is added to the score of a hypothesis that ends or is cut off here, by its parent; not above 0."""


@dataclass(frozen=True)
class _Pool:
    """(A, G, F): the finished hypotheses kept of each group; score −inf: a free place."""

    score: Floats
    total: Floats
    own: Floats
    step: Ints
    """When END was chosen, counted from 0: how many tokens stand before it."""
    slot: Ints
    """Which prefix it was behind."""

    @staticmethod
    def empty(*shape: int) -> "_Pool":
        lowest = np.full(shape, -np.inf)
        return _Pool(lowest, lowest.copy(), np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.score, self.total, self.own, self.step, self.slot


class Finished:
    def __init__(
        self,
        limits: list[int],
        *,
        groups: int,
        width: int,
        n_best: int,
        stop: Stop,
        penalty_of_length: Callable[[int], float],
    ) -> None:
        self.limits = np.array(limits, dtype=np.int64)
        self.n_best, self.stop, self.groups = n_best, stop, groups
        self.penalties = np.array([penalty_of_length(length) for length in range(max(limits, default=0) + 1)])
        self.pool = _Pool.empty(len(limits), groups, width if stop == "count" else n_best)
        self.over_AG = np.zeros((len(limits), groups), dtype=bool)
        self.searched_B = np.flatnonzero(self.limits > 0)
        self.tree: list[tuple[Ints, Chosen]] = []
        self.results: dict[int, list[tuple[float, float, float, int, int, bool]]] = {}

    def add(self, chosen: Chosen) -> NDArray[np.bool_]:
        """Note one step of the sentences still searched; of each, whether it stays."""
        rows_B, t = self.searched_B, len(self.tree)
        self.tree.append((rows_B, chosen))
        over_BG = self.over_AG[rows_B]
        self._collect(rows_B, chosen, over_BG, t)
        at_limit_B = t + 1 >= self.limits[rows_B]
        over_now_BG = over_BG | self._over(rows_B, chosen)
        done_B = at_limit_B | over_now_BG.all(1)
        for b in np.flatnonzero(done_B):
            cut_from_G = ~over_BG[b] if at_limit_B[b] else np.zeros_like(over_BG[b])
            self._leave(int(rows_B[b]), int(b), chosen, cut_from_G, t)
        self.over_AG[rows_B] = over_now_BG
        self.searched_B = rows_B[~done_B]
        stays_B: NDArray[np.bool_] = ~done_B
        return stays_B

    def _collect(self, rows_B: Ints, chosen: Chosen, over_BG: NDArray[np.bool_], t: int) -> None:
        total_BGc = np.where(over_BG[:, :, None], -np.inf, chosen.ended_total_BGc)
        if not (total_BGc > -np.inf).any():
            return
        score_BGc = total_BGc / self.penalties[t + 1]
        if chosen.penalty_Bk is not None:
            flat_BC = chosen.ended_parent_BGc.reshape(len(rows_B), -1)
            score_BGc = score_BGc + np.take_along_axis(chosen.penalty_Bk, flat_BC, 1).reshape(score_BGc.shape)
        when_BGc = np.full(score_BGc.shape, t)
        new = (score_BGc, total_BGc, chosen.ended_own_BGc, when_BGc, chosen.ended_parent_BGc)
        both = [np.concatenate([old[rows_B], more], axis=2) for old, more in zip(self.pool.arrays(), new, strict=True)]
        # By count whoever comes first stays; else the best. Both are stable: of equals the earlier stays.
        order = np.argsort(both[1] == -np.inf if self.stop == "count" else -both[0], axis=2, kind="stable")
        order_BGF = order[:, :, : self.pool.score.shape[2]]
        for array, merged in zip(self.pool.arrays(), both, strict=True):
            array[rows_B] = np.take_along_axis(merged, order_BGF, 2)

    def _over(self, rows_B: Ints, chosen: Chosen) -> NDArray[np.bool_]:
        """Of each group, whether nothing it may still find is wanted."""
        open_BG = chosen.total_Bk.reshape(len(rows_B), self.groups, -1).max(2)
        dead_BG: NDArray[np.bool_] = open_BG == -np.inf
        match self.stop:
            case "length":
                return dead_BG
            case "count":
                return dead_BG | (self.pool.total[rows_B, :, -1] > -np.inf)  # the last place is taken last
            case "proven":
                # log P only falls, lp only grows, the coverage penalty is never above 0: no continuation can do better.
                bound_BG = open_BG / self.penalties[self.limits[rows_B]][:, None]
                proven_BG: NDArray[np.bool_] = bound_BG <= self.pool.score[rows_B, :, -1]
                return dead_BG | proven_BG

    def _leave(self, sentence: int, b: int, chosen: Chosen, cut_from_G: NDArray[np.bool_], t: int) -> None:
        """What may be returned of a sentence: all that has finished, and what its limit cuts off."""
        pool = [array[sentence].reshape(-1).tolist() for array in self.pool.arrays()]
        found = [(score, total, own, t_, slot, True) for score, total, own, t_, slot in zip(*pool, strict=True)]
        found = [each for each in found if each[1] > -np.inf]
        cut_k = np.where(np.repeat(cut_from_G, len(chosen.cut_Bk[b]) // self.groups), chosen.cut_Bk[b], -np.inf)
        if not found and not (cut_k > -np.inf).any():
            cut_k = chosen.total_Bk[b]
        for slot in np.flatnonzero(cut_k > -np.inf).tolist():
            total, score = float(cut_k[slot]), float(cut_k[slot] / self.penalties[t + 1])
            if chosen.penalty_Bk is not None:
                score += float(chosen.penalty_Bk[b, chosen.parent_Bk[b, slot]])
            found.append((score, total, 0.0, t + 1, slot, False))
        self.results[sentence] = sorted(found, key=lambda each: -each[0])

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The n best of each sentence, best first and distinct."""
        kept = self.n_best if self.groups == 1 else None  # groups may have found the same
        picks = [(a, *each) for a, found in sorted(self.results.items()) for each in found[:kept]]
        written = self._read_back([pick[0] for pick in picks], [pick[4] for pick in picks], [pick[5] for pick in picks])
        lists: list[list[Hypothesis]] = [[] for _ in self.limits]
        for (a, score, total, own, _, _, ended), (tokens, scores) in zip(picks, written, strict=True):
            if len(lists[a]) < self.n_best and all(tokens != other.tokens for other in lists[a]):
                scores = (*scores, own) if ended else scores
                lists[a].append(Hypothesis(tokens, score, total, scores, ended))
        return [found or [NO_OUTPUT] for found in lists]

    def _read_back(
        self, sentence: list[int], length: list[int], slot: list[int]
    ) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        """From the last prefix of each back to the root of the tree, all side by side."""
        sentence_P, length_P, slot_P = (np.array(each, dtype=np.int64) for each in (sentence, length, slot))
        longest = max(length, default=0)
        tokens_PT, scores_PT = np.zeros((len(sentence), longest), np.int64), np.zeros((len(sentence), longest))
        for t in range(longest - 1, -1, -1):
            rows_B, chosen = self.tree[t]
            p = np.flatnonzero(length_P > t)
            b, s = np.searchsorted(rows_B, sentence_P[p]), slot_P[p]
            tokens_PT[p, t], scores_PT[p, t] = chosen.token_Bk[b, s], chosen.own_Bk[b, s]
            slot_P[p] = chosen.parent_Bk[b, s]
        return [
            (tuple(tokens[:n]), tuple(scores[:n]))
            for tokens, scores, n in zip(tokens_PT.tolist(), scores_PT.tolist(), length, strict=True)
        ]
