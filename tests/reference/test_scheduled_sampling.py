"""Scheduled sampling: its schedules as printed, and what becomes of it where all tokens are gold, or none."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor
from torch.testing import assert_close

from saccade.models.build import build_translator
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.models.sampling import SamplingConfig
from saccade.models.translator import Translator, TranslatorConfig
from saccade.types import PAD, START, Batch, Tokens
from tests.cases import tokens

SCHEDULES: list[dict[str, Any]] = [
    {"kind": "linear", "start": 0.9, "slope": 0.01, "floor": 0.2},
    {"kind": "exponential", "base": 0.99},
    {"kind": "inverse-sigmoid", "speed": 20.0},
]
DECODERS: dict[str, dict[str, Any]] = {
    "no attention": {},
    "at once": {"attention": {"score": "general"}},
    "fed": {"attention": {"score": "additive"}, "feed_input": True},
    "Bahdanau's": {"attention": {"query": "previous", "readout": "maxout"}},
    "See's": {"attention": {"pointer": True, "coverage": 1.0}},
}
decoders = pytest.mark.parametrize("decoder", DECODERS)


def schedule(tree: dict[str, Any]) -> SamplingConfig:
    config: SamplingConfig = TypeAdapter(SamplingConfig).validate_python(tree)
    return config


def model_of(decoder: dict[str, Any], sampling: dict[str, Any] | None) -> Translator:
    tree = {
        "encoder": {"kind": "gru", "width": 6},
        "decoder": {"kind": "gru", "width": 5, "sampling": sampling} | decoder,
    }
    torch.manual_seed(0)
    model = build_translator(TranslatorConfig.model_validate(tree), 13, 13).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.train()


def batch() -> Batch:
    return Batch(tokens([5, 7, 3], 13), tokens([4, 2, 6], 13, 1))


@pytest.mark.parametrize("tree", SCHEDULES, ids=lambda tree: tree["kind"])
def test_the_share_of_gold_tokens_never_grows_and_is_a_share(tree: dict[str, Any]) -> None:
    config = schedule(tree)
    shares = [config.share(update) for update in range(0, 5000, 3)]
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert all(after <= before for before, after in pairwise(shares))
    assert shares[-1] == (0.2 if tree["kind"] == "linear" else pytest.approx(0.0, abs=1e-12))


@given(st.integers(0, 3000), st.floats(1.0, 100.0))
def test_the_schedules_are_as_printed(update: int, speed: float) -> None:
    linear = schedule({"kind": "linear", "start": 0.9, "slope": 0.001, "floor": 0.1})
    assert linear.share(update) == max(0.1, 0.9 - 0.001 * update)
    assert schedule({"kind": "exponential", "base": 0.999}).share(update) == pytest.approx(0.999**update)
    sigmoid = schedule({"kind": "inverse-sigmoid", "speed": speed})
    assert sigmoid.share(0) == pytest.approx(speed / (speed + 1))
    expected = speed / (speed + math.exp(min(700.0, update / speed)))
    assert sigmoid.share(update) == pytest.approx(expected)


@decoders
def test_with_gold_tokens_alone_it_is_teacher_forcing(decoder: str) -> None:
    """The loss and the gradient of every weight."""
    sampling = {"kind": "linear", "start": 1.0, "slope": 0.0}
    sampled, forced = model_of(DECODERS[decoder], sampling), model_of(DECODERS[decoder], None)
    for given_batch in (batch(), batch().packed()):
        losses = [model.loss(given_batch, 0.1) for model in (sampled, forced)]
        assert_close(losses[0].total, losses[1].total)
        gradients = [
            torch.autograd.grad(loss.total, list(model.parameters()))
            for loss, model in zip(losses, (sampled, forced), strict=True)
        ]
        for one, other in zip(*gradients, strict=True):
            assert_close(one, other)


@decoders
def test_without_gold_tokens_it_is_the_loss_along_the_greedy_path(decoder: str) -> None:
    sampling = {"kind": "linear", "start": 0.0, "guess": "greedy"}
    model = model_of(DECODERS[decoder], sampling)
    loss = model.loss(batch())
    expected = torch.zeros(()).double()
    source, target = batch().source, batch().target
    with torch.no_grad():
        for b, length in enumerate(target.layout.lengths_B.tolist()):
            words = source.ids[b, : int(source.layout.lengths_B[b])].tolist()
            state = model.start(model.encode(Tokens.of([words])), length)
            last = torch.tensor([START])
            for gold in target.ids[b, :length].tolist():
                logits, state = model.step(last, state)
                expected = expected - logits.log_softmax(-1)[0, gold]
                logits[:, [PAD, START]] = -torch.inf
                last = logits.argmax(-1)
    assert_close(loss.nll, expected)
    assert not torch.allclose(loss.nll, model.eval().loss(batch()).nll)  # which is teacher-forced


def fed_to_the_decoder(sampling: dict[str, Any], rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """What the decoder was given, and the gold tokens."""
    model = model_of({"attention": {"score": "general"}}, sampling)
    big = Batch(tokens([3] * rows, 13), tokens([steps] * rows, 13, 1))
    fed: list[Tensor] = []
    model.decoder.embed.register_forward_pre_hook(lambda _module, given_args: fed.append(given_args[0]))
    torch.manual_seed(0)
    model.loss(big)
    return torch.stack([each for each in fed if each.ndim == 1], dim=1), big.decoder_input.ids


def test_a_coin_for_every_token_of_every_sentence() -> None:
    """With ε = 0.7, as many tokens are given as they are, one by one and not step by step."""
    given_NT, gold_NT = fed_to_the_decoder({"kind": "linear", "start": 0.7, "slope": 0.0}, 3000, 4)
    assert given_NT.shape == gold_NT.shape
    assert torch.equal(given_NT[:, 0], gold_NT[:, 0])
    assert not ((given_NT == PAD) | (given_NT[:, 1:].eq(START).any(1)[:, None])).any()
    same = (given_NT == gold_NT)[:, 1:].float()
    by_chance = 0.3 / 9  # a guess may be the gold token; nine words to draw among, roughly
    assert same.mean().item() == pytest.approx(0.7 + by_chance, abs=0.03)
    assert same.std(0).min() > 0.4  # at each step some sentences get gold, some do not


@pytest.mark.parametrize("guess", ["sample", "greedy"])
def test_one_coin_for_the_whole_target(guess: str) -> None:
    """With ε = 0.7, as many targets are given as they are; in the others guesses are gold by chance alone."""
    sampling = {"kind": "linear", "start": 0.7, "slope": 0.0, "guess": guess, "coin": "target"}
    given_NT, gold_NT = fed_to_the_decoder(sampling, 3000, 12)
    same = (given_NT == gold_NT)[:, 1:].float().mean(1)
    whole = same == 1.0
    assert whole.float().mean().item() == pytest.approx(0.7, abs=0.03)
    assert same[~whole].mean() < 0.3


def test_the_share_follows_the_updates() -> None:
    model = model_of({"attention": {"score": "general"}}, {"kind": "exponential", "base": 0.5})
    decoder = model.decoder
    assert isinstance(decoder, RecurrentDecoder)
    assert float(decoder.gold_share) == 1.0
    shares = []
    for update in (1, 2, 4):
        model.at_update(update)
        shares.append(float(decoder.gold_share))
    assert shares == [1.0, 0.5, 0.125]
    assert "decoder.gold_share" not in model.state_dict()


def test_guesses_are_drawn_by_their_probability() -> None:
    model = model_of({}, {"kind": "linear", "start": 0.0})
    decoder = model.decoder
    assert isinstance(decoder, RecurrentDecoder)
    torch.manual_seed(0)
    features = torch.randn(1, 1, 5).double()
    p = decoder.output(features)[0, 0].softmax(-1).detach()
    p[[PAD, START]] = 0.0
    counts = decoder._guess({"features": features.expand(100_000, 1, 5)}, {}).bincount(minlength=13)
    assert counts[[PAD, START]].sum() == 0
    assert_close(counts.double() / 100_000, p / p.sum(), rtol=0.0, atol=7e-3)
