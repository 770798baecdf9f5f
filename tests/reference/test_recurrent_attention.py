"""Decoders with attention = their papers' equations written out for one sentence, step by step, in double precision."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.loss import cross_entropy, token_losses
from saccade.models.build import build_translator
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.models.translator import Translator, TranslatorConfig
from saccade.nn import masks
from saccade.nn.pointer import mixture
from saccade.types import END, PAD, START, Batch, Encoded, Tokens
from tests.cases import tokens

SOURCE, TARGET = [4, 7, 4, 9, 5, END], [6, 4, 4, 8, END]
VOCABULARY = 11


def model_of(decoder: dict[str, Any], *, encoder: str = "gru") -> Translator:
    tree = {"encoder": {"kind": encoder, "width": 6}, "decoder": {"width": 5, "embedding": 4} | decoder}
    torch.manual_seed(0)
    model = build_translator(TranslatorConfig.model_validate(tree), VOCABULARY, VOCABULARY).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def one() -> Batch:
    return Batch(Tokens.of([SOURCE]), Tokens.of([TARGET]))


def parts(model: Translator) -> tuple[RecurrentDecoder, Any, Encoded, list[Tensor]]:
    """The decoder, its reader, what was encoded, and the vectors of the tokens it is given."""
    decoder = model.decoder
    assert isinstance(decoder, RecurrentDecoder)
    given = [START, *TARGET[:-1]]
    return decoder, decoder.reader, model.encode(one().source), list(decoder.embed.table.weight[given])


def twin(decoder: RecurrentDecoder, cell: nn.GRUCell | nn.LSTMCell) -> Any:
    """torch's cell on copied weights."""
    own = decoder.layers.first
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).data = getattr(own, name).data.clone()
    return cell.double()


def first_state(decoder: RecurrentDecoder, encoded: Encoded, name: str = "h") -> Tensor:
    state: Tensor = decoder.bridge(encoded)[0][name][0]
    return state


def additive(score: Any, memory_SE: Tensor, state: Tensor, coverage_S: Tensor | None = None) -> Tensor:
    e = []
    for s, h in enumerate(memory_SE):
        inside = score.of_key.weight @ h + score.of_query.weight @ state + score.of_query.bias
        if coverage_S is not None:
            inside = inside + score.of_coverage.weight[:, 0] * coverage_S[s]
        e.append(score.v.weight[0] @ torch.tanh(inside))
    return torch.stack(e)


@torch.no_grad()
def test_bahdanaus_decoder() -> None:
    """s_{i−1} asks; c_i enters the GRU; t̃_i = U s_{i−1} + V E y_{i−1} + C c_i goes through maxout (appendix A.2.2)."""
    attention = {"width": 7, "query": "previous", "readout": "maxout", "readout_width": 3}
    model = model_of({"kind": "gru", "attention": attention})
    decoder, reader, encoded, vectors = parts(model)
    cell: Any = twin(decoder, nn.GRUCell(4 + 6, 5))
    readout: Any = decoder.readout
    s, expected = first_state(decoder, encoded), []
    for y in vectors:
        alpha = additive(reader.score, encoded.memory[0], s).softmax(0)
        c = alpha @ encoded.memory[0]
        deep = readout.of_state.weight @ s + readout.of_token.weight @ y + readout.of_context.weight @ c
        t = torch.stack([max(deep[2 * k], deep[2 * k + 1]) for k in range(3)])
        expected.append(decoder.output.weight @ t + decoder.output.bias)
        s = cell(torch.cat([y, c])[None], s[None])[0]
    assert_close(model(one())[0], torch.stack(expected))


@torch.no_grad()
def test_luongs_decoder_with_its_best_attention() -> None:
    """h_t asks; local-p of D = 2 around p_t; h̃_t = tanh(W [c; h]) scores the output and is fed into the next step."""
    attention = {"score": "general", "scope": "local-p", "window": 2}
    model = model_of({"kind": "lstm", "attention": attention, "feed_input": True}, encoder="lstm")
    decoder, reader, encoded, vectors = parts(model)
    cell: Any = twin(decoder, nn.LSTMCell(4 + 5, 5))
    readout: Any = decoder.readout
    memory, S = encoded.memory[0], len(SOURCE)
    h, c = first_state(decoder, encoded), first_state(decoder, encoded, "c")
    fed, expected = torch.zeros(5).double(), []
    for y in vectors:
        h, c = (each[0] for each in cell(torch.cat([y, fed])[None], (h[None], c[None])))
        p = S * torch.sigmoid(reader.scope.v.weight[0] @ torch.tanh(reader.scope.of_query.weight @ h))
        inside = [s for s in range(S) if abs(s - p) <= 2]
        align = torch.stack([h @ reader.score.of_key.weight @ memory[s] for s in inside]).softmax(0)
        context = sum(
            a * torch.exp(-((s - p) ** 2) / (2 * 1.0**2)) * memory[s] for a, s in zip(align, inside, strict=True)
        )
        fed = torch.tanh(readout.combine.weight @ torch.cat([context, h]))
        expected.append(decoder.output.weight @ fed + decoder.output.bias)
    assert_close(model(one())[0], torch.stack(expected))


