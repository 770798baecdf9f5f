"""Hard attention: its gradient estimator against the exact gradient, by going through every way it can draw."""

import itertools
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.loss import Loss
from saccade.models.build import build_translator
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.models.translator import Translator, TranslatorConfig
from saccade.nn.hard import Hard
from saccade.nn.watch import Watch
from saccade.types import END, Batch, Tokens

SOURCE, TARGET, SOFT = [4, 5, END], [6, 4, END], -1
orders = pytest.mark.parametrize(
    "decoder",
    [{"attention": {}}, {"attention": {}, "feed_input": True}, {"attention": {"query": "previous"}}],
    ids=["at once", "fed", "previous"],
)


def model_of(decoder: dict[str, Any], hard: dict[str, float]) -> Translator:
    attention = decoder["attention"] | {"score": "general", "hard": {"entropy": 0.0} | hard}
    tree = {
        "encoder": {"kind": "elman", "width": 4},
        "decoder": {"kind": "gru", "width": 3} | decoder | {"attention": attention},
    }
    torch.manual_seed(0)
    model = build_translator(TranslatorConfig.model_validate(tree), 8, 8).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return model.train()


def hard_of(model: Translator) -> Hard:
    assert isinstance(model.decoder, RecurrentDecoder)
    assert model.decoder.reader is not None
    assert model.decoder.reader.hard is not None
    return model.decoder.reader.hard


def batch() -> Batch:
    return Batch(Tokens.of([SOURCE]), Tokens.of([TARGET]))


def drawn(model: Translator, places: tuple[int, ...]) -> tuple[Loss, Tensor]:
    """The loss where exactly these places are drawn, SOFT for a look at all, and the probability of drawing them."""
    hard, seen, left = hard_of(model), list[Tensor](), list(places)
    real = Hard.choose

    def choose(self: Hard, weights: Tensor) -> Any:
        drawn = torch.tensor([[left.pop(0) for _ in range(weights.shape[1])]])
        is_soft, places = drawn == SOFT, drawn.clamp(min=0)
        forced = mock.patch.multiple(hard, draw=lambda _: places, soften=lambda _: is_soft)
        with forced:
            choice = real(self, weights)
        of_place = (1 - self.soft) * weights.gather(-1, places[..., None]).squeeze(-1)
        seen.append(torch.where(is_soft, self.soft, of_place).flatten())
        return choice

    with mock.patch.object(Hard, "choose", choose):
        loss = model.loss(batch())
    assert not left
    return loss, torch.cat(seen).prod()


def every_way(soft: float = 0.0) -> list[tuple[int, ...]]:
    return list(itertools.product([*range(len(SOURCE)), *([SOFT] if soft else [])], repeat=len(TARGET)))


def gradients(model: Translator, total: Tensor) -> list[Tensor]:
    weights = list(model.parameters())
    return list(torch.autograd.grad(total, weights, retain_graph=True, allow_unused=True, materialize_grads=True))


@orders
@pytest.mark.parametrize(("baseline", "soft"), [(0.0, 0.0), (-1.7, 0.0), (-1.7, 0.3)])
def test_the_estimator_has_the_exact_gradient_as_its_mean(
    decoder: dict[str, Any], baseline: float, soft: float
) -> None:
    """Σ_s p(s) · (estimate given s) = ∂ Σ_s p(s) (−log p(y | s)), whatever the baseline and the share of soft looks."""
    model = model_of(decoder, {"decay": 0.9, "soft": soft})
    estimate = [torch.zeros_like(parameter) for parameter in model.parameters()]
    expected_nll, total_p = torch.zeros(()).double(), 0.0
    for places in every_way(soft):
        hard_of(model).baseline.fill_(baseline)
        loss, p = drawn(model, places)
        total_p += p.item()
        for mean, gradient in zip(estimate, gradients(model, loss.total), strict=True):
            mean += p.detach() * gradient
        nll = loss.total - sum(loss.extra.values())
        expected_nll = expected_nll + p * nll
    assert total_p == pytest.approx(1.0)
    exact = gradients(model, expected_nll)
    assert sum(each.abs().sum().item() for each in exact) > 0.1
    for (name, _), mine, theirs in zip(model.named_parameters(), estimate, exact, strict=True):
        assert_close(mine, theirs, rtol=1e-9, atol=1e-10, msg=name)


@orders
def test_what_is_minimised_is_no_less_than_the_likelihood(decoder: dict[str, Any]) -> None:
    """Jensen: E[log p(y | s)] ≤ log E[p(y | s)]."""
    model = model_of(decoder, {})
    with torch.no_grad():
        ways = [drawn(model, places) for places in every_way()]
        bound = sum(p * -loss.nll for loss, p in ways)
        likelihood = torch.stack([p * (-loss.nll).exp() for loss, p in ways]).sum().log()
    assert bound < likelihood


def test_sampled_estimates_go_to_the_exact_gradient() -> None:
    """Not forced but drawn: 4,000 copies of one sentence; each weight within five standard errors."""
    model = model_of({"attention": {}, "feed_input": True}, {})
    rows, times = 500, 8
    hard_of(model).decay = 1.0
    hard_of(model).baseline.fill_(-1.5)
    exact_nll = torch.zeros(()).double()
    for places in every_way():
        loss, p = drawn(model, places)
        exact_nll = exact_nll + p * (loss.total - sum(loss.extra.values()))
    exact = torch.cat([each.flatten() for each in gradients(model, exact_nll)])
    many = Batch(Tokens.of([SOURCE] * rows), Tokens.of([TARGET] * rows))
    torch.manual_seed(1)
    means = []
    for _ in range(times):
        means.append(torch.cat([each.flatten() for each in gradients(model, model.loss(many).total / rows)]))
    found = torch.stack(means)
    error = found.std(0) / times**0.5
    off = (found.mean(0) - exact).abs()
    assert (off <= 7 * error + 1e-9).all()  # eight means: the error itself is uncertain
    assert off.norm() < 0.1 * exact.norm()


