"""Lexical constraints: phrases that outputs must hold, and phrases that they must not.

What must not be is masked: no token is chosen that completes a phrase, nor one behind which no output could end. What
must be is searched for by dynamic beam allocation (`banks`). Both follow the text by automata over its characters
(`phrases`), so that they hold for what is read, in whatever tokens it is written.

Shapes: B sentences, k beam, N = B·k hypotheses, C phrases a sentence (0: those that must not be, together), V
vocabulary, X candidates, G states of all automata one behind the other, R ways to go on, K kinds of tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.decode.banks import allocate
from saccade.decode.control import Choice, Written
from saccade.decode.phrases import BEGIN, FOUND, Automaton
from saccade.decode.wanted import NEVER, NO_TOKEN, Forbidden, Required
from saccade.types import END

EACH = 8
"""Of each hypothesis so many of its best continuations are candidates, beside the best of all."""


@dataclass(frozen=True)
class Constraints:
    """Those of one sentence."""

    required: tuple[Required, ...] = ()
    forbidden: Forbidden | None = None

    @property
    def tokens(self) -> int:
        """How many tokens all that is required has; a beam of one more has a place for every bank."""
        return sum(each.tokens for each in self.required)

    @property
    def longest(self) -> int:
        """So many tokens are enough for it, whatever stands before them; none where nothing is required."""
        return sum(max(each.tokens, int(each.firm_S.max())) for each in self.required)


@dataclass(frozen=True)
class Tables:
    """All automata of a batch as one: states are counted through, and each has a row of what follows it."""

    row_G: Tensor
    next: Tensor
    kind_AV: Tensor
    may_end_G: Tensor
    need_to_end_G: Tensor
    """Of phrases that must not be, `Forbidden.need_S`."""
    worst_G: Tensor
    """The largest of it among all tokens that may come next; NEVER where END may not come."""
    need_G: Tensor
    firm_G: Tensor
    loose_G: Tensor
    token_GR: Tensor
    blocks: tuple[tuple[int, int, int], ...]
    """Of each automaton its first state, how many there are, and how many kinds."""


@dataclass(frozen=True)
class Lexical:
    """The control of a batch of sentences, each with constraints of its own."""

    tables: Tables
    automaton_NC: Tensor
    state_NC: Tensor
    beam: int
    chooses: bool
    every_end: bool

    @staticmethod
    def of(constraints: Sequence[Constraints], *, every_end: bool, device: torch.device, vocabulary: int) -> "Lexical":
        """`every_end`: END is taken from all candidates, not from the first k alone (as `BeamRule.stop` says)."""
        columns = 1 + max((len(each.required) for each in constraints), default=0)
        parts: list[Forbidden | Required | None] = [None]
        number: dict[int, int] = {}
        automata = np.zeros((len(constraints), columns), dtype=np.int64)
        for b, each in enumerate(constraints):
            for c, part in enumerate((each.forbidden, *each.required)):
                if part is not None:
                    if id(part) not in number:
                        number[id(part)] = len(parts)
                        parts.append(part)
                    automata[b, c] = number[id(part)]
        tables = _tables(parts, vocabulary, device)
        first = np.array([block[0] for block in tables.blocks])
        state_BC = torch.from_numpy(np.where(automata > 0, first[automata] + BEGIN, 0))
        return Lexical(
            tables,
            torch.from_numpy(automata).to(device),
            state_BC.to(device),
            beam=1,
            chooses=columns > 1,
            every_end=every_end,
        )

    def widen(self, beam: int) -> Self:
        automaton_NC, state_NC = (each.repeat_interleave(beam, 0) for each in (self.automaton_NC, self.state_NC))
        return replace(self, automaton_NC=automaton_NC, state_NC=state_NC, beam=self.beam * beam)

    def keep(self, rows_N: Tensor) -> Self:
        return replace(self, automaton_NC=self.automaton_NC[rows_N], state_NC=self.state_NC[rows_N])

    def advance(self, parent_N: Tensor, token_N: Tensor) -> Self:
        automaton_NC = self.automaton_NC[parent_N]
        return replace(
            self, automaton_NC=automaton_NC, state_NC=self._after(automaton_NC, self.state_NC[parent_N], token_N)
        )

    def _after(self, automaton: Tensor, state: Tensor, token: Tensor) -> Tensor:
        """The states behind a token: (…, C), (…, C), (…) → (…, C)."""
        kind = self.tables.kind_AV[automaton, token[..., None]]
        return self.tables.next[self.tables.row_G[state] + kind].long()

    def mask(self, log_p_NV: Tensor, written: Written) -> Tensor:
        tables, state_N, which_N = self.tables, self.state_NC[:, 0], self.automaton_NC[:, 0]
        room_N = (written.limit_B - written.t - 1).repeat_interleave(self.beam)
        risky_N = tables.worst_G[state_N] > room_N
        rows_F = risky_N.nonzero().squeeze(1)
        masked_NV = log_p_NV
        for automaton in sorted(set(which_N[rows_F].tolist())):
            rows = rows_F[which_N[rows_F] == automaton]
            first, states, kinds = tables.blocks[automaton]
            begin = int(tables.row_G[first])
            table_SK = tables.next[begin : begin + states * kinds].view(states, kinds)
            following_FK = table_SK[state_N[rows] - first].long()
            blocked_FK = tables.need_to_end_G[following_FK] > room_N[rows, None]
            blocked_FV = blocked_FK[:, tables.kind_AV[automaton]]
            blocked_FV[:, END] = ~tables.may_end_G[state_N[rows]]
            if masked_NV is log_p_NV:
                masked_NV = log_p_NV.clone()
            masked_NV[rows] = log_p_NV[rows].masked_fill(blocked_FV, -torch.inf)
        return masked_NV

    def whole(self) -> Tensor:
        return self._left(self.state_NC) == 0

    def _left(self, state: Tensor) -> Tensor:
        """How many tokens the phrases still need, each by itself: (…, C) → (…)."""
        return self.tables.need_G[state].sum(-1)

    def _steps(self, state: Tensor) -> Tensor:
        """So many steps are enough for all of them: (…, C) → (…).

        Either one phrase is gone on with and all others are then written anew, or all of them are written anew from
        here. Each step of the one or the other leaves one less. `docs/constraints.md` proves it.
        """
        need, firm = self.tables.need_G[state], self.tables.firm_G[state]
        one_first = torch.where(need > 0, need - firm, NEVER).amin(-1) + firm.sum(-1)
        steps = torch.minimum(one_first, self.tables.loose_G[state].sum(-1))
        return torch.where((need > 0).any(-1), steps, 0)

    def choose(self, total_BkV: Tensor, written: Written) -> Choice:
        B, k, V = total_BkV.shape
        state_BkC = self.state_NC.view(B, k, -1)
        total_BkV = total_BkV.clone()
        total_BkV[:, :, END].masked_fill_(self._left(state_BkC) > 0, -torch.inf)
        total_BC = total_BkV.flatten(1)
        place_BX, real_BX = self._candidates(total_BkV, state_BkC)
        score_BX = total_BC.gather(1, place_BX).masked_fill(~real_BX, -torch.inf)
        parent_BX, token_BX = place_BX // V, place_BX % V
        before_BXC = state_BkC.gather(1, parent_BX[:, :, None].expand(-1, -1, state_BkC.shape[2]))
        automaton_BXC = self.automaton_NC.view(B, k, -1)[:, :1].expand_as(before_BXC)
        after_BXC = self._after(automaton_BXC, before_BXC, token_BX)
        room_B1 = (written.limit_B - written.t - 1)[:, None]
        late_BX = self._steps(after_BXC) > room_B1
        order_Bc = allocate(score_BX, self._left(after_BXC), late_BX, min(2 * k, k * V))
        place_Bc, possible_Bc = place_BX.gather(1, order_Bc), score_BX.gather(1, order_Bc) > -torch.inf
        ends_Bc = place_Bc % V == END
        closed_Bc = ends_Bc & possible_Bc
        if not self.every_end:
            closed_Bc[:, k:] = False
        last_Bc = (ends_Bc | ~possible_Bc).int()
        living_Bk = last_Bc.argsort(dim=1, stable=True)[:, :k]
        alive_Bk = (possible_Bc & ~ends_Bc).gather(1, living_Bk)
        return Choice(place_Bc.gather(1, living_Bk), alive_Bk, place_Bc, closed_Bc)

    def _candidates(self, total_BkV: Tensor, state_BkC: Tensor) -> tuple[Tensor, Tensor]:
        """Places in k·V; and which of them count: each once.

        The 2k best of all; of each prefix its best few; and what goes on with each phrase or begins it anew.
        """
        _, k, V = total_BkV.shape
        first_k1 = torch.arange(k, device=total_BkV.device)[:, None] * V
        best_Bc = total_BkV.flatten(1).topk(min(2 * k, k * V), dim=1).indices
        each_BkE = total_BkV.topk(min(EACH, V), dim=2).indices + first_k1
        token_BkP = self.tables.token_GR[state_BkC].flatten(2)
        wanted_BkP = torch.where(token_BkP == NO_TOKEN, k * V, token_BkP + first_k1)
        place_BX = torch.cat([best_Bc, each_BkE.flatten(1), wanted_BkP.flatten(1)], dim=1).sort(dim=1).values
        real_BX = place_BX < k * V
        real_BX[:, 1:] &= place_BX[:, 1:] != place_BX[:, :-1]
        return place_BX.clamp(max=k * V - 1), real_BX


def _tables(parts: Sequence[Forbidden | Required | None], vocabulary: int, device: torch.device) -> Tables:
    """Part 0 is None: an automaton of one state that asks for nothing."""
    zero = np.zeros(1, dtype=np.int64)
    nothing = Automaton(zero[:, None].astype(np.int32), np.zeros(vocabulary, dtype=np.int32), zero, zero)
    automata = [nothing if part is None else part.automaton for part in parts]
    sizes = [(len(each.next_SK), each.next_SK.shape[1]) for each in automata]
    firsts = np.cumsum([0, *(states for states, _ in sizes)])[:-1].tolist()
    begins = np.cumsum([0, *(states * kinds for states, kinds in sizes)])[:-1].tolist()
    rows = [begin + np.arange(states) * kinds for begin, (states, kinds) in zip(begins, sizes, strict=True)]
    flat = [(each.next_SK + first).ravel() for each, first in zip(automata, firsts, strict=True)]
    forbids = [_of_forbidden(part, states) for part, (states, _) in zip(parts, sizes, strict=True)]
    ways = max((part.token_SR.shape[1] for part in parts if type(part) is Required), default=1)
    requires = [_of_required(part, states, ways) for part, (states, _) in zip(parts, sizes, strict=True)]

    def joined(arrays: Iterable[NDArray[Any]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays))).to(device)

    return Tables(
        row_G=joined(rows),
        next=joined(flat),
        kind_AV=joined(each.kind_V[None] for each in automata),
        may_end_G=joined(each[0] for each in forbids),
        need_to_end_G=joined(each[1] for each in forbids),
        worst_G=joined(each[2] for each in forbids),
        need_G=joined(each[0] for each in requires),
        firm_G=joined(each[1] for each in requires),
        loose_G=joined(each[2] for each in requires),
        token_GR=joined(each[3] for each in requires),
        blocks=tuple((first, *size) for first, size in zip(firsts, sizes, strict=True)),
    )


def _of_forbidden(part: Forbidden | Required | None, states: int) -> tuple[NDArray[Any], ...]:
    """`may_end_G`, `need_to_end_G`, `worst_G`."""
    zero = np.zeros(states, dtype=np.int64)
    match part:
        case Forbidden(automaton, need_S):
            may_end_S = automaton.end_S != FOUND
            return may_end_S, need_S, np.where(may_end_S, need_S[automaton.next_SK].max(1), NEVER)
        case _:
            return zero == 0, zero, zero


def _of_required(part: Forbidden | Required | None, states: int, ways: int) -> tuple[NDArray[Any], ...]:
    """`need_G`, `firm_G`, `loose_G`, `token_GR`."""
    zero, no_token = np.zeros(states, dtype=np.int64), np.full((states, ways), NO_TOKEN, dtype=np.int64)
    match part:
        case Required(_, need_S, firm_S, loose_S, token_SR):
            no_token[:, : token_SR.shape[1]] = token_SR
            return need_S, firm_S, loose_S, no_token
        case _:
            return zero, zero, zero, no_token
