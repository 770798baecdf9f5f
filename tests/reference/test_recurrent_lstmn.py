"""LSTMN = the equations of Cheng et al. (2016) written out, token by token in float64; and where it is an LSTM."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.nn import masks
from saccade.nn.cells import Lstm, Memory, Variant
from saccade.nn.lstmn import Lstmn, Source
from saccade.nn.recurrent import RecurrentLayers, no_memory, run_readable
from saccade.nn.watch import Watch
from saccade.types import Layout

LENGTHS = [4, 7, 1, 5]
reads = pytest.mark.parametrize("last_read", [True, False], ids=["the paper's score", "the authors' encoder"])
fusions = pytest.mark.parametrize("source_width", [None, 4], ids=["by itself", "deep fusion"])


def random_layers(last_read: bool = True, source_width: int | None = None, layers: int = 1) -> RecurrentLayers:
    torch.manual_seed(0)
    made = RecurrentLayers(
        "lstmn",
        3,
        4,
        layers,
        bidirectional=False,
        dropout=0.0,
        variant=Variant(last_read=last_read),
        source_width=source_width,
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def random_source() -> tuple[Tensor, Tensor, Layout]:
    return torch.randn(4, 5, 4).double(), torch.randn(4, 5, 4).double(), Layout.padded([3, 5, 2, 4])


def naive(cell: Lstmn, x_TI: Tensor, h: Tensor, c: Tensor, gammas: Tensor, alphas: Tensor) -> tuple[Tensor, Tensor]:
    """One sentence: h and c at every step."""
    D, W, b = cell.width, cell.weight_ih, cell.bias_ih
    hs, cs, read, seen = [h], [c], torch.zeros_like(h), torch.zeros_like(h)
    for x in x_TI:
        scores = []
        for h_i in hs:
            total = cell.of_state.weight @ h_i + W[4 * D : 5 * D] @ x + b[4 * D : 5 * D]
            if cell.of_read is not None:
                total = total + cell.of_read.weight @ read
            scores.append(cell.v.weight[0] @ torch.tanh(total))
        s = torch.stack(scores).exp() / torch.stack(scores).exp().sum()
        read = torch.stack([s_i * h_i for s_i, h_i in zip(s, hs, strict=True)]).sum(0)
        mixed_c = torch.stack([s_i * c_i for s_i, c_i in zip(s, cs, strict=True)]).sum(0)
        gates = W[: 4 * D] @ x + b[: 4 * D] + cell.weight_hh @ read + cell.bias_hh
        i, f, g, o = (
            gates[:D].sigmoid(),
            gates[D : 2 * D].sigmoid(),
            gates[2 * D : 3 * D].tanh(),
            gates[3 * D :].sigmoid(),
        )
        c = f * mixed_c + i * g
        if cell.source is not None:
            W_score, W_r, b_score, b_r = W[5 * D : 6 * D], W[6 * D :], b[5 * D : 6 * D], b[6 * D :]
            looks = [
                cell.source.v.weight[0]
                @ torch.tanh(
                    cell.source.of_state.weight @ gamma + W_score @ x + b_score + cell.source.of_seen.weight @ seen
                )
                for gamma in gammas
            ]
            p = torch.stack(looks).softmax(0)
            seen, alpha = (p[:, None] * gammas).sum(0), (p[:, None] * alphas).sum(0)
            r = torch.sigmoid(cell.source.gate.weight @ seen + W_r @ x + b_r)
            c = c + r * alpha
        h = o * c.tanh()
        hs.append(h)
        cs.append(c)
    return torch.stack(hs[1:]), torch.stack(cs[1:])


@fusions
@reads
@pytest.mark.parametrize("layers", [1, 2])
def test_it_equals_its_equations(last_read: bool, source_width: int | None, layers: int) -> None:
    """From a given state, over sentences of unequal length: outputs, final states, gradients of every weight."""
    ours = random_layers(last_read, source_width, layers)
    x_BTI, layout = torch.randn(4, 7, 3).double(), Layout.padded(LENGTHS)
    gammas, alphas, places = random_source()
    before = [{name: torch.randn(4, 4).double() for name in "hc"} for _ in range(layers)]
    source = ours.prepare(gammas, alphas, places) if source_width else ()
    out_BTD, finals = ours(x_BTI, layout, ours.open(before, 7), source=source)

    rows, ends = [], []
    for b, length in enumerate(LENGTHS):
        h_TD, reach = x_BTI[b, :length], int(places.lengths_B[b])
        for level, cell in enumerate(ours.forwards):
            assert isinstance(cell, Lstmn)
            start = before[level]
            h_TD, c_TD = naive(cell, h_TD, start["h"][b], start["c"][b], gammas[b, :reach], alphas[b, :reach])
            assert_close(finals[level]["h"][b], h_TD[-1])
            assert_close(finals[level]["c"][b], c_TD[-1])
        rows.append(h_TD)
        ends.append(c_TD[-1])
    expected, valid = torch.cat(rows), masks.valid_BT(layout)
    assert_close(out_BTD[valid], expected)
    weights = list(ours.parameters())
    wanted = torch.autograd.grad(expected.square().sum() + torch.stack(ends).pow(3).sum(), weights)
    actual = torch.autograd.grad(out_BTD[valid].square().sum() + finals[-1]["c"].pow(3).sum(), weights)
    for one, other in zip(actual, wanted, strict=True):
        assert_close(one, other)


@fusions
@torch.no_grad()
def test_what_is_watched_is_what_it_computes(source_width: int | None) -> None:
    """h̃ and so the output follow from the weights seen; each row sums to 1, over the states before the token."""
    ours = random_layers(source_width=source_width)
    x_BTI, watch = torch.randn(4, 7, 3).double(), Watch()
    layout = Layout.padded([7] * 4)
    source = ours.prepare(*random_source()) if source_width else ()
    h_BTD, _ = ours(x_BTI, layout, watch=watch, source=source)
    (weights_BHTT,) = watch.attention["encoder"]
    assert weights_BHTT.shape == (4, 1, 7, 7)
    assert (weights_BHTT.triu(1) == 0).all()
    assert_close(weights_BHTT.sum(-1), torch.ones(4, 1, 7).double())
    if source_width is None:
        cell = ours.first
        tape_BTD = torch.cat(
            [torch.zeros(4, 1, 4).double(), h_BTD[:, :-1]], dim=1
        )  # what was written before each token
        read_BTD = weights_BHTT[:, 0] @ tape_BTD
        o_BTD = (cell.project(x_BTI)[..., :16] + read_BTD @ cell.weight_hh.T + cell.bias_hh)[..., 12:].sigmoid()
        (c_BTD,) = watch.states["c"]
        assert_close(o_BTD * c_BTD.tanh(), h_BTD)


@torch.no_grad()
def test_both_directions_are_two_heads_in_the_sources_order() -> None:
    torch.manual_seed(0)
    both = RecurrentLayers("lstmn", 3, 8, 1, bidirectional=True, dropout=0.0)
    one = RecurrentLayers("lstmn", 3, 4, 1, bidirectional=False, dropout=0.0)
    one.forwards.load_state_dict(both.backwards.state_dict())
    x_BTI, layout = torch.randn(2, 5, 3), Layout.padded([5, 3])
    watch, mirrored = Watch(), Watch()
    both(x_BTI, layout, watch=watch)
    one(masks.reverse(x_BTI, layout), layout, watch=mirrored)
    (weights_BHTT,), (other_BHTT,) = watch.attention["encoder"], mirrored.attention["encoder"]
    for b, length in enumerate((5, 3)):
        real = slice(0, length)
        assert_close(weights_BHTT[b, 1, real, real], other_BHTT[b, 0, real, real].flip(0, 1))


# ---- where it is an LSTM


def lstm_of(cell: Lstmn) -> Lstm:
    twin = Lstm(3, 4).double()
    with torch.no_grad():
        twin.weight_ih.copy_(cell.weight_ih[:16])
        twin.bias_ih.copy_(cell.bias_ih[:16])
        twin.weight_hh.copy_(cell.weight_hh)
        twin.bias_hh.copy_(cell.bias_hh)
    return twin


class ReadsTheLast(Lstmn):
    """All weight on the entry that was written last."""

    def _read_tape(self, x_score_ND: Tensor, before: Memory) -> tuple[Tensor, Tensor, Tensor]:
        return before["h"], before["c"], torch.ones(len(x_score_ND), 1)


@torch.no_grad()
def test_with_all_weight_on_the_last_state_it_is_an_lstm() -> None:
    cell = random_layers().first
    assert isinstance(cell, Lstmn)
    cell.__class__ = ReadsTheLast
    x_BTI, layout, twin = torch.randn(4, 7, 3).double(), Layout.padded(LENGTHS), lstm_of(cell)
    start = {name: torch.randn(4, 4).double() for name in "hc"}
    out, final, _ = run_readable(cell, x_BTI, cell.open(start, 7), layout)
    expected, last = twin.run(x_BTI, start, layout)
    valid = masks.valid_BT(layout)
    assert_close(out[valid], expected[valid])
    assert_close(final["c"], last["c"])


@torch.no_grad()
def test_its_first_step_is_an_lstms() -> None:
    cell = random_layers().first
    assert isinstance(cell, Lstmn)
    x_BI, twin = torch.randn(4, 3).double(), lstm_of(cell)
    for start in (no_memory(cell, x_BI), {name: torch.randn(4, 4).double() for name in "hc"}):
        after = cell.step(cell.project(x_BI), cell.open(dict(start), 1))
        expected = twin.step(twin.project(x_BI), start)
        for name in expected:
            assert_close(after[name], expected[name])


@torch.no_grad()
def test_scores_that_are_all_equal_read_the_mean_of_the_tape() -> None:
    cell = random_layers().first
    assert isinstance(cell, Lstmn)
    cell.v.weight.zero_()
    x_BTI, layout = torch.randn(4, 7, 3).double(), Layout.padded([7] * 4)
    out, final, _ = run_readable(cell, x_BTI, cell.open(no_memory(cell, x_BTI), 7), layout)
    assert_close(final["read"], torch.cat([torch.zeros(4, 1, 4).double(), out[:, :-1]], dim=1).mean(1))


@torch.no_grad()
def test_a_closed_gate_keeps_the_source_out() -> None:
    ours = random_layers(source_width=4)
    cell = ours.first
    assert isinstance(cell, Lstmn)
    cell.bias_ih[24:] = -1000.0  # r
    x_BTI, layout = torch.randn(4, 7, 3).double(), Layout.padded(LENGTHS)
    one, _ = ours(x_BTI, layout, source=ours.prepare(*random_source()))
    other, _ = ours(x_BTI, layout, source=ours.prepare(*random_source()))
    assert torch.equal(one, other)
    cell.bias_ih[24:] = 0.0
    assert not torch.allclose(ours(x_BTI, layout, source=ours.prepare(*random_source()))[0], one)


# ---- its state


@fusions
@torch.no_grad()
def test_a_tape_with_room_to_spare_changes_nothing(source_width: int | None) -> None:
    ours = random_layers(source_width=source_width)
    x_BTI, layout = torch.randn(4, 7, 3).double(), Layout.padded([7] * 4)
    source: tuple[Source, ...] = ours.prepare(*random_source()) if source_width else ()
    expected, _ = ours(x_BTI, layout, source=source)
    start = [no_memory(ours.first, x_BTI)]
    state: Any = ours.open(start, 20)
    first, state = ours(x_BTI[:, :3], Layout.padded([3] * 4), state, source=source)
    second, state = ours(x_BTI[:, 3:], Layout.padded([4] * 4), state, source=source)
    assert_close(torch.cat([first, second], dim=1), expected)
    assert state[0]["place"].tolist() == [[7]] * 4
    assert state[0]["tape"].shape == (4, 21, 8)


def test_a_step_writes_into_its_tape_only_where_nobody_goes_back() -> None:
    cell = random_layers().first
    assert isinstance(cell, Lstmn)
    x_BI = torch.randn(2, 3).double()
    before = cell.open(no_memory(cell, x_BI), 3)
    assert cell.step(cell.project(x_BI), before)["tape"] is not before["tape"]
    with torch.no_grad():
        assert cell.step(cell.project(x_BI), before)["tape"] is before["tape"]


@fusions
@reads
def test_how_many_weights_it_has(last_read: bool, source_width: int | None) -> None:
    """Those of an LSTM, h·h + h·in + h·h + h of the score and its bias; deep fusion as many again and W_r."""
    cell = random_layers(last_read, source_width).first
    h, i = 4, 3
    expected = 4 * h * (i + h + 2) + h * h + h * i + h * h * last_read + h + h
    if source_width is not None:
        expected += (h * h + h * i + h * h + h + h) + (h * h + h * i + h)
    assert sum(p.numel() for p in cell.parameters()) == expected
