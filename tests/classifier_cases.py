"""The list of classifiers that the laws are proved for; tests/contract/test_models.py holds it complete."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter

from saccade.config import parse_yaml
from saccade.models.build import build_classifier
from saccade.models.classifier import Classifier, ClassifierConfig
from saccade.models.hierarchical import HierarchicalClassifier, HierarchicalConfig
from saccade.types import END, START, UNKNOWN, Batch, Tokens

VOCABULARY, LABELS = 17, 3

RECIPES = """
bag, mean:
  {kind: sequence, encoder: {kind: bag, width: 6, dropout: 0.1, embedding_dropout: 0.1}, pooling: mean}
bag, max, deep averaging:
  {kind: sequence, encoder: {kind: bag, width: 6}, pooling: max, hidden: 5, activation: relu, dropout: 0.2}
bag, attention, given vectors:
  {kind: sequence, encoder: {kind: bag, width: 5}, pooling: attention, attention_width: 3, vectors: {path: x}}
elman, last, one way:
  {kind: sequence, encoder: {kind: elman, width: 5, bidirectional: false}, pooling: last}
lstm, last, both ends:
  {kind: sequence, encoder: {kind: lstm, width: 6, layers: 2, embedding: 4, dropout: 0.2}, pooling: last, dropout: 0.3}
lstm, max, scaled:
  {kind: sequence, encoder: {kind: lstm, width: 6, embedding: 4, scale_embedding: true}, pooling: max}
lstm, last, back to front:
  {kind: sequence, encoder: {kind: lstm, width: 5, bidirectional: false, reverse: true}, pooling: last}
gru, last, both ends, turned round:
  {kind: sequence, encoder: {kind: gru, width: 6, reverse: true, stack: residual, layers: 2}, pooling: last}
lstm, mean:
  {kind: sequence, encoder: {kind: lstm, width: 6, locked: true, dropout: 0.1, weight_dropout: 0.1}, pooling: mean}
lstm, max, InferSent's:
  {kind: sequence, pair: apart, encoder: {kind: lstm, width: 6}, pooling: max, hidden: 5}
gru, attention, apart:
  {kind: sequence, pair: apart, encoder: {kind: gru, width: 4}, pooling: attention, dropout: 0.1}
bag, apart:
  {kind: sequence, pair: apart, encoder: {kind: bag, width: 4}, pooling: mean}
lstm, attention:
  {kind: sequence, pair: joined, encoder: {kind: lstm, width: 6}, pooling: attention, hidden: 5, activation: gelu}
lstmn, attention:
  {kind: sequence, encoder: {kind: lstmn, width: 6}, pooling: attention}
transformer, BERT's:
  kind: sequence
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 2, norm: post, norm_embedding: true, activation: gelu,
     positions: learned, places: 9, scale_embedding: false}
  pooling: first
  hidden: 6
  dropout: 0.1
transformer, mean:
  {kind: sequence, encoder: {kind: transformer, layers: 1, width: 6, heads: 2}, pooling: mean}
transformer, last, relative:
  {kind: sequence, encoder: {kind: transformer, layers: 2, width: 6, heads: 2, positions: relative}, pooling: last}
transformer, max, windowed:
  kind: sequence
  encoder:
    {kind: transformer, layers: 1, width: 8, heads: 2, positions: rotary, pattern: {kind: window, width: 2}}
  pooling: max
transformer, attention, Linformer:
  kind: sequence
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, pattern: {kind: linformer, slots: 3, places: 8}}
  pooling: attention
transformer, attention, BigBird:
  kind: sequence
  encoder:
    kind: transformer
    layers: 1
    width: 6
    heads: 2
    pattern: {kind: bigbird, block: 2, window: 1, global_blocks: 1, random_blocks: 1}
  pooling: attention
transformer, apart, ALiBi:
  kind: sequence
  pair: apart
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: alibi}
  pooling: mean
HAN, the paper's:
  kind: hierarchical
  words: {encoder: {kind: gru, width: 6, embedding: 8}, pooling: attention, attention_width: 5}
  sentences: {encoder: {kind: gru, width: 4}, pooling: attention, attention_width: 3}
HAN, averages (HN-AVE):
  kind: hierarchical
  words: {encoder: {kind: gru, width: 6}, pooling: mean}
  sentences: {encoder: {kind: gru, width: 6}, pooling: mean}
  vectors: {path: vectors.txt}
