"""Multi-head attention, and the feed-forward part that stands beside it in a block.

Shapes: B batch, T queries, S keys, D width, H heads, K head width.
"""

import torch
from torch import Tensor, nn

from saccade.nn import kernels, masks
from saccade.nn.dropout import Dropout
from saccade.nn.kernels import Activation, Product
from saccade.nn.linformer import Linformer
from saccade.nn.patterns import Pattern
from saccade.nn.positions import Alibi, NoPlaces
from saccade.nn.scores import attend
from saccade.nn.watch import Watch
from saccade.types import Layout


def weigh(
    q_BTHK: Tensor,
    k_BSHK: Tensor,
    v_BSHK: Tensor,
    may_look: Tensor | None,
    places: NoPlaces,
    distance: Tensor | None,
    dropout: Dropout,
    between_BTS: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1) of each head: (B, T, H, K), (B, H, T, S)."""
    q_BHTK, k_BHSK, v_BHSK = (x.transpose(1, 2) for x in (q_BTHK, k_BSHK, v_BSHK))
    mixed_BHTK, weights_BHTS = _weigh(q_BHTK, k_BHSK, v_BHSK, may_look, places, distance, dropout, between_BTS)
    return mixed_BHTK.transpose(1, 2), weights_BHTS


def _weigh(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    may_look: Tensor | None,
    places: NoPlaces,
    distance: Tensor | None,
    dropout: Dropout,
    between_BTS: Tensor | None,
) -> tuple[Tensor, Tensor]:
    scores_BHTS = q_BHTK @ k_BHSK.mT * q_BHTK.shape[-1] ** -0.5
    bias = None if distance is None else places.bias(q_BHTK, distance, between_BTS)
    mixed_BHTK, weights_BHTS = attend(scores_BHTS if bias is None else scores_BHTS + bias, v_BHSK, may_look, dropout)
    more = None if distance is None else places.of_values(weights_BHTS, distance, between_BTS)
    return mixed_BHTK if more is None else mixed_BHTK + more.to(mixed_BHTK.dtype), weights_BHTS


class Heads(nn.Module):
    """Side by side, contiguous slices of the width; mapped once more where they are joined.

    `dropout` is of their weights, behind the softmax, as in BERT and GPT-2: it is drawn for every query, key and head.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.width = width // heads
        self.out = projection(width, width, parts=1)
        self.dropout = Dropout(dropout)

    def split(self, x: Tensor, parts: int) -> Tensor:
        """(…, parts · D) -> (…, parts, H, K)."""
        return x.view(*x.shape[:-1], parts, self.heads, -1)

    def join(self, mixed: Tensor) -> Product:
        """(…, H, K) -> (…, D)."""
        return kernels.product(mixed.flatten(-2), self.out)

    def without_twin(self, device: torch.device) -> list[str]:
        if self.dropout.rate > 0.0 and not kernels.drops_weights(device):
            return ["attention with dropout holds all of its weights"]
        if device.type != "cuda" or kernels.takes_heads(self.width):
            return []
        return [f"attention with heads {self.width} wide is computed on padded sentences"]


