"""Local attention: a window as wide as the source is the whole of it, and what Luong et al. (2015) say of p and σ."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.nn.scope import LocalM, LocalP, Window
from saccade.nn.scores import weigh
from saccade.nn.watch import Watch
from saccade.types import Batch
from tests.cases import SOURCE_LENGTHS, SOURCE_VOCABULARY, TARGET_LENGTHS, TARGET_VOCABULARY, tokens

D, S = 3, 9
lengths_B = torch.tensor([9, 4])


def predicted(window: int, *, renormalise: bool = False) -> LocalP:
    torch.manual_seed(0)
    scope = LocalP(5, window, renormalise=renormalise).double()
    with torch.no_grad():
        scope.v.weight.mul_(4.0)
    return scope


def real_B1S() -> Tensor:
    return (torch.arange(S) < lengths_B[:, None])[:, None]


# ---- local-m


@given(st.integers(0, 20), st.integers(1, 12), st.integers(1, 5))
def test_the_monotonic_window_lies_around_the_targets_own_place(place: int, length: int, window: int) -> None:
    """Behind the source's end it stays at the last token, so that it is never empty."""
    seen = LocalM(window)(torch.tensor([[place]]), torch.tensor([length]), length).may_look_BQS[0, 0]
    centre = min(place, length - 1)
    assert seen.tolist() == [abs(s - centre) <= window for s in range(length)]
    assert seen.any()


def test_a_window_as_wide_as_the_source_is_global() -> None:
    scores = torch.randn(2, 30, S).double()
    place_BQ = torch.arange(30).expand(2, 30)
    local = LocalM(S - 1)(place_BQ, lengths_B, S).weigh(scores, real_B1S())
    assert torch.equal(local, weigh(scores, real_B1S()))
    narrow = LocalM(2)(place_BQ, lengths_B, S).weigh(scores, real_B1S())
    assert not torch.allclose(narrow, local)
    assert_close(narrow.sum(-1), torch.ones(2, 30).double())


# ---- local-p


def test_the_predicted_place_is_real_and_within_the_sentence() -> None:
    scope, queries = predicted(D), torch.randn(2, 50, 5).double()
    p = scope.predict(queries, lengths_B)
    expected = lengths_B[:, None] * torch.sigmoid(torch.tanh(queries @ scope.of_query.weight.T) @ scope.v.weight[0])
    assert_close(p, expected)
    assert ((p > 0) & (p < lengths_B[:, None])).all()
    assert (p != p.round()).all()


@torch.no_grad()
def test_weights_are_the_windows_softmax_times_a_gaussian_and_no_more() -> None:
    """By loops: softmax over |s − p| ≤ D, times exp(−(s − p)²/2σ²) with σ = D/2, not divided by its sum."""
    scope = predicted(D)
    queries, scores = torch.randn(2, 6, 5).double(), torch.randn(2, 6, S).double()
    weights = scope(queries, lengths_B, S).weigh(scores, real_B1S())
    p = scope.predict(queries, lengths_B)
    for b in range(2):
        for t in range(6):
            inside = [s for s in range(int(lengths_B[b])) if abs(s - p[b, t]) <= D]
            assert inside
            total = sum(scores[b, t, s].exp() for s in inside)
            for s in range(S):
                gauss = math.exp(-((s - p[b, t].item()) ** 2) / (2 * (D / 2) ** 2))
                expected = scores[b, t, s].exp() / total * gauss if s in inside else torch.zeros(()).double()
                assert_close(weights[b, t, s], expected, rtol=1e-9, atol=1e-12)
    assert (weights.sum(-1) < 1).all()


@torch.no_grad()
def test_the_gaussian_is_highest_at_the_place_rounded() -> None:
    scope, queries = predicted(D), torch.randn(1, 40, 5).double()
    window = scope(queries, torch.tensor([S]), S)
    assert window.log_favour_BQS is not None
    p = scope.predict(queries, torch.tensor([S]))
    assert torch.equal(window.log_favour_BQS.argmax(-1), p.round().clamp(max=S - 1).long())


