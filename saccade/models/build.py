"""Config → model. The one place that asks which architecture it has."""

from collections.abc import Mapping
from typing import Any

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
from saccade.models.trainable import Trainable
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.translator import DecoderConfig, Translator, TranslatorConfig
from saccade.models.window_decoder import WindowConfig, WindowDecoder


def build_encoder(config: EncoderConfig, vocabulary: int) -> RecurrentEncoder | TransformerEncoder:
    match config:
        case RecurrentEncoderConfig():
            return RecurrentEncoder(config, vocabulary)
        case TransformerConfig():
            return TransformerEncoder(config, vocabulary)


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
    return LanguageModel(build_writer(config.decoder, vocabulary), config.tie)


def build_masked(config: MaskedConfig, vocabulary: int, most: float = 1.0) -> MaskedModel:
    """`most`: the share of a batch's places that may be blanks, beside one of each row."""
    return MaskedModel(config, build_encoder(config.encoder, vocabulary), vocabulary, most)


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
            return Classifier(config, build_reader(config.encoder, vocabulary), labels)
        case HierarchicalConfig():
            words = build_reader(config.words.encoder, vocabulary)
            sentences = build_over_vectors(config.sentences.encoder, config.words.encoder.width)
            return HierarchicalClassifier(config, words, sentences, labels)


def settings_of(task: object, tree: Mapping[str, Any], origin: str) -> Section:
    """The `model` section of a task's recipe."""
    match task:
        case "translate":
            return parse(TranslatorConfig, tree, origin)
        case "language-model":
            return parse(LanguageModelConfig, tree, origin)
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
        case MaskedConfig():
            return build_masked(settings, sizes["text"])
        case ClassifierConfig() | HierarchicalConfig():
            return build_classifier(settings, sizes["text"], sizes["labels"])
        case _:
            raise UsageError(f"no model of the task {task!r} is made of {type(settings).__name__}.")