class SelfAttention(nn.Module):
    """Several attentions of a sequence to itself (Vaswani et al. 2017, section 3.2).

    Every projection has a bias, as in torch.nn.MultiheadAttention; queries, keys and values are made by one product.
    `places` says how it knows where tokens stand, `pattern` which of them it sees: None is all, `slots` sums of them.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        dropout: float = 0.0,
        places: NoPlaces | None = None,
        pattern: Pattern | None = None,
        slots: Linformer | None = None,
    ) -> None:
        super().__init__()
        self.of_input = projection(width, width, parts=3)
        self.heads = Heads(width, heads, dropout)
        self.places = NoPlaces() if places is None else places
        self.pattern = pattern
        self.slots = slots

    def project(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, 3, H, K): queries, keys, values."""
        return self.heads.split(self.of_input(x), 3)

    def without_twin(self, device: torch.device) -> list[str]:
        """Dense kernels take biases and blocks, those for packed sentences most blocks; none acts on the values."""
        if self.places.acts_on_values:
            return [f"self-attention with {self.places.kind} positions on the values holds all of its weights"]
        taken = self.pattern is not None and self._takes_pattern(self.pattern)
        if device.type != "cuda" or taken:
            return []
        outside = [f"{self.places.kind} positions"] if self.places.acts_on_scores else []
        outside += [] if self.pattern is None else [f"pattern {self.pattern.kind}"]
        outside += [] if self.slots is None else ["pattern linformer"]
        return [f"self-attention with {' and '.join(outside)} is computed on padded sentences"] if outside else []

    @property
    def _slopes_H(self) -> Tensor | None:
        return self.places.slopes_H if isinstance(self.places, Alibi) else None

    def _takes_pattern(self, pattern: Pattern) -> bool:
        placed = self.places.acts_on_scores and self._slopes_H is None
        return not placed and self.heads.dropout.rate == 0.0 and kernels.takes_pattern(pattern, self.heads.width)

    def look(
        self,
        qkv: Tensor,
        layout: Layout,
        *,
        causal: bool,
        watch: Watch | None = None,
        kind: str = "",
        between_BTT: Tensor | None = None,
    ) -> Tensor:
        """What each token sees of each head's values (…, H, K); `between_BTT` is for places in a dependency tree."""
        if self.places.turns:
            qkv = self.places.turn(qkv, masks.positions(layout))
        patterned = self.pattern is not None and not self.pattern.sees_all_of(layout.longest)
        plain = not self.places.acts_on_scores and not patterned and self.slots is None
        if plain and watch is None:
            return kernels.self_attention(qkv, layout, self.heads.dropout, causal=causal)
        if self.pattern is not None and patterned and watch is None:
            placed, slopes_H, dropout = self.places.acts_on_scores, self._slopes_H, self.heads.dropout
            return kernels.block_attention(
                qkv, layout, self.pattern, self._mix, dropout, causal=causal, placed=placed, slopes_H=slopes_H
            )
        q, k, v = (masks.pad(x, layout) for x in qkv.unbind(-3))
        if self.slots is not None:
            return masks.pack(self._look_at_slots(self.slots, q, k, v, layout, watch, kind), layout)
        place = torch.arange(layout.longest, device=q.device)
        distance_TT = place - place[:, None]
        may_look = self._may_look(layout, place, causal=causal, patterned=patterned)
        if watch is None:
            q_BHTK, k_BHTK, v_BHTK = (x.transpose(1, 2) for x in (q, k, v))
            mixed_BHTK = self._mix(q_BHTK, k_BHTK, v_BHTK, may_look, distance_TT, between_BTT)
            return masks.pack(mixed_BHTK.transpose(1, 2), layout)
        dropout = self.heads.dropout
        mixed_BTHK, weights_BHTT = weigh(q, k, v, may_look, self.places, distance_TT, dropout, between_BTT)
        watch.saw_attention(kind, weights_BHTT)
        return masks.pack(mixed_BTHK, layout)

    def look_back(self, q_NTHK: Tensor, k_NMHK: Tensor, v_NMHK: Tensor, place_NT: Tensor, shade_N1TM: Tensor) -> Tensor:
        """What new tokens, at these places, see of those so far, which lie in the cache's M places.

        `shade_N1TM` says the same of them as their places do, and is all that plain attention needs.
        """
        if self.pattern is None and not self.places.acts_on_scores and not self.heads.dropout.acts:
            return kernels.shaded(q_NTHK, k_NMHK, v_NMHK, shade_N1TM)
        key_M = torch.arange(k_NMHK.shape[1], device=q_NTHK.device)
        may_look = (key_M <= place_NT[:, :, None])[:, None]  # (N, 1, T, M)
        distance = (key_M - place_NT[:, :, None])[:, None] if self.places.acts_on_scores else None
        if self.pattern is not None:
            may_look = may_look & self.pattern.may_look(place_NT, key_M, place_NT, causal=True)
        q_NHTK, k_NHMK, v_NHMK = (x.transpose(1, 2) for x in (q_NTHK, k_NMHK, v_NMHK))
        return self._mix(q_NHTK, k_NHMK, v_NHMK, may_look, distance).transpose(1, 2)

    def _may_look(self, layout: Layout, place_T: Tensor, *, causal: bool, patterned: bool) -> Tensor | None:
        """Broadcast to (B, H, T, T). Padding stands behind the real tokens: a causal mask keeps it out of sight."""
        keys_B1T = masks.keys_B1S(layout)
        may_look = None if keys_B1T is None else keys_B1T[:, None]
        if causal:
            may_look = masks.causal_TS(len(place_T), len(place_T), place_T.device)
        if self.pattern is not None and patterned:
            more = self.pattern.may_look(place_T[None], place_T[None], layout.lengths_B, causal=causal)
            may_look = more if may_look is None else may_look & more
        return may_look

    def _mix(
        self,
        q_BHTK: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        may_look: Tensor | None,
        distance: Tensor | None,
        between_BTS: Tensor | None = None,
    ) -> Tensor:
        dropout = self.heads.dropout
        if self.places.acts_on_values:  # the weights themselves are needed
            return _weigh(q_BHTK, k_BHSK, v_BHSK, may_look, self.places, distance, dropout, between_BTS)[0]
        bias = None if distance is None else self.places.bias(q_BHTK, distance, between_BTS)
        return kernels.biased(q_BHTK, k_BHSK, v_BHSK, may_look, bias, dropout)

    def _look_at_slots(
        self, slots: Linformer, q: Tensor, k: Tensor, v: Tensor, layout: Layout, watch: Watch | None, kind: str
    ) -> Tensor:
        k_BMHK, v_BMHK = slots(k, v, layout)
        if watch is None:
            return kernels.dot_product(q, k_BMHK, v_BMHK, None, False, self.heads.dropout)
        mixed_BTHK, weights_BHTM = weigh(q, k_BMHK, v_BMHK, None, self.places, None, self.heads.dropout)
        watch.saw_attention(kind, slots.seen(weights_BHTM, layout))
        return mixed_BTHK


