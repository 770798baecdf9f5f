"""Cells = torch.nn's twins on copied weights, fused and written out; gradients checked against finite differences."""

from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from saccade.nn import masks
from saccade.nn.cells import Elman, Gru, Lstm, Memory, Variant
from saccade.nn.recurrent import CellKind, RecurrentLayers, make_cell, no_memory
from saccade.nn.recurrent import run_readable as readable
from saccade.nn.watch import Watch
from saccade.types import Layout

LENGTHS = [4, 7, 1, 5]
paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
kinds = pytest.mark.parametrize("kind", ["elman", "gru", "lstm"])


def twin_of(kind: CellKind, input_width: int, width: int, layers: int, bidirectional: bool) -> nn.RNNBase:
    make = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind]
    twin: nn.RNNBase = make(input_width, width, layers, batch_first=True, bidirectional=bidirectional)
    return twin


def copy_weights(twin: nn.RNNBase, ours: RecurrentLayers) -> None:
    for suffix, cells in (("", ours.forwards), ("_reverse", ours.backwards)):
        for level, cell in enumerate(cells):
            for name, parameter in cell.named_parameters():
                parameter.data.copy_(getattr(twin, f"{name}_l{level}{suffix}"))


def torch_finals(twin: nn.RNNBase, after: Tensor | tuple[Tensor, Tensor], layers: int) -> list[Memory]:
    """(layers · directions, B, D) -> a dictionary a layer, the directions side by side."""
    named = dict(zip(("h", "c"), after if isinstance(after, tuple) else (after,), strict=False))
    directions = 2 if twin.bidirectional else 1
    return [
        {name: torch.cat(list(x[level * directions : (level + 1) * directions]), dim=-1) for name, x in named.items()}
        for level in range(layers)
    ]