@torch.no_grad()
def test_the_readout_of_context_and_state_side_by_side() -> None:
    model = model_of({"kind": "gru", "attention": {"score": "general", "readout": "concat"}})
    decoder, reader, encoded, vectors = parts(model)
    cell: Any = twin(decoder, nn.GRUCell(4, 5))
    s, memory, expected = first_state(decoder, encoded), encoded.memory[0], []
    for y in vectors:
        s = cell(y[None], s[None])[0]
        a = torch.stack([s @ reader.score.of_key.weight @ h for h in memory]).softmax(0) @ memory
        expected.append(decoder.output.weight @ torch.cat([a, s]) + decoder.output.bias)
    assert_close(model(one())[0], torch.stack(expected))


@torch.no_grad()
@pytest.mark.parametrize("score", ["mean", "last"])
def test_the_baselines_without_a_query(score: str) -> None:
    """The same context at every step: the memory's mean, or what the encoder ended in."""
    model = model_of({"kind": "gru", "attention": {"score": score}})
    decoder, _, encoded, vectors = parts(model)
    cell: Any = twin(decoder, nn.GRUCell(4, 5))
    readout: Any = decoder.readout
    context = encoded.memory[0].mean(0) if score == "mean" else encoded.final[-1]["h"][0]
    s, expected = first_state(decoder, encoded), []
    for y in vectors:
        s = cell(y[None], s[None])[0]
        read = torch.tanh(readout.combine.weight @ torch.cat([context, s]))
        expected.append(decoder.output.weight @ read + decoder.output.bias)
    assert_close(model(one())[0], torch.stack(expected))


# ---- Show, Attend and Tell


@torch.no_grad()
def test_the_gate_and_the_doubly_stochastic_term() -> None:
    """ẑ = β Σ α a with β = σ(w · h_{t−1} + b); λ Σ_s (1 − Σ_t α_ts)² beside the likelihood."""
    model = model_of({"kind": "gru", "attention": {"query": "previous", "gate": True, "doubly_stochastic": 0.7}})
    decoder, reader, encoded, vectors = parts(model)
    cell: Any = twin(decoder, nn.GRUCell(4 + 6, 5))
    readout: Any = decoder.readout
    s, memory, expected = first_state(decoder, encoded), encoded.memory[0], []
    looked = torch.zeros(len(SOURCE)).double()
    for y in vectors:
        alpha = additive(reader.score, memory, s).softmax(0)
        looked += alpha
        context = torch.sigmoid(reader.gate.weight[0] @ s + reader.gate.bias[0]) * (alpha @ memory)
        s = cell(torch.cat([y, context])[None], s[None])[0]
        read = torch.tanh(readout.combine.weight @ torch.cat([context, s]))
        expected.append(decoder.output.weight @ read + decoder.output.bias)
    logits = torch.stack(expected)
    assert_close(model(one())[0], logits)
    loss = model.loss(one())
    assert_close(loss.extra["doubly stochastic"], 0.7 * (1 - looked).square().sum())
    nll = -logits.log_softmax(-1)[range(5), TARGET].sum()
    assert_close(loss.nll, nll)
    assert_close(loss.total, nll + loss.extra["doubly stochastic"])


# ---- copying and coverage


@torch.no_grad()
def test_sees_decoder() -> None:
    """p(w) = g P(w) + (1 − g) Σ_{i: x_i = w} a_i; coverage in the score; Σ_t Σ_i min(a, c) beside the likelihood."""
    model = model_of({"kind": "gru", "attention": {"pointer": True, "coverage": 0.8}})
    decoder, reader, encoded, vectors = parts(model)
    cell: Any = twin(decoder, nn.GRUCell(4, 5))
    readout: Any = decoder.readout
    pointer: Any = decoder.pointer
    s, memory, expected = first_state(decoder, encoded), encoded.memory[0], []
    coverage, overlap = torch.zeros(len(SOURCE)).double(), torch.zeros(()).double()
    for y in vectors:
        s = cell(y[None], s[None])[0]
        a = additive(reader.score, memory, s, coverage).softmax(0)
        overlap += sum(min(a[i], coverage[i]) for i in range(len(SOURCE)))
        coverage = coverage + a
        c = a @ memory
        read = torch.tanh(readout.combine.weight @ torch.cat([c, s]))
        odds = pointer.of_context.weight[0] @ c + pointer.of_context.bias[0]
        g = torch.sigmoid(odds + pointer.of_state.weight[0] @ s + pointer.of_token.weight[0] @ y)
        p = g * (decoder.output.weight @ read + decoder.output.bias).softmax(0)
        for i, word in enumerate(SOURCE):
            p[word] += (1 - g) * a[i]
        expected.append(p.log())
    log_p = torch.stack(expected)
    assert_close(log_p.exp().sum(-1), torch.ones(5).double())
    assert_close(model(one())[0], log_p)
    loss = model.loss(one())
    assert_close(loss.nll, -log_p[range(5), TARGET].sum())
    assert_close(loss.extra["coverage"], 0.8 * overlap)
    assert_close(loss.total, loss.nll + 0.8 * overlap)


