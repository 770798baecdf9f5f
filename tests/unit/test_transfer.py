"""Encoders that go on from trained weights: what is taken, what is not, what is refused; rates layer by layer."""

from typing import Any

import pytest
import torch
from torch import nn

from saccade.checkpoint import model_tensors
from saccade.config import parse, plain
from saccade.errors import UsageError
from saccade.models.build import build_language_model, build_masked, build_translator
from saccade.models.language_model import LanguageModelConfig
from saccade.models.masked import MaskedConfig, MaskedModel
from saccade.models.transfer import check_alike, take_encoder
from saccade.models.translator import TranslatorConfig
from saccade.train.layer_rates import freeze_encoder, rate_factors
from tests.cases import every_encoder
from tests.masked_cases import MaskedCase, every_masked_model, name_of

V = 17
TRANSFORMER: dict[str, Any] = {"kind": "transformer", "layers": 2, "width": 8, "heads": 2}
LSTM: dict[str, Any] = {"kind": "lstm", "layers": 2, "width": 8}


def masked(encoder: dict[str, Any], *, seed: int = 0, vocabulary: int = V, **settings: Any) -> MaskedModel:
    torch.manual_seed(seed)
    return build_masked(parse(MaskedConfig, {"encoder": encoder, **settings}), vocabulary)


def translator(encoder: dict[str, Any], **settings: Any) -> nn.Module:
    torch.manual_seed(1)
    decoder = {"kind": "transformer", "layers": 1, "width": 8, "heads": 2}
    return build_translator(parse(TranslatorConfig, {"encoder": encoder, "decoder": decoder, **settings}), V, V)


@pytest.mark.parametrize("encoder", [TRANSFORMER, LSTM, {**TRANSFORMER, "norm_kind": "batch"}])
@pytest.mark.parametrize("tie", ["none", "output"])
def test_the_whole_encoder_is_taken_and_nothing_else(encoder: dict[str, Any], tie: str) -> None:
    theirs = masked(encoder, tie=tie)
    ours = translator(encoder)
    before = {name: p.detach().clone() for name, p in ours.named_parameters()}
    taken = take_encoder(ours, model_tensors(theirs), "runs/other")
    assert isinstance(ours.encoder, nn.Module)
    for (name, mine), (_, their) in zip(
        ours.encoder.named_parameters(), theirs.encoder.named_parameters(), strict=True
    ):
        assert torch.equal(mine, their), name
    for name, mine in ours.named_parameters():
        assert name.startswith("encoder.") or torch.equal(mine, before[name]), name
    assert set(taken.taken) == {name for name in before if name.startswith("encoder.")}
    assert set(taken.fresh) == {name for name in before if name.startswith("decoder.")}
    assert {"head.layer.weight", "head.norm.bias", "output.bias"} <= set(taken.left)
    assert ("output.weight" in taken.left) == (tie == "none")
    count = sum(p.numel() for p in ours.encoder.parameters())
    assert taken.numbers == count
    told = f"{count:,} weights of the encoder were taken from runs/other; learnt anew: decoder."
    assert taken.told("runs/other") == told


def test_what_is_tied_to_the_encoder_comes_with_it() -> None:
    theirs, ours = masked(TRANSFORMER), masked(TRANSFORMER, seed=1)
    taken = take_encoder(ours, model_tensors(theirs), "it")
    assert torch.equal(ours.output.weight, theirs.output.weight)
    assert "output.weight" not in taken.fresh
    assert taken.told("it").endswith("learnt anew: head, output.")


