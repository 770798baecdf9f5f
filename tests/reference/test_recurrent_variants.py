"""Every form of every cell = its equations written out, token by token in float64; and how the forms are related."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.nn import masks
from saccade.nn.cells import Elman, Gru, Lstm, Variant
from saccade.nn.recurrent import Cell, CellKind, RecurrentLayers, make_cell, no_memory, run_readable
from saccade.nn.watch import Watch
from saccade.types import Layout

LENGTHS = [4, 7, 1, 5]
Case = tuple[CellKind, Variant]
on_off = (False, True)
VARIANTS: list[Case] = [
    *(("elman", Variant(activation=a, layer_norm=n)) for a in ("tanh", "logistic", "identity", "relu") for n in on_off),
    *(
        ("lstm", Variant(forget_gate=f, peepholes=p, layer_norm=n, forget_bias=0.5))
        for f, p, n in product(on_off, repeat=3)
    ),
    *(
        ("gru", Variant(reset=r, polarity=p, layer_norm=n))
        for r in ("after", "before")
        for p in ("keep", "update")
        for n in on_off
    ),
]


def name_of(case: Case) -> str:
    kind, variant = case
    standard = Variant()
    fields = {name: value for name, value in vars(variant).items() if value != getattr(standard, name)}
    return f"{kind} {fields}"


variants = pytest.mark.parametrize("case", VARIANTS, ids=name_of)


def random_cell(case: Case, input_width: int = 3, width: int = 4) -> Cell:
    torch.manual_seed(0)
    cell = make_cell(case[0], input_width, width, case[1]).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


# ---- the equations, naively: one vector at a time, each gate by itself


def normed(x: Tensor, gain: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    mean = x.sum() / len(x)
    return gain * (x - mean) / ((x - mean).square().sum() / len(x) + 1e-5).sqrt() + bias


def elman_step(cell: Elman, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    a = cell.weight_ih @ x + cell.weight_hh @ h
    if cell.norm is not None:
        a = normed(a, cell.norm.gain)
    a = a + cell.bias_ih + cell.bias_hh
    phi: dict[str, Callable[[Tensor], Tensor]] = {
        "tanh": lambda a: (a.exp() - (-a).exp()) / (a.exp() + (-a).exp()),
        "logistic": lambda a: 1 / (1 + (-a).exp()),
        "identity": lambda a: a,
        "relu": lambda a: a * (a > 0),
    }
    return phi[cell.activation](a), c


def lstm_step(cell: Lstm, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    of_x, of_h = cell.weight_ih @ x, cell.weight_hh @ h
    if cell.norm_ih is not None and cell.norm_hh is not None:
        of_x, of_h = normed(of_x, cell.norm_ih.gain), normed(of_h, cell.norm_hh.gain)
    total, D = of_x + cell.bias_ih + of_h + cell.bias_hh, cell.width
    order = ["i", "f", "g", "o"] if cell.forgets else ["i", "g", "o"]
    a = {gate: total[k * D : (k + 1) * D] for k, gate in enumerate(order)}
    p = {gate: torch.zeros(D, dtype=x.dtype) for gate in "ifo"}
    if cell.peephole is not None:
        p |= {gate: cell.peephole[k * D : (k + 1) * D] for k, gate in enumerate(g for g in order if g != "g")}
    i = torch.sigmoid(a["i"] + p["i"] * c)
    f = torch.sigmoid(a["f"] + p["f"] * c) if cell.forgets else 1.0
    c = f * c + i * torch.tanh(a["g"])
    o = torch.sigmoid(a["o"] + p["o"] * c)
    shown = c if cell.norm_c is None else normed(c, cell.norm_c.weight, cell.norm_c.bias)
    return o * torch.tanh(shown), c


def gru_step(cell: Gru, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    D = cell.width
    W, U, b_ih, b_hh = cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh

    def ln(a: Tensor, norm: nn.Module | None, part: slice) -> Tensor:
        return a if norm is None else normed(a, norm.gain[part])  # type: ignore[index]

    rz, n_ = slice(0, 2 * D), slice(2 * D, 3 * D)
    gates = ln(W[rz] @ x, cell.norm_ih, rz) + b_ih[rz] + ln(U[rz] @ h, cell.norm_hh, rz) + b_hh[rz]
    r, z = torch.sigmoid(gates[:D]), torch.sigmoid(gates[D:])
    of_x = ln(W[n_] @ x, cell.norm_ih, n_) + b_ih[n_]
    if cell.reset == "after":
        n = torch.tanh(of_x + r * (ln(U[n_] @ h, cell.norm_hh, n_) + b_hh[n_]))
    else:
        n = torch.tanh(of_x + ln(U[n_] @ (r * h), cell.norm_hh, n_) + b_hh[n_])
    return (z * h + (1 - z) * n if cell.polarity == "keep" else (1 - z) * h + z * n), c


def naive_step(cell: Cell, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    match cell:
        case Elman():
            return elman_step(cell, x, h, c)
        case Lstm():
            return lstm_step(cell, x, h, c)
        case Gru():
            return gru_step(cell, x, h, c)
        case _:
            raise TypeError(cell)


@variants
def test_every_form_equals_its_equations(case: Case) -> None:
    """Both paths, over sentences of unequal length: outputs, final states, and the gradient of every weight."""
    cell = random_cell(case)
    x_BTI, layout = torch.randn(4, 7, 3, dtype=torch.float64), Layout.padded(LENGTHS)
    valid = masks.valid_BT(layout)
    rows, ends = [], []
    for b, length in enumerate(LENGTHS):
        h = c = torch.zeros(4, dtype=torch.float64)
        for t in range(length):
            h, c = naive_step(cell, x_BTI[b, t], h, c)
            rows.append(h)
        ends.append({"h": h, "c": c})
    expected, final = torch.stack(rows), {name: torch.stack([end[name] for end in ends]) for name in cell.states}
    weights = list(cell.parameters())
    wanted = torch.autograd.grad(expected.square().sum() + final["h"].pow(3).sum(), weights)

    layers = RecurrentLayers(case[0], 3, 4, 1, bidirectional=False, dropout=0.0, variant=case[1])
    layers.forwards[0] = cell
    assert layers.fused == cell.fused
    for watch in (None, Watch()):
        out_BTD, (last,) = layers(x_BTI, layout, watch=watch)
        assert_close(out_BTD[valid], expected)
        for name in cell.states:
            assert_close(last[name], final[name])
        actual = torch.autograd.grad(out_BTD[valid].square().sum() + last["h"].pow(3).sum(), weights)
        for one, other in zip(actual, wanted, strict=True):
            assert_close(one, other)


@variants
def test_gradcheck_of_a_step(case: Case) -> None:
    cell = random_cell(case)
    x_BI = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    before = [torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in cell.states]

    def step(x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        return tuple(cell.step(cell.project(x), dict(zip(cell.states, states, strict=True))).values())

    assert torch.autograd.gradcheck(step, (x_BI, *before))


@pytest.mark.parametrize("case", [case for case in VARIANTS if make_cell(case[0], 3, 4, case[1]).fused], ids=name_of)
def test_gradcheck_of_the_fused_twin_over_padding(case: Case) -> None:
    cell = random_cell(case)
    assert isinstance(cell, Elman | Lstm | Gru)
    before = [torch.randn(2, 4, dtype=torch.float64, requires_grad=True) for _ in cell.states]
    x_BTI = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    layout = Layout.padded([3, 2])
    valid = masks.valid_BT(layout)

    def run(x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        out, final = cell.run(x, dict(zip(cell.states, states, strict=True)), layout)
        return out[valid], *final.values()

    assert torch.autograd.gradcheck(run, (x_BTI, *before))


def test_which_forms_have_a_fused_twin() -> None:
    """Those of torch, and two that differ from them by weights alone: no forget gate, and the other polarity."""
    fused = [name_of(case) for case in VARIANTS if random_cell(case).fused]
    assert fused == [
        "elman {}",
        "elman {'activation': 'relu'}",
        "lstm {'forget_gate': False, 'forget_bias': 0.5}",
        "lstm {'forget_bias': 0.5}",
        "gru {}",
        "gru {'polarity': 'update'}",
    ]


@variants
@torch.no_grad()
def test_an_input_in_two_parts_is_the_input_at_once(case: Case) -> None:
    cell = random_cell(case)
    x, rest = torch.randn(5, 2, dtype=torch.float64), torch.randn(5, 1, dtype=torch.float64)
    total = cell.partial(x) + rest @ cell.weight_ih[:, 2:].T
    assert_close(cell.complete(total), cell.project(torch.cat([x, rest], dim=-1)))


# ---- Elman


@pytest.mark.parametrize("activation", ["tanh", "logistic", "identity", "relu"])
@torch.no_grad()
def test_elman_without_weights_is_its_bias(activation: str) -> None:
    cell = random_cell(("elman", Variant(activation=activation)))  # type: ignore[arg-type]
    cell.weight_ih.zero_()
    cell.weight_hh.zero_()
    x_BTI = torch.randn(2, 3, 3, dtype=torch.float64)
    out_BTD, *_ = run_readable(cell, x_BTI, no_memory(cell, x_BTI), Layout.padded([3, 3]))
    assert_close(out_BTD, cell.squash(cell.bias_ih + cell.bias_hh).expand(2, 3, 4))


@torch.no_grad()
def test_units_from_the_identity_begin_as_integrators() -> None:
    """Le et al. (2015): without input a ReLU unit keeps its state, with input it sums what comes."""
    cell = Elman(4, 4, Variant(activation="relu", identity=True))
    assert torch.equal(cell.weight_hh, torch.eye(4))
    cell.weight_ih.copy_(torch.eye(4))
    x_BTI = torch.rand(2, 20, 4)
    out_BTD, _ = cell.run(x_BTI, no_memory(cell, x_BTI), Layout.padded([20, 20]))
    assert_close(out_BTD, x_BTI.cumsum(1))


def test_the_gradient_through_a_linear_recurrence_is_a_power_of_its_matrix() -> None:
    """‖∂h_T/∂h_0‖ = ‖U^T‖ (Pascanu et al. 2013), and 1 while U is orthogonal, as it begins."""
    T = 9
    for noise in (0.0, 0.2):
        torch.manual_seed(0)
        cell = Elman(3, 4, Variant(activation="identity")).double()
        with torch.no_grad():
            cell.weight_hh.add_(noise * torch.randn(4, 4))
        x_1TI = torch.randn(1, T, 3, dtype=torch.float64)

        def last(h: Tensor, cell: Elman = cell, x_1TI: Tensor = x_1TI) -> Tensor:
            return run_readable(cell, x_1TI, {"h": h[None]}, Layout.padded([T])).final["h"][0]

        jacobian = torch.autograd.functional.jacobian(last, torch.randn(4, dtype=torch.float64))  # type: ignore[no-untyped-call]
        power = torch.linalg.matrix_power(cell.weight_hh.detach(), T)
        assert_close(jacobian, power)
        norm, largest = torch.linalg.matrix_norm(jacobian, 2), torch.linalg.matrix_norm(cell.weight_hh.detach(), 2)
        assert norm <= largest**T * (1 + 1e-9)
        if noise == 0.0:
            assert abs(norm - 1) < 1e-5  # U is drawn in single precision


# ---- LSTM


def test_the_direct_path_through_the_memory_cell() -> None:
    """∂c'/∂c with h held fixed: diag(f) with a forget gate, the identity in the carousel of 1997."""
    for forgets in (True, False):
        cell = random_cell(("lstm", Variant(forget_gate=forgets)))
        x, h = torch.randn(1, 3, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)

        def after(c: Tensor, cell: Cell = cell, x: Tensor = x, h: Tensor = h) -> Tensor:
            return cell.step(cell.project(x), {"h": h, "c": c[None]})["c"][0]

        jacobian = torch.autograd.functional.jacobian(after, torch.randn(4, dtype=torch.float64))  # type: ignore[no-untyped-call]
        total = cell.project(x) + h @ cell.weight_hh.T + cell.bias_hh
        f = total[0, 4:8].sigmoid() if forgets else torch.ones(4, dtype=torch.float64)
        assert_close(jacobian, torch.diag(f))


