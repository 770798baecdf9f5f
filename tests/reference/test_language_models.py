"""Language models against torch.nn on copied weights, their papers' equations written out, and their papers' sizes."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.data.streams import Streams, Windows
from saccade.models.build import build_language_model
from saccade.models.language_model import LanguageModel, LanguageModelConfig
from saccade.models.recurrent_writer import RecurrentWriter
from saccade.models.window_decoder import WindowDecoder
from saccade.nn.regularisation import activation, change
from saccade.train.validation import stream_loss
from saccade.types import START
from tests.language_cases import VOCABULARY, every_language_model, name_of, sentences

CPU = torch.device("cpu")


def build(decoder: dict[str, Any], tie: str = "none", vocabulary: int = VOCABULARY) -> LanguageModel:
    torch.manual_seed(0)
    config = LanguageModelConfig.model_validate({"decoder": decoder, "tie": tie})
    return build_language_model(config, vocabulary).double().eval()


class Twin(nn.Module):
    """A language model as one writes it with torch.nn: one LSTM a layer, since their widths differ."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        assert isinstance(model.decoder, RecurrentWriter)
        self.encoder, self.output = model.decoder.embed.table, model.output
        self.layers = nn.ModuleList()
        for cell in model.decoder.layers.forwards:
            assert isinstance(cell.weight_ih, Tensor)
            layer = nn.LSTM(cell.weight_ih.shape[1], int(cell.width), batch_first=True).double()  # type: ignore[arg-type]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(layer, f"{name}_l0", getattr(cell, name))
            self.layers.append(layer)

    def forward(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.encoder(ids_BT)
        for layer in self.layers:
            x_BTD, _ = layer(x_BTD)
        out_BTV: Tensor = self.output(x_BTD)
        return out_BTV


AWD = {"kind": "lstm", "layers": 3, "width": 9, "last_width": 5, "embedding": 5}
DROPS = {
    "dropout": 0.25,
    "input_dropout": 0.4,
    "output_dropout": 0.4,
    "locked": True,
    "weight_dropout": 0.5,
    "embedding_dropout": 0.1,
}


@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
@pytest.mark.parametrize("tie", ["none", "output"])
@pytest.mark.parametrize(
    "decoder", [AWD, {"kind": "lstm", "layers": 2, "width": 6, "uniform": 0.3}], ids=["AWD", "Zaremba's"]
)
def test_it_is_torchs_lstm_on_copied_weights_forwards_and_backwards(decoder: dict[str, Any], tie: str) -> None:
    """AWD-LSTM with nothing dropped is three plain layers."""
    model, batch = build(decoder, tie), sentences((6, 6, 6))
    twin = Twin(model)
    ids_BT, gold_BT = batch.source.ids, batch.target.ids
    assert_close(model(batch.source), twin(ids_BT))
    weights = list(model.parameters())
    ours = torch.autograd.grad(model.loss(batch).total, weights)
    theirs = torch.autograd.grad(
        F.cross_entropy(twin(ids_BT).flatten(0, 1), gold_BT.flatten(), reduction="sum"), weights
    )
    assert_close(ours, theirs)


def test_in_evaluation_the_weights_are_as_they_were_learned() -> None:
    plain, dropping = build(AWD, "output"), build(AWD | DROPS, "output")
    dropping.load_state_dict(plain.state_dict())
    given = sentences().source
    assert torch.equal(dropping(given), plain(given))
    assert not torch.allclose(dropping.train()(given), plain(given))


@pytest.mark.parametrize("direct", [False, True])
def test_the_window_is_bengios_equation(direct: bool) -> None:
    """y = b + W x + U tanh(d + H x), token by token, START standing before the first."""
    model = build({"kind": "window", "order": 4, "width": 7, "embedding": 5, "direct": direct})
    decoder, batch = model.decoder, sentences((6, 6))
    assert isinstance(decoder, WindowDecoder)
    C, H, d = decoder.embed.table.weight, decoder.hidden.weight, decoder.hidden.bias
    U, W = model.output.weight[:, :7], model.output.weight[:, 7:]
    for row, logits_TV in zip(batch.source.ids.tolist(), model(batch.source), strict=True):
        before = [START, START, *row]
        for t, logits_V in enumerate(logits_TV):
            x = torch.cat([C[token] for token in before[t : t + 3]])
            expected = model.output.bias + U @ torch.tanh(d + H @ x)
            assert_close(logits_V, expected + W @ x if direct else expected)


# ---- activation regularisation


def test_the_penalties_by_hand() -> None:
    h_BTD = torch.tensor([[[1.0, 2.0], [3.0, 2.0], [0.0, 0.0]], [[9.0, 9.0], [7.0, 7.0], [7.0, 7.0]]])
    valid_BT = torch.tensor([[True, True, True], [True, False, False]])
    assert activation(h_BTD, valid_BT) == ((1 + 4 + 9 + 4 + 0 + 0 + 81 + 81) / 2) / 4
    assert change(h_BTD, valid_BT) == ((4 + 0 + 9 + 4) / 2) / 2
    assert change(h_BTD[:, :1], valid_BT[:, :1]) == 0.0  # one token has no neighbour


def test_the_penalties_are_those_of_the_published_program() -> None:
    """Loss + α·mean(dropped²) + β·mean((h_t − h_{t−1})²) over means, the first with dropout and the second without."""
    model, batch = build(AWD | DROPS | {"activation_penalty": 2.0, "change_penalty": 1.0}).train(), sentences((6, 6, 6))
    seen: list[Tensor] = []
    decoder = model.decoder
    assert isinstance(decoder, RecurrentWriter)
    decoder.dropout.register_forward_hook(lambda _, given, out: seen.extend([given[0], out]))
    loss = model.loss(batch)
    raw_BTD, dropped_BTD = seen
    assert (dropped_BTD == 0).any()
    ar, tar = 2.0 * dropped_BTD.pow(2).mean(), 1.0 * (raw_BTD[:, 1:] - raw_BTD[:, :-1]).pow(2).mean()
    assert_close({name: term / 18 for name, term in loss.extra.items()}, {"activation": ar, "change": tar})
    assert_close(loss.total / 18, loss.nll / 18 + ar + tar)


# ---- perplexity


@pytest.mark.parametrize("case", every_language_model(), ids=name_of)
def test_a_uniform_model_has_a_perplexity_of_its_vocabulary(case: Any) -> None:
    model = case.build().double()
    nn.init.zeros_(model.output.weight)
    nn.init.zeros_(model.output.bias)
    text = np.random.default_rng(0).integers(4, VOCABULARY, 101)
    found = stream_loss(model, Streams(text, 3, 7).once(), "fp32", CPU)
    assert found["perplexity"] == pytest.approx(VOCABULARY, rel=1e-13)


@pytest.mark.parametrize("streams", [1, 2, 3, 7])
def test_perplexity_does_not_depend_on_the_number_of_streams(streams: int) -> None:
    """Exactly so for a model that needs no more than the token before, which every cut gives it."""
    model = build({"kind": "window", "order": 2, "width": 6})
    text = np.random.default_rng(0).integers(4, VOCABULARY, 100)
    once = stream_loss(model, Streams(text, 1, 100).once(), "fp32", CPU)["loss"]
    assert stream_loss(model, Streams(text, streams, 9).once(), "fp32", CPU)["loss"] == pytest.approx(once, rel=1e-12)


def test_windows_with_enough_context_are_the_whole_text() -> None:
    """A Transformer that sees two tokens back, two layers of it: four tokens of context are enough for all."""
    decoder = {"kind": "transformer", "layers": 2, "width": 6, "heads": 2, "positions": "none"}
    model = build(decoder | {"pattern": {"kind": "window", "width": 2}})
    text = np.random.default_rng(0).integers(4, VOCABULARY, 50)

    def loss(length: int, context: int) -> float:
        losses = [model.loss(batch) for batch in Windows(text, length, 3, context=context).once()]
        assert sum(int(each.tokens) for each in losses) == 50
        return sum(float(each.nll) for each in losses)

    assert loss(8, 4) == pytest.approx(loss(50, 0), rel=1e-12)
    assert loss(8, 3) != pytest.approx(loss(50, 0), rel=1e-6)


# ---- sizes


AWD_PAPER = {"kind": "lstm", "layers": 3, "width": 1150, "last_width": 400, "embedding": 400}
SIZES: dict[str, tuple[dict[str, Any], str, int, int]] = {
    "AWD-LSTM, Penn Treebank": (AWD_PAPER, "output", 10_000, 24_221_600),
    "AWD-LSTM, WikiText-2": (AWD_PAPER, "output", 33_278, 33_556_078),
    "Zaremba, small": ({"kind": "lstm", "layers": 2, "width": 200}, "none", 10_000, 4_653_200),
    "Zaremba, medium": ({"kind": "lstm", "layers": 2, "width": 650}, "none", 10_000, 19_780_400),
    "Zaremba, large": ({"kind": "lstm", "layers": 2, "width": 1500}, "none", 10_000, 66_034_000),
    "Zaremba, medium, tied": ({"kind": "lstm", "layers": 2, "width": 650}, "output", 10_000, 13_280_400),
    "Zaremba, large, tied": ({"kind": "lstm", "layers": 2, "width": 1500}, "output", 10_000, 51_034_000),
    # |V|(1 + n·m + h) + h(1 + n·m) + |V|m of Bengio et al. (2003), section 2, with n = order − 1 tokens of context
    "Bengio": (
        {"kind": "window", "order": 6, "width": 60, "embedding": 30, "direct": True},
        "none",
        17_000,
        17_000 * (1 + 5 * 30 + 60) + 60 * (1 + 5 * 30) + 17_000 * 30,
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_model_has_its_papers_number_of_parameters(name: str) -> None:
    decoder, tie, vocabulary, expected = SIZES[name]
    config = LanguageModelConfig.model_validate({"decoder": decoder, "tie": tie})
    with torch.device("meta"):
        model = build_language_model(config, vocabulary)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_uniform_weights_stay_within_their_range() -> None:
    model = build({"kind": "lstm", "layers": 2, "width": 40, "uniform": 0.05})
    for name, parameter in model.named_parameters():
        assert parameter.abs().max() <= 0.05, name
        if parameter.numel() > 100:
            assert parameter.std().item() == pytest.approx(0.1 / math.sqrt(12), rel=0.2), name


@pytest.mark.parametrize("tie", ["none", "output"])
def test_uniform_by_width_is_what_torchs_own_layers_begin_with(tie: str) -> None:
    widths = {"width": 90, "last_width": 40, "embedding": 40}
    model = build({"kind": "lstm", "layers": 3, **widths, "uniform": "width"}, tie=tie)
    assert isinstance(model.decoder, RecurrentWriter)
    table = model.decoder.embed.table.weight
    assert table.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.1)
    assert table.abs().max() <= 0.1
    assert model.decoder.output.weight.std().item() == pytest.approx(0.2 / math.sqrt(12), rel=0.1)
    assert (model.decoder.output.bias == 0).all()
    layers = [nn.LSTM(40, 90), nn.LSTM(90, 90), nn.LSTM(90, 40)]
    for cell, theirs in zip(model.decoder.layers.forwards, layers, strict=True):
        for ours, like in zip(cell.parameters(), theirs.parameters(), strict=True):
            assert ours.shape == like.shape
            assert ours.abs().max().item() == pytest.approx(like.abs().max().item(), rel=0.05)
            assert ours.std().item() == pytest.approx(like.std().item(), rel=0.15)
