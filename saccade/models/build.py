"""Config → model. The one place that asks which architecture it has."""

from collections.abc import Mapping
from typing import Any

import torch

from saccade.config import Section, parse
from saccade.errors import UsageError
from saccade.models.bag import BagConfig, BagEncoder
from saccade.models.causal_transformer import CausalTransformer
from saccade.models.classifier import Classifier, ClassifierConfig, Reader, ReaderConfig
from saccade.models.encoders import EncoderConfig, RecurrentEncoder, RecurrentEncoderConfig
from saccade.models.hierarchical import HierarchicalClassifier, HierarchicalConfig
from saccade.models.language_model import LanguageModel, LanguageModelConfig, Writer, WriterConfig
from saccade.models.masked import MaskedConfig, MaskedModel
from saccade.models.over_vectors import RecurrentOverVectors, TransformerOverVectors, VectorEncoderConfig
from saccade.models.recurrent_decoder import RecurrentDecoder, RecurrentDecoderConfig
from saccade.models.recurrent_writer import RecurrentWriter, RecurrentWriterConfig
from saccade.models.tagger import CnnCharacters, CrfOutput, LstmCharacters, Steps, Tagger, TaggerConfig, TaggerSizes
from saccade.models.trainable import Trainable
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.translator import DecoderConfig, Translator, TranslatorConfig
from saccade.models.vectors import VectorsConfig
from saccade.models.window_decoder import WindowConfig, WindowDecoder
from saccade.nn.characters import CharacterCnn, CharacterLstm
from saccade.nn.crf import Allowed, Crf, all_allowed
from saccade.nn.embedding import TokenEmbedding


def build_encoder(config: EncoderConfig, vocabulary: int, beside: int = 0) -> RecurrentEncoder | TransformerEncoder:
    """`beside`: how wide the vectors are that it is given of each token beside its id."""
    match config:
        case RecurrentEncoderConfig():
            return RecurrentEncoder(config, vocabulary, beside)
        case TransformerConfig():
            return TransformerEncoder(config, vocabulary, beside)


def build_decoder(config: DecoderConfig, vocabulary: int, memory_width: int) -> RecurrentDecoder | TransformerDecoder:
    match config:
        case RecurrentDecoderConfig():
            return RecurrentDecoder(config, vocabulary, memory_width)
        case TransformerConfig():
            return TransformerDecoder(config, vocabulary, memory_width)


def build_translator(config: TranslatorConfig, source_vocabulary: int, target_vocabulary: int) -> Translator:
    if config.tie == "all" and source_vocabulary != target_vocabulary:
        raise UsageError(
            f"model.tie is all, which needs one vocabulary for both sides, but they have {source_vocabulary} and "
            f"{target_vocabulary} tokens. Set text.shared to true, or model.tie to output."
        )
    if config.copies and source_vocabulary != target_vocabulary:
        raise UsageError(
            "model.decoder.attention.pointer copies source tokens into the target, which needs one vocabulary for both "
            f"sides, but they have {source_vocabulary} and {target_vocabulary} tokens. Set text.shared to true."
        )
    encoder = build_encoder(config.encoder, source_vocabulary)
    freeze_vectors(encoder.embed, config.vectors)
    decoder = build_decoder(config.decoder, target_vocabulary, config.encoder.width)
    return Translator(encoder, decoder, config.tie)


def build_writer(config: WriterConfig, vocabulary: int) -> Writer:
    match config:
        case WindowConfig():
            return WindowDecoder(config, vocabulary)
        case RecurrentWriterConfig():
            return RecurrentWriter(config, vocabulary)
        case TransformerConfig():
            return CausalTransformer(config, vocabulary)


def build_language_model(config: LanguageModelConfig, vocabulary: int) -> LanguageModel:
    decoder = build_writer(config.decoder, vocabulary)
    freeze_vectors(decoder.embed, config.vectors)
    return LanguageModel(decoder, config.tie)


def build_characters(config: TaggerConfig, vocabulary: int) -> CharacterCnn | CharacterLstm | None:
    match config.characters:
        case None:
            return None
        case CnnCharacters(embedding=embedding, filters=filters, window=window, dropout=dropout):
            return CharacterCnn(vocabulary, filters, embedding=embedding, window=window, dropout=dropout)
        case LstmCharacters(embedding=embedding, width=width, dropout=dropout):
            return CharacterLstm(vocabulary, width, embedding=embedding, dropout=dropout)


