"""What a phrase that must stand in an output still needs, and how soon an output that must not hold one can end.

Both are numbers of tokens, one a state of the phrase's automaton. Shapes: S states, R ways to write the phrase.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade.decode.phrases import BEGIN, FOUND, Automaton

Ints = NDArray[np.int64]
NEVER = 1 << 30
NO_TOKEN = -1


@dataclass(frozen=True, eq=False)
class Forbidden:
    """Phrases that must not stand in an output."""

    automaton: Automaton
    need_S: Ints
    """The fewest tokens after which the output may end; NEVER: whatever comes, it holds a phrase."""

    @staticmethod
    def of(automaton: Automaton, silent_V: NDArray[np.bool_]) -> "Forbidden":
        kinds = np.unique(automaton.kind_V[~silent_V])
        need_S = np.where(automaton.end_S == FOUND, NEVER, 0)
        while True:
            open_ = np.flatnonzero(need_S == NEVER)
            best = need_S[automaton.next_SK[open_][:, kinds]].min(1, initial=NEVER) + 1
            best = np.where(open_ == FOUND, NEVER, np.minimum(best, NEVER))
            if (best == NEVER).all():
                return Forbidden(automaton, need_S)
            need_S[open_] = best


@dataclass(frozen=True, eq=False)
class Required:
    """A phrase that must stand in an output, so often."""

    automaton: Automaton
    need_S: Ints
    """The fewest tokens that complete what is asked, written as `token_SR` says; 0: the output may end."""
    firm_S: Ints
    """As many do, in whatever state and with whatever between them, since nothing that comes can undo the rest."""
    loose_S: Ints
    """As many do, if what comes next does not go on with the word that the output ends in."""
    token_SR: Ints
    """What to write next, for each way to write the phrase; the last begins it anew. NO_TOKEN: not from here."""

    @property
    def tokens(self) -> int:
        return int(self.need_S[BEGIN])

    @staticmethod
    def of(automaton: Automaton, ways: Sequence[Sequence[int]], *, anew: int, at_begin: int) -> "Required":
        """`ways` are tokens that write the phrase, which the automaton was made for, alone.

        One of them, `anew`, writes it behind any text, and there goes on with no word. One is how an output begins.
        """
        times = int(automaton.times_S[FOUND])
        surely_S = automaton.times_S
        now_S = surely_S[automaton.end_S]  # how often it stands in the text if that ends here
        lacks_S = now_S < times
        again = len(ways[anew])
        loose_S = (times - now_S) * again
        token_SR = np.full((len(now_S), len(ways) + 1), NO_TOKEN, dtype=np.int64)
        need_SR = np.full((len(now_S), len(ways)), NEVER, dtype=np.int64)
        for r, tokens in enumerate(ways):
            written_S = _written(automaton, now_S, tokens)
            can = np.flatnonzero((written_S >= 0) & lacks_S)
            token_SR[can, r] = np.array(tokens, dtype=np.int64)[written_S[can]]
            need_SR[can, r] = loose_S[can] - again + len(tokens) - written_S[can]
        token_SR[lacks_S, -1] = ways[anew][0]
        # An output does not begin with a space.
        others = [r for r in range(len(ways)) if r != at_begin]
        need_SR[BEGIN, others] = NEVER
        token_SR[BEGIN, [*others, -1]] = NO_TOKEN
        need_S = np.where(lacks_S, need_SR.min(1), 0)
        loose_S[BEGIN] = max(loose_S[BEGIN], need_S[BEGIN])
        return Required(automaton, need_S, (times - surely_S) * again, loose_S, token_SR)


def _written(automaton: Automaton, now_S: Ints, tokens: Sequence[int]) -> Ints:
    """How many of the tokens have just been written at most in each state, where the rest completes the phrase.

    Not even 0, which is nothing: −1.
    """
    path = [np.arange(len(now_S))]
    for token in tokens:
        path.append(automaton.next_SK[path[-1], automaton.kind_V[token]].astype(np.int64))
    written_S = np.full(len(now_S), -1, dtype=np.int64)
    for count, states in enumerate(path[:-1]):
        completes = states[now_S[path[-1]] > now_S[states]]
        np.maximum.at(written_S, completes, count)
    return written_S