def test_coverage_is_punished_after_so_many_updates() -> None:
    model = model_of({"kind": "gru", "attention": {"coverage": 0.8, "coverage_after": 2}})
    now = model_of({"kind": "gru", "attention": {"coverage": 0.8}})
    now.load_state_dict(model.state_dict())
    expected = now.loss(one()).extra["coverage"]
    assert expected > 0
    found = [model.loss(one()).extra["coverage"]]
    for update in (1, 2, 3, 4):
        model.at_update(update)
        found.append(model.loss(one()).extra["coverage"])
    assert_close(torch.stack(found), torch.stack([0 * expected] * 3 + [expected] * 2))


@torch.no_grad()
def test_a_step_gives_the_mixtures_log_probabilities() -> None:
    """Decoding takes a log-softmax of what it is given: of log-probabilities that is nothing."""
    model = model_of({"kind": "gru", "attention": {"pointer": True}})
    state = model.start(model.encode(one().source), 3)
    logits_NV, _ = model.step(torch.tensor([START]), state)
    assert_close(logits_NV.log_softmax(-1), logits_NV)


def test_the_mixtures_extremes() -> None:
    """All generated, all copied; a repeated token has the weights of both places; and gradients stay finite."""
    logits = torch.randn(1, 6, requires_grad=True)
    weights = torch.tensor([[0.2, 0.5, 0.3]], requires_grad=True)
    source = torch.tensor([[4, 1, 4]])
    generated = mixture(logits, torch.tensor([80.0]), weights, source)
    assert_close(generated, logits.log_softmax(-1))
    copied = mixture(logits, torch.tensor([-80.0]), weights, source)
    assert_close(copied.exp(), torch.tensor([[0.0, 0.5, 0.0, 0.0, 0.5, 0.0]]))
    assert copied.isfinite().all()
    for each in (generated, copied):
        gradients = torch.autograd.grad(each.sum(), (logits, weights), retain_graph=True)
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_gradcheck_of_the_mixture() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    odds = torch.randn(2, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    source = torch.tensor([[4, 1, 4], [2, 3, 5]])
    assert torch.autograd.gradcheck(lambda x, g, a: mixture(x, g, a, source), (logits, odds, weights))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 25, 1 << 22])
def test_losses_by_token_are_the_readable_loss(smoothing: float, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the tokens are cut; packed or padded; the gradient too."""
    monkeypatch.setattr("saccade.loss.CHUNK", chunk)
    torch.manual_seed(0)
    layer, target = nn.Linear(5, 11).double(), tokens([4, 1, 3], 11)
    x_BTD = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    readable = cross_entropy(layer(x_BTD), target, smoothing)
    expected = torch.autograd.grad(readable.total, (x_BTD, layer.weight))
    for gold in (target, target.packed()):
        packed = masks.pack(x_BTD, gold.layout)
        ids = gold.ids if gold.layout.is_packed else gold.ids.masked_fill(~masks.valid_BT(gold.layout), PAD)
        loss_N, nll_N = token_losses(
            lambda x: layer(x).log_softmax(-1), (packed.flatten(0, -2),), ids.flatten(), smoothing, 11
        )
        assert_close(loss_N.sum(), readable.total)
        assert_close(nll_N.sum(), readable.nll)
        for one_gradient, other in zip(torch.autograd.grad(loss_N.sum(), (x_BTD, layer.weight)), expected, strict=True):
            assert_close(one_gradient, other)


@torch.no_grad()
def test_coverage_reaches_the_score() -> None:
    """With a large negative weight on what was covered, the next look goes elsewhere."""
    model = model_of({"kind": "gru", "attention": {"coverage": 1.0}})
    decoder, reader, encoded, _ = parts(model)
    score = reader.score
    score.of_query.weight.zero_()  # the query does not matter: only coverage can move the look
    source, state = reader.prepare(encoded), reader.begin(reader.prepare(encoded))
    query = torch.randn(1, 1, 5).double()
    first = reader(query, source, state)
    assert torch.equal(reader(torch.randn(1, 1, 5).double(), source, state).weights_NTS, first.weights_NTS)
    then = reader(query, source, reader.after(first, state))
    assert not torch.allclose(then.weights_NTS, first.weights_NTS)
    assert_close(reader.after(first, state)["coverage"], first.weights_NTS[:, 0])
    assert decoder.reader is reader
