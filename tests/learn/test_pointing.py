"""Mechanisms that choose a source token learn where to point: hard attention, copying, and places alone."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.decode.greedy import greedy
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.types import END, Batch, Tokens

FIRST, WORDS, LENGTH = 4, 20, 4
KNOWN = 10
"""Words that training has seen; the rest are for the test of copying."""


@dataclass(frozen=True)
class Case:
    attention: dict[str, Any]
    updates: int = 150
    decoder: dict[str, Any] | None = None
    unseen: bool = False
    """Test with words that were never a target."""


CASES = {
    "hard": Case({"score": "general", "hard": {"entropy": 0.01}}, updates=150),
    "hard, fed": Case({"score": "general", "hard": {"entropy": 0.01}}, updates=180, decoder={"feed_input": True}),
    "pointer": Case({"score": "location", "places": 8, "pointer": True}, unseen=True),
    "location": Case({"score": "location", "places": 8}),
    "local-m": Case({"score": "general", "scope": "local-m", "window": 1}),
    "local-p": Case({"score": "general", "scope": "local-p", "window": 2}),
    "Bahdanau's": Case({"query": "previous", "readout": "maxout"}),
    "coverage": Case({"coverage": 1.0}),
    "scheduled sampling": Case(
        {"score": "general"}, updates=200, decoder={"sampling": {"kind": "inverse-sigmoid", "speed": 30.0}}
    ),
}


def build(case: Case) -> Translator:
    tree = {
        "encoder": {"kind": "gru", "width": 32, "embedding": 16},
        "decoder": {"kind": "gru", "width": 32, "bridge": "zero", "attention": case.attention} | (case.decoder or {}),
    }
    torch.manual_seed(0)
    vocabulary = FIRST + WORDS
    return build_translator(TranslatorConfig.model_validate(tree), vocabulary, vocabulary)


def pairs(rows: int, words: range) -> Batch:
    """The target is the source."""
    drawn: Tensor = torch.randint(FIRST + words.start, FIRST + words.stop, (rows, LENGTH))
    lines = [[*row, END] for row in drawn.tolist()]
    return Batch(Tokens.of(lines), Tokens.of(lines))


def train(model: Translator, updates: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, 2 * (1 - update / (updates + 1)))
        model.at_update(update)
        loss = model.loss(pairs(48, range(KNOWN)))
        optimizer.zero_grad()
        (loss.total / loss.tokens).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@pytest.mark.parametrize("name", CASES)
def test_it_learns_to_copy(name: str) -> None:
    case = CASES[name]
    model = build(case).train()
    torch.manual_seed(1)
    train(model, case.updates)
    model.eval()
    batch = pairs(200, range(KNOWN, WORDS) if case.unseen else range(KNOWN))
    state = model.start(model.encode(batch.source), LENGTH + 1)
    found = greedy(model.step, state, limits=[LENGTH + 1] * 200)
    right = sum(
        [*hypotheses[0].tokens, END] == row for hypotheses, row in zip(found, batch.target.ids.tolist(), strict=True)
    )
    assert right >= 180, f"{right} of 200"
