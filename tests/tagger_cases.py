"""The list of taggers that the laws are proved for; tests/contract/test_models.py holds it complete."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from saccade.config import parse, parse_yaml
from saccade.models.build import build_tagger
from saccade.models.tagger import Tagger, TaggerConfig, TaggerSizes
from saccade.text.tags import TagSet
from saccade.types import PAD, Batch, Tokens

WORDS, CHARACTERS = 17, 11
LENGTHS = (5, 7, 1, 3)
TAGS = TagSet(("O", "B-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y"), "bioes")

RECIPES = """
lstm, the smallest:
  encoder: {kind: lstm, width: 6, embedding: 5}
lstm, Huang's:
  encoder: {kind: lstm, width: 6, embedding: 5, dropout: 0.3}
  output: {kind: crf, constrain: none}
lstm, Lample's:
  encoder: {kind: lstm, width: 6, embedding: 5, dropout: 0.5}
  characters: {kind: lstm, embedding: 3, width: 4}
  output: {kind: crf}
lstm, Ma and Hovy's:
  encoder: {kind: lstm, width: 8, embedding: 5, dropout: 0.5, locked: true}
  characters: {kind: cnn, embedding: 3, filters: 4, dropout: 0.3}
  output: {kind: crf, constrain: all}
  scheme: iob2
  vectors: {path: glove.txt, freeze: true}
gru, deep, wide filters:
  encoder: {kind: gru, layers: 2, width: 6, stack: residual}
  characters: {kind: cnn, window: 4, filters: 7}
  vectors: {path: glove.txt, more_words: 9}
gru, scaled, characters:
  encoder: {kind: gru, width: 6, embedding: 4, scale_embedding: true, dropout: 0.2}
  characters: {kind: lstm, embedding: 3, width: 4}
elman, one way, backwards:
  encoder: {kind: elman, width: 5, bidirectional: false, reverse: true}
  characters: {kind: lstm, dropout: 0.2}
lstmn:
  encoder: {kind: lstmn, width: 6, bidirectional: false}
  output: {kind: crf}
transformer:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2}
  characters: {kind: cnn, filters: 4}
  output: {kind: softmax}
transformer, BERT's:
  encoder:
    {kind: transformer, layers: 2, width: 6, heads: 3, norm: post, activation: gelu, positions: learned, places: 40,
     scale_embedding: false, norm_embedding: true}
  characters: {kind: lstm, width: 6}
  output: {kind: crf}
transformer, relative, windowed:
  encoder:
    {kind: transformer, layers: 1, width: 8, heads: 2, positions: relative, pattern: {kind: window, width: 2}}
pieces, BERT's:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post, activation: gelu}
  pieces: first
pieces, rotary, the last:
  encoder: {kind: transformer, layers: 1, width: 8, heads: 2, positions: rotary}
  pieces: last
  output: {kind: crf}
pieces, lstm, their mean:
  encoder: {kind: lstm, width: 6, dropout: 0.2}
  pieces: mean
  output: {kind: crf, constrain: all}
pieces, alibi, Linformer's:
  encoder: {kind: transformer, layers: 1, width: 8, heads: 2, pattern: {kind: linformer, slots: 4}}
"""


@dataclass(frozen=True)
class TaggerCase:
    name: str
    config: TaggerConfig

    @property
    def sizes(self) -> TaggerSizes:
        if self.name.startswith("pieces"):
            return TaggerSizes(CHARACTERS, len(TAGS), in_pieces=True)
        return TaggerSizes(WORDS, len(TAGS), CHARACTERS if self.config.characters else 0)

    def build(self, seed: int = 0) -> Tagger:
        """In evaluation mode, with no weight left at the 0 or 1 it may begin with."""
        torch.manual_seed(seed)
        model = build_tagger(self.config, self.sizes, TAGS.steps())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    def batch(self, lengths: tuple[int, ...] | list[int] = LENGTHS, seed: int = 0) -> Batch:
        """Sentences with tags that the scheme allows, padded."""
        return sentences(lengths, seed, inside=bool(self.sizes.characters or self.sizes.in_pieces))


VALID = ([1], [4], [2, 3], [5, 6, 7], [5, 7], [1, 1])


def sentences(lengths: tuple[int, ...] | list[int], seed: int = 0, *, inside: bool = True) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, count: int) -> list[int]:
        return torch.randint(low, high, (count,), generator=generator).tolist()

    words = [draw(4, WORDS, length) for length in lengths]
    made_of = [draw(3, CHARACTERS, draw(1, 6, 1)[0]) for length in lengths for _ in range(length)]
    tags = []
    for length in lengths:
        row: list[int] = []
        while len(row) < length:
            more = VALID[draw(0, len(VALID), 1)[0]]
            row += more if len(row) + len(more) <= length else [1]
        tags.append(row)
    source = Tokens.of(words)
    return Batch(replace(source, inside=Tokens.of(made_of)) if inside else source, Tokens.of(tags))


def row_of(batch: Batch, b: int) -> Batch:
    """One sentence alone, padded."""
    packed = batch.packed().rows(b, b + 1)
    length = int(packed.source.layout.lengths_B)
    inside = packed.source.inside
    source, target = Tokens.of([packed.source.ids.tolist()]), Tokens.of([packed.target.ids.tolist()])
    assert int(source.layout.lengths_B) == length
    return Batch(replace(source, inside=inside), target)


def with_noise(batch: Batch) -> Batch:
    """Other ids where there is nothing but padding."""

    def noisy(side: Tokens) -> Tokens:
        return replace(side, ids=side.ids + 3 * (side.ids == PAD))

    inside = None if batch.source.inside is None else noisy(batch.source.inside)
    return Batch(replace(noisy(batch.source), inside=inside), noisy(batch.target))


def every_tagger() -> list[TaggerCase]:
    recipes: dict[str, dict[str, Any]] = parse_yaml(RECIPES, "taggers")
    return [TaggerCase(name, parse(TaggerConfig, tree, name)) for name, tree in recipes.items()]


def name_of(case: TaggerCase) -> str:
    return case.name
