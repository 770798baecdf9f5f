"""Truncated backpropagation through time: what a chunk's edge changes, and what it must not."""

from itertools import islice

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from saccade import checkpoint
from saccade.data.batching import BEGINNING
from saccade.data.streams import Streams
from saccade.errors import SaccadeError
from saccade.models.language_model import LanguageModel
from saccade.train.gradient import Gradient
from saccade.train.settings import Precision
from saccade.train.validation import stream_loss
from saccade.types import Batch
from tests.language_cases import VOCABULARY, LanguageCase, every_language_model, name_of

CPU = torch.device("cpu")
TEXT = np.random.default_rng(3).integers(4, VOCABULARY, 47)
every = pytest.mark.parametrize("case", every_language_model(), ids=name_of)
carrying = pytest.mark.parametrize("case", [c for c in every_language_model() if c.carries], ids=name_of)
recurrent = pytest.mark.parametrize(
    "case", [c for c in every_language_model() if c.config.decoder.kind not in ("window", "transformer")], ids=name_of
)


def gradient_of(model: LanguageModel, streams: int, precision: Precision = "fp32", seed: int = 0) -> Gradient:
    """As a training adds it up, the model reading so many streams."""
    model.stream(streams)
    return Gradient(model, CPU, precision, 0.0, seed)


def gradients(model: LanguageModel, chunks: list[Batch]) -> list[Tensor]:
    """Over one pass, the gradients of all chunks added up."""
    gradient = gradient_of(model, len(chunks[0]))
    gradient.clear()
    gradient.accumulate(chunks, update=0)
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def whole(streams: int) -> Batch:
    (chunk,) = Streams(TEXT, streams, len(TEXT)).once()
    return chunk


@every
@pytest.mark.parametrize("streams", [1, 3])
def test_a_chunk_as_long_as_the_text_is_full_backpropagation_to_the_bit(case: LanguageCase, streams: int) -> None:
    model = case.build()
    full = torch.autograd.grad(model.loss(whole(streams)).total / len(TEXT), list(model.parameters()))
    chunked = gradients(model, list(Streams(TEXT, streams, len(TEXT)).once()))
    assert all(torch.equal(one, other) for one, other in zip(chunked, full, strict=True))


@carrying
@pytest.mark.parametrize("steps", [1, 2, 5, 46])
def test_the_loss_does_not_depend_on_where_chunks_end(case: LanguageCase, steps: int) -> None:
    model = case.build().double()
    expected = float(model.loss(whole(2)).nll)
    found = stream_loss(model, Streams(TEXT, 2, steps).once(), "fp32", CPU)
    assert found["loss"] * len(TEXT) == pytest.approx(expected, rel=1e-12)
    varied = stream_loss(model, Streams(TEXT, 2, max(5, steps), varied=True).once(), "fp32", CPU)
    assert varied["loss"] == pytest.approx(found["loss"], rel=1e-12)


def test_the_tape_of_an_lstmn_begins_anew_with_the_carried_state() -> None:
    """It could not grow for ever; so what is read depends on where a chunk began, as it does for a Transformer."""
    case = next(c for c in every_language_model() if c.name == "lstmn")
    model = case.build().double()
    losses = {steps: stream_loss(model, Streams(TEXT, 2, steps).once(), "fp32", CPU)["loss"] for steps in (5, 9, 46)}
    assert len(set(losses.values())) == 3
    with torch.no_grad():
        first, second, *_ = Streams(TEXT, 2, 5).once()
        _, carried = model.loss_from(first, model.begin(2))
        assert carried.keys() == {"0.h", "0.c"}
        kept, _ = model.loss_from(second, carried)
        forgotten, _ = model.loss_from(second, model.begin(2))
        assert kept.nll != forgotten.nll


@every
def test_no_gradient_crosses_a_chunks_edge(case: LanguageCase) -> None:
    model = case.build()
    first, second, *_ = Streams(TEXT, 2, 8).once()
    seen: list[Tensor] = []
    model.decoder.embed.register_forward_hook(lambda _module, _given, out: seen.append(out))
    _, carried = model.loss_from(first, model.begin(2))
    assert not any(value.requires_grad for value in carried.values())
    loss, _ = model.loss_from(second, carried)
    (crossed,) = torch.autograd.grad(loss.total, seen[0], allow_unused=True, retain_graph=True)
    assert crossed is None
    (own,) = torch.autograd.grad(loss.total, seen[1])
    assert own.abs().max() > 0


@recurrent
def test_without_the_cut_it_would_cross(case: LanguageCase) -> None:
    """So what is carried on is really read, and full backpropagation is more than the sum of the chunks'."""
    model = case.build()
    first, second, *_ = Streams(TEXT, 2, 8).once()
    seen: list[Tensor] = []
    model.decoder.embed.register_forward_hook(lambda _module, _given, out: seen.append(out))
    uncut = model.decoder.read(first.source, model.begin(2)).carried
    loss, _ = model.loss_from(second, uncut)
    (crossed,) = torch.autograd.grad(loss.total, seen[0])
    assert crossed.abs().max() > 0
    full, cut = gradients(model, list(Streams(TEXT, 2, 24).once())), gradients(model, list(Streams(TEXT, 2, 8).once()))
    assert not all(torch.allclose(one, other, rtol=1e-3) for one, other in zip(full, cut, strict=True))


