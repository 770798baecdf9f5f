"""The one list of cases: every architecture and option that the laws are proved for.

An option that is missing here is an option that nobody tests; tests/contract/test_models.py holds the list complete.
Widths are small and unlike each other where they may be, so that a wrong one cannot pass unseen.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.config import parse, parse_yaml
from saccade.models.build import build_translator
from saccade.models.encoders import EncoderConfig, RecurrentEncoder, TransformerEncoder
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.translator import DecoderConfig, Translator, TranslatorConfig
from saccade.types import END, Batch, Encoded, Layout, Tokens

SOURCE_VOCABULARY, TARGET_VOCABULARY = 17, 13
SOURCE_LENGTHS, TARGET_LENGTHS = (5, 7, 1, 3), (4, 2, 6, 3)

RECIPES = """
elman, the plainest:
  encoder: {kind: elman, width: 5, bidirectional: false}
  decoder: {kind: elman, width: 5, bridge: copy}
elman, reversed and deep:
  encoder: {kind: elman, width: 6, layers: 2, reverse: true}
  decoder: {kind: elman, width: 5, layers: 2, bridge: linear}
elman, dot:
  encoder: {kind: elman, width: 6}
  decoder: {kind: elman, width: 6, attention: {score: dot}, bridge: zero}
elman, general, fed, deep:
  encoder: {kind: elman, width: 6, bidirectional: false}
  decoder: {kind: elman, width: 5, layers: 2, attention: {score: general}, feed_input: true, bridge: mean}
elman, additive:
  encoder: {kind: elman, width: 4, layers: 2, embedding: 3}
  decoder: {kind: elman, width: 5, embedding: 7, attention: {score: additive}}
gru, no attention, mean of the memory:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 5, bridge: mean}
gru, copied, reversed:
  encoder: {kind: gru, width: 6, layers: 2, reverse: true}
  decoder: {kind: gru, width: 6, layers: 2, bridge: copy}
gru, dot, fed:
  encoder: {kind: gru, width: 6}
  decoder: {kind: gru, width: 6, attention: {score: dot}, feed_input: true}
gru, general, from zeros:
  encoder: {kind: gru, width: 4, bidirectional: false, reverse: true}
  decoder: {kind: gru, width: 5, attention: {score: general}, bridge: zero}
gru, additive, fed, deep:
  encoder: {kind: gru, width: 6, embedding: 3}
  decoder: {kind: gru, width: 5, layers: 2, attention: {score: additive, width: 3}, feed_input: true, bridge: mean}
lstm, no attention:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5}
lstm, Sutskever's:
  encoder: {kind: lstm, width: 5, layers: 2, bidirectional: false, reverse: true}
  decoder: {kind: lstm, width: 5, layers: 2, bridge: copy}
lstm, mean of the memory, deeper decoder:
  encoder: {kind: lstm, width: 4}
  decoder: {kind: lstm, width: 5, layers: 2, bridge: mean}
lstm, decoder deeper than the encoder:
  encoder: {kind: lstm, width: 4}
  decoder: {kind: lstm, width: 5, layers: 3}
lstm, encoder deeper than the decoder:
  encoder: {kind: lstm, width: 4, layers: 3, bidirectional: false}
  decoder: {kind: lstm, width: 5}
lstm, dot:
  encoder: {kind: lstm, width: 6, layers: 2}
  decoder: {kind: lstm, width: 6, layers: 2, attention: {score: dot, scope: global}, bridge: copy}
lstm, Luong's:
  encoder: {kind: lstm, width: 6, layers: 2, bidirectional: false, reverse: true}
  decoder: {kind: lstm, width: 6, layers: 2, attention: {score: general}, feed_input: true, bridge: copy}
lstm, general, from zeros:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: general}, bridge: zero}
lstm, additive:
  encoder: {kind: lstm, width: 6, embedding: 5}
  decoder: {kind: lstm, width: 5, embedding: 3, attention: {score: additive, width: 7}, bridge: mean}
lstm, additive, fed, deep:
  encoder: {kind: lstm, width: 6, layers: 2}
  decoder: {kind: lstm, width: 5, layers: 2, attention: {score: additive}, feed_input: true}
lstm, output tied:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: additive}}
  tie: output
lstm, all tied:
  encoder: {kind: lstm, width: 6, embedding: 5}
  decoder: {kind: lstm, width: 5, attention: {score: general}, feed_input: true}
  tie: all
gru encoder, lstm decoder:
  encoder: {kind: gru, width: 6}
  decoder: {kind: lstm, width: 5, attention: {score: additive}}
lstm encoder, elman decoder:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: elman, width: 5, attention: {score: general}}
transformer, pre-norm:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 3, feedforward: 11}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 3, feedforward: 11}
transformer, the paper's, all tied:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post}
  tie: all
transformer, learned positions, gelu:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: learned, places: 11, activation: gelu}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 3, positions: learned, places: 11, activation: gelu}
transformer, too few learned positions:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: learned, places: 3, norm: post}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 1, positions: learned, places: 3, norm: post}
  tie: output
