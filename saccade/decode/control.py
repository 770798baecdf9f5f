"""How something outside a search steers it: which tokens may follow, which prefixes live on, which may end.

Shapes: B sentences still searched, k beam (of greedy 1), N = B·k hypotheses (those of one sentence side by side),
V vocabulary, M longest output, c candidates.
"""

from dataclasses import dataclass
from typing import Protocol, Self

from torch import Tensor


@dataclass(frozen=True)
class Written:
    """What a search has written of each hypothesis before the step at hand."""

    tokens_NM: Tensor
    """Place t and all behind it hold PAD. Of a prefix that counts no more (its log-probability is −inf) it is junk."""
    t: int
    """How many tokens each hypothesis has; all have as many."""
    limit_B: Tensor
    """How many tokens each sentence's outputs may have, END counted: the token chosen at t = limit − 1 is the last."""


@dataclass(frozen=True)
class Choice:
    """Continuations of the k prefixes of each sentence, each by its place in k·V: prefix · V + token."""

    living_Bk: Tensor
    """The prefixes of the next step, best first; none of them ends."""
    alive_Bk: Tensor
    """False where there were too few: what stands there counts no more."""
    ended_Bc: Tensor
    """Continuations with END, in the order in which they are to be collected."""
    closed_Bc: Tensor
    """Which of them are finished hypotheses; the others are passed over."""


class Control(Protocol):
    """Tensors of a search's wishes and how far each hypothesis has come with them, one row a hypothesis.

    At each step the search calls, in this order: `mask`; `choose`, where `chooses` is true; `advance`; `whole`, where
    `chooses` is true; `keep`, where sentences leave. It never copies to the host, and no call may change the object:
    `advance` and `keep` return another.
    """

    @property
    def chooses(self) -> bool:
        """Whether it picks the survivors itself. Greedy decoding and groups take only a control that does not."""
        ...

    def widen(self, beam: int) -> Self:
        """From one row a sentence to `beam` equal ones; called once, before the first step."""
        ...

    def mask(self, log_p_NV: Tensor, written: Written) -> Tensor:
        """The log-probabilities with −inf where a token may not follow; all others as they are.

        A row may become −inf throughout: then END is allowed again (but see `choose`). Tokens of a forced prefix are
        allowed whatever this says, so that a hypothesis may hold what the mask would not have let through.
        """
        ...

    def choose(self, total_BkV: Tensor, written: Written) -> Choice:
        """The survivors out of all continuations, by their summed log-probabilities (−inf: not possible).

        Whatever it closes is returned as finished: it is this method that keeps END from hypotheses which may not end.
        """
        ...

    def advance(self, parent_N: Tensor, token_N: Tensor) -> Self:
        """Row n is then what row `parent_N[n]` was, with `token_N[n]` behind it. The row of a dead hypothesis is junk.

        Rows are counted over all N. Of greedy, finished sentences stay, and END is what they get.
        """
        ...

    def whole(self) -> Tensor:
        """(N,): which hypotheses may be returned as they are where the limit cuts them off.

        Where a sentence has neither a finished hypothesis nor one that is whole, it gets the living ones as they are:
        who builds a control sees to it that the limit leaves room.
        """
        ...

    def keep(self, rows_N: Tensor) -> Self:
        """Only these rows, in this order: all k of each sentence that stays."""
        ...
