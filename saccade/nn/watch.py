"""A notebook that layers write into when somebody looks.

Training and decoding pass none and pay nothing. With one, a layer takes its readable path and notes what it computed.
"""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Watch:
    attention: dict[str, list[Tensor]] = field(default_factory=dict)
    """By kind (`encoder`, `decoder`, `cross`): one (B, heads, T, S) tensor a layer, bottom first."""
    states: dict[str, list[Tensor]] = field(default_factory=dict)
    """By name of a gate or state: one (B, T, width) tensor a recurrent layer and direction."""

    def saw_attention(self, kind: str, weights_BHTS: Tensor) -> None:
        self.attention.setdefault(kind, []).append(weights_BHTS.detach())

    def saw_states(self, name: str, values_BTD: Tensor) -> None:
        self.states.setdefault(name, []).append(values_BTD.detach())
