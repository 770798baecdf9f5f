"""Combinations that make no sense are refused, each with the reason; and no reason is written that nobody tests."""

import ast
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import saccade.models
from saccade.config import Section
from saccade.errors import SaccadeError, UsageError
from saccade.models.build import build_translator
from saccade.models.classifier import ClassifierConfig
from saccade.models.hierarchical import HierarchicalConfig
from saccade.models.language_model import LanguageModelConfig
from saccade.models.masked import MaskedConfig
from saccade.models.tagger import TaggerConfig
from saccade.models.translator import TranslatorConfig
from tests.cases import every_translator

FOLDER = Path(saccade.models.__file__).parent

SENSELESS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"feed_input": True}, "none", "no decoder.attention whose vector could be fed"),
    ({}, {"kind": "transformer", "positions": "tree"}, "none", "still being written has no dependency parse"),
    (
        {"kind": "transformer", "positions": "tree", "pattern": {"kind": "window", "width": 3}},
        {"bridge": "mean"},
        "none",
        "the relations of all pairs of words",
    ),
    ({}, {"kind": "transformer", "segments": 2}, "none", "ends where END stands, and has one part alone"),
    ({}, {"bridge": "zero"}, "none", "nothing of the source reaches the decoder"),
    ({"kind": "transformer"}, {"bridge": "linear"}, "none", "ends in no state: use mean or zero"),
    ({"kind": "transformer"}, {"bridge": "copy"}, "none", "ends in no state: use mean or zero"),
    ({"layers": 2}, {"bridge": "copy"}, "none", "must have the same kind, layers and width"),
    ({"kind": "gru"}, {"bridge": "copy"}, "none", "must have the same kind, layers and width"),
    ({"width": 4}, {"width": 6, "bridge": "copy"}, "none", "must have the same kind, layers and width"),
    ({"width": 4}, {"width": 6, "attention": {"score": "dot"}}, "none", "dot, which needs encoder.width"),
    ({}, {"attention": {"query": "previous"}, "feed_input": True}, "none", "the context itself enters the cell"),
    ({"width": 4}, {"width": 6, "attention": {"score": "scaled-dot"}}, "none", "which needs encoder.width"),
    ({"width": 4}, {"width": 6, "attention": {"score": "cosine"}}, "none", "which needs encoder.width"),
    ({"kind": "transformer"}, {"attention": {"score": "last"}, "bridge": "mean"}, "none", "no state: use mean"),
    ({}, {"attention": {"score": "cosine", "temperature": 0}}, "none", "it must be above 0"),
    ({}, {"attention": {"score": "last", "scope": "local-m"}}, "none", "nothing for scope local-m to choose"),
    ({}, {"attention": {"readout": "concat", "readout_width": 3}}, "none", "leave readout_width out"),
    ({}, {"attention": {"score": "general", "coverage": 1.0}}, "none", "a part of the additive score"),
    ({}, {"attention": {"score": "mean", "hard": {}}}, "none", "makes no choice between source tokens, as hard"),
    ({}, {"attention": {"score": "last", "pointer": True}}, "none", "makes no choice .* as pointer"),
    ({}, {"attention": {"score": "mean", "doubly_stochastic": 1}}, "none", "no choice .* as doubly_stochastic"),
    ({}, {"attention": {"scope": "local-p", "hard": {}}}, "none", "hard needs weights that sum to 1"),
    ({}, {"attention": {"scope": "local-p", "pointer": True}}, "none", "pointer needs weights that sum to 1"),
    ({}, {"attention": {"coverage": 0.0, "coverage_after": 5}}, "none", "coverage punishes nothing"),
    ({}, {"attention": {"hard": {}, "coverage": 1.0}}, "none", "coverage works on the weights of all"),
    ({}, {"attention": {"hard": {}, "pointer": True}}, "none", "pointer works on the weights of all"),
    ({}, {"attention": {"hard": {}, "doubly_stochastic": 1}}, "none", "doubly_stochastic works on the weights"),
    ({}, {"attention": {"readout": "concat"}}, "output", "must be as wide as the decoder's output"),
    ({}, {"sampling": {"kind": "linear"}, "locked": True}, "none", "cannot keep one mask for all"),
    ({}, {"sampling": {"kind": "linear"}, "embedding_dropout": 0.1}, "none", "cannot keep one mask for all"),
    ({}, {"sampling": {"kind": "linear", "start": 0.1, "floor": 0.2}}, "none", "must not grow"),
    ({"cell": {"activation": "relu"}}, {}, "none", "cell.activation is relu, .* setting of elman; kind is lstm"),
    ({"kind": "gru", "cell": {"identity": True}}, {}, "none", "cell.identity is True, .* kind is gru"),
    ({"kind": "gru", "cell": {"forget_gate": False}}, {}, "none", "setting of lstm; kind is gru"),
    ({}, {"kind": "gru", "cell": {"peepholes": True}}, "none", "setting of lstm; kind is gru"),
    ({}, {"kind": "elman", "cell": {"forget_bias": 0}}, "none", "setting of lstm and lstmn; kind is elman"),
    ({"cell": {"forget_gate": False, "forget_bias": 0}}, {}, "none", "forget_gate is off: there is no such bias"),
    ({"cell": {"reset": "before"}}, {}, "none", "setting of gru; kind is lstm"),
    ({}, {"cell": {"polarity": "update"}}, "none", "setting of gru; kind is lstm"),
    ({"kind": "lstmn", "cell": {"layer_norm": True}}, {}, "none", "elman and lstm and gru; kind is lstmn"),
    ({"cell": {"last_read": False}}, {}, "none", "setting of lstmn; kind is lstm"),
    ({"kind": "lstmn"}, {"fusion": "deep"}, "none", "must be lstmn and of one width"),
    ({}, {"kind": "lstmn", "fusion": "deep"}, "none", "must be lstmn and of one width"),
    ({"kind": "lstmn", "width": 4}, {"kind": "lstmn", "width": 6, "fusion": "deep"}, "none", "and of one width"),
    (
        {"kind": "lstmn"},
        {"kind": "lstmn", "fusion": "deep", "attention": {"score": "dot"}},
        "none",
        "the cells look at the source; leave out decoder.attention",
    ),
    ({}, {"embedding": 3}, "output", "must be as wide as the decoder"),
    ({"embedding": 3}, {}, "all", "must be as wide as the target's"),
    ({"width": 5}, {}, "none", "make it even"),
    ({"kind": "transformer", "width": 6, "heads": 4}, {"bridge": "mean"}, "none", "heads must divide the width"),
    ({"kind": "transformer", "width": 9, "heads": 3}, {"bridge": "mean"}, "none", "come in pairs: make it even"),
    (
        {"kind": "transformer", "width": 6, "heads": 2, "positions": "rotary"},
        {"bridge": "mean"},
        "none",
        "a head is 3 wide .*; rotary positions turn pairs",
    ),
    (
        {"kind": "transformer", "norm_embedding": True, "norm_kind": "none"},
        {"bridge": "mean"},
        "none",
        "there is no norm to take",
    ),
    (
        {"kind": "transformer", "positions": "alibi", "pattern": {"kind": "linformer"}},
        {"bridge": "mean"},
        "none",
        "sums over all tokens and stand nowhere",
    ),
    (
        {"kind": "transformer", "positions": "relative", "pattern": {"kind": "bigbird"}},
        {"bridge": "mean"},
        "none",
        "use rotary or alibi, or the pattern window",
    ),
    (
        {},
        {"kind": "transformer", "pattern": {"kind": "linformer"}},
        "none",
        "would show a token what follows it",
    ),
    ({}, {"kind": "transformer", "attention_dropout": 1.0}, "none", "attention_dropout\n.* less than 1"),
    ({"attention_dropout": 0.1}, {}, "none", "attention_dropout\n.* not permitted"),
]
"""Encoder, decoder (both lstm where nothing else is said), tie, and what the reason holds."""


