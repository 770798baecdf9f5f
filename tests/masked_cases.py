"""The list of masked language models that the laws are proved for; tests/contract/test_models.py holds it complete."""

from dataclasses import dataclass
from typing import Any

import torch

from saccade.config import parse, parse_yaml
from saccade.data.masking import MASK
from saccade.models.build import build_masked
from saccade.models.masked import MaskedConfig, MaskedModel
from saccade.types import END, PAD, Batch, Tokens

VOCABULARY = 13

RECIPES = """
transformer, BERT's, pairs:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, norm: post, activation: gelu, positions: learned, places: 9,
     segments: 2, scale_embedding: false, norm_embedding: true}
  next_sentence: true
transformer, plain head, pretrained vectors:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2}
  head: {kind: plain}
  vectors: {path: vectors.txt}
transformer, sinusoidal, three segments, pairs:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, segments: 3}
  head: {kind: dense, activation: relu}
  tie: none
  next_sentence: true
transformer, alibi, segments alone are added:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: alibi, segments: 2}
  head: {kind: dense, activation: gelu-tanh}
transformer, rotary, windowed:
  encoder: {kind: transformer, layers: 2, width: 8, heads: 2, positions: rotary, pattern: {kind: window, width: 2}}
  head: {kind: dense, activation: swish}
  next_sentence: true
lstm, narrow tokens, tied by the head, pairs:
  encoder: {kind: lstm, layers: 2, width: 6, embedding: 4, scale_embedding: true}
  next_sentence: true
gru, plain head, untied:
  encoder: {kind: gru, width: 6, embedding: 5, reverse: true}
  head: {kind: plain}
  tie: none
elman, residual:
  encoder: {kind: elman, layers: 2, width: 6, embedding: 4, stack: residual}
lstmn:
  encoder: {kind: lstmn, width: 6}
"""


@dataclass(frozen=True)
class MaskedCase:
    name: str
    config: MaskedConfig

    def build(self, seed: int = 0) -> MaskedModel:
        """In evaluation mode, with no weight left at the 0 or 1 it may begin with."""
        torch.manual_seed(seed)
        model = build_masked(self.config, VOCABULARY)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    def batch(self) -> Batch:
        return blanks(pairs=self.config.next_sentence)


def blanks(*, pairs: bool) -> Batch:
    """Texts of unlike lengths, some tokens of which are to be predicted; a blank is not always a mask."""
    rows = [
        ([5, MASK, 7, END, MASK, 11, END], [PAD, 6, PAD, PAD, 8, PAD, 1]),
        ([MASK, END, 4, END], [9, PAD, PAD, 2]),
        ([6, 8, 12, END, 10, 4, 5, MASK, END], [PAD, 8, 7, PAD, PAD, PAD, PAD, 9, 2]),
        ([MASK, 5, 6, END, 9, END], [4, PAD, PAD, PAD, PAD, 1]),
    ]
    if not pairs:
        rows = [(source, [*target[:-1], PAD]) for source, target in rows]
    return Batch(Tokens.of([source for source, _ in rows]), Tokens.of([target for _, target in rows]))


def every_masked_model() -> list[MaskedCase]:
    recipes: dict[str, dict[str, Any]] = parse_yaml(RECIPES, "masked language models")
    return [MaskedCase(name, parse(MaskedConfig, tree, name)) for name, tree in recipes.items()]


def name_of(case: MaskedCase) -> str:
    return case.name
