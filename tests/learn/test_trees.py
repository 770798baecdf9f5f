"""With places in a dependency tree an encoder learns what the tree alone tells: which word each word hangs on."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.data.parses import on_tokens
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.types import END, Tokens

FIRST, WORDS, LENGTH, ROWS = 4, 12, 7, 32
UPDATES = 120


class Reader(nn.Module):
    """The head of each word, by its name; a root names itself."""

    def __init__(self, **settings: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        config = TransformerConfig.model_validate({"layers": 2, "width": 32, "heads": 2, "dropout": 0.0} | settings)
        self.encoder = TransformerEncoder(config, FIRST + WORDS)
        self.out = nn.Linear(config.width, FIRST + WORDS)

    def forward(self, source: Tokens) -> Tensor:
        logits: Tensor = self.out(self.encoder(source).memory[:, :-1])
        return logits


def drawn(random: np.random.Generator) -> tuple[Tokens, Tensor]:
    """Random words in random trees, and the head of each."""
    names = random.integers(FIRST, FIRST + WORDS, (ROWS, LENGTH))
    heads = [random_heads(random) for _ in range(ROWS)]
    gold = [
        [row[head - 1 if head else place] for place, head in enumerate(tree)]
        for row, tree in zip(names.tolist(), heads, strict=True)
    ]
    parses = [on_tokens(tuple(tree), range(LENGTH)) for tree in heads]
    return Tokens.of([[*row, END] for row in names.tolist()], parses), torch.tensor(gold)


def random_heads(random: np.random.Generator) -> list[int]:
    """Each word hangs on one that was placed before it, in a random order."""
    order, above = random.permutation(LENGTH).tolist(), random.random(LENGTH).tolist()
    heads = [0] * LENGTH
    for at in range(1, LENGTH):
        heads[order[at]] = order[int(above[at] * at)] + 1
    return heads


def share_right(**settings: str) -> float:
    reader, random = Reader(**settings), np.random.default_rng(1)
    optimizer = torch.optim.Adam(reader.parameters(), lr=3e-3)
    for _ in range(UPDATES):
        source, gold_BT = drawn(random)
        loss = F.cross_entropy(reader(source).flatten(0, 1), gold_BT.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    reader.eval()
    with torch.no_grad():
        source, gold_BT = drawn(random)
        return float((reader(source).argmax(-1) == gold_BT).float().mean())


@pytest.mark.parametrize("tree", ["relative", "both"])
def test_relations_in_the_tree_tell_the_head(tree: str) -> None:
    assert share_right(positions="tree", tree=tree) > 0.95


def test_depths_alone_tell_some_of_it_and_places_on_the_line_nothing() -> None:
    assert share_right(positions="tree", tree="absolute") > 0.5
    assert share_right(positions="sinusoidal") < 0.35
