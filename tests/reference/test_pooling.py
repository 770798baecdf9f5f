"""Pooling against numbers worked out by hand and equations written out, padded and packed."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from saccade.models.build import build_encoder
from saccade.models.classifier import compared, ends_at_last
from saccade.models.encoders import RecurrentEncoderConfig
from saccade.nn.masks import pack
from saccade.nn.pooling import AttentionPooling, First, Last, Max, Mean, Pooling, PoolingKind, make_pooling
from saccade.nn.watch import Watch
from saccade.types import Layout
from tests.cases import tokens

KINDS: tuple[PoolingKind, ...] = ("last", "first", "mean", "max", "attention")
NAN = float("nan")
# Two tokens, one, none; what stands behind them is no number.
X_BTD = torch.tensor(
    [[[1.0, -2.0], [3.0, -4.0]], [[5.0, 6.0], [NAN, NAN]], [[NAN, NAN], [NAN, NAN]]], dtype=torch.float64
)
LAYOUT = Layout.padded([2, 1, 0])


def made(kind: PoolingKind, width: int = 2) -> Pooling:
    torch.manual_seed(0)
    return make_pooling(kind, width, 3, (0, width)).double()


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        (Last((0, 2)), [[3, -4], [5, 6], [0, 0]]),
        (Last((0, 1)), [[3, -2], [5, 6], [0, 0]]),
        (Last((1, 2)), [[1, -4], [5, 6], [0, 0]]),
        (Last((0, 0)), [[1, -2], [5, 6], [0, 0]]),
        (First(), [[1, -2], [5, 6], [0, 0]]),
        (Mean(), [[2, -3], [5, 6], [0, 0]]),
        (Max(), [[3, -2], [5, 6], [0, 0]]),
    ],
    ids=["last", "last, both ends", "last, turned round", "last, back to front", "first", "mean", "max"],
)
def test_by_hand(pooling: Pooling, expected: list[list[float]]) -> None:
    assert_close(pooling(X_BTD, LAYOUT), torch.tensor(expected, dtype=torch.float64))
    layout = LAYOUT.packed()
    assert_close(pooling(pack(X_BTD, layout), layout), torch.tensor(expected, dtype=torch.float64))


def test_attention_by_hand() -> None:
    """W = (1 0), b = 0, c = 2: u · c = 2 tanh(first feature)."""
    pooling = AttentionPooling(2, 1).double()
    with torch.no_grad():
        pooling.of_state.weight.copy_(torch.tensor([[1.0, 0.0]]))
        pooling.of_state.bias.zero_()
        pooling.context.fill_(2.0)
    watch = Watch()
    out_BD = pooling(X_BTD, LAYOUT, watch)
    one, other = math.exp(2 * math.tanh(1.0)), math.exp(2 * math.tanh(3.0))
    a, b = one / (one + other), other / (one + other)
    expected = [[a * 1 + b * 3, a * -2 + b * -4], [5, 6], [0, 0]]
    assert_close(out_BD, torch.tensor(expected, dtype=torch.float64))
    (weights_BHTS,) = watch.attention["pooling"]
    assert_close(weights_BHTS[:, 0, 0], torch.tensor([[a, b], [1, 0], [0, 0]], dtype=torch.float64))


def test_attention_without_a_question_is_the_mean() -> None:
    """And its parameters are a·d + a + a."""
    pooling = AttentionPooling(2, 3).double()
    assert sum(each.numel() for each in pooling.parameters()) == 3 * 2 + 3 + 3
    torch.nn.init.zeros_(pooling.context)
    assert_close(pooling(X_BTD, LAYOUT), Mean()(X_BTD, LAYOUT))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5), more=st.integers(0, 2), seed=st.integers(0, 99))
def test_only_what_is_real_is_seen(kind: PoolingKind, lengths: list[int], more: int, seed: int) -> None:
    """Packed = padded = more padded = each alone; and the gradient of padding is 0."""
    pooling, longest = made(kind), max(lengths) + more
    layout = Layout.padded(lengths, longest)
    x_BTD = torch.randn(len(lengths), longest, 2, dtype=torch.float64, generator=torch.manual_seed(seed))
    x_BTD.requires_grad_()
    out_BD = pooling(x_BTD, layout)
    packed = layout.packed()
    assert_close(pooling(pack(x_BTD, packed), packed), out_BD)
    for b, length in enumerate(lengths):
        assert_close(pooling(x_BTD[b : b + 1, :length], Layout.padded([length]))[0], out_BD[b])
        if not length:
            assert not out_BD[b].any()
    if not longest:
        return
    (gradient,) = torch.autograd.grad(out_BD.square().sum(), x_BTD)
    for b, length in enumerate(lengths):
        assert not gradient[b, length:].any()


@given(seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_the_maximum_is_no_less_than_the_mean_and_constants_stay(seed: int) -> None:
    layout = Layout.padded([3, 1, 4])
    x_BTD = torch.randn(3, 4, 5, generator=torch.manual_seed(seed))
    assert (Max()(x_BTD, layout) >= Mean()(x_BTD, layout) - 1e-6).all()
    same_BTD = x_BTD[:, :1].expand(-1, 4, -1)
    for kind in KINDS:
        assert_close(make_pooling(kind, 5, 2, (0, 3))(same_BTD, layout), same_BTD[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_differences(kind: PoolingKind) -> None:
    layout = Layout.padded([3, 2])
    x_BTD = torch.randn(2, 3, 2, dtype=torch.float64, generator=torch.manual_seed(1), requires_grad=True)
    pooling = made(kind)

    def run(x_BTD: Tensor) -> Tensor:
        return torch.as_tensor(pooling(x_BTD, layout))

    assert torch.autograd.gradcheck(run, x_BTD)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
@torch.no_grad()
def test_the_last_state_is_the_encoders_own_final_one(bidirectional: bool, reverse: bool) -> None:
    """Each direction where it ends: →h_n and ←h_1, whichever way the text is turned."""
    config = RecurrentEncoderConfig(kind="gru", width=6, layers=2, bidirectional=bidirectional, reverse=reverse)
    torch.manual_seed(0)
    encoder = build_encoder(config, 11).eval()
    encoded = encoder(tokens((4, 1, 6), 11))
    assert_close(Last(ends_at_last(config))(encoded.memory, encoded.layout), encoded.final[-1]["h"])


def test_two_vectors_compared() -> None:
    pair = torch.tensor([[[1.0, -2.0], [3.0, 5.0]]])
    assert compared(pair).tolist() == [[1, -2, 3, 5, 2, 7, 3, -10]]
