"""Places that act inside self-attention: on queries and keys, on the scores, or on the values.

What is added to token vectors instead (sinusoids, learned vectors) stands in nn/embedding.py. Cross-attention has none
of these: a place in the target and a place in the source are not on one line.
Shapes: B sentences, H heads, T queries, S keys, K head width, R vectors of clipped distances.
`distance` is the key's place minus the query's, broadcast to (B, H, T, S); `between_BTS` how the two stand to each
other in a dependency tree, where there is one (nn/tree.py).
"""

from typing import Literal

import torch
from torch import Tensor, nn

InAttentionKind = Literal["none", "relative", "rotary", "alibi", "tree"]
Pairs = Literal["interleaved", "halves"]


class NoPlaces(nn.Module):
    """Attention that knows no places; the others override where they act."""

    kind: InAttentionKind = "none"
    turns = False
    acts_on_scores = False
    """Whether a kernel that knows only queries, keys and values does not suffice."""
    acts_on_values = False

    def turn(self, qkv: Tensor, place: Tensor) -> Tensor:
        """(…, 3, H, K) and the place (…) of each token: what the scores are taken of."""
        return qkv

    def bias(self, q_BHTK: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor | None:
        """What is added to q·k/√K, broadcast to (B, H, T, S)."""
        return None

    def of_values(self, weights_BHTS: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor | None:
        """What is added to the mean of the values (B, H, T, K)."""
        return None


class Rotary(NoPlaces):
    """RoFormer (Su et al. 2021): each pair of a query's and a key's values is turned by place · base^(−2i/K).

    The product of two turned vectors depends on their distance alone. `pairs`: neighbours (interleaved, as printed in
    the paper) or value i with value i + K/2 (halves, as GPT-NeoX and LLaMA have it): the same up to a permutation.
    """

    kind: InAttentionKind = "rotary"
    turns = True

    def __init__(self, head_width: int, *, pairs: Pairs = "interleaved", base: float = 10000.0) -> None:
        super().__init__()
        rates = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
        self.register_buffer("rates", rates.float(), persistent=False)
        self.rates: Tensor
        self.pairs = pairs

    def turn(self, qkv: Tensor, place: Tensor) -> Tensor:
        return torch.cat([self.turned(qkv[..., :2, :, :], place[..., None, None]), qkv[..., 2:, :, :]], dim=-3)

    def turned(self, x: Tensor, place: Tensor) -> Tensor:
        """(…, K), with the place broadcast to (…)."""
        angle = place[..., None].to(self.rates.dtype) * self.rates
        precise = torch.promote_types(x.dtype, angle.dtype)  # cosines of far places are too coarse in half precision
        cos, sin = angle.cos().to(precise), angle.sin().to(precise)
        one, other = (x[..., 0::2], x[..., 1::2]) if self.pairs == "interleaved" else x.chunk(2, dim=-1)
        both = one * cos - other * sin, one * sin + other * cos
        out = torch.stack(both, dim=-1).flatten(-2) if self.pairs == "interleaved" else torch.cat(both, dim=-1)
        return out.to(x.dtype)


class Alibi(NoPlaces):
    """Attention with linear biases (Press et al. 2022): −slope · distance is added to the scores, a slope a head.

    The paper is about decoders, which look back alone. Where tokens look both ways the distance counts without its
    sign, as its authors advise.
    """

    kind: InAttentionKind = "alibi"
    acts_on_scores = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes_H", torch.tensor(slopes(heads)), persistent=False)
        self.slopes_H: Tensor

    def bias(self, q_BHTK: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor:
        return (distance.abs() * -self.slopes_H[:, None, None]).to(q_BHTK.dtype)


def slopes(heads: int) -> list[float]:
    """2^(−8i/n) for i = 1 … n.

    Where the number of heads is no power of two, as in the paper's code: all slopes of the next lower power, then every
    other one of the next higher.
    """
    lower = 1 << (heads.bit_length() - 1)

    def of_power(n: int) -> list[float]:
        return [2.0 ** (-8.0 * i / n) for i in range(1, n + 1)]

    return of_power(lower) + of_power(2 * lower)[0::2][: heads - lower]


class Relative(NoPlaces):
    """Shaw et al. (2018): a vector for each distance, clipped to [−k, k], is added to the keys and to the values.

    e_ij = q_i · (k_j + a^K_{clip(j−i)}) / √K and z_i = Σ_j α_ij (v_j + a^V_{clip(j−i)}); the index is key minus query.
    In two terms, so that no (T, S, K) tensor is made: q·a^K is taken once a distance and then spread over the keys, and
    weights are summed by distance before they meet a^V. `per_head`: a table for each head (the paper's base model) or
    one for all (its big model, and Tensor2Tensor).
    """

    kind: InAttentionKind = "relative"
    acts_on_scores = True

    def __init__(self, heads: int, head_width: int, *, distance: int, values: bool = True, per_head: bool = False):
        super().__init__()
        self.distance = distance
        tables = heads if per_head else 1
        self.of_keys_HRK = nn.Parameter(torch.empty(tables, 2 * distance + 1, head_width))
        self.of_values_HRK = nn.Parameter(torch.empty_like(self.of_keys_HRK)) if values else None
        self.acts_on_values = values
        for table in self.parameters():
            nn.init.normal_(table, std=head_width**-0.5)

    def _row(self, distance: Tensor) -> Tensor:
        return distance.clamp(-self.distance, self.distance) + self.distance

    def bias(self, q_BHTK: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor:
        by_distance_BHTR: Tensor = q_BHTK @ self.of_keys_HRK.mT.to(q_BHTK.dtype) * q_BHTK.shape[-1] ** -0.5
        row_BHTS = self._row(distance).expand(*q_BHTK.shape[:-1], distance.shape[-1])
        return by_distance_BHTR.gather(-1, row_BHTS)

    def of_values(self, weights_BHTS: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor | None:
        if self.of_values_HRK is None:
            return None
        zeros_BHTR = weights_BHTS.new_zeros(*weights_BHTS.shape[:-1], 2 * self.distance + 1)
        by_distance_BHTR = zeros_BHTR.scatter_add(-1, self._row(distance).expand_as(weights_BHTS), weights_BHTS)
        values_BHTK: Tensor = by_distance_BHTR @ self.of_values_HRK.to(weights_BHTS.dtype)
        return values_BHTK
