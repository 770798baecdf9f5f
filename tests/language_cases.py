"""The list of language models that the laws are proved for; tests/contract/test_models.py holds it complete."""

from dataclasses import dataclass
from typing import Any

import torch

from saccade.config import parse, parse_yaml
from saccade.models.build import build_language_model
from saccade.models.language_model import LanguageModel, LanguageModelConfig
from saccade.types import START, Batch, Tokens
from tests.cases import tokens

VOCABULARY = 13
LENGTHS = (5, 7, 1, 3)

RECIPES = """
window, the paper's:
  decoder: {kind: window, order: 4, width: 7, embedding: 5, direct: true}
window, no direct connections, tied, pretrained vectors:
  decoder: {kind: window, order: 3, width: 6}
  tie: output
  vectors: {path: vectors.txt}
window of one token:
  decoder: {kind: window, order: 2, width: 6, embedding: 4, dropout: 0.2}
elman, Mikolov's:
  decoder: {kind: elman, width: 6, embedding: 5, cell: {activation: logistic}}
lstm, Zaremba's:
  decoder: {kind: lstm, layers: 2, width: 6, dropout: 0.5, uniform: 0.3}
lstm, AWD:
  decoder:
    {kind: lstm, layers: 3, width: 9, last_width: 5, embedding: 5, dropout: 0.25, input_dropout: 0.4,
     output_dropout: 0.4, locked: true, weight_dropout: 0.5, embedding_dropout: 0.1, activation_penalty: 2.0,
     change_penalty: 1.0, uniform: width}
  tie: output
gru, residual, narrow tokens:
  decoder: {kind: gru, layers: 2, width: 6, embedding: 4, stack: residual, change_penalty: 0.5, uniform: width}
lstm, tied, scaled:
  decoder: {kind: lstm, layers: 2, width: 6, scale_embedding: true}
  tie: output
gru, narrow last layer, tied, reset before:
  decoder: {kind: gru, layers: 2, width: 7, last_width: 4, embedding: 4, cell: {reset: before}, output_dropout: 0.3}
  tie: output
lstm, peepholes, dense:
  decoder: {kind: lstm, layers: 3, width: 5, stack: dense, cell: {peepholes: true}, activation_penalty: 0.5}
lstmn:
  decoder: {kind: lstmn, width: 6, embedding: 5}
lstmn, two unlike layers:
  decoder: {kind: lstmn, layers: 2, width: 6, last_width: 4, input_dropout: 0.1}
transformer, tied:
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2}
  tie: output
transformer, GPT-2's:
  decoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, activation: gelu-tanh, positions: learned, places: 9,
     scale_embedding: false, attention_dropout: 0.1}
transformer, rotary, windowed:
  decoder: {kind: transformer, layers: 2, width: 8, heads: 2, positions: rotary, pattern: {kind: window, width: 2}}
"""


@dataclass(frozen=True)
class LanguageCase:
    name: str
    config: LanguageModelConfig

    def build(self, seed: int = 0) -> LanguageModel:
        """In evaluation mode, with no weight left at the 0 or 1 it may begin with."""
        torch.manual_seed(seed)
        model = build_language_model(self.config, VOCABULARY)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    @property
    def carries(self) -> bool:
        """What a chunk makes of a text does not depend on where the chunk before it ended."""
        return self.config.decoder.kind not in ("transformer", "lstmn")


def sentences(lengths: tuple[int, ...] | list[int] = LENGTHS, seed: int = 0) -> Batch:
    """Texts from their beginning: START and all but the last token, and what follows each."""
    target = tokens(lengths, VOCABULARY, seed)
    rows = [row[:length] for row, length in zip(target.ids.tolist(), lengths, strict=True)]
    return Batch(Tokens.of([[START, *row[:-1]] for row in rows]), target)


def every_language_model() -> list[LanguageCase]:
    recipes: dict[str, dict[str, Any]] = parse_yaml(RECIPES, "language models")
    return [LanguageCase(name, parse(LanguageModelConfig, tree, name)) for name, tree in recipes.items()]


def name_of(case: LanguageCase) -> str:
    return case.name
