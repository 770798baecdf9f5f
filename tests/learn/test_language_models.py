"""What gates and states are for: a symbol recalled from far back, and brackets closed in the order they were opened."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from saccade.models.build import build_language_model
from saccade.models.language_model import LanguageModel, LanguageModelConfig
from saccade.types import PAD, START, Batch, Tokens

FIRST = 4


def train(decoder: dict[str, Any], vocabulary: int, draw: Callable[[int], Batch], updates: int) -> LanguageModel:
    torch.manual_seed(0)
    model = build_language_model(LanguageModelConfig.model_validate({"decoder": decoder}), vocabulary).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(1.0, 2 * (1 - update / updates))
        loss = model.loss(draw(update))
        optimizer.zero_grad()
        torch.autograd.backward(loss.total / loss.tokens)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def read(texts: list[list[int]]) -> Tokens:
    return Tokens.of([[START, *text[:-1]] for text in texts])


# ---- recall at a distance

SYMBOLS, FILLERS, DISTANCE = 4, 4, 40
ASK = FIRST + SYMBOLS + FILLERS


def recall(seed: int) -> Batch:
    """A symbol, so many fillers drawn at random, and the question which symbol it was: that alone is to be learned."""
    draw = np.random.default_rng(seed)
    symbol = draw.integers(FIRST, FIRST + SYMBOLS, 32)
    fillers = draw.integers(FIRST + SYMBOLS, ASK, (32, DISTANCE))
    texts = [[one, *rest, ASK, one] for one, rest in zip(symbol.tolist(), fillers.tolist(), strict=True)]
    return Batch(read(texts), Tokens.of([[PAD] * (len(text) - 1) + [text[-1]] for text in texts]))


def recalled(decoder: dict[str, Any], updates: int) -> float:
    model = train(decoder, ASK + 1, recall, updates)
    right = []
    for seed in range(10_000, 10_008):
        asked = recall(seed)
        with torch.no_grad():
            right.append(model(asked.source)[:, -1].argmax(-1) == asked.target.ids[:, -1])
    return float(torch.cat(right).float().mean())


def test_an_lstm_recalls_what_an_elman_network_has_forgotten() -> None:
    """Over 40 tokens. The forget gate begins open, at σ(3) = 0.95; there is nothing an Elman network could open."""
    assert recalled({"kind": "lstm", "width": 32, "embedding": 16, "cell": {"forget_bias": 3.0}}, 250) > 0.95
    assert recalled({"kind": "elman", "width": 32, "embedding": 16}, 400) < 0.5


# ---- nested brackets

KINDS, DEEPEST, PAIRS = 3, 5, 12


def brackets(seed: int) -> list[list[int]]:
    """Brackets of several kinds, opened and closed in order; opened at random as long as there is room."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(32):
        text, open_now, left = list[int](), list[int](), PAIRS
        while left or open_now:
            if left and len(open_now) < DEEPEST and (not open_now or draw.random() < 0.55):
                open_now.append(int(draw.integers(KINDS)))
                text.append(FIRST + open_now[-1])
                left -= 1
            else:
                text.append(FIRST + KINDS + open_now.pop())
        texts.append(text)
    return texts


def closed(decoder: dict[str, Any], updates: int) -> float:
    """Of all closing brackets, how often the model says the right one, given that one is closed."""
    model = train(
        decoder, FIRST + 2 * KINDS, lambda seed: Batch(read(brackets(seed)), Tokens.of(brackets(seed))), updates
    )
    texts = [text for seed in range(10_000, 10_008) for text in brackets(seed)]
    with torch.no_grad():
        logits = model(read(texts))[:, :, FIRST + KINDS :]
    found = (logits.argmax(-1) + FIRST + KINDS).tolist()
    right = [
        guess == token
        for row, text in zip(found, texts, strict=True)
        for guess, token in zip(row, text, strict=True)
        if token >= FIRST + KINDS
    ]
    return float(np.mean(right))


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_recurrent_network_closes_nested_brackets(kind: str) -> None:
    assert closed({"kind": kind, "width": 64, "embedding": 16}, 350) > 0.97


def test_a_window_does_not_see_where_a_bracket_was_opened() -> None:
    """It is right where that lies within its four tokens, and else it guesses among three."""
    assert closed({"kind": "window", "order": 5, "width": 64, "embedding": 16}, 350) < 0.9
