"""Several runs as one model: ensembles, fusion with a language model, the noisy channel.

What comes back is a `Model` as any other: it translates, evaluates, scores; only what looks inside one model refuses.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from saccade.decode.ensemble import Mix, even_weights
from saccade.errors import UsageError
from saccade.model import Model
from saccade.partners import Partners, check_closes_lines, check_vocabulary
from saccade.rerank import NoisyChannel


def ensemble(models: Sequence[Model], *, weights: Sequence[float] | None = None, mix: Mix = "log-linear") -> Model:
    """Translators that share a target vocabulary, of whatever architecture, as one model.

    Every next token is decided by all: `log-linear`, Σ w_i log p_i renormalised; or `linear`, log Σ w_i p_i. Weights
    are positive, and divided by their sum; without any, all models count the same. Settings come from the first.
    """
    if not models:
        raise UsageError("models: there are none; give at least one.")
    if mix not in ("log-linear", "linear"):
        raise UsageError(f"mix is {mix!r}; it must be log-linear or linear.")
    shares = even_weights(len(models), weights)
    first, *others = models
    for model in models:
        if model.engine.partners is not None or model.engine.judge is not None:
            raise UsageError(f"{model.name}: is of several models already; name them all in one ensemble.")
    for model in others:
        _check_device(first, model)
        check_vocabulary(first.engine.text.target, model.engine.text.target, (first.name, model.name))
    if not others:
        return first
    partners = Partners(tuple(model.engine for model in others), shares, mix)
    return Model(first.loaded, replace(first.engine, partners=partners), beside=tuple(others))


def fused(model: Model, language_model: Model, *, weight: float = 0.2) -> Model:
    """Shallow fusion (Gulcehre et al. 2015): a token's score is log p + λ log p_LM, λ being `weight`.

    The language model must share the target vocabulary: `text: {kind: run}` in its recipe takes the translator's.
    Scores are not renormalised; `log_probability` of an output is the sum of its tokens' fused scores.
    """
    before = model.engine.partners or Partners()
    assert isinstance(before, Partners)
    writer, name = language_model.writer, language_model.name
    if before.language_model is not None:
        raise UsageError(f"{name}: {model.name} is fused with a language model already; one is all that fits.")
    _check_weight("the language model's weight", weight)
    _check_device(model, language_model)
    check_vocabulary(model.engine.text.target, writer.text, (model.name, name))
    check_closes_lines(writer, name)
    partners = replace(before, language_model=writer, lm_weight=weight)
    return Model(model.loaded, replace(model.engine, partners=partners), beside=(*model.beside, language_model))


def reranked(
    model: Model,
    *,
    channel: Model | None = None,
    channel_weight: float = 1.0,
    language_model: Model | None = None,
    lm_weight: float = 0.2,
) -> Model:
    """The noisy channel: the whole beam is ranked anew by log p(y | x) + λ_ch log p(x | y) + λ_lm log p(y).

    `channel` is a translator of the other direction; both it and the language model score texts and may have any
    vocabulary. The exact score stands in `saccade.rerank`; each output's parts are in its `features`.
    """
    given = [each for each in (channel, language_model) if each is not None]
    if not given:
        raise UsageError("channel, language_model: neither is given; outputs are ranked anew by one of them, or both.")
    if model.engine.judge is not None:
        raise UsageError(f"{model.name}: its outputs are ranked anew already; give channel and language model at once.")
    _check_weight("the channel's weight", channel_weight)
    _check_weight("the language model's weight", lm_weight)
    if channel is not None and channel.engine.reads_parse:
        raise UsageError(
            f"{channel.path}: reads dependency trees (model.encoder.positions is tree), and outputs have none; take a "
            "channel with other positions."
        )
    judge = NoisyChannel(
        model.engine.text.source,
        None if channel is None else channel.engine,
        channel_weight,
        None if language_model is None else language_model.writer,
        lm_weight,
    )
    return Model(model.loaded, replace(model.engine, judge=judge), beside=(*model.beside, *given))


def _check_weight(name: str, weight: float) -> None:
    if not (math.isfinite(weight) and weight >= 0.0):
        raise UsageError(f"{name} is {weight:g}; it must be a number that is not negative.")


def _check_device(one: Model, other: Model) -> None:
    if one.loaded.device != other.loaded.device:
        raise UsageError(
            f"{other.path}: is on {other.loaded.device}, {one.path} on {one.loaded.device}; load both on one device."
        )