def test_from_a_translator_whose_sides_are_tied() -> None:
    theirs = translator(TRANSFORMER, tie="all")
    ours = masked(TRANSFORMER)
    taken = take_encoder(ours, model_tensors(theirs), "it")
    assert torch.equal(ours.encoder.embed.table.weight, theirs.get_parameter("decoder.embed.table.weight"))
    assert all(name.startswith("decoder.") for name in taken.left)


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (masked({**TRANSFORMER, "width": 6}), r"encoder\.\S+ has shape \(.*\) in it, and \(.*\) here"),
        (masked(TRANSFORMER, vocabulary=9), r"encoder.embed.table.weight has shape \(9, 8\) in it, and \(17, 8\) here"),
        (masked({**TRANSFORMER, "layers": 3}), r"has \['encoder.stack.blocks.2"),
        (masked({**TRANSFORMER, "layers": 1}), r"lacks \['encoder.stack.blocks.1"),
        (masked(LSTM), "is another than model.encoder"),
        (nn.ModuleDict({"decoder": nn.Linear(2, 2)}), "it holds no encoder"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(theirs: nn.Module, told: str) -> None:
    ours = masked(TRANSFORMER, seed=1)
    before = model_tensors(ours)
    before = {name: each.clone() for name, each in before.items()}
    with pytest.raises(UsageError, match=told):
        take_encoder(ours, model_tensors(theirs), "it")
    assert all(torch.equal(each, before[name]) for name, each in model_tensors(ours).items())


def test_a_model_without_an_encoder() -> None:
    config = parse(LanguageModelConfig, {"decoder": {"kind": "lstm", "width": 8}})
    with pytest.raises(UsageError, match="this model has no encoder"):
        take_encoder(build_language_model(config, V), model_tensors(masked(TRANSFORMER)), "it")


def test_settings_that_may_and_may_not_differ() -> None:
    def encoder(**changes: Any) -> Any:
        return parse(MaskedConfig, {"encoder": TRANSFORMER | changes}).encoder

    check_alike(plain(encoder()), plain(encoder(dropout=0.4)), "it")
    with pytest.raises(
        UsageError, match=r"it is another .*activation is gelu there and relu here.*Leave model.encoder"
    ):
        check_alike(plain(encoder()), plain(encoder(activation="gelu")), "it")
    lstm = parse(MaskedConfig, {"encoder": LSTM | {"locked": True, "weight_dropout": 0.5}}).encoder
    check_alike(plain(parse(MaskedConfig, {"encoder": LSTM}).encoder), plain(lstm), "it")
    with pytest.raises(UsageError, match="kind is lstm there and transformer here"):
        check_alike(plain(encoder()), plain(lstm), "it")


# ---- levels, rates, frozen weights


@pytest.mark.parametrize("case", every_encoder(), ids=lambda case: case.name)
def test_every_weight_of_an_encoder_stands_on_a_level(case: Any) -> None:
    encoder, _ = case.build()
    on_levels = {id(p) for parts in encoder.levels for part in parts for p in part.parameters()}
    assert on_levels == {id(p) for p in encoder.parameters()}
    assert len(encoder.levels) == 1 + case.config.layers


def test_each_layer_learns_slower_than_the_one_above_it() -> None:
    factors = rate_factors(masked(TRANSFORMER), 0.5)
    expected = {"encoder.embed.": 0.125, "encoder.stack.blocks.0.": 0.25, "encoder.stack.blocks.1.": 0.5}
    expected |= {"encoder.stack.norm.": 0.5, "head.": 1.0, "output.": 1.0}
    for name, factor in factors.items():
        (wanted,) = [value for prefix, value in expected.items() if name.startswith(prefix)]
        assert factor == wanted, name


def test_both_directions_of_a_layer_are_one_level() -> None:
    factors = rate_factors(masked(LSTM), 0.1)
    for way in ("forwards", "backwards"):
        assert factors[f"encoder.layers.{way}.1.weight_ih"] == pytest.approx(0.1)
        assert factors[f"encoder.layers.{way}.0.weight_ih"] == pytest.approx(0.01)
    assert factors["encoder.embed.table.weight"] == pytest.approx(0.001)


@pytest.mark.parametrize("case", every_masked_model(), ids=name_of)
def test_every_weight_has_a_rate(case: MaskedCase) -> None:
    model = case.build()
    names = dict(model.named_parameters()).keys()
    assert rate_factors(model, 0.9).keys() == names
    assert set(rate_factors(model, 1.0).values()) == {1.0}


def test_what_layers_share_goes_with_the_lowest() -> None:
    linformer = {"kind": "linformer", "slots": 2, "places": 8, "sharing": "layerwise"}
    model = masked(TRANSFORMER | {"pattern": linformer})
    factors = rate_factors(model, 0.5)
    shared = [factor for name, factor in factors.items() if ".slots." in name]
    assert set(shared) == {0.25}


def test_a_frozen_encoder() -> None:
    model = masked(TRANSFORMER, next_sentence=True)
    freeze_encoder(model)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert all(name.startswith("encoder.") for name in frozen)
    assert {name.partition(".")[0] for name in trained} == {"head", "output", "next_sentence"}
    assert not model.output.weight.requires_grad  # tied
    with pytest.raises(UsageError, match="norm_kind is batch"):
        freeze_encoder(masked(TRANSFORMER | {"norm_kind": "batch"}))


def test_an_encoder_without_levels_is_one() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(2, 2), "output": nn.Linear(2, 2)})
    assert rate_factors(model, 0.5) == {
        "encoder.weight": 0.5, "encoder.bias": 0.5, "output.weight": 1.0, "output.bias": 1.0
    }  # fmt: skip


def test_without_an_encoder_there_are_no_levels() -> None:
    for call in (freeze_encoder, lambda model: rate_factors(model, 0.5)):
        with pytest.raises(UsageError, match="this one has none"):
            call(nn.Linear(2, 2))
