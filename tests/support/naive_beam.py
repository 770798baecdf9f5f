"""Beam search written out for one sentence with lists and loops: slow, and plain to read."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from saccade.decode.beam import BeamRule
from saccade.decode.scores import normalised
from saccade.types import END, PAD, START, Hypothesis

Next = Callable[[tuple[int, ...]], list[float]]
"""Tokens so far → the model's log-probability of each token that may follow."""


@dataclass(frozen=True)
class Wanted:
    least: int = 0
    prefix: tuple[int, ...] = ()
    no_repeat_ngram: int = 0


def allowed(log_p: list[float], tokens: tuple[int, ...], wanted: Wanted) -> dict[int, float]:
    """The tokens that may follow, each with its log-probability."""
    possible = {token: p for token, p in enumerate(log_p) if token not in (PAD, START)}
    if len(tokens) < len(wanted.prefix):
        forced = wanted.prefix[len(tokens)]
        return {forced: possible[forced]}
    n = wanted.no_repeat_ngram
    grams = {tokens[i : i + n] for i in range(len(tokens) - n + 1)} if n else set()
    kept = {
        token: p
        for token, p in possible.items()
        if not (n and len(tokens) >= n - 1 and (*tokens[len(tokens) - n + 1 :], token) in grams)
        and not (token == END and len(tokens) < wanted.least)
    }
    return kept or {END: possible[END]}


@dataclass
class _Group:
    living: list[tuple[float, tuple[int, ...]]]
    finished: list[tuple[tuple[int, ...], bool]]
    over: bool = False

    def step(self, following: Next, rule: BeamRule, wanted: Wanted, taken: Counter[int]) -> None:
        """Those behind which END stands are finished; of the others, the first live on."""
        ranked = []
        for total, tokens in self.living:
            for token, p in allowed(following(tokens), tokens, wanted).items():
                ranked.append((total + p - rule.diversity * taken[token], total + p, tokens, token))
        ranked = sorted(ranked, key=lambda each: -each[0])[: 2 * rule.width]
        ends = ranked[: rule.width] if rule.stop == "count" else ranked
        if not self.over:
            self.finished += [(tokens, True) for _, _, tokens, token in ends if token == END]
        if rule.stop == "count":
            self.finished = self.finished[: rule.width]
        onward = [each for each in ranked if each[3] != END][: rule.width]
        self.living = [(total, (*tokens, token)) for _, total, tokens, token in onward]
        taken.update(token for *_, token in onward)


def naive_beam(following: Next, limit: int, rule: BeamRule, wanted: Wanted) -> list[Hypothesis]:
    """By count, or to the limit: what a proof has to show is that it finds what the longest search finds."""
    if limit == 0:
        return [Hypothesis((), 0.0, 0.0, (), ended=False)]
    groups = [_Group([(0.0, ())], []) for _ in range(rule.groups)]
    for t in range(limit):
        taken = Counter[int]()
        for group in groups:
            group.step(following, rule, wanted, taken)
        for group in groups:
            if t + 1 == limit and not group.over:
                group.finished += [(tokens, False) for _, tokens in group.living]
            full = rule.stop == "count" and len(group.finished) >= rule.width
            group.over = group.over or full or not group.living
        if all(group.over for group in groups):
            break
    every = {output: _scored(following, rule, *output) for group in groups for output in group.finished}
    return sorted(every.values(), key=lambda each: -each.score)[: rule.n_best]


def _scored(following: Next, rule: BeamRule, tokens: tuple[int, ...], ended: bool) -> Hypothesis:
    whole = (*tokens, END) if ended else tokens
    scores = tuple(following(whole[:t])[token] for t, token in enumerate(whole))
    score = normalised(math.fsum(scores), len(whole), rule.length, rule.alpha)
    return Hypothesis(tokens, score, math.fsum(scores), scores, ended)
