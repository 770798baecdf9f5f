"""Which tokens may be chosen at a step: the one place that greedy decoding and beam search both ask.

Shapes: B sentences, k hypotheses of each, N = B·k, V vocabulary, M longest output, P longest prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.decode.control import Control, Written
from saccade.decode.scores import allowed_log_probabilities
from saccade.types import END, PAD

FREE = -1
"""Stands in a row of prefixes where nothing is forced any more."""


@dataclass(frozen=True)
class Wishes:
    """What is asked of the output of each sentence beside the model's liking; where a list is empty, nothing."""

    least: Sequence[int] = ()
    """END may not be chosen before so many tokens are written; it does not count itself."""
    prefixes: Sequence[Sequence[int]] = ()
    """The output's first tokens. They are scored as all others are."""
    no_repeat_ngram: int = 0
    """No n-gram twice in an output, n being this: a token that would complete a second gets −inf. 0: not asked."""
    control: Control | None = None
    """One row a sentence."""

    @property
    def none(self) -> bool:
        """Nothing is asked of any sentence."""
        asked = any(least > 0 for least in self.least) or any(map(len, self.prefixes)) or self.no_repeat_ngram
        return not asked and self.control is None

    def rows(self, rows: Sequence[int], rows_B: Tensor) -> "Wishes":
        """Those of some sentences."""
        return replace(
            self,
            least=[self.least[b] for b in rows] if self.least else (),
            prefixes=[self.prefixes[b] for b in rows] if self.prefixes else (),
            control=None if self.control is None else self.control.keep(rows_B),
        )