@paths
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("layers", [1, 2])
@kinds
def test_layers_equal_torch_on_sentences_of_unequal_length(
    kind: CellKind, layers: int, bidirectional: bool, dtype: torch.dtype, watched: bool
) -> None:
    """Outputs, and every layer's final states; gradients of the inputs and of all weights."""
    torch.manual_seed(0)
    width = 6
    twin = twin_of(kind, 3, width // 2 if bidirectional else width, layers, bidirectional).to(dtype)
    ours = RecurrentLayers(kind, 3, width, layers, bidirectional=bidirectional, dropout=0.0).to(dtype)
    copy_weights(twin, ours)
    x_BTI = torch.randn(4, 7, 3, dtype=dtype, requires_grad=True)

    packed = pack_padded_sequence(x_BTI, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    twin_packed, after = twin(packed)
    expected, _ = pad_packed_sequence(twin_packed, batch_first=True)
    layout = Layout.padded(LENGTHS)
    out, finals = ours(x_BTI, layout, watch=Watch() if watched else None)

    valid = masks.valid_BT(layout)
    assert_close(out[valid], expected[valid])
    twin_finals = torch_finals(twin, after, layers)
    for final, twin_final in zip(finals, twin_finals, strict=True):
        assert final.keys() == twin_final.keys()
        for name in final:
            assert_close(final[name], twin_final[name])

    def total(outputs: Tensor, states: list[Memory]) -> Tensor:
        cubes = [state.pow(3).sum() for each in states for state in each.values()]
        return outputs[valid].square().sum() + torch.stack(cubes).sum()

    twin_weights = [getattr(twin, name) for name in _torch_names(ours)]
    wanted = torch.autograd.grad(total(expected, twin_finals), [x_BTI, *twin_weights])
    actual = torch.autograd.grad(total(out, list(finals)), [x_BTI, *ours.parameters()])
    for one, other in zip(actual, wanted, strict=True):
        assert_close(one, other, rtol=1e-4, atol=1e-4 if dtype == torch.float32 else 1e-10)


def _torch_names(ours: RecurrentLayers) -> list[str]:
    names = []
    for name, _ in ours.named_parameters():
        direction, level, weight = name.split(".")
        names.append(f"{weight}_l{level}" + ("_reverse" if direction == "backwards" else ""))
    return names


@paths
@kinds
@torch.no_grad()
def test_a_state_that_is_given_is_gone_on_from(kind: CellKind, watched: bool) -> None:
    """Cut anywhere, the second half with the first half's state equals the whole."""
    torch.manual_seed(0)
    ours = RecurrentLayers(kind, 3, 5, 2, bidirectional=False, dropout=0.0)
    x_BTI = torch.randn(2, 7, 3)
    whole, _ = ours(x_BTI, Layout.padded([7, 7]))
    watch = Watch() if watched else None
    first, state = ours(x_BTI[:, :3], Layout.padded([3, 3]), watch=watch)
    second, _ = ours(x_BTI[:, 3:], Layout.padded([4, 4]), state, watch=watch)
    assert_close(torch.cat([first, second], dim=1), whole)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@torch.no_grad()
def test_elman_equals_torch_in_both_activations(activation: Literal["tanh", "relu"]) -> None:
    torch.manual_seed(0)
    cell, twin = Elman(3, 5, Variant(activation=activation)), nn.RNN(3, 5, nonlinearity=activation, batch_first=True)
    for name, parameter in cell.named_parameters():
        parameter.copy_(getattr(twin, f"{name}_l0"))
    x_BTI, layout = torch.randn(2, 7, 3), Layout.padded([7, 7])
    expected, last = twin(x_BTI)
    for out, final, *_ in (
        cell.run(x_BTI, no_memory(cell, x_BTI), layout),
        readable(cell, x_BTI, no_memory(cell, x_BTI), layout),
    ):
        assert_close(out, expected)
        assert_close(final["h"], last[0])


def test_a_sentence_without_tokens_ends_in_the_state_it_began_with() -> None:
    for cell in (Elman(3, 5), Gru(3, 5), Lstm(3, 5)):
        x_BTI, layout = torch.randn(2, 4, 3), Layout.padded([4, 0])
        _, fast = cell.run(x_BTI, no_memory(cell, x_BTI), layout)
        _, slow, _ = readable(cell, x_BTI, no_memory(cell, x_BTI), layout)
        for name in cell.states:
            assert_close(fast[name], slow[name])
            assert (fast[name][1] == 0).all()


@paths
@torch.no_grad()
def test_the_cell_state_is_carried_over_padding_to_the_bit(watched: bool) -> None:
    """However long the padding and however large the state and what stands on the padding."""
    torch.manual_seed(0)
    cell = Lstm(3, 5)
    x_BTI = torch.randn(2, 200, 3)
    x_BTI[1, 3:] = 50 * torch.randn(197, 3)
    before = {"h": torch.randn(2, 5), "c": 100 * torch.randn(2, 5)}
    run = readable if watched else Lstm.run
    _, long, *_ = run(cell, x_BTI, before, Layout.padded([200, 3]))
    _, short, *_ = run(cell, x_BTI[:, :4], before, Layout.padded([4, 3]))
    assert torch.equal(long["c"][1], short["c"][1])
    assert torch.equal(long["h"][1], short["h"][1])


# ---- the equations' limits


@torch.no_grad()
def test_lstm_gates_do_what_their_names_say() -> None:
    cell = Lstm(3, 2)
    before = {"h": torch.randn(1, 2), "c": torch.randn(1, 2)}
    x = torch.randn(1, 3)
    cell.bias_ih.copy_(torch.tensor([-100.0, -100, 100, 100, 0, 0, 0, 0]))
    assert torch.equal(cell.step(cell.project(x), before)["c"], before["c"])  # keep all, add nothing
    cell.bias_ih.copy_(torch.tensor([0.0, 0, 0, 0, 0, 0, -200, -200]))
    assert (cell.step(cell.project(x), before)["h"] == 0).all()  # show nothing


@torch.no_grad()
def test_gru_update_gate_at_one_keeps_the_state() -> None:
    cell = Gru(3, 2)
    before = {"h": torch.randn(1, 2)}
    cell.bias_ih.copy_(torch.tensor([0.0, 0, 100, 100, 0, 0]))
    assert torch.equal(cell.step(cell.project(torch.randn(1, 3)), before)["h"], before["h"])


@torch.no_grad()
def test_elman_without_recurrence_sees_its_input_alone() -> None:
    cell = Elman(3, 2)
    cell.weight_hh.zero_()
    x = torch.randn(1, 3)
    once, again = (cell.step(cell.project(x), {"h": torch.randn(1, 2)})["h"] for _ in range(2))
    assert torch.equal(once, again)


@kinds
def test_weights_begin_as_documented(kind: CellKind) -> None:
    cell = make_cell(kind, 7, 5)
    gates = {"elman": 1, "gru": 3, "lstm": 4}[kind]
    assert sum(p.numel() for p in cell.parameters()) == gates * 5 * (7 + 5 + 2)
    for weight in cell.weight_hh.chunk(gates):
        assert_close(weight @ weight.T, torch.eye(5))
    forget = {"lstm": [0.0] * 5 + [1.0] * 5 + [0.0] * 10}.get(kind, [0.0] * 5 * gates)
    assert cell.bias_ih.tolist() == forget