@torch.no_grad()
def test_the_forget_gates_bias_begins_as_given() -> None:
    for bias in (0.0, 1.0, 2.5):
        cell = make_cell("lstm", 3, 2, Variant(forget_bias=bias))
        assert cell.bias_ih.tolist() == [0, 0, bias, bias, 0, 0, 0, 0]
    assert make_cell("lstm", 3, 2, Variant(forget_gate=False)).bias_ih.tolist() == [0.0] * 6


@torch.no_grad()
def test_peepholes_begin_closed_and_cost_a_weight_a_gate_and_cell() -> None:
    torch.manual_seed(0)
    plain, peeping = Lstm(3, 5), Lstm(3, 5, Variant(peepholes=True))
    assert sum(p.numel() for p in peeping.parameters()) == sum(p.numel() for p in plain.parameters()) + 3 * 5
    peeping.load_state_dict(plain.state_dict(), strict=False)
    x_BTI, layout = torch.randn(2, 7, 3), Layout.padded([7, 7])
    out_BTD, *_ = run_readable(peeping, x_BTI, no_memory(peeping, x_BTI), layout)
    assert_close(out_BTD, plain.run(x_BTI, no_memory(plain, x_BTI), layout)[0])


# ---- GRU


@torch.no_grad()
def test_the_places_of_the_reset_agree_where_it_is_open_and_only_there() -> None:
    after, before = (random_cell(("gru", Variant(reset=place))) for place in ("after", "before"))
    before.load_state_dict(after.state_dict())
    x, memory = torch.randn(2, 3, dtype=torch.float64), {"h": torch.randn(2, 4, dtype=torch.float64)}

    def both() -> tuple[Tensor, Tensor]:
        return after.step(after.project(x), memory)["h"], before.step(before.project(x), memory)["h"]

    one, other = both()
    assert (one - other).abs().max() > 1e-2
    for cell in (after, before):
        cell.bias_ih[:4] = 100.0  # r = 1
    assert_close(*both())