@pytest.mark.parametrize("name", ["elman, Mikolov's", "lstm, Zaremba's", "gru, residual, narrow tokens"])
def test_the_gradient_is_what_differences_say(name: str) -> None:
    model = next(c for c in every_language_model() if c.name == name).build().double()
    batch = next(Streams(TEXT[:12], 2, 12).once())
    (of_table,) = torch.autograd.grad(model.loss(batch).total, model.decoder.embed.table.weight)
    table = model.decoder.embed.table.weight.data
    for place in ((5, 0), (7, 2), (9, 1)):
        losses = []
        for move in (1e-6, -2e-6):
            table[place] += move
            losses.append(float(model.loss(batch).total.detach()))
        table[place] += 1e-6
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(float(of_table[place]), rel=1e-5, abs=1e-8)


# ---- as a training uses it


def train(model: LanguageModel, chunks: list[Batch], first: int) -> None:
    """Plain gradient descent, a chunk an update."""
    gradient = Gradient(model, CPU, "fp32", 0.0, seed=7)
    for update, chunk in enumerate(chunks, start=first):
        gradient.clear()
        gradient.accumulate([chunk], update)
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(0.1 * chunk.rate * parameter.grad)


def built(case: LanguageCase, seed: int = 0, streams: int = 3) -> LanguageModel:
    model = case.build(seed).train()
    model.stream(streams)
    return model


@every
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_resumed_is_uninterrupted_to_the_bit(case: LanguageCase, cut: int) -> None:
    """Over the end of an epoch, with everything dropped that the case drops."""
    streams = Streams(TEXT, 3, 5, varied=True, seed=11)
    stretch = list(islice(streams.chunks(), 12))
    alone = built(case)
    train(alone, [chunk for _, chunk in stretch], 1)
    first = built(case)
    train(first, [chunk for _, chunk in stretch[:cut]], 1)
    weights, carried = load(save(checkpoint.model_tensors(first))), load(save(first.carried()))
    second = built(case, seed=5)
    checkpoint.restore_model(second, weights, "the checkpoint")
    second.carry(carried)
    train(second, [chunk for _, chunk in islice(streams.chunks(stretch[cut - 1][0]), 12 - cut)], cut + 1)
    assert all(torch.equal(one, other) for one, other in zip(alone.parameters(), second.parameters(), strict=True))


def test_a_state_of_other_streams_is_refused() -> None:
    model = next(c for c in every_language_model() if c.name == "lstm, AWD").build()
    model.stream(4)
    model.carry(model.begin(4))
    with pytest.raises(SaccadeError, match="number of streams"):
        model.carry(model.begin(3))


def read(model: LanguageModel, chunk: Batch) -> Tensor:
    """As a training reads it: the loss, and the state is that behind the chunk."""
    model.at_batch(chunk)
    return model.loss(chunk).nll


def test_a_state_that_is_no_number_is_not_carried_on() -> None:
    model = next(c for c in every_language_model() if c.name == "lstm, Zaremba's").build()
    first, second, *_ = Streams(TEXT, 2, 5).once()
    model.stream(2)
    table = model.decoder.embed.table.weight.data
    kept = table.clone()
    table.fill_(float("nan"))
    assert not read(model, first).isfinite()
    table.copy_(kept)
    assert read(model, second).isfinite()


def test_the_state_begins_anew_with_the_text() -> None:
    model = next(c for c in every_language_model() if c.name == "lstm, AWD").build()
    chunks = [chunk for _, chunk in islice(Streams(TEXT, 2, 12).chunks(BEGINNING), 4)]
    assert [chunk.begins for chunk in chunks] == [True, False, True, False]
    model.stream(2)
    losses = [float(read(model, chunk)) for chunk in chunks]
    assert losses[:2] == losses[2:]


@every
def test_half_precision_is_computed_in_and_not_carried_on(case: LanguageCase) -> None:
    chunks = list(islice(Streams(TEXT, 2, 8).once(), 2))
    exact, half = case.build(), case.build()
    losses: dict[str, float] = {}
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    for model, precision in zip((exact, half), precisions, strict=True):
        losses[precision] = float(gradient_of(model, 2, precision).accumulate(chunks, update=0))
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)
    for name, value in half.carried().items():
        assert value.dtype == exact.carried()[name].dtype
        if not torch.equal(value, exact.carried()[name]):
            torch.testing.assert_close(value, exact.carried()[name], rtol=0.1, atol=0.05)


@pytest.mark.gpu
@every
def test_a_gpu_reads_the_same(case: LanguageCase) -> None:
    chunks = list(Streams(TEXT, 2, 8).once())
    model = case.build()
    expected = stream_loss(model, chunks, "fp32", CPU)["loss"]
    found = stream_loss(model.cuda(), chunks, "fp32", torch.device("cuda"))["loss"]
    assert found == pytest.approx(expected, rel=1e-4)
