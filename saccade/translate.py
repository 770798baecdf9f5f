"""Lines in, lines out: tokenise, search, put back into words. One line in is one line out, whatever it holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from saccade.decode.settings import DecodeConfig, search
from saccade.models.translator import Translator
from saccade.text import TextPair
from saccade.types import END, Hypothesis, Tokens

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
class Engine:
    """A model and its tokenizers, ready to translate."""

    model: Translator
    text: TextPair
    device: torch.device
    max_source: int = MAX_SOURCE_TOKENS

    def translate(self, lines: Sequence[str], config: DecodeConfig, batch_tokens: int = 4096) -> list[Translation]:
        """Translations in the order of the lines; an empty line gives an empty one without asking the model."""
        read = [line[: self.max_source * CHARACTERS_PER_TOKEN] for line in lines]
        encoded = self.text.source.encode_batch(read)
        sources = [[*ids[: self.max_source], END] for ids in encoded]
        done: list[Translation] = [Translation(line, (_NOTHING,)) for line in lines]
        asked = [i for i, line in enumerate(lines) if line]
        for rows in _batches(asked, [len(source) for source in sources], batch_tokens, MAX_HYPOTHESES // config.beam):
            found = self._search([sources[i] for i in rows], config)
            for i, hypotheses in zip(rows, found, strict=True):
                outputs = tuple(self._output(hypothesis) for hypothesis in hypotheses)
                cut = len(encoded[i]) > self.max_source or len(read[i]) < len(lines[i])
                done[i] = Translation(lines[i], outputs, cut=cut)
        return done

    @torch.inference_mode()
    def _search(self, sources: list[list[int]], config: DecodeConfig) -> list[list[Hypothesis]]:
        limits = [config.limit(len(source)) for source in sources]
        encoded = self.model.encode(Tokens.of(sources).to(self.device))
        state = self.model.start(encoded, max(limits))
        return search(self.model.step, state, limits=limits, config=config)

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


_NOTHING = Output("", 0.0, 0.0, (), (), ended=True)


def _batches(rows: list[int], lengths: list[int], batch_tokens: int, most: int) -> Iterator[list[int]]:
    """Rows of like length together, longest first, so that what does not fit in memory fails at once."""
    batch: list[int] = []
    for row in sorted(rows, key=lambda i: -lengths[i]):
        if batch and (len(batch) >= most or (len(batch) + 1) * lengths[batch[0]] > batch_tokens):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
