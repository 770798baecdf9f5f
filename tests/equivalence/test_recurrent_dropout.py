"""What is dropped from a recurrence, when, and for how long."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.models.build import build_translator
from saccade.models.encoders import RecurrentEncoder
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.models.translator import TranslatorConfig
from saccade.nn.cells import Variant
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.locked import LockedDropout
from saccade.nn.recurrent import CellKind, RecurrentLayers, StackKind
from saccade.nn.watch import Watch
from saccade.types import Layout, Tokens

kinds = pytest.mark.parametrize("kind", ["elman", "gru", "lstm", "lstmn"])
EVEN = Layout.padded([6, 6, 6])


def dropping(kind: CellKind, stack: StackKind = "plain", *, bidirectional: bool = False) -> RecurrentLayers:
    torch.manual_seed(0)
    return RecurrentLayers(
        kind,
        5,
        8,
        3,
        bidirectional=bidirectional,
        dropout=0.4,
        locked=True,
        weight_dropout=0.5,
        stack=stack,
    ).double()


# ---- locked dropout


def test_a_locked_mask_is_the_same_at_every_step_and_no_other() -> None:
    torch.manual_seed(0)
    x_BTD = torch.ones(50, 7, 40)
    drop = LockedDropout(0.25)
    once, again = drop(x_BTD), drop(x_BTD)
    assert torch.equal(once, once[:, :1].expand_as(once))
    assert set(once.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert not torch.equal(once, again)
    assert len(once[:, 0].unique(dim=0)) == 50  # one a sentence
    assert abs(once.mean() - 1) < 0.05
    assert torch.equal(drop.eval()(x_BTD), x_BTD)
    assert torch.equal(LockedDropout(0.0)(x_BTD), x_BTD)


@torch.no_grad()
def test_between_layers_the_mask_holds_for_the_sentence() -> None:
    """Layers that hand on what they get: the output is the input times one mask for each layer but the lowest."""
    layers = RecurrentLayers(
        "elman", 6, 6, 3, bidirectional=False, dropout=0.3, locked=True, variant=Variant(activation="identity")
    )
    for cell in layers.forwards:
        cell.weight_ih.copy_(torch.eye(6))  # type: ignore[operator]
        cell.weight_hh.zero_()  # type: ignore[operator]
    x_BTD = torch.rand(3, 6, 6) + 1
    out_BTD, _ = layers(x_BTD, EVEN)
    ratio_BTD = out_BTD / x_BTD
    assert_close(ratio_BTD, ratio_BTD[:, :1].expand_as(ratio_BTD))
    assert (ratio_BTD == 0).any()
    kept = ratio_BTD[ratio_BTD > 0]
    assert_close(kept, torch.full_like(kept, 1 / 0.7**2))


# ---- weight dropout


@torch.no_grad()
def dropped_U(layers: RecurrentLayers, watch: Watch | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of one Elman layer with W = 1 and no bias, what it makes of one impulse a unit: I, U', U'²."""
    x_BTD = torch.zeros(8, 3, 8, dtype=torch.float64)
    x_BTD[:, 0] = torch.eye(8)
    out_BTD, _ = layers(x_BTD, Layout.padded([3] * 8), watch=watch)
    first, second, third = out_BTD.unbind(1)
    return first, second.T, third.T


@pytest.mark.parametrize("activation", ["relu", "identity"], ids=["fused", "step by step"])
@torch.no_grad()
def test_weights_are_dropped_once_a_pass(activation: str) -> None:
    torch.manual_seed(0)
    variant = Variant(activation=activation)  # type: ignore[arg-type]
    layers = RecurrentLayers(
        "elman", 8, 8, 1, bidirectional=False, dropout=0.0, weight_dropout=0.5, variant=variant
    ).double()
    layers.first.weight_ih.copy_(torch.eye(8))
    layers.first.weight_hh.abs_()
    U = layers.first.weight_hh
    first, once, squared = dropped_U(layers, None)
    assert_close(first, torch.eye(8).double())  # the first step does not know which weights are dropped
    assert ((once == 0) | torch.isclose(once, 2 * U)).all()
    assert 0.25 < (once == 0).double().mean() < 0.75
    assert_close(squared, once @ once)  # the same at the next step
    assert not torch.equal(dropped_U(layers, None)[1], once)  # others in the next pass
    assert_close(dropped_U(layers.eval(), None)[1], U)


