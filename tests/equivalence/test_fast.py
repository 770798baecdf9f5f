"""Fast = readable: whoever watches sees the numbers that training and decoding compute."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.loss import cross_entropy
from saccade.models.translator import Translator
from saccade.nn.masks import valid_BT
from saccade.nn.recurrent import CellKind, RecurrentLayers
from saccade.nn.watch import Watch
from saccade.train.numerics import numerics
from saccade.types import Batch, Layout
from tests.cases import SOURCE_LENGTHS, TARGET_LENGTHS, TranslatorCase, every_translator, name_of

devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
translators = pytest.mark.parametrize("case", every_translator(), ids=name_of)


def losses(model: Translator, batch: Batch, watch: Watch | None) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    logits_BTV = model(batch, watch)
    cross_entropy(logits_BTV, batch.target).total.backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return logits_BTV.detach()[valid_BT(batch.target.layout)], gradients


def assert_near(actual: Tensor, expected: Tensor, device: str, what: str = "") -> None:
    """The GPU's matrix products may round inputs to TensorFloat-32."""
    tolerance = 5e-5 if device == "cpu" else 2e-3
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, msg=lambda reason: f"{what}: {reason}")


@devices
@translators
def test_fast_equals_readable(case: TranslatorCase, device: str) -> None:
    """Logits at real positions, and the gradient of every weight."""
    model, batch = case.build().to(device), case.batch().to(torch.device(device))
    with numerics("fp32", torch.device(device)):
        fast, fast_gradients = losses(model, batch, None)
        readable, readable_gradients = losses(model, batch, Watch())
    assert_near(fast, readable, device)
    assert fast_gradients.keys() == readable_gradients.keys()
    for name in fast_gradients:
        assert_near(fast_gradients[name], readable_gradients[name], device, name)


@pytest.mark.gpu
@translators
def test_fast_equals_readable_in_half_precision(case: TranslatorCase) -> None:
    model, batch = case.build().cuda(), case.batch().to(torch.device("cuda"))
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        fast, readable = model(batch), model(batch, Watch())
    valid = valid_BT(batch.target.layout)
    assert_close(fast[valid].float(), readable[valid].float(), rtol=0.1, atol=0.1)


@translators
@torch.no_grad()
def test_attention_is_a_distribution_over_real_tokens(case: TranslatorCase) -> None:
    """Each row sums to 1, padding has exactly 0, the future has exactly 0; one picture a layer, head and query.

    But for local-p, whose weights the paper multiplies with a Gaussian; and a last state is at no place of the source.
    The rows of padding may have nothing to look at, as in a window.
    """
    model, batch, watch = case.build(), case.batch(), Watch()
    model(batch, watch)
    expected = _shapes_of_attention(case)
    assert {kind: [tuple(each.shape) for each in seen] for kind, seen in watch.attention.items()} == expected

    padding_B11S = ~valid_BT(batch.source.layout)[:, None, None]
    for kind, seen in watch.attention.items():
        encoder = case.config.encoder
        sums = kind == "encoder" and encoder.kind == "transformer" and encoder.pattern.kind == "linformer"
        for weights_BHTS in seen:
            assert not weights_BHTS.requires_grad
            if not sums:  # what a Linformer's slots take of each token is of either sign
                assert (weights_BHTS >= 0).all()
                real = valid_BT((batch.source if kind == "encoder" else batch.target).layout)
                sums_QH = weights_BHTS.sum(-1).transpose(1, 2)[real]
                if kind == "cross" and _lessens(case):
                    assert ((sums_QH > 0) & (sums_QH < 1)).all()
                else:
                    assert_close(sums_QH, torch.ones_like(sums_QH))
            if kind == "decoder":
                assert (weights_BHTS.triu(1) == 0).all()
            else:
                assert (weights_BHTS[padding_B11S.expand_as(weights_BHTS)] == 0).all()


def _shapes_of_attention(case: TranslatorCase) -> dict[str, list[tuple[int, ...]]]:
    """By kind: (B, heads, T, S) of each layer."""
    encoder, decoder = case.config.encoder, case.config.decoder
    S, T, B = max(SOURCE_LENGTHS), max(TARGET_LENGTHS), len(SOURCE_LENGTHS)
    expected: dict[str, list[tuple[int, ...]]] = {}
    if encoder.kind == "transformer":
        expected["encoder"] = [(B, encoder.heads, S, S)] * encoder.layers
    elif encoder.kind == "lstmn":
        expected["encoder"] = [(B, 2 if encoder.bidirectional else 1, S, S)] * encoder.layers
    if decoder.kind == "transformer":
        expected["decoder"] = [(B, decoder.heads, T, T)] * decoder.layers
        expected["cross"] = [(B, decoder.heads, T, S)] * decoder.layers
    elif decoder.fusion == "deep":
        expected["cross"] = [(B, 1, T, S)] * decoder.layers
    elif decoder.attention is not None and decoder.attention.score != "last":
        expected["cross"] = [(B, 1, T, S)]
    if decoder.kind == "lstmn":
        expected["decoder"] = [(B, 1, T, T)] * decoder.layers
    return expected


def _lessens(case: TranslatorCase) -> bool:
    attention = getattr(case.config.decoder, "attention", None)
    return attention is not None and attention.scope == "local-p" and not attention.renormalise


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
@devices
def test_states_that_are_watched_are_the_outputs(kind: CellKind, bidirectional: bool, device: str) -> None:
    torch.manual_seed(0)
    layers = RecurrentLayers(kind, 5, 6, 2, bidirectional=bidirectional, dropout=0.0).to(device)
    layout = Layout.padded([4, 7, 1]).to(torch.device(device))
    x_BTD = torch.randn(3, 7, 5).to(device)
    watch = Watch()
    seen_BTD, seen_final = layers(x_BTD, layout, watch=watch)
    out_BTD, final = layers(x_BTD, layout)
    valid = valid_BT(layout)
    assert_near(seen_BTD[valid], out_BTD[valid], device)
    for layer, other in zip(final, seen_final, strict=True):
        for name in layer:
            assert_near(layer[name], other[name], device)
    directions = 2 if bidirectional else 1
    assert set(watch.states) == ({"h", "c"} if kind == "lstm" else {"h"})
    assert all(len(seen) == 2 * directions for seen in watch.states.values())
    top_forward_BTD = watch.states["h"][-directions]
    assert_near(top_forward_BTD[valid], out_BTD[valid][:, : 6 // directions], device)