SENSELESS_ALONE: list[tuple[dict[str, Any], str, str]] = [
    ({"last_width": 3}, "none", "there is one layer: set its width"),
    ({"layers": 2, "last_width": 3, "stack": "residual"}, "none", "they must be of one width"),
    ({"uniform": 0.1, "cell": {"layer_norm": True}}, "none", "leave one out"),
    ({"layers": 2, "width": 5, "embedding": 4}, "output", "as wide as what the output layer reads"),
]
"""Of language models: decoder, tie, and what the reason holds."""


def refusal_alone(decoder: dict[str, Any], tie: str) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        LanguageModelConfig.model_validate({"decoder": {"kind": "lstm"} | decoder, "tie": tie})
    return refused.value


@pytest.mark.parametrize(("decoder", "tie", "reason"), SENSELESS_ALONE)
def test_senseless_language_models_are_refused(decoder: dict[str, Any], tie: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        raise refusal_alone(decoder, tie)


SENSELESS_WITH_BLANKS: list[tuple[dict[str, Any], str]] = [
    ({"encoder": {"kind": "lstm", "bidirectional": False}}, "what follows it would not be seen"),
    ({"encoder": {"kind": "transformer", "positions": "tree"}}, "comes without its dependency trees"),
    ({"encoder": {"kind": "lstm", "embedding": 4}, "head": {"kind": "plain"}}, "must be as wide as it .256."),
]
"""Of masked language models: the settings, and what the reason holds."""


def refusal_with_blanks(settings: dict[str, Any]) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        MaskedConfig.model_validate(settings)
    return refused.value


@pytest.mark.parametrize(("settings", "reason"), SENSELESS_WITH_BLANKS)
def test_senseless_masked_language_models_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        raise refusal_with_blanks(settings)


GRU, TREE = {"kind": "gru", "width": 8}, {"kind": "transformer", "width": 8, "heads": 2, "positions": "tree"}
FROZEN = {"path": "vectors.txt", "freeze": True}
SENSELESS_LABELS: list[tuple[type[Section], dict[str, Any], str]] = [
    (
        LanguageModelConfig,
        {"decoder": GRU | {"embedding": 8}, "tie": "output", "vectors": FROZEN},
        "tied to the output, which has to learn",
    ),
    (ClassifierConfig, {"encoder": GRU, "pooling": "mean", "attention_width": 3}, "is a setting of pooling: attention"),
    (ClassifierConfig, {"encoder": TREE}, "labelled texts come without"),
    (ClassifierConfig, {"encoder": GRU, "pooling": "first"}, "has read nothing else"),
    (ClassifierConfig, {"encoder": {"kind": "bag"}, "pooling": "last"}, "knows nothing of the other tokens"),
    (ClassifierConfig, {"encoder": GRU, "activation": "relu"}, "there is no hidden layer"),
    (
        HierarchicalConfig,
        {"words": {"encoder": GRU}, "sentences": {"encoder": GRU | {"embedding": 4}}},
        "reads vectors of sentences",
    ),
    (
        HierarchicalConfig,
        {"words": {"encoder": GRU}, "sentences": {"encoder": GRU}, "activation": "gelu"},
        "there is no hidden layer",
    ),
    (TaggerConfig, {"encoder": GRU, "characters": {"kind": "lstm", "width": 5}}, "make it even"),
    (TaggerConfig, {"encoder": TREE}, "words of a tagger come without"),
]


def refusal_with_labels(section: type[Section], settings: dict[str, Any]) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        section.model_validate(settings)
    return refused.value


@pytest.mark.parametrize(("section", "settings", "reason"), SENSELESS_LABELS)
def test_senseless_models_of_other_tasks_are_refused(
    section: type[Section], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        raise refusal_with_labels(section, settings)


def refusal(encoder: dict[str, Any], decoder: dict[str, Any], tie: str) -> ValidationError:
    with pytest.raises(ValidationError) as refused:
        TranslatorConfig.model_validate(
            {"encoder": {"kind": "lstm"} | encoder, "decoder": {"kind": "lstm"} | decoder, "tie": tie}
        )
    return refused.value


@pytest.mark.parametrize(("encoder", "decoder", "tie", "reason"), SENSELESS)
def test_senseless_combinations_are_refused(
    encoder: dict[str, Any], decoder: dict[str, Any], tie: str, reason: str
) -> None:
    error = refusal(encoder, decoder, tie)
    assert error.error_count() == 1, "one reason at a time"
    with pytest.raises(ValidationError, match=reason):
        raise error


def raised_at(error: ValidationError) -> set[tuple[str, int]]:
    """The file and line that each of our own reasons was raised at."""
    found = set()
    for each in error.errors():
        reason = each.get("ctx", {}).get("error")
        if isinstance(reason, ValueError):
            trace = reason.__traceback__
            assert trace is not None
            while trace.tb_next is not None:
                trace = trace.tb_next
            found.add((Path(trace.tb_frame.f_code.co_filename).name, trace.tb_lineno))
    return found


def test_every_reason_that_is_written_is_given_to_somebody() -> None:
    """Each `raise ValueError` of models/, by where it stands: a new one needs a row in the table."""
    written = {
        (path.name, node.lineno, node.end_lineno or node.lineno)
        for path in FOLDER.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and ast.unparse(node.exc.func) == "ValueError"
    }
    given = {at for encoder, decoder, tie, _ in SENSELESS for at in raised_at(refusal(encoder, decoder, tie))}
    given |= {at for decoder, tie, _ in SENSELESS_ALONE for at in raised_at(refusal_alone(decoder, tie))}
    given |= {at for kind, settings, _ in SENSELESS_LABELS for at in raised_at(refusal_with_labels(kind, settings))}
    given |= {at for settings, _ in SENSELESS_WITH_BLANKS for at in raised_at(refusal_with_blanks(settings))}
    missing = {
        (name, first) for name, first, last in written if not given & {(name, at) for at in range(first, last + 1)}
    }
    assert len(written) >= 30
    assert not missing, f"no row of SENSELESS is refused by: {sorted(missing)}"


# ---- what only shows when a model is built or used


def test_copying_needs_one_vocabulary() -> None:
    pointing = {"kind": "lstm", "attention": {"pointer": True}}
    config = TranslatorConfig.model_validate({"encoder": {"kind": "lstm"}, "decoder": pointing})
    with pytest.raises(UsageError, match=r"17 and 13 tokens. Set text.shared to true"):
        build_translator(config, 17, 13)


def test_tying_all_needs_one_vocabulary() -> None:
    config = TranslatorConfig.model_validate({"encoder": {"kind": "lstm"}, "decoder": {"kind": "lstm"}, "tie": "all"})
    with pytest.raises(UsageError, match=r"17 and\s13 tokens. Set text.shared to true"):
        build_translator(config, 17, 13)


def test_a_pointer_needs_the_sources_tokens() -> None:
    case = next(case for case in every_translator() if case.name == "lstm, pointer")
    model, batch = case.build(), case.batch()
    with pytest.raises(SaccadeError, match="came without them"):
        model.start(model.encoder(batch.source), 3)