class CrossAttention(nn.Module):
    """Several attentions of one sequence to another."""

    def __init__(self, width: int, heads: int, memory_width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.of_query = projection(width, width, parts=1)
        self.of_memory = projection(memory_width, width, parts=2)
        self.heads = Heads(width, heads, dropout)

    def queries(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, H, K)."""
        return self.heads.split(self.of_query(x), 1).squeeze(-3)

    def keys_values(self, memory: Tensor) -> Tensor:
        """(…, E) -> (…, 2, H, K)."""
        return self.heads.split(self.of_memory(memory), 2)

    def look(
        self,
        q: Tensor,
        kv: Tensor,
        queries: Layout,
        keys: Layout,
        watch: Watch | None = None,
        shade_B11S: Tensor | None = None,
    ) -> Tensor:
        """What each query sees of each head's values (…, H, K), laid out as the queries.

        `shade_B11S` is the mask of padded keys where it is made already, and there is no sentence without any.
        """
        if watch is None and shade_B11S is not None and not self.heads.dropout.acts:
            k, v = kv.unbind(-3)
            return kernels.shaded(q, k, v, shade_B11S)
        if watch is None:
            return kernels.cross_attention(q, kv, queries, keys, self.heads.dropout)
        k, v = kv.unbind(-3)
        seen_B1S = masks.keys_B1S(keys)
        mixed_BTHK, weights_BHTS = weigh(
            masks.pad(q, queries),
            masks.pad(k, keys),
            masks.pad(v, keys),
            None if seen_B1S is None else seen_B1S[:, None],
            NoPlaces(),
            None,
            self.heads.dropout,
        )
        watch.saw_attention("cross", weights_BHTS)
        return masks.pack(mixed_BTHK, queries)


def projection(width_in: int, width: int, *, parts: int) -> nn.Linear:
    """A linear map to several vectors of the same width, each drawn as if it were alone."""
    linear = nn.Linear(width_in, parts * width)
    for weight in linear.weight.data.chunk(parts):
        nn.init.xavier_uniform_(weight)
    nn.init.zeros_(linear.bias)
    return linear


class FeedForward(nn.Module):
    """W₂ φ(W₁ x + b₁) + b₂ on every token by itself; gated, W₂ (φ(W₁ x + b₁) ⊙ (V x + c)) + b₂.

    The gated forms are those of Shazeer (2020): ReGLU, GEGLU, SwiGLU by what φ is. His have no biases; ours have, as
    all else here. The inner width is as given: two thirds of it give as many weights as without a gate.
    """

    def __init__(
        self, width: int, inner: int, dropout: float, activation: Activation = "relu", *, gated: bool = False
    ) -> None:
        super().__init__()
        self.widen = projection(width, inner, parts=2 if gated else 1)
        self.narrow = projection(inner, width, parts=1)
        self.dropout = Dropout(dropout)
        self.activation: Activation = activation
        self.gated = gated

    def without_twin(self, device: torch.device) -> list[str]:
        if device.type != "cuda" or (kernels.takes_activation(self.activation) and not self.gated):
            return []
        form = f"{self.activation}, gated" if self.gated else self.activation
        return [f"feed-forward part with {form} takes several passes over memory"]

    def forward(self, x: Tensor) -> Product:
        wide = kernels.product(x, self.widen)
        inner = kernels.activate(wide, self.activation, self.dropout, gated=self.gated)
        return kernels.product(inner, self.narrow)
