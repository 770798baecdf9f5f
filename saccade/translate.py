"""Lines in, lines out: tokenise, search, put back into words. One line in is one line out, whatever it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from saccade.data.lengths import alike
from saccade.data.parses import Heads, on_tokens, read_line
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import UsageError
from saccade.models.translator import Translator
from saccade.text import TextPair
from saccade.types import END, Hypothesis, State, Step, Tokens

MAX_SOURCE_TOKENS = 1024
MAX_HYPOTHESES = 1024
"""Hypotheses searched side by side, whatever the token budget: each needs a row of logits as wide as the vocabulary."""
CHARACTERS_PER_TOKEN = 32
"""Of a line at most max_source × this many characters are tokenised, so that a line of 10 MB costs next to nothing."""


@dataclass(frozen=True)
class Output:
    """One hypothesis as text."""

    text: str
    score: float
    log_probability: float
    tokens: tuple[int, ...]
    token_log_probabilities: tuple[float, ...]
    ended: bool


@dataclass(frozen=True)
class Translation:
    """All that came of one line, best first."""

    source: str
    """The line; without its parse, where it came with one."""
    hypotheses: tuple[Output, ...]
    cut: bool = False
    """The line had more tokens than are read; the rest was left out."""

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score


@dataclass(frozen=True)
class Source:
    """A line as the model reads it."""

    text: str
    ids: list[int]
    """END is the last."""
    parse: NDArray[Any] | None
    """Word and head of each id (`types.Parse`), for a model that reads dependency trees."""
    cut: bool
    """There was more of it than is read."""


def as_tokens(sources: Sequence[Source]) -> Tokens:
    parses = [source.parse for source in sources if source.parse is not None]
    return Tokens.of([source.ids for source in sources], parses or None)


@dataclass(frozen=True)
class Engine:
    """A model and its tokenizers, ready to translate."""

    model: Translator
    text: TextPair
    device: torch.device
    max_source: int = MAX_SOURCE_TOKENS

    def translate(
        self, lines: Sequence[str], config: DecodeConfig, batch_tokens: int = 4096, *, first: int = 1
    ) -> list[Translation]:
        """Translations in the order of the lines; an empty line gives an empty one without asking the model.

        A model that reads dependency trees wants them in the lines, see `read`; `first` is the first line's number.
        """
        sources = self.read(lines, first=first)
        done: list[Translation] = [Translation(source.text, (_NOTHING,)) for source in sources]
        asked = [i for i, source in enumerate(sources) if source.text]
        lengths = [len(source.ids) for source in sources]
        for rows in alike(asked, lengths, batch_tokens, most=MAX_HYPOTHESES // config.beam):
            found = self._search([sources[i] for i in rows], config)
            for i, hypotheses in zip(rows, found, strict=True):
                outputs = tuple(self._output(hypothesis) for hypothesis in hypotheses)
                done[i] = Translation(sources[i].text, outputs, cut=sources[i].cut)
        return done

    def read(self, lines: Sequence[str], *, first: int = 1) -> list[Source]:
        """Lines as tokens. Where the model reads dependency trees, each line is its text, a tab, and its heads."""
        heads = None
        if self.model.reads_parse:
            both = [_parsed(line, number) for number, line in enumerate(lines, start=first)]
            lines, heads = [text for text, _ in both], [each for _, each in both]
        read = [line[: self.max_source * CHARACTERS_PER_TOKEN] for line in lines]
        encoded = self.text.source.encode_batch(read)
        sources = []
        for i, ids in enumerate(encoded):
            kept = ids[: self.max_source]
            parse = None if heads is None else on_tokens(heads[i], self.text.source.word_places(read[i], kept))
            cut = len(kept) < len(ids) or len(read[i]) < len(lines[i])
            sources.append(Source(lines[i], [*kept, END], parse, cut))
        return sources

    @torch.inference_mode()
    def _search(self, sources: list[Source], config: DecodeConfig) -> list[list[Hypothesis]]:
        limits = [config.limit(len(source.ids)) for source in sources]
        step, state = self.begin(sources, max(limits))
        return search(step, state, limits=limits, config=config)

    def begin(self, sources: Sequence[Source], max_steps: int) -> tuple[Step, State]:
        """What every search goes on from: the step function, and the state with one hypothesis a source."""
        encoded = self.model.encode(as_tokens(sources).to(self.device))
        return self.model.step, self.model.start(encoded, max_steps)

    def _output(self, hypothesis: Hypothesis) -> Output:
        # A line break is never part of a line: where a model writes one, the line contract wins. Many readers take a
        # carriage return for one, too.
        text = self.text.target.decode(hypothesis.tokens).replace("\n", " ").replace("\r", " ")
        return Output(
            text,
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.tokens,
            hypothesis.token_log_probabilities,
            hypothesis.ended,
        )


def _parsed(line: str, number: int) -> tuple[str, Heads]:
    try:
        return read_line(line)
    except ValueError as error:
        raise UsageError(
            f"line {number} ({line[:40]!r}): {error}. The model reads dependency trees (model.encoder.positions is "
            "tree): give each line as its text, a tab, and for each word the place of its head, 0 for the root."
        ) from None


_NOTHING = Output("", 0.0, 0.0, (), (), ended=True)
