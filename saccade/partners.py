"""Who decides with a translator at every step: other translators (an ensemble), and a language model (fusion).

Shapes: N hypotheses, T tokens, L tokens of a language model's window, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.data.streams import WindowsConfig
from saccade.decode.ensemble import Mix, ensemble, fused
from saccade.errors import UsageError
from saccade.generate import Engine as Writer
from saccade.lines import Source
from saccade.models.language_model import LanguageModel
from saccade.text import Tokenizer
from saccade.translate import Engine
from saccade.types import END, START, State, Step


@dataclass(frozen=True)
class Partners:
    """Beside the model that they are partners of, which is the first member."""

    members: tuple[Engine, ...] = ()
    weights: tuple[float, ...] | None = None
    """One each, that of the first model first."""
    mix: Mix = "log-linear"
    language_model: Writer | None = None
    lm_weight: float = 0.0

    @property
    def reads_parse(self) -> bool:
        return any(member.reads_parse for member in self.members)

    @property
    def normalised(self) -> bool:
        return self.language_model is None or self.lm_weight == 0.0

    def begin(
        self, own: tuple[Step, State], sources: Sequence[Source], max_steps: int, *, forced: bool
    ) -> tuple[Step, State]:
        """Each member reads the lines by its own source tokenizer. How much is read and written, the first one says."""
        others = [member.begin(member.reread(sources), max_steps, forced=forced) for member in self.members]
        together = ensemble([own, *others], weights=self.weights, mix=self.mix)
        if self.language_model is None or self.normalised:
            return together
        prior = begin_writing(self.language_model, len(sources), max_steps, forced=forced)
        return fused(together, prior, weight=self.lm_weight)

    def own(self, state: State) -> State:
        for several in (not self.normalised, bool(self.members)):
            state = State(state.source[0], state.hypothesis[0]) if several else state
        return state


def begin_writing(writer: Writer, rows: int, max_steps: int, *, forced: bool = False) -> tuple[Step, State]:
    """A language model as translators are stepped: they begin with START, a text begins behind END.

    One that was trained on windows has learnt of no places beyond: where an output may get longer, see `_Windowed`.
    """
    model, read = writer.model, writer.read
    if isinstance(read, WindowsConfig) and max_steps > read.length:
        windowed = _Windowed(model, read.length)
        return windowed.prefill if forced else windowed.step, windowed.start(rows)
    walk = model.prefill if forced else model.step
    return lambda last, state: walk(_behind_end(last), state), model.start(rows, max_steps)


def _behind_end(ids: Tensor) -> Tensor:
    return torch.where(ids == START, END, ids)


@dataclass(frozen=True)
class _Windowed:
    """A language model that looks back on at most L tokens: where the window is full, its later half is read anew.

    As `generate` does it. All hypotheses of a search have come equally far, so their windows are full together.
    """

    model: LanguageModel
    length: int

    def start(self, rows: int) -> State:
        state = self.model.start(rows, self.length)
        device = self.model.output.weight.device
        tokens_NL = torch.zeros(rows, self.length, dtype=torch.long, device=device)
        seen_N = torch.zeros(rows, dtype=torch.long, device=device)
        return State(state.source, {"own": state.hypothesis, "tokens": tokens_NL, "seen": seen_N})

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        logits_N1V, state = self.prefill(last_N[:, None], state)
        return logits_N1V[:, 0], state

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        rows, T = prefix_NT.shape
        given_NT = _behind_end(prefix_NT)
        tokens_NL, own = state.hypothesis["tokens"], State(state.source, state.hypothesis["own"])
        seen = int(state.hypothesis["seen"][0]) if rows else 0
        found, begin = [], 0
        while begin < T:
            if seen == self.length:
                kept = max(1, self.length // 2) - 1  # with the next one, half of the window
                own, tokens_NL = self.model.start(rows, self.length), tokens_NL.roll(kept, 1)
                if kept:
                    _, own = self.model.prefill(tokens_NL[:, :kept], own)
                seen = kept
            some_NT = given_NT[:, begin : begin + self.length - seen]
            logits_NTV, own = self.model.prefill(some_NT, own)
            found.append(logits_NTV)
            tokens_NL[:, seen : seen + some_NT.shape[1]] = some_NT
            seen, begin = seen + some_NT.shape[1], begin + some_NT.shape[1]
        seen_N = torch.full_like(state.hypothesis["seen"], seen)
        hypothesis = {"own": own.hypothesis, "tokens": tokens_NL, "seen": seen_N}
        return torch.cat(found, dim=1), State(own.source, hypothesis)


# ---- who may be a partner


def check_vocabulary(own: Tokenizer, other: Tokenizer, names: tuple[str, str]) -> None:
    """A UsageError where a token id does not mean the same to both: the first that differs is named."""
    one, two = own.model.pieces(), other.model.pieces()
    differs = next((n for n, (mine, theirs) in enumerate(zip(one, two, strict=False)) if mine != theirs), None)
    if differs is None and len(one) == len(two):
        return
    here, there = names
    if differs is None:
        told = f"{here} has {len(one):,} target tokens, {there} {len(two):,}"
    else:
        told = f"token {differs} is {one[differs]!r} in {here} and {two[differs]!r} in {there}"
    raise UsageError(
        f"{there}: does not share the target vocabulary of {here}: {told}. Models decide together where token ids mean "
        "the same to them: train them on the same text with the same settings of `text`, or take the tokenizer of the "
        "other run (text.kind run, for a language model)."
    )


def check_closes_lines(writer: Writer, name: str) -> None:
    """A UsageError where END of a language model means another thing than that of a translator."""
    if writer.ends != "line":
        raise UsageError(
            f"{name}: its END closes a {writer.ends} (data.ends), a translator's closes a line. Train the language "
            "model with ends: line, or rank whole outputs by it."
        )
