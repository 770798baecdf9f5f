"""Stacks = their sums written out over torch.nn's layers on copied weights."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.nn import masks
from saccade.nn.cells import Variant
from saccade.nn.recurrent import CellKind, RecurrentLayers, StackKind
from saccade.nn.watch import Watch
from saccade.types import Layout

kinds = pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])
stacks = pytest.mark.parametrize("stack", ["plain", "residual", "dense"])
directions = pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
LENGTHS = [4, 7, 1, 5]


def twin_of(kind: CellKind, ours: RecurrentLayers, level: int) -> nn.RNNBase:
    """One layer of torch's, with the weights of ours."""
    make = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind]
    cell = ours.forwards[level]
    weights = cell.weight_ih
    assert isinstance(weights, Tensor)
    twin: nn.RNNBase = make(weights.shape[1], cell.width, batch_first=True, bidirectional=bool(ours.backwards))
    twin.to(weights.dtype)
    with torch.no_grad():
        for suffix, cells in (("", ours.forwards), ("_reverse", ours.backwards)):
            for name, parameter in cells[level].named_parameters() if cells else ():
                getattr(twin, f"{name}_l0{suffix}").copy_(parameter)
    return twin


@directions
@stacks
@kinds
@pytest.mark.parametrize("input_width", [6, 5], ids=["as wide", "mapped first"])
@torch.no_grad()
def test_stacks_equal_their_sums(kind: CellKind, stack: StackKind, bidirectional: bool, input_width: int) -> None:
    torch.manual_seed(0)
    ours = RecurrentLayers(kind, input_width, 6, 3, bidirectional=bidirectional, dropout=0.0, stack=stack).double()
    assert (ours.enter is not None) == (stack != "plain" and input_width != 6)
    x_BTI, layout = torch.randn(4, 7, input_width, dtype=torch.float64), Layout.padded(LENGTHS)
    for watch in (None, Watch()):
        out_BTD, finals = ours(x_BTI, layout, watch=watch)
        for b, length in enumerate(LENGTHS):
            xs = [x_BTI[b : b + 1, :length]]  # x¹, x², …
            if ours.enter is not None:
                xs = [xs[0] @ ours.enter.weight.T + ours.enter.bias]
            for level in range(3):
                out, after = twin_of(kind, ours, level)(xs[-1])
                last = after[0] if kind == "lstm" else after
                assert_close(finals[level]["h"][b], last[:, 0].flatten())
                match stack:
                    case "plain":
                        xs.append(out)
                    case "residual":
                        xs.append(out + xs[-1])
                    case "dense":
                        xs.append(out + torch.stack(xs).sum(0))
            assert_close(out_BTD[b, :length], xs[-1][0])


@pytest.mark.parametrize(("stack", "factor"), [("plain", 0.0), ("residual", 1.0), ("dense", 4.0)])
@torch.no_grad()
def test_layers_that_give_nothing(stack: StackKind, factor: float) -> None:
    """With all weights 0: nothing; x itself; and x + 0, x + x, x + x + 2x."""
    layers = RecurrentLayers("elman", 6, 6, 3, bidirectional=True, dropout=0.0, stack=stack)
    for parameter in layers.parameters():
        parameter.zero_()
    x_BTD, layout = torch.randn(2, 5, 6), Layout.padded([5, 3])
    out_BTD, _ = layers(x_BTD, layout)
    valid = masks.valid_BT(layout)
    assert_close(out_BTD[valid], factor * x_BTD[valid])


@stacks
@kinds
@pytest.mark.parametrize("normed", [False, True], ids=["", "normed"])
@torch.no_grad()
def test_steps_equal_all_at_once(kind: CellKind, stack: StackKind, normed: bool) -> None:
    """With an input that is there at once, and with one whose second part comes step by step."""
    torch.manual_seed(0)
    variant = Variant(layer_norm=normed)
    layers = RecurrentLayers(kind, 5, 6, 3, bidirectional=False, dropout=0.0, stack=stack, variant=variant).double()
    x_BTI = torch.randn(2, 4, 5, dtype=torch.float64)
    expected, finals = layers(x_BTI, Layout.padded([4, 4]))
    zeros = {name: torch.zeros(2, 6, dtype=torch.float64) for name in layers.first.states}
    for known in (5, 3):
        state, outs = layers.open([zeros] * 3, 4), []
        hoisted = layers.hoist(x_BTI[:, :, :known])
        for t in range(4):
            out, state = layers.step(hoisted[:, t], state, None if known == 5 else x_BTI[:, t, known:])
            outs.append(out)
        assert_close(torch.stack(outs, dim=1), expected)
        for one, other in zip(state, finals, strict=True):
            for name in layers.first.states:
                assert_close(one[name], other[name])


@kinds
@torch.no_grad()
def test_the_backward_direction_is_a_forward_one_over_the_mirrored_sentence(kind: CellKind) -> None:
    """And its final state is its output at the first token, the forward one's that at the last."""
    torch.manual_seed(0)
    both = RecurrentLayers(kind, 5, 6, 1, bidirectional=True, dropout=0.0)
    one = RecurrentLayers(kind, 5, 3, 1, bidirectional=False, dropout=0.0)
    one.forwards.load_state_dict(both.backwards.state_dict())
    x_BTI, layout = torch.randn(4, 7, 5), Layout.padded(LENGTHS)
    out_BTD, (final,) = both(x_BTI, layout)
    mirrored_BTD, _ = one(masks.reverse(x_BTI, layout), layout)
    valid = masks.valid_BT(layout)
    assert_close(out_BTD[valid][:, 3:], masks.reverse(mirrored_BTD, layout)[valid])
    for b, length in enumerate(LENGTHS):
        assert_close(final["h"][b], torch.cat([out_BTD[b, length - 1, :3], out_BTD[b, 0, 3:]]))