# ---- all of it together


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("stack", ["plain", "residual", "dense"])
@kinds
def test_fast_equals_readable_in_training(kind: CellKind, stack: StackKind, bidirectional: bool) -> None:
    """What is drawn does not depend on who looks."""
    layers = dropping(kind, stack, bidirectional=bidirectional)
    x_BTI = torch.randn(3, 6, 5).double()
    results = []
    for watch in (None, Watch()):
        torch.manual_seed(1)
        out, _ = layers(x_BTI, Layout.padded([6, 2, 4]), watch=watch)
        results.append(torch.autograd.grad(out[:, :2].square().sum(), list(layers.parameters())))
    for one, other in zip(*results, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("stack", ["plain", "residual", "dense"])
@kinds
@torch.no_grad()
def test_steps_of_one_pass_equal_all_at_once_in_training(kind: CellKind, stack: StackKind) -> None:
    layers = dropping(kind, stack)
    x_BTI = torch.randn(3, 6, 5).double()
    torch.manual_seed(1)
    expected, _ = layers(x_BTI, EVEN)
    torch.manual_seed(1)
    during = layers.begin(x_BTI)
    zeros = [{name: torch.zeros(3, 8).double() for name in layers.first.states} for _ in range(3)]
    state, outs = layers.open(zeros, 6), []
    for hoisted in layers.hoist(x_BTI).unbind(1):
        out, state = layers.step(hoisted, state, during=during)
        outs.append(out)
    assert_close(torch.stack(outs, dim=1), expected)


@kinds
@torch.no_grad()
def test_without_dropout_nothing_is_drawn(kind: CellKind) -> None:
    """With every rate at 0, training is evaluation, and torch's generator is left alone."""
    torch.manual_seed(0)
    layers = RecurrentLayers(kind, 5, 8, 2, bidirectional=False, dropout=0.0, locked=True, weight_dropout=0.0)
    x_BTI, before = torch.randn(3, 6, 5), torch.get_rng_state()
    trained, _ = layers(x_BTI, EVEN)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(layers.eval()(x_BTI, EVEN)[0], trained)


@torch.no_grad()
def test_the_expectation_over_masks_is_the_evaluation() -> None:
    """Of a linear model, whose output is linear in every mask."""
    torch.manual_seed(0)
    layers = RecurrentLayers(
        "elman",
        4,
        4,
        2,
        bidirectional=False,
        dropout=0.3,
        locked=True,
        weight_dropout=0.2,
        variant=Variant(activation="identity"),
    )
    rows = 3000
    x_BTI = torch.randn(1, 2, 4).expand(rows, 2, 4)
    mean = torch.stack([layers(x_BTI, Layout.padded([2] * rows))[0].mean(0) for _ in range(200)]).mean(0)
    assert_close(mean, layers.eval()(x_BTI[:1], Layout.padded([2]))[0][0], rtol=0.0, atol=0.08)


# ---- embedding dropout


@torch.no_grad()
def test_whole_words_are_dropped_wherever_they_stand() -> None:
    torch.manual_seed(0)
    embed = TokenEmbedding(200, 6, word_dropout=0.25)
    ids = torch.arange(200).repeat(3, 1)[:, torch.randperm(200)]
    nowhere = torch.zeros((), dtype=torch.long)
    x_BTD, plain_BTD = embed(ids, nowhere), embed.eval()(ids, nowhere)
    assert torch.equal(plain_BTD, embed.table.weight[ids])
    gone_BT = (x_BTD == 0).all(-1)
    assert torch.equal(gone_BT, gone_BT[:1].expand_as(gone_BT))  # each word in all sentences or in none
    assert_close(x_BTD[~gone_BT], plain_BTD[~gone_BT] / 0.75)
    assert 0.1 < gone_BT.double().mean() < 0.4
    assert not torch.equal((embed.train()(ids, nowhere) == 0).all(-1), gone_BT)


# ---- where the models have it

RECIPE = {
    "encoder": {"kind": "gru", "width": 8, "layers": 2, "dropout": 0.4, "locked": True},
    "decoder": {
        "kind": "gru",
        "width": 8,
        "layers": 2,
        "attention": {"score": "general"},
        "feed_input": True,
        "dropout": 0.4,
        "locked": True,
    },
}


@torch.no_grad()
def test_an_encoder_drops_token_vectors_and_memory_by_sentence() -> None:
    torch.manual_seed(0)
    encoder = build_translator(TranslatorConfig.model_validate(RECIPE), 17, 13).encoder
    assert isinstance(encoder, RecurrentEncoder)
    source = Tokens.of([[4, 5, 4, 6, 4], [7, 4, 2]]).packed()
    seen: list[Tensor] = []
    encoder.locked.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    memory_BSE = encoder(source).memory
    plain_BSD = encoder.embed.table.weight[Tokens.of([[4, 5, 4, 6, 4], [7, 4, 2, 0, 0]]).ids]
    for b, length in enumerate((5, 3)):
        ratio_SD = seen[0][b, :length] / plain_BSD[b, :length]
        assert_close(ratio_SD, ratio_SD[:1].expand_as(ratio_SD))
        assert (ratio_SD == 0).any()
        gone_SE = memory_BSE[b, :length] == 0
        assert torch.equal(gone_SE, gone_SE[:1].expand_as(gone_SE))
    assert (memory_BSE[:, 0] == 0).any()


@torch.no_grad()
def test_a_decoder_drops_what_it_hands_to_the_output_by_sentence() -> None:
    torch.manual_seed(0)
    model = build_translator(TranslatorConfig.model_validate(RECIPE), 17, 13)
    decoder = model.decoder
    assert isinstance(decoder, RecurrentDecoder)
    encoded = model.encode(Tokens.of([[4, 5, 4, 6, 4], [7, 4, 2]]))
    given = Tokens.of([[1, 5, 6, 7, 8, 9], [1, 4, 6]])
    for laid_out in (given, given.packed()):
        features = decoder.features(laid_out, encoded)
        rows = features.split_with_sizes([6, 3]) if laid_out.layout.is_packed else (features[0], features[1, :3])
        gone = [row == 0 for row in rows]
        assert all(torch.equal(each, each[:1].expand_as(each)) for each in gone)
        assert not torch.equal(gone[0][0], gone[1][0])