@dataclass(frozen=True)
class Rules:
    """The wishes as tensors, and what is remembered of each hypothesis for them: nothing where nothing is asked."""

    t: int
    limit_B: Tensor
    least_B: Tensor | None
    least: int
    """The largest of them, known on the host."""
    prefix_BP: Tensor | None
    no_repeat_ngram: int
    control: Control | None
    tokens_NM: Tensor | None

    @staticmethod
    def of(wishes: Wishes, limits: Sequence[int], *, beam: int, device: torch.device) -> "Rules":
        least = max(wishes.least, default=0)
        forced = max((len(prefix) for prefix in wishes.prefixes), default=0)
        prefix_BP = None
        if forced:
            rows = [[*prefix, *[FREE] * (forced - len(prefix))] for prefix in wishes.prefixes]
            prefix_BP = torch.tensor(rows, device=device)
        remembers = wishes.no_repeat_ngram > 0 or wishes.control is not None
        shape = (len(limits) * beam, max(limits, default=0))
        return Rules(
            t=0,
            limit_B=torch.tensor(limits, dtype=torch.long, device=device),
            least_B=torch.tensor(wishes.least, device=device) if least > 0 else None,
            least=least,
            prefix_BP=prefix_BP,
            no_repeat_ngram=wishes.no_repeat_ngram,
            control=None if wishes.control is None else wishes.control.widen(beam),
            tokens_NM=torch.full(shape, PAD, device=device) if remembers else None,
        )

    @property
    def ask_nothing(self) -> bool:
        """Whatever the step, all that the model may say may be chosen."""
        return self.least_B is None and self.prefix_BP is None and not self.no_repeat_ngram and self.control is None

    @property
    def choose(self) -> bool:
        """Whether the survivors of a beam are theirs to choose."""
        return self.control is not None and self.control.chooses

    @property
    def written(self) -> Written:
        assert self.tokens_NM is not None  # kept wherever there is a control
        return Written(self.tokens_NM, self.t, self.limit_B)

    def log_probabilities(self, logits_NV: Tensor) -> Tensor:
        """Of each next token; −inf where it may not be chosen.

        First no n-gram twice, then the least length, then the control. Where all of them leave nothing, END may be
        chosen after all. A forced prefix has the last word: its token alone may be chosen, whatever the others say.
        """
        model_NV = allowed_log_probabilities(logits_NV)
        log_p_NV = model_NV
        if self.no_repeat_ngram and self.tokens_NM is not None and self.t >= self.no_repeat_ngram:
            log_p_NV = without_repeats(log_p_NV, self.tokens_NM[:, : self.t], self.no_repeat_ngram)
        if self.least_B is not None and self.t < self.least:
            log_p_NV = log_p_NV.clone() if log_p_NV is model_NV else log_p_NV
            log_p_NV[:, END].masked_fill_(self._each(self.least_B > self.t, len(log_p_NV)), -torch.inf)
        if self.control is not None:
            log_p_NV = self.control.mask(log_p_NV, self.written)
        if log_p_NV is not model_NV:
            log_p_NV = self._rescued(log_p_NV, model_NV)
        if self.prefix_BP is not None and self.t < self.prefix_BP.shape[1]:
            forced_N1 = self._each(self.prefix_BP[:, self.t], len(log_p_NV))[:, None]
            only_NV = torch.full_like(model_NV, -torch.inf)
            only_NV.scatter_(1, forced_N1.clamp(min=0), model_NV.gather(1, forced_N1.clamp(min=0)))
            log_p_NV = torch.where(forced_N1 == FREE, log_p_NV, only_NV)
        return log_p_NV

    def _rescued(self, log_p_NV: Tensor, model_NV: Tensor) -> Tensor:
        """Where nothing is left, END; a control has the say in this, too, and where it forbids END, what it allows."""
        stuck_N = log_p_NV.amax(-1) == -torch.inf
        if self.control is None or not (self.no_repeat_ngram or self.least_B is not None):
            log_p_NV[:, END] = torch.where(stuck_N, model_NV[:, END], log_p_NV[:, END])
            return log_p_NV
        if not stuck_N.any():
            return log_p_NV
        allowed_NV = self.control.mask(model_NV, self.written)
        end_alone_NV = torch.full_like(allowed_NV, -torch.inf)
        end_alone_NV[:, END] = model_NV[:, END]
        may_end_N1 = allowed_NV[:, END, None] > -torch.inf
        return torch.where(stuck_N[:, None], torch.where(may_end_N1, end_alone_NV, allowed_NV), log_p_NV)

    def _each(self, of_B: Tensor, rows: int) -> Tensor:
        return of_B.repeat_interleave(rows // max(len(of_B), 1))

    def advance(self, parent_N: Tensor, token_N: Tensor) -> "Rules":
        """Behind each hypothesis `parent_N[n]`, its token."""
        tokens_NM = self.tokens_NM
        if tokens_NM is not None:
            tokens_NM = tokens_NM.index_select(0, parent_N)
            tokens_NM[:, self.t] = token_N
        control = None if self.control is None else self.control.advance(parent_N, token_N)
        return replace(self, t=self.t + 1, tokens_NM=tokens_NM, control=control)

    def keep(self, rows_B: Tensor, rows_N: Tensor) -> "Rules":
        """The sentences that stay, with all of their hypotheses."""
        return replace(
            self,
            limit_B=self.limit_B[rows_B],
            least_B=None if self.least_B is None else self.least_B[rows_B],
            prefix_BP=None if self.prefix_BP is None else self.prefix_BP[rows_B],
            control=None if self.control is None else self.control.keep(rows_N),
            tokens_NM=None if self.tokens_NM is None else self.tokens_NM[rows_N],
        )


def without_repeats(log_p_NV: Tensor, tokens_NT: Tensor, n: int) -> Tensor:
    """−inf for each token that would complete an n-gram which the hypothesis has already (Paulus et al. 2018)."""
    T = tokens_NT.shape[1]
    grams_NWn = tokens_NT.unfold(1, n, 1)  # every n-gram so far
    begun_N1n = tokens_NT[:, None, T - n + 1 :]  # the n − 1 tokens that the next one would complete
    same_NW = (grams_NWn[:, :, :-1] == begun_N1n).all(-1)
    banned_NW = torch.where(same_NW, grams_NWn[:, :, -1], PAD)  # PAD is never chosen anyway
    return log_p_NV.scatter(1, banned_NW, -torch.inf)
