"""The same output whatever the batch: a token budget decides how fast lines are answered, not what the answer is.

On the CPU in float32: equal tokens, and log-probabilities that differ by less than TOLERANCE. Sums over a batch are
taken in another order than over a single row, so the last digits are not the same.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from saccade.data.streams import StreamsConfig, WindowsConfig
from saccade.decode.settings import DecodeConfig
from saccade.likelihood import Reader
from saccade.lines import Source, Translation
from saccade.text import TextPair
from saccade.translate import Engine
from tests.cases import SOURCE_LENGTHS, TranslatorCase, every_translator, name_of
from tests.language_cases import VOCABULARY, LanguageCase, every_language_model
from tests.language_cases import name_of as name_of_language_model

TOLERANCE = 1e-4
BUDGETS = (1, 14, 100_000)
"""Source tokens at once: from one line by itself to all of them."""
CPU = torch.device("cpu")
TEXT = cast(TextPair, SimpleNamespace(target=SimpleNamespace(decode=lambda ids: " ".join(map(str, ids)))))


@dataclass(frozen=True)
class GivenTokens(Engine):
    """An engine whose lines are tokens already."""

    sources: tuple[Source, ...] = ()

    def read(self, lines: object, *, first: int = 1) -> list[Source]:
        return list(self.sources)


def sources_of(case: TranslatorCase) -> tuple[Source, ...]:
    made = []
    for seed in range(2):
        side = case.sources(SOURCE_LENGTHS, seed)
        for b, length in enumerate(SOURCE_LENGTHS):
            parse = None
            if side.parse is not None:
                parse = torch.stack([side.parse.words[b, :length], side.parse.heads[b, :length]], dim=1).numpy()
            made.append(Source(f"{seed} {b}", side.ids[b, :length].tolist(), parse, cut=False))
    return tuple(made)


def outputs(found: list[Translation]) -> list[list[tuple[tuple[int, ...], bool]]]:
    return [[(each.tokens, each.ended) for each in one.hypotheses] for one in found]


GREEDY, BEAM = DecodeConfig(beam=1, max_length=6), DecodeConfig(beam=3, n_best=3, max_length=6)
SOME, MORE = every_translator()[::8], every_translator()[::4]
"""That sentences are decoded as they are alone is in test_decode_models.py, for all; here it is who is beside whom."""


@pytest.mark.parametrize(
    ("case", "config"),
    [*((case, BEAM) for case in MORE), *((case, GREEDY) for case in SOME)],
    ids=[*(f"{name_of(case)}-beam" for case in MORE), *(f"{name_of(case)}-greedy" for case in SOME)],
)
def test_lines_are_translated_alike_whatever_the_budget(case: TranslatorCase, config: DecodeConfig) -> None:
    sources = sources_of(case)
    engine = GivenTokens(case.build(), TEXT, CPU, sources=sources)
    lines = [source.text for source in sources]
    alone = engine.translate(lines, config, BUDGETS[0])
    assert [each.source for each in alone] == lines
    for budget in BUDGETS[1:]:
        found = engine.translate(lines, config, budget)
        assert [each.source for each in found] == lines
        assert outputs(found) == outputs(alone), f"at {budget} tokens"
        assert log_probabilities(found) == pytest.approx(log_probabilities(alone), abs=TOLERANCE)


def log_probabilities(found: list[Translation]) -> list[float]:
    return [p for one in found for each in one.hypotheses for p in each.token_log_probabilities]


@pytest.mark.parametrize("case", every_language_model(), ids=name_of_language_model)
def test_texts_are_scored_alike_whatever_the_budget(case: LanguageCase) -> None:
    read = StreamsConfig(steps=6) if case.config.decoder.kind != "transformer" else WindowsConfig(length=8)
    reader = Reader(case.build(), read, CPU)
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(4, VOCABULARY, (length,), generator=generator).tolist() for length in (5, 1, 8, 3, 3, 0, 7)]
    alone = reader.rows(rows, 1)
    for budget in BUDGETS[1:]:
        for one, other in zip(alone, reader.rows(rows, budget), strict=True):
            assert one == pytest.approx(other, abs=TOLERANCE)
