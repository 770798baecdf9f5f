"""What every model promises: options that are tested, weights that are trained, states that decoding can handle."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import saccade.models
from saccade.config import Section, plain
from saccade.models.build import build_translator
from saccade.models.encoders import RecurrentEncoder
from saccade.models.translator import DecoderConfig, TranslatorConfig
from saccade.nn.attention import SelfAttention
from saccade.nn.cells import Elman, Gru, Lstm
from saccade.nn.lstmn import Lstmn
from saccade.nn.masks import reverse, valid_BT
from saccade.nn.positions import Rotary
from saccade.nn.scores import ScoreKind
from saccade.types import Batch, State, Tokens
from tests.cases import (
    DecoderCase,
    EncoderCase,
    TranslatorCase,
    assert_same,
    every_decoder,
    every_encoder,
    every_translator,
    name_of,
)
from tests.classifier_cases import every_classifier
from tests.language_cases import every_language_model
from tests.masked_cases import every_masked_model
from tests.tagger_cases import every_tagger

# ---- the list of cases is complete


def sections_of_models() -> list[type[Section]]:
    names = [module.name for module in pkgutil.iter_modules(saccade.models.__path__, "saccade.models.")]
    found = [value for name in names for value in vars(importlib.import_module(name)).values()]
    every = {each for each in found if isinstance(each, type) and issubclass(each, Section)}
    return [each for each in every if not each.__subclasses__()]  # what several have in common is tried in each


def choices(annotation: Any) -> list[Any]:
    """The values that an option advertises by its type; none for numbers, whose range is open."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        inner = get_args(annotation)
        offered = [value for each in inner for value in choices(each)]
        if NoneType in inner:
            offered.append(None)
        return offered + (["given"] if NoneType in inner else [])
    return []


