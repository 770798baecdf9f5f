"""LSTMN (Cheng, Dong & Lapata 2016): an LSTM that reads its state from a tape of all its states so far.

Shapes: B sentences, N hypotheses (B × beam) or sentences, M places of the tape, S source tokens, D width, E width of
the source's memory, G rows of W.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn import masks
from saccade.nn.cells import STANDARD, Gated, Memory, Variant
from saccade.nn.scores import attend
from saccade.nn.watch import Watch
from saccade.types import Layout

Source = dict[str, Tensor]  # what deep fusion reads, one row a sentence: `keys`, `pair` = [γ; α], and `may_look`


class Lstmn(Gated):
    """(i, f, g, o) = W x + b + U h̃ + b', c = f⊙c̃ + i⊙g, h = o⊙tanh(c), with h̃ and c̃ read from the tape.

    a_i = v·tanh(W_h h_i + W_x x_t + W_h̃ h̃_{t−1}), s = softmax(a), (h̃_t, c̃_t) = Σ_i s_i (h_i, c_i), over all i < t.

    The tape's first entry is the state it begins with, so that there is always one to read. Without `last_read` the
    term of h̃_{t−1} is left out, as in the encoder of the authors' code.

    With a source (`source_width`: deep fusion, section 4) the cell also reads that one's tapes γ and α, by a like
    score: b_j = u·tanh(W_γ γ_j + W'_x x_t + W_γ̃ γ̃_{t−1}), r = σ(W_r [γ̃_t; x_t]), c = r⊙α̃ + f⊙c̃ + i⊙g; γ̃_0 = 0.

    The tape has a place for every step, made beforehand, and `place` says which was written last.
    """

    states = ("h", "c")

    def __init__(
        self, input_width: int, width: int, variant: Variant = STANDARD, source_width: int | None = None
    ) -> None:
        super().__init__(input_width, width, gates=4, further=1 if source_width is None else 3)
        nn.init.constant_(self.bias_ih.data[width : 2 * width], variant.forget_bias)
        self.of_state = nn.Linear(width, width, bias=False)
        self.of_read = nn.Linear(width, width, bias=False) if variant.last_read else None
        self.v = nn.Linear(width, 1, bias=False)
        self.source = None if source_width is None else SourceReader(source_width, width)

    @property
    def unfused(self) -> str:
        return "lstmn"

    def open(self, memory: Memory, steps: int) -> Memory:
        """A tape with room for so many steps, whose first entry is the state given."""
        h_ND, c_ND = memory["h"], memory["c"]
        tape_NMD = h_ND.new_zeros(len(h_ND), steps + 1, 2 * self.width)
        keys_NMD = h_ND.new_zeros(len(h_ND), steps + 1, self.width)
        place_N1 = torch.zeros(len(h_ND), 1, dtype=torch.long, device=h_ND.device)
        tape = {
            "tape": written(tape_NMD, place_N1, torch.cat([h_ND, c_ND], dim=-1)),
            "keys": written(keys_NMD, place_N1, self.of_state(h_ND)),
            "place": place_N1,
            "read": torch.zeros_like(h_ND),  # what is read from a single entry does not depend on it
        }
        if self.source is not None:
            tape["seen"] = h_ND.new_zeros(len(h_ND), self.source.width)
        return memory | tape

    def step(
        self,
        projected_NG: Tensor,
        before: Memory,
        U: Tensor | None = None,
        source: Source | None = None,
        looks: Watch | None = None,
    ) -> Memory:
        gates = 4 * self.width
        x_gates_NG, x_score_ND, x_source_NG = projected_NG.tensor_split([gates, gates + self.width], dim=-1)
        read_ND, mixed_c_ND, weights_NM = self._read_tape(x_score_ND, before)
        total_NG = x_gates_NG + F.linear(read_ND, self.weight_hh if U is None else U, self.bias_hh)
        i, f, g, o = total_NG.chunk(4, dim=-1)
        c_ND = f.sigmoid() * mixed_c_ND + i.sigmoid() * g.tanh()
        seen: Memory = {}
        if self.source is not None and source is not None:
            from_source_ND, seen["seen"], weights_NS = self.source(x_source_NG, before["seen"], source)
            c_ND = c_ND + from_source_ND
            if looks is not None:
                looks.saw_attention("source", weights_NS[:, None, None])
        if looks is not None:
            looks.saw_attention("tape", weights_NM[:, None, None])
        h_ND = o.sigmoid() * c_ND.tanh()
        place_N1 = before["place"] + 1
        return {
            "h": h_ND,
            "c": c_ND,
            "tape": written(before["tape"], place_N1, torch.cat([h_ND, c_ND], dim=-1)),
            "keys": written(before["keys"], place_N1, self.of_state(h_ND)),
            "place": place_N1,
            "read": read_ND,
            **seen,
        }

    def _read_tape(self, x_score_ND: Tensor, before: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """h̃, c̃, and how much of each entry they hold."""
        query_ND = x_score_ND if self.of_read is None else x_score_ND + self.of_read(before["read"])
        scores_N1M = self.v(torch.tanh(before["keys"] + query_ND[:, None])).transpose(1, 2)
        places_M = torch.arange(before["tape"].shape[1], device=x_score_ND.device)
        mixed_N1D, weights_N1M = attend(scores_N1M, before["tape"], (places_M <= before["place"])[:, None])
        h_ND, c_ND = mixed_N1D[:, 0].chunk(2, dim=-1)
        return h_ND, c_ND, weights_N1M[:, 0]


class SourceReader(nn.Module):
    """Deep fusion's look at the encoder's tapes, and the gate r that lets its memory cells in."""

    def __init__(self, width: int, inner: int) -> None:
        """Tapes of the source are `width` wide, the cell is `inner` wide; r⊙α̃ asks for the same."""
        super().__init__()
        self.width = width
        self.of_state = nn.Linear(width, inner, bias=False)
        self.of_seen = nn.Linear(width, inner, bias=False)
        self.v = nn.Linear(inner, 1, bias=False)
        self.gate = nn.Linear(width, inner, bias=False)

    def prepare(self, memory_BSE: Tensor, cells_BSE: Tensor, layout: Layout) -> Source:
        source = {"keys": self.of_state(memory_BSE), "pair": torch.cat([memory_BSE, cells_BSE], dim=-1)}
        may_look = masks.keys_B1S(layout)
        return source if may_look is None else source | {"may_look": may_look}

    def forward(self, x_NG: Tensor, seen_NE: Tensor, source: Source) -> tuple[Tensor, Tensor, Tensor]:
        """r⊙α̃, γ̃, and how much of each source token they hold."""
        x_score_ND, x_gate_ND = x_NG.chunk(2, dim=-1)
        rows, keys_BSD = len(x_NG), source["keys"]
        # The hypotheses of one sentence are further queries to the same memory, which is never repeated.
        query_BQD = (x_score_ND + self.of_seen(seen_NE)).view(len(keys_BSD), -1, keys_BSD.shape[-1])
        scores_BQS = self.v(torch.tanh(keys_BSD[:, None] + query_BQD[:, :, None])).squeeze(-1)
        mixed_BQE, weights_BQS = attend(scores_BQS, source["pair"], source.get("may_look"))
        seen_NE, cells_NE = mixed_BQE.reshape(rows, -1).chunk(2, dim=-1)
        r_ND = (x_gate_ND + self.gate(seen_NE)).sigmoid()
        return r_ND * cells_NE, seen_NE, weights_BQS.reshape(rows, -1)


def written(tape_NMD: Tensor, place_N1: Tensor, value_ND: Tensor) -> Tensor:
    """The tape with a value at its place: in the tape itself where nobody will go back through it."""
    at_N1D = place_N1[:, :, None].expand(-1, 1, tape_NMD.shape[-1])
    value_N1D = value_ND[:, None].to(tape_NMD.dtype)
    if torch.is_grad_enabled():
        return tape_NMD.scatter(1, at_N1D, value_N1D)
    return tape_NMD.scatter_(1, at_N1D, value_N1D)