def build_tagger(config: TaggerConfig, sizes: TaggerSizes, steps: Steps | None = None) -> Tagger:
    """`steps`: which tags may begin, follow one another and end, for a crf that is to be held to them; None: all."""
    if sizes.in_pieces and config.characters is not None:
        raise UsageError(
            f"model.characters is {config.characters.kind}, but words are cut into pieces, which are read in their "
            "place. Set model.characters to null, or text.kind to words."
        )
    characters = build_characters(config, sizes.characters)
    encoder = build_encoder(config.encoder, sizes.tokens, 0 if characters is None else characters.width)
    freeze_vectors(encoder.embed, config.vectors)
    crf = None
    if isinstance(config.output, CrfOutput):
        allowed = all_allowed(sizes.tags) if steps is None else Allowed(*map(torch.tensor, steps))
        held = None if config.output.constrain == "none" else allowed
        crf = Crf(sizes.tags, held, constrained=config.output.constrain == "all")
    return Tagger(encoder, characters, crf, sizes, config.pieces)


def freeze_vectors(embed: TokenEmbedding, vectors: VectorsConfig | None) -> None:
    """Token vectors that were learnt elsewhere may be meant to stay as they are."""
    if vectors is not None and vectors.freeze:
        embed.table.weight.requires_grad_(False)


def build_masked(config: MaskedConfig, vocabulary: int, most: float = 1.0) -> MaskedModel:
    """`most`: the share of a batch's places that may be blanks, beside one of each row."""
    encoder = build_encoder(config.encoder, vocabulary)
    freeze_vectors(encoder.embed, config.vectors)
    return MaskedModel(config, encoder, vocabulary, most)


def build_reader(config: ReaderConfig, vocabulary: int) -> Reader:
    """An encoder, or token vectors alone."""
    match config:
        case BagConfig():
            return BagEncoder(config, vocabulary)
        case RecurrentEncoderConfig() | TransformerConfig():
            return build_encoder(config, vocabulary)


def build_over_vectors(config: VectorEncoderConfig, width: int) -> RecurrentOverVectors | TransformerOverVectors:
    """An encoder of vectors of that width."""
    match config:
        case RecurrentEncoderConfig():
            return RecurrentOverVectors(config, width)
        case TransformerConfig():
            return TransformerOverVectors(config, width)


def build_classifier(
    config: ClassifierConfig | HierarchicalConfig, vocabulary: int, labels: int
) -> Classifier | HierarchicalClassifier:
    match config:
        case ClassifierConfig():
            encoder = build_reader(config.encoder, vocabulary)
            freeze_vectors(encoder.embed, config.vectors)
            return Classifier(config, encoder, labels)
        case HierarchicalConfig():
            words = build_reader(config.words.encoder, vocabulary)
            freeze_vectors(words.embed, config.vectors)
            sentences = build_over_vectors(config.sentences.encoder, config.words.encoder.width)
            return HierarchicalClassifier(config, words, sentences, labels)


def settings_of(task: object, tree: Mapping[str, Any], origin: str) -> Section:
    """The `model` section of a task's recipe."""
    match task:
        case "translate":
            return parse(TranslatorConfig, tree, origin)
        case "language-model":
            return parse(LanguageModelConfig, tree, origin)
        case "tag":
            return parse(TaggerConfig, tree, origin)
        case "masked-language-model":
            return parse(MaskedConfig, tree, origin)
        case "classify":
            nested = tree.get("kind") == "hierarchical"
            return parse(HierarchicalConfig, tree, origin) if nested else parse(ClassifierConfig, tree, origin)
        case _:
            raise UsageError(f"{origin}: its task is {task!r}, which this version does not know.")


def build_model(task: str, settings: Section, sizes: Mapping[str, int]) -> Trainable:
    """The model of a run, from what its config.json says; `sizes` of its vocabularies by name."""
    match settings:
        case TranslatorConfig():
            return build_translator(settings, sizes["source"], sizes["target"])
        case LanguageModelConfig():
            return build_language_model(settings, sizes["text"])
        case TaggerConfig():
            return build_tagger(settings, TaggerSizes.named(sizes))
        case MaskedConfig():
            return build_masked(settings, sizes["text"])
        case ClassifierConfig() | HierarchicalConfig():
            return build_classifier(settings, sizes["text"], sizes["labels"])
        case _:
            raise UsageError(f"no model of the task {task!r} is made of {type(settings).__name__}.")