def used(section: Section) -> Iterator[tuple[type[Section], str, Any]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        yield type(section), name, value if isinstance(value, str | bool | NoneType) else "given"
        if isinstance(value, Section):
            yield from used(value)


def test_every_advertised_option_is_in_the_list_of_cases() -> None:
    tried = {each for case in every_translator() for each in used(case.config)}
    tried |= {each for case in every_language_model() for each in used(case.config)}
    tried |= {each for case in every_masked_model() for each in used(case.config)}
    tried |= {each for case in every_classifier() for each in used(case.config)}
    tried |= {each for case in every_tagger() for each in used(case.config)}
    advertised = {
        (section, name, value)
        for section in sections_of_models()
        for name, field in section.model_fields.items()
        for value in choices(field.annotation)
    }
    assert len(advertised) > 40
    missing = [f"{section.__name__}.{name} = {value!r}" for section, name, value in advertised - tried]
    assert not missing, f"add a case to tests/cases.py for: {', '.join(sorted(missing))}"


def test_every_score_meets_every_cell_and_every_bridge_that_it_can() -> None:
    pairs = {
        (case.config.decoder.kind, case.config.decoder.attention and case.config.decoder.attention.score)
        for case in every_translator()
        if case.config.decoder.kind != "transformer"
    }
    plain = (None, "dot", "general", "additive")
    assert pairs >= {(kind, score) for kind in ("elman", "gru", "lstm") for score in plain}
    assert {score for _, score in pairs} == {None, *get_args(ScoreKind)}


# ---- what makes no sense is refused: test_refusals.py


@pytest.mark.parametrize("scope", ["global", "local-m", "local-p"])
@pytest.mark.parametrize("score", [score for score in get_args(ScoreKind) if score != "last"])
def test_another_score_or_scope_is_one_change_whatever_stands_beside_it(score: str, scope: str) -> None:
    every = {"width": 3, "rank": 2, "places": 9, "temperature": 0.2, "window": 2, "renormalise": True}
    decoder = {"kind": "lstm", "attention": every | {"score": score, "scope": scope}}
    config = TranslatorConfig.model_validate({"encoder": {"kind": "lstm"}, "decoder": decoder})
    build_translator(config, 17, 13)


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_the_resolved_config_builds_the_same_model(case: TranslatorCase) -> None:
    assert TranslatorConfig.model_validate(plain(case.config)) == case.config


# ---- every weight is trained


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_every_parameter_is_reached_by_backward(case: TranslatorCase) -> None:
    model, batch = case.build().train(), case.batch()  # what is drawn in training learns in training alone
    model.loss(batch).total.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if name.endswith((".running_mean", ".running_variance")):
            assert not parameter.requires_grad  # measured, not trained
            continue
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.isfinite().all(), name
        for part, gradient in enumerate(_parts(model, name, parameter.grad)):
            assert gradient.abs().max() > 1e-7, f"{name}, part {part}, is not reached"


def _parts(model: nn.Module, name: str, gradient: Tensor) -> tuple[Tensor, ...]:
    """A weight that holds several gates, or keys and values, counts as several.

    Without a gradient may be: the key's bias of multi-head attention. It adds the same to every score of a query, which
    the softmax takes away again (mechanisms: a row constant); its gradient is 0 but for rounding. Not so where keys are
    turned by their place, or summed up with weights.
    """
    owner = model.get_submodule(name.rpartition(".")[0])
    around = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0])
    if isinstance(around, SelfAttention) and (isinstance(around.places, Rotary) or around.slots is not None):
        return gradient.chunk(3) if "of_input" in name else (gradient,)
    match owner:
        case Elman() | Gru() | Lstm() | Lstmn():
            return gradient.chunk(len(gradient) // owner.width)
        case _ if name.endswith(("of_memory.bias", "of_input.bias")):
            *queries, keys, values = gradient.chunk(2 if "of_memory" in name else 3)
            assert keys.abs().max() < 1e-5 * max(1.0, float(values.abs().max()))
            return (*queries, values)
        case _ if name.endswith(("of_memory.weight", "of_input.weight")):
            return gradient.chunk(2 if "of_memory" in name else 3)
        case _:
            return (gradient,)


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_weights_are_shared_where_tied_and_only_there(case: TranslatorCase) -> None:
    def count(tie: str) -> int:
        config = case.config.model_copy(update={"tie": tie})
        return sum(p.numel() for p in build_translator(config, *case.vocabularies).parameters())

    model = case.build()
    (_, target), width = case.vocabularies, model.decoder.output.in_features
    into, out = model.decoder.embed.table.weight, model.decoder.output.weight
    assert (into is out) == (case.config.tie != "none")
    assert (model.encoder.embed.table.weight is into) == (case.config.tie == "all")
    saved = {"none": 0, "output": target * width, "all": 2 * target * width}[case.config.tie]
    assert count(case.config.tie) == count("none") - saved
    if case.config.tie != "none":  # h Eᵀ + b
        h = torch.randn(3, width)
        torch.testing.assert_close(model.decoder.output(h), h @ into.T + model.decoder.output.bias)


@pytest.mark.parametrize(
    ("layers", "norm", "memory", "expected"),
    [  # 4d²+4d + 2df+f+d + 4d and 8d²+8d + 2df+f+d + 6d, d = 6, f = 11
        (1, "pre", None, 4 * 36 + 24 + 132 + 17 + 24),
        (1, "pre", 6, 8 * 36 + 48 + 132 + 17 + 36),
    ],
)
def test_a_block_has_the_papers_parameter_count(layers: int, norm: Any, memory: int | None, expected: int) -> None:
    from saccade.nn.transformer import Block

    block = Block(6, 3, 11, dropout=0.0, norm=norm, activation="relu", memory_width=memory, causal=False)
    assert sum(p.numel() for p in block.parameters()) == layers * expected


def test_the_transformers_size_is_the_papers() -> None:
    """Base without its embeddings: 44.14 M, and no more with pre-norm than the two final norms."""

    def size(norm: str) -> int:
        side = {"kind": "transformer", "layers": 6, "width": 512, "heads": 8, "norm": norm}
        config = TranslatorConfig.model_validate({"encoder": side, "decoder": side, "tie": "all"})
        with torch.device("meta"):
            model = build_translator(config, 10, 10)
        return sum(p.numel() for p in model.parameters()) - 10 * 512 - 10

    assert size("post") == 44_138_496
    assert size("pre") == size("post") + 2 * 2 * 512


# ---- randomness


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_dropout_acts_in_training_only(case: TranslatorCase) -> None:
    tree = plain(case.config)
    for side in ("encoder", "decoder"):
        tree[side]["dropout"] = 0.5
    dropping = TranslatorCase(case.name, TranslatorConfig.model_validate(tree))
    model, batch = dropping.build(), dropping.batch()
    with torch.no_grad():
        once, again = model(batch), model(batch)
        assert torch.equal(once, again)
        torch.testing.assert_close(once, case.build()(batch))  # in evaluation the rate has no effect
        model.train()
        assert not torch.allclose(model(batch), model(batch))
        torch.manual_seed(5)
        first = model(batch)
        torch.manual_seed(5)
        assert torch.equal(first, model(batch))


def has_transformer(config: TranslatorConfig) -> bool:
    return "transformer" in (config.encoder.kind, config.decoder.kind)


@pytest.mark.parametrize("case", [case for case in every_translator() if has_transformer(case.config)], ids=name_of)
def test_dropout_of_attention_weights_acts_in_training_only(case: TranslatorCase) -> None:
    """Alone, in each side that has it."""
    tree = plain(case.config)
    for side in ("encoder", "decoder"):
        zeros = {name: 0.0 for name in tree[side] if name.endswith("dropout")}
        tree[side] |= zeros | ({"sampling": None} if "sampling" in tree[side] else {})
    still = TranslatorCase(case.name, TranslatorConfig.model_validate(tree))
    for side in ("encoder", "decoder"):
        if tree[side]["kind"] != "transformer":
            continue
        dropped = tree | {side: tree[side] | {"attention_dropout": 0.5}}
        dropping = TranslatorCase(case.name, TranslatorConfig.model_validate(dropped))
        model, batch = dropping.build(), dropping.batch()
        with torch.no_grad():
            assert torch.equal(model(batch), still.build()(batch))
            torch.manual_seed(5)
            first, other = model.train()(batch), model(batch)
            assert not torch.allclose(first, other)
            torch.manual_seed(5)
            assert torch.equal(first, model(batch))


# ---- the state is a pytree that decoding can select from


@pytest.mark.parametrize("case", every_decoder(), ids=name_of)
def test_the_state_is_a_pytree_of_tensors_batch_first_that_never_grows(case: DecoderCase) -> None:
    decoder, encoded, input_BT = case.build()
    state = decoder.start(encoded, max_steps=5)
    leaves, spec = pytree.tree_flatten(state)
    rebuilt = pytree.tree_unflatten(leaves, spec)
    assert isinstance(rebuilt, State)
    assert all(isinstance(leaf, Tensor) and len(leaf) == len(input_BT) for leaf in leaves)
    paths = [str(path[0]) for path, _ in pytree.tree_flatten_with_path(state)[0]]
    assert set(paths) <= {".source", ".hypothesis"}
    assert ".hypothesis" in paths
    shapes = [leaf.shape for leaf in leaves]
    for t in range(5):
        _, state = decoder.step(input_BT[:, t], state)
        after, same = pytree.tree_flatten(state)
        assert same == spec
        assert [leaf.shape for leaf in after] == shapes


def test_selecting_and_widening() -> None:
    state = State({"m": torch.arange(3)}, {"h": (torch.arange(3) * 10,)})
    wide = state.widen(2)
    assert wide.source["m"].tolist() == [0, 1, 2]
    assert wide.hypothesis["h"][0].tolist() == [0, 0, 10, 10, 20, 20]
    marked = State(wide.source, {"h": (torch.arange(6),)})
    kept = marked.select_sentences(torch.tensor([2, 0]), beam=2)
    assert kept.source["m"].tolist() == [2, 0]
    assert kept.hypothesis["h"][0].tolist() == [4, 5, 0, 1]
    chosen = marked.select_hypotheses(torch.tensor([1, 1, 3, 2, 5, 4]))
    assert chosen.source["m"] is marked.source["m"]
    assert chosen.hypothesis["h"][0].tolist() == [1, 1, 3, 2, 5, 4]


@pytest.mark.parametrize("case", every_decoder(), ids=name_of)
def test_branching_by_selection_leaves_the_old_state_alone(case: DecoderCase) -> None:
    decoder, encoded, input_BT = case.build()
    with torch.no_grad():
        _, state = decoder.step(input_BT[:, 0], decoder.start(encoded, max_steps=4))
        every = torch.arange(len(input_BT))
        branch = state.select_hypotheses(every)
        decoder.step(input_BT[:, 2], branch)
        decoder.step(input_BT[:, 3], state.widen(1))
        expected, _ = decoder.prefill(input_BT[:, :2], decoder.start(encoded, max_steps=4))
        actual, _ = decoder.step(input_BT[:, 1], state)
    torch.testing.assert_close(actual, expected[:, 1])


# ---- what the source can do


def looks(decoder: DecoderConfig) -> bool:
    return decoder.kind == "transformer" or decoder.attention is not None or decoder.fusion == "deep"


@pytest.mark.parametrize("case", [case for case in every_translator() if not looks(case.config.decoder)], ids=name_of)
def test_without_attention_the_source_is_seen_through_the_first_state_alone(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    state = model.start(model.encode(batch.source), max_steps=3)
    assert not pytree.tree_leaves(state.source)


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_the_source_reaches_the_output(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    other = case.sources([5, 7, 1, 3], seed=11)
    with torch.no_grad():
        changed = (model(batch) - model(Batch(other, batch.target))).abs().amax((1, 2))
    assert (changed[[0, 1, 3]] > 1e-6).all()
    assert changed[2] < 1e-6  # its source is the same: END alone


def test_reversing_a_palindrome_changes_nothing_that_the_decoder_begins_with() -> None:
    case = next(case for case in every_translator() if case.name == "lstm, Sutskever's")
    model = case.build()
    palindrome, other = Tokens.of([[4, 5, 6, 5, 4]]), Tokens.of([[4, 5, 6, 7, 2]])

    def final(source: Tokens, reverse: bool) -> Tensor:
        assert hasattr(model.encoder, "reverse")
        model.encoder.reverse = reverse
        return model.encode(source).final[-1]["h"]

    with torch.no_grad():
        assert torch.equal(final(palindrome, True), final(palindrome, False))
        assert not torch.allclose(final(other, True), final(other, False))


@pytest.mark.parametrize(
    "case", [case for case in every_encoder() if getattr(case.config, "reverse", False)], ids=name_of
)
@torch.no_grad()
def test_a_reversed_encoder_reads_back_to_front_and_answers_in_the_sources_order(case: EncoderCase) -> None:
    encoder, source = case.build()
    assert isinstance(encoder, RecurrentEncoder)
    encoded = encoder(source)
    encoder.reverse = False
    mirrored = encoder(Tokens(reverse(source.ids[:, :, None], source.layout)[:, :, 0], source.layout))
    valid = valid_BT(source.layout)
    assert_same(encoded.memory[valid], reverse(mirrored.memory, source.layout)[valid])
    for layer, other in zip(encoded.final, mirrored.final, strict=True):
        for name in layer:
            assert_same(layer[name], other[name])


def test_multi_head_counts_no_parameter_for_its_heads() -> None:
    assert len({sum(p.numel() for p in SelfAttention(6, heads).parameters()) for heads in (1, 2, 3, 6)}) == 1