HAN, maxima (HN-MAX):
  kind: hierarchical
  words: {encoder: {kind: lstm, width: 6, dropout: 0.1}, pooling: max}
  sentences: {encoder: {kind: lstm, width: 6, layers: 2, dropout: 0.1, locked: true}, pooling: max}
  hidden: 5
  activation: relu
HAN, last states, back to front:
  kind: hierarchical
  words: {encoder: {kind: elman, width: 6, bidirectional: false, reverse: true}, pooling: last}
  sentences: {encoder: {kind: elman, width: 4, reverse: true}, pooling: last}
HAN, bags below, Transformer above:
  kind: hierarchical
  vectors: {path: x}
  words: {encoder: {kind: bag, width: 5}, pooling: attention}
  sentences: {encoder: {kind: transformer, layers: 1, width: 6, heads: 2}, pooling: attention}
  dropout: 0.2
HAN, Transformers:
  kind: hierarchical
  words: {encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: alibi}, pooling: first}
  sentences:
    encoder:
      {kind: transformer, layers: 2, width: 6, heads: 2, positions: learned, places: 4, norm: post,
       norm_embedding: true}
    pooling: mean
HAN, LSTMN, the first sentence:
  kind: hierarchical
  words: {encoder: {kind: lstmn, width: 4, bidirectional: false}, pooling: attention}
  sentences: {encoder: {kind: transformer, layers: 1, width: 6, heads: 2}, pooling: first}
  hidden: 5
  activation: gelu
HAN, LSTMN above:
  kind: hierarchical
  words: {encoder: {kind: bag, width: 4}, pooling: max}
  sentences: {encoder: {kind: lstmn, width: 6}, pooling: attention}
HAN, rotary sentences, last:
  kind: hierarchical
  words: {encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: none}, pooling: last}
  sentences:
    encoder: {kind: transformer, layers: 1, width: 8, heads: 2, positions: rotary, pattern: {kind: window, width: 1}}
    pooling: attention
"""
LENGTHS = (5, 7, 1, 3)
DOCUMENTS = ((3, 1, 5), (4,), (2, 6), (1, 1, 2, 3))
"""Words of each sentence of each document."""

Config = ClassifierConfig | HierarchicalConfig
Model = Classifier | HierarchicalClassifier
_CONFIG: TypeAdapter[Config] = TypeAdapter(Annotated[Config, Field(discriminator="kind")])


@dataclass(frozen=True)
class ClassifierCase:
    name: str
    config: Config

    def build(self, seed: int = 0) -> Model:
        """In evaluation mode, with no weight left at the 0 or 1 it may begin with."""
        torch.manual_seed(seed)
        model = build_classifier(self.config, VOCABULARY, LABELS)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    def sources(self, seed: int = 0) -> list[Any]:
        """Rows of token ids; or, where texts lie inside, rows of such rows."""
        generator = torch.Generator().manual_seed(seed)

        def text(words: int) -> list[int]:
            ids = torch.randint(4, VOCABULARY, (words,), generator=generator).tolist()
            return [START] * self.config.starts + ids + [END] * self.config.ends

        match self.config:
            case HierarchicalConfig():
                return [[text(words) for words in document] for document in DOCUMENTS]
            case ClassifierConfig(pair="apart"):
                return [[text(length), text(length % 3 + 1)] for length in LENGTHS]
            case _:
                return [text(length) for length in LENGTHS]

    def batch(self, rows: Sequence[Any] | None = None, seed: int = 0) -> Batch:
        """Padded, at both levels where there are two."""
        chosen = self.sources(seed) if rows is None else rows
        labels = [[1 + number % LABELS] for number in range(len(chosen))]
        return Batch(self.tokens(chosen), Tokens.of(labels))

    def tokens(self, rows: Sequence[Any]) -> Tokens:
        return nested(rows) if self.config.nests else Tokens.of(rows)


def nested(rows: Sequence[Sequence[Sequence[int]]]) -> Tokens:
    outer = Tokens.of([[UNKNOWN] * len(row) for row in rows])
    inside = Tokens.of([text for row in rows for text in row])
    return Tokens(outer.ids, outer.layout, None, inside)


def every_classifier() -> list[ClassifierCase]:
    recipes: dict[str, Any] = parse_yaml(RECIPES, "cases")
    return [ClassifierCase(name, _CONFIG.validate_python(tree)) for name, tree in recipes.items()]


def name_of(case: ClassifierCase) -> str:
    return case.name
