"""From what the encoder knows at its end to the state the decoder begins with.

Shapes: B sentences, S source tokens, E encoder width, D decoder width.
"""

from typing import Literal

from torch import Tensor, nn

from saccade.nn import masks
from saccade.nn.cells import Memory
from saccade.nn.recurrent import Cell
from saccade.types import Encoded

BridgeKind = Literal["linear", "copy", "mean", "zero"]


class Bridge(nn.Module):
    """`linear`: h = φ(W h_final), c = W c_final, layer by layer; the two stacks are aligned at their tops.

    φ is what the cell's own h goes through: tanh, but for Elman's other activations. A decoder deeper than the encoder
    reads the encoder's top again, a shallower one leaves out its bottom.

    `copy`: the final states as they are (Sutskever et al. 2014). `mean`: φ(W · mean of the memory), for encoders
    that end in no state. `zero`: begin with zeros.
    """

    def __init__(self, kind: BridgeKind, memory_width: int, layers: int, cell: Cell) -> None:
        """`cell`: one of the decoder's."""
        super().__init__()
        self.kind = kind
        self.width = cell.width
        self.states = cell.states
        self.squash = cell.squash
        self.count = layers
        learned = layers if kind in ("linear", "mean") else 0
        self.maps = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(memory_width, cell.width) for name in cell.states}) for _ in range(learned)
        )

    def forward(self, encoded: Encoded) -> tuple[Memory, ...]:
        match self.kind:
            case "zero":
                zeros_BD = encoded.memory.new_zeros(len(encoded.layout.lengths_B), self.width)
                return tuple(dict.fromkeys(self.states, zeros_BD) for _ in range(self.count))
            case "copy":
                return encoded.final
            case "mean":
                mean_BE = self._mean(encoded)
                return tuple(self._mapped(level, {"h": mean_BE}) for level in range(self.count))
            case "linear":
                top = len(encoded.final) - 1
                skipped = max(0, len(encoded.final) - self.count)  # without attention the top is all that is seen
                return tuple(
                    self._mapped(level, encoded.final[min(level + skipped, top)]) for level in range(self.count)
                )

    def _mapped(self, level: int, final: Memory) -> Memory:
        maps = self.maps[level]
        assert isinstance(maps, nn.ModuleDict)
        begun = {name: maps[name](final.get(name, final["h"])) for name in self.states}
        return begun | {"h": self.squash(begun["h"])}  # into the range that h always has; c has no bound

    def _mean(self, encoded: Encoded) -> Tensor:
        valid = masks.valid_BT(encoded.layout)[:, :, None]
        total_BE = (masks.pad(encoded.memory, encoded.layout) * valid).sum(1)
        return total_BE / encoded.layout.lengths_B.clamp(min=1)[:, None]