@torch.no_grad()
def test_renormalised_weights_are_the_papers_divided_by_their_sum() -> None:
    queries, scores = torch.randn(2, 6, 5).double(), torch.randn(2, 6, S).double()
    plain = predicted(D)(queries, lengths_B, S).weigh(scores, real_B1S())
    divided = predicted(D, renormalise=True)(queries, lengths_B, S).weigh(scores, real_B1S())
    assert_close(divided, plain / plain.sum(-1, keepdim=True))
    assert_close(divided.sum(-1), torch.ones(2, 6).double())


@torch.no_grad()
@pytest.mark.parametrize("renormalise", [False, True])
def test_as_the_window_grows_predicted_becomes_global(renormalise: bool) -> None:
    queries, scores = torch.randn(2, 6, 5).double(), torch.randn(2, 6, S).double()
    whole = weigh(scores, real_B1S())
    gaps = []
    for window in (4, 40, 400, 4000):
        weights = predicted(window, renormalise=renormalise)(queries, lengths_B, S).weigh(scores, real_B1S())
        gaps.append((weights - whole).abs().max().item())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[1] > 50 * gaps[2] > 2500 * gaps[3]  # as 1/D²
    assert gaps[3] < 1e-4


def test_the_place_learns_through_the_gaussian_alone() -> None:
    scope, queries = predicted(D), torch.randn(1, 4, 5).double()
    window, scores = scope(queries, torch.tensor([S]), S), torch.randn(1, 4, S).double()
    assert window.log_favour_BQS is not None
    parameters = list(scope.parameters())
    with_gaussian = torch.autograd.grad(window.weigh(scores, None).square().sum(), parameters)
    assert all((gradient != 0).any() for gradient in with_gaussian)
    without = Window(window.may_look_BQS).weigh(scores, None)
    assert not without.requires_grad


# ---- through whole models


def build(attention: dict[str, Any], *, fed: bool) -> Translator:
    decoder = {"kind": "gru", "width": 5, "attention": {"score": "general"} | attention, "feed_input": fed}
    config = TranslatorConfig.model_validate({"encoder": {"kind": "gru", "width": 6}, "decoder": decoder})
    torch.manual_seed(0)
    return build_translator(config, SOURCE_VOCABULARY, TARGET_VOCABULARY).double().eval()


@torch.no_grad()
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(
    ("attention", "tolerance"),
    [({"scope": "local-m", "window": 7}, 0.0), ({"scope": "local-p", "window": 100_000}, 1e-8)],
)
def test_a_model_with_a_wide_window_is_the_model_without(
    attention: dict[str, Any], tolerance: float, fed: bool
) -> None:
    local, whole = build(attention, fed=fed), build({}, fed=fed)
    missing = local.load_state_dict(whole.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert all("scope" in name for name in missing.missing_keys)
    batch = Batch(tokens(SOURCE_LENGTHS, SOURCE_VOCABULARY), tokens(TARGET_LENGTHS, TARGET_VOCABULARY, 1))
    assert_close(local(batch), whole(batch), rtol=0.0, atol=tolerance)


@torch.no_grad()
def test_a_narrow_window_reads_nothing_else() -> None:
    model = build({"scope": "local-m", "window": 1}, fed=False)
    batch, watch = Batch(tokens((7, 3), SOURCE_VOCABULARY), tokens((6, 6), TARGET_VOCABULARY, 1)), Watch()
    model(batch, watch)
    (weights_B1TS,) = watch.attention["cross"]
    for b, length in enumerate((7, 3)):
        for t in range(6):
            seen = (weights_B1TS[b, 0, t] > 0).nonzero().flatten().tolist()
            centre = min(t, length - 1)
            assert seen == [s for s in (centre - 1, centre, centre + 1) if 0 <= s < length]
