"""A sentence is worth the same alone, padded, packed, and beside whichever others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.loss import cross_entropy
from saccade.nn.masks import pack, valid_BT
from saccade.nn.recurrent import CellKind, RecurrentLayers
from saccade.nn.transformer import Block, NormPlace
from saccade.types import Batch, Layout, Tokens
from tests.cases import (
    EncoderCase,
    TranslatorCase,
    assert_same,
    every_encoder,
    every_translator,
    name_of,
    sentence,
    sentences,
    tokens,
)

translators = pytest.mark.parametrize("case", every_translator(), ids=name_of)


def alone(batch: Batch, b: int) -> Batch:
    return Batch(sentence(batch.source, b), sentence(batch.target, b))


def with_other_padding(batch: Batch, filler: int) -> Batch:
    def filled(side: Tokens) -> Tokens:
        padding = ~valid_BT(side.layout)
        parse = None if side.parse is None else side.parse.map(lambda x: x.masked_fill(padding, filler))
        return Tokens(side.ids.masked_fill(padding, filler), side.layout, parse)

    return Batch(filled(batch.source), filled(batch.target))


def reordered(batch: Batch, rows: list[int]) -> Batch:
    def chosen(side: Tokens) -> Tokens:
        parse = None if side.parse is None else side.parse.map(lambda x: x[rows])
        return Tokens(side.ids[rows], Layout.padded(side.layout.lengths_B[rows], side.layout.longest), parse)

    return Batch(chosen(batch.source), chosen(batch.target))


def gradients(module: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    module.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@translators
@torch.no_grad()
def test_padded_equals_alone(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    logits_BTV = model(batch)
    for b, length in enumerate(batch.target.layout.lengths_B.tolist()):
        assert_same(logits_BTV[b, :length], model(alone(batch, b))[0], f"sentence {b}")


@pytest.mark.parametrize("case", every_encoder(), ids=name_of)
@torch.no_grad()
def test_what_an_encoder_hands_over_is_the_same_padded_and_alone(case: EncoderCase) -> None:
    encoder, source = case.build()
    encoded = encoder(source)
    for b, length in enumerate(source.layout.lengths_B.tolist()):
        single = encoder(sentence(source, b))
        assert_same(encoded.memory[b, :length], single.memory[0])
        assert len(encoded.final) == len(single.final)
        for layer, layer_alone in zip(encoded.final, single.final, strict=True):
            assert layer.keys() == layer_alone.keys()
            for name in layer:
                assert_same(layer[name][b], layer_alone[name][0])


@translators
@torch.no_grad()
def test_batch_mates_and_their_order_do_not_matter(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    logits_BTV = model(batch)
    rows = [2, 0, 3, 1]
    assert_same(model(reordered(batch, rows)), logits_BTV[rows])

    others = Batch(case.sources([5, 2, 7], seed=7), tokens([4, 3, 7], case.vocabularies[1], seed=8))
    mixed = Batch(_stacked(batch.source, others.source), _stacked(batch.target, others.target))
    for b, length in enumerate(batch.target.layout.lengths_B.tolist()):
        assert_same(model(mixed)[b, :length], logits_BTV[b, :length])


def _stacked(one: Tokens, other: Tokens) -> Tokens:
    return sentences([(side, b) for side in (one, other) for b in range(len(side.layout.lengths_B))])


@translators
def test_the_ids_on_padding_change_neither_loss_nor_gradient(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    other = with_other_padding(batch, filler=5)
    assert not torch.equal(batch.source.ids, other.source.ids)
    losses = [cross_entropy(model(each), each.target, smoothing=0.1).total for each in (batch, other)]
    assert torch.equal(losses[0], losses[1])
    first, second = (gradients(model, loss) for loss in losses)
    for name in first:
        assert torch.equal(first[name], second[name]), name


@translators
def test_nothing_flows_back_to_padding(case: TranslatorCase) -> None:
    """Exactly 0, for source and target; and elsewhere not 0."""
    model, batch = case.build(), case.batch()
    vectors: dict[str, Tensor] = {}

    def keep(side: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            output.retain_grad()
            vectors[side] = output

        return hook

    model.encoder.embed.register_forward_hook(keep("source"))
    model.decoder.embed.register_forward_hook(keep("target"))
    cross_entropy(model(batch), batch.target).total.backward()  # type: ignore[no-untyped-call]
    for side, layout in (("source", batch.source.layout), ("target", batch.target.layout)):
        gradient_BTD, valid = vectors[side].grad, valid_BT(layout)
        assert gradient_BTD is not None
        assert (gradient_BTD[~valid] == 0).all(), side
        assert (gradient_BTD[valid].abs().amax(-1) > 0).all(), side


@translators
def test_the_batchs_gradient_is_the_sum_of_the_sentences(case: TranslatorCase) -> None:
    model, batch = case.build().double(), case.batch()
    together = gradients(model, cross_entropy(model(batch), batch.target).total)
    singles = [alone(batch, b) for b in range(len(batch))]
    apart = gradients(model, torch.stack([cross_entropy(model(each), each.target).total for each in singles]).sum())
    for name in together:
        assert_same(together[name], apart[name], name)


# ---- packed = padded, through whole models


@translators
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_packed_equals_padded(case: TranslatorCase, device: str) -> None:
    """Logits of every real token, the loss, and the gradient of every weight."""
    model, batch = case.build().to(device), case.batch()
    packed, padded = batch.packed().to(torch.device(device)), batch.to(torch.device(device))
    logits_NV, logits_BTV = model(packed), model(padded)
    tolerance = 5e-5 if device == "cpu" else 2e-3

    def assert_near(actual: Tensor, expected: Tensor, what: str) -> None:
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, msg=lambda why: f"{what}: {why}")

    assert_near(logits_NV, pack(logits_BTV, packed.target.layout), "logits")
    of_packed, of_padded = model.loss(packed, 0.1), cross_entropy(logits_BTV, padded.target, 0.1)
    terms = model.loss(padded, 0.1).extra
    assert of_packed.extra.keys() == terms.keys()
    for name, term in terms.items():
        assert_near(of_packed.extra[name], term, name)
    of_padded = of_padded.plus(terms)
    assert_near(of_packed.total, of_padded.total, "loss")
    assert_near(of_packed.nll, of_padded.nll, "likelihood")
    assert of_packed.tokens == of_padded.tokens == len(packed.target.ids)
    fast, readable = gradients(model, of_packed.total), gradients(model, of_padded.total)
    assert fast.keys() == readable.keys()
    for name in fast:
        assert_near(fast[name], readable[name], name)


# ---- packed = padded, through the mixers

ragged = Layout.padded([4, 7, 1, 3])


@pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
def test_packed_equals_padded_through_recurrent_layers(kind: CellKind, bidirectional: bool, watched: bool) -> None:
    from saccade.nn.watch import Watch

    torch.manual_seed(0)
    layers = RecurrentLayers(kind, 5, 6, 2, bidirectional=bidirectional, dropout=0.0)
    x_BTD = torch.randn(4, 7, 5)
    watch = Watch() if watched else None
    out_BTD, final = layers(x_BTD, ragged, watch=watch)
    packed = ragged.packed()
    out_ND, packed_final = layers(pack(x_BTD, packed), packed, watch=watch)
    assert out_ND.shape == (15, 6)
    assert_same(out_ND, pack(out_BTD, packed))
    for layer, packed_layer in zip(final, packed_final, strict=True):
        for name in layer:
            assert_same(layer[name], packed_layer[name])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed_memory", [False, True])
def test_packed_equals_padded_through_a_block(norm: NormPlace, causal: bool, packed_memory: bool) -> None:
    torch.manual_seed(0)
    block = Block(6, 3, 11, dropout=0.0, norm=norm, activation="relu", memory_width=5, causal=causal)
    x_BTD, memory_BSE, source = torch.randn(4, 7, 6), torch.randn(4, 5, 5), Layout.padded([5, 2, 3, 1])
    out_BTD = block(x_BTD, ragged, memory=block.remember(memory_BSE, source))
    packed = ragged.packed()
    memory = (
        block.remember(pack(memory_BSE, source.packed()), source.packed())
        if packed_memory
        else block.remember(memory_BSE, source)
    )
    out_ND = block(pack(x_BTD, packed), packed, memory=memory)
    assert out_ND.shape == (15, 6)
    assert_same(out_ND, pack(out_BTD, packed))
    out_ND.square().sum().backward()
    packed_gradients = {name: p.grad.clone() for name, p in block.named_parameters() if p.grad is not None}
    padded_gradients = gradients(block, pack(out_BTD, packed).square().sum())
    for name in packed_gradients:
        assert_same(packed_gradients[name], padded_gradients[name], name)