def test_draws_come_by_their_weights_and_never_from_weight_0() -> None:
    torch.manual_seed(0)
    weights = torch.tensor([0.5, 0.0, 0.2, 0.3])
    counts = Hard(decay=0.9, reward=1.0, entropy=0.0).draw(weights.expand(200_000, 4)).bincount(minlength=4)
    assert counts[1] == 0
    assert_close(counts / 200_000, weights, rtol=0.0, atol=5e-3)


def test_a_share_of_the_looks_is_soft_in_training_alone() -> None:
    torch.manual_seed(0)
    hard, weights = Hard(decay=0.9, reward=1.0, entropy=0.0, soft=0.3), torch.tensor([0.5, 0.2, 0.3]).expand(20_000, 3)
    choice = hard.choose(weights)
    is_soft = (choice.weights == weights).all(-1)
    assert is_soft.float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert (choice.log_probability[is_soft] == 0).all()
    assert (choice.weights[~is_soft].max(-1).values == 1).all()
    assert (hard.eval().choose(weights).weights.max(-1).values == 1).all()


def test_the_expected_context_is_the_soft_one() -> None:
    hard, weights, memory = Hard(decay=0.9, reward=1.0, entropy=0.0), torch.rand(4), torch.randn(4, 3)
    weights = weights / weights.sum()
    mean = torch.zeros(3)
    for place in range(4):
        with mock.patch.object(hard, "draw", lambda w, place=place: torch.tensor(place)):
            choice = hard.choose(weights)
        assert_close(choice.log_probability, weights[place].log())
        assert_close(choice.entropy, -(weights * weights.log()).sum())
        mean += weights[place] * (choice.weights @ memory)
    assert_close(mean, weights @ memory)


def test_where_there_is_nothing_to_look_at_it_reads_zeros() -> None:
    for hard in (Hard(decay=0.9, reward=1.0, entropy=0.0), Hard(decay=0.9, reward=1.0, entropy=0.0).eval()):
        choice = hard.choose(torch.zeros(2, 3))
        assert (choice.weights == 0).all()
        assert choice.log_probability.isfinite().all()
        assert (choice.entropy == 0).all()


@orders
@torch.no_grad()
def test_at_test_time_the_most_probable_place_is_read(decoder: dict[str, Any]) -> None:
    """The same every time, with weights of 0 and 1; and as soft attention reads that is all but certain."""
    model = model_of(decoder, {}).eval()
    first, watch = model(batch()), Watch()
    assert torch.equal(model(batch()), first)
    assert_close(model(batch(), watch), first)
    (weights,) = watch.attention["cross"]
    assert set(weights.flatten().tolist()) == {0.0, 1.0}
    assert (weights.sum(-1) == 1).all()

    certain = soft_twin(model, decoder)
    for scored in (model, certain):
        assert isinstance(scored.decoder, RecurrentDecoder)
        assert scored.decoder.reader is not None
        score: Any = scored.decoder.reader.score
        score.of_key.weight.mul_(1e4)
    assert_close(model(batch()), certain(batch()))


def soft_twin(model: Translator, decoder: dict[str, Any]) -> Translator:
    tree = {
        "encoder": {"kind": "elman", "width": 4},
        "decoder": {"kind": "gru", "width": 3} | decoder | {"attention": decoder["attention"] | {"score": "general"}},
    }
    soft = build_translator(TranslatorConfig.model_validate(tree), 8, 8).double().eval()
    soft.load_state_dict({k: v for k, v in model.state_dict().items() if "hard" not in k})
    return soft


def test_the_baseline_follows_a_tokens_likelihood() -> None:
    model = model_of({"attention": {}}, {"decay": 0.75})
    loss = model.loss(batch())
    assert_close(hard_of(model).baseline, 0.25 * -loss.nll / 3)
    before = hard_of(model).baseline.clone()
    again = model.loss(batch())
    assert_close(hard_of(model).baseline, 0.75 * before + 0.25 * -again.nll / 3)
    model.eval().loss(batch())
    assert_close(hard_of(model).baseline, 0.75 * before + 0.25 * -again.nll / 3)  # nothing is learnt in evaluation
    assert "decoder.reader.hard.baseline" in model.state_dict()


def test_a_reward_of_what_follows_where_the_context_is_carried_on() -> None:
    hard = Hard(decay=0.9, reward=2.0, entropy=0.5)
    hard.baseline.fill_(-1.0)
    nll = torch.tensor([[1.0, 2.0, 4.0, 9.0]])
    counted = torch.tensor([[True, True, True, False]])
    log_p, entropy = nn.Parameter(torch.tensor([[-0.1, -0.2, -0.3, -5.0]])), nn.Parameter(torch.ones(1, 4))
    for onward, rewards in ((False, [0.0, -1.0, -3.0, 0.0]), (True, [-4.0, -4.0, -3.0, 0.0])):
        hard.baseline.fill_(-1.0)
        terms = hard.terms(nll, log_p, entropy, counted, onward=onward)
        (gradient,) = torch.autograd.grad(terms["reinforce"], log_p)
        assert_close(gradient, -2.0 * torch.tensor([rewards]))
        (gradient,) = torch.autograd.grad(terms["entropy"], entropy)
        assert_close(gradient, torch.tensor([[-0.5, -0.5, -0.5, 0.0]]))