@torch.no_grad()
def test_polarities_are_each_others_mirror_image() -> None:
    """z⊙h + (1−z)⊙n with a gate is (1−z)⊙h + z⊙n with that gate's weights negated."""
    keep, update = (random_cell(("gru", Variant(polarity=each))) for each in ("keep", "update"))
    update.load_state_dict(keep.state_dict())
    x, memory = torch.randn(2, 3, dtype=torch.float64), {"h": torch.randn(2, 4, dtype=torch.float64)}
    wanted = keep.step(keep.project(x), memory)["h"]
    assert (update.step(update.project(x), memory)["h"] - wanted).abs().max() > 1e-2
    for parameter in update.parameters():
        parameter[4:8] *= -1
    assert_close(update.step(update.project(x), memory)["h"], wanted)


# ---- layer norm


@pytest.mark.parametrize("kind", ["elman", "lstm", "gru"])
@torch.no_grad()
def test_a_normed_cell_does_not_see_how_large_its_weights_are(kind: CellKind) -> None:
    """Ba et al. (2016), section 5.1: the norm takes away the scale of the weights, and an offset common to all."""
    cell = random_cell((kind, Variant(layer_norm=True)))
    x_BTI, layout = torch.randn(2, 5, 3, dtype=torch.float64), Layout.padded([5, 3])
    wanted, *_ = run_readable(cell, x_BTI, no_memory(cell, x_BTI), layout)
    cell.weight_ih.mul_(70.0)
    cell.weight_hh.mul_(70.0)
    cell.weight_hh.add_(torch.randn(4, dtype=torch.float64))
    actual, *_ = run_readable(cell, x_BTI, no_memory(cell, x_BTI), layout)
    assert_close(actual, wanted, rtol=1e-3, atol=1e-3)  # ε weighs less beside larger sums


@pytest.mark.parametrize(("kind", "expected"), [("elman", 5), ("lstm", 20 + 20 + 10), ("gru", 15 + 15)])
def test_what_layer_norm_adds(kind: CellKind, expected: int) -> None:
    def size(variant: Variant) -> int:
        return sum(p.numel() for p in make_cell(kind, 3, 5, variant).parameters())

    assert size(Variant(layer_norm=True)) == size(Variant()) + expected