transformer, no positions, odd width:
  encoder: {kind: transformer, layers: 2, width: 9, heads: 3, positions: none, activation: gelu, norm: post}
  decoder: {kind: transformer, layers: 1, width: 5, heads: 5, positions: none, feedforward: 7}
transformer, unlike widths, output tied:
  encoder: {kind: transformer, layers: 1, width: 10, heads: 5, activation: gelu}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2, norm: post, activation: gelu}
  tie: output
transformer encoder, lstm decoder, mean:
  encoder: {kind: transformer, layers: 2, width: 6, heads: 2}
  decoder: {kind: lstm, width: 5, layers: 2, attention: {score: additive}, feed_input: true, bridge: mean}
transformer encoder, lstm decoder, from zeros:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 3, norm: post}
  decoder: {kind: lstm, width: 6, attention: {score: dot}, bridge: zero}
transformer encoder, gru decoder without attention:
  encoder: {kind: transformer, layers: 1, width: 6, heads: 2, positions: learned, places: 7}
  decoder: {kind: gru, width: 5, bridge: mean}
lstm encoder, transformer decoder:
  encoder: {kind: lstm, width: 4, layers: 2}
  decoder: {kind: transformer, layers: 2, width: 6, heads: 2}
gru encoder reversed, transformer decoder, all tied:
  encoder: {kind: gru, width: 4, embedding: 6, bidirectional: false, reverse: true}
  decoder: {kind: transformer, layers: 1, width: 6, heads: 2, norm: post, positions: none}
  tie: all
"""


@dataclass(frozen=True)
class TranslatorCase:
    name: str
    config: TranslatorConfig

    @property
    def vocabularies(self) -> tuple[int, int]:
        """One vocabulary where all is tied, else two unlike ones."""
        target = SOURCE_VOCABULARY if self.config.tie == "all" else TARGET_VOCABULARY
        return SOURCE_VOCABULARY, target

    def build(self, seed: int = 0) -> Translator:
        """In evaluation mode, with no weight left at the 0 or 1 it may begin with."""
        torch.manual_seed(seed)
        model = build_translator(self.config, *self.vocabularies)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    def batch(self, seed: int = 0) -> Batch:
        source, target = self.vocabularies
        return Batch(tokens(SOURCE_LENGTHS, source, seed), tokens(TARGET_LENGTHS, target, seed + 1))


@dataclass(frozen=True)
class EncoderCase:
    name: str
    config: EncoderConfig
    of: TranslatorCase

    def build(self, seed: int = 0) -> tuple[RecurrentEncoder | TransformerEncoder, Tokens]:
        return self.of.build(seed).encoder, self.of.batch(seed).source


@dataclass(frozen=True)
class DecoderCase:
    name: str
    config: DecoderConfig
    of: TranslatorCase

    def build(self, seed: int = 0) -> tuple[RecurrentDecoder | TransformerDecoder, Encoded, Tensor]:
        """A decoder, what an encoder hands to it, and the tokens that are fed to it, as long in every row."""
        model, batch = self.of.build(seed), self.of.batch(seed)
        with torch.no_grad():
            encoded = model.encode(batch.source)
        target = tokens([6] * len(batch), self.of.vocabularies[1], seed + 2)
        return model.decoder, encoded, Batch(batch.source, target).decoder_input.ids


def tokens(lengths: tuple[int, ...] | list[int], vocabulary: int, seed: int = 0) -> Tokens:
    """Random sentences that end in END; no special token inside."""
    generator = torch.Generator().manual_seed(seed)
    rows = [[*torch.randint(4, vocabulary, (length - 1,), generator=generator).tolist(), END] for length in lengths]
    return Tokens.of(rows)


def whole(ids_BT: Tensor) -> Tokens:
    """Rows that are all as long."""
    return Tokens(ids_BT, Layout.padded([ids_BT.shape[1]] * len(ids_BT)))


def every_translator() -> list[TranslatorCase]:
    recipes: dict[str, dict[str, Any]] = parse_yaml(RECIPES, "cases")
    return [TranslatorCase(name, parse(TranslatorConfig, tree, name)) for name, tree in recipes.items()]


def every_encoder() -> list[EncoderCase]:
    """Every encoder of the list, once."""
    first = {case.config.encoder: case for case in reversed(every_translator())}
    return [EncoderCase(of.name, config, of) for config, of in reversed(first.items())]


def every_decoder() -> list[DecoderCase]:
    """Every decoder of the list; the same one twice where it reads an encoder of another family."""
    return [DecoderCase(case.name, case.config.decoder, case) for case in every_translator()]


def name_of(case: TranslatorCase | EncoderCase | DecoderCase) -> str:
    return case.name


def assert_same(actual: Tensor, expected: Tensor, what: str = "") -> None:
    """Equal but for the order in which float32 sums are taken."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=5e-5, msg=lambda reason: f"{what}: {reason}")
