"""How well a query matches each key, and the mean of the values that follows.

Shapes: B batch, T queries, S keys, D query width, E key width, A attention width, H heads, K head width.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn import kernels, masks
from saccade.nn.dropout import Dropout
from saccade.nn.kernels import Product
from saccade.nn.watch import Watch
from saccade.types import Layout

ScoreKind = Literal["dot", "general", "additive"]


class Dot(nn.Module):
    """e = q · k (Luong et al. 2015, section 3.1); needs queries and keys of one width."""

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        return keys_BSE

    def forward(self, queries_BTD: Tensor, prepared_BSE: Tensor) -> Tensor:
        return queries_BTD @ prepared_BSE.transpose(1, 2)


class General(nn.Module):
    """e = q · W k (Luong et al. 2015, section 3.1)."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.of_key = nn.Linear(key_width, query_width, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        """W k does not depend on the query: once per source, not once per step."""
        keys_BSD: Tensor = self.of_key(keys_BSE)
        return keys_BSD

    def forward(self, queries_BTD: Tensor, prepared_BSD: Tensor) -> Tensor:
        return queries_BTD @ prepared_BSD.transpose(1, 2)


class Additive(nn.Module):
    """e = v · tanh(W k + U q), the alignment model of Bahdanau et al. (2015), section 3.1."""

    def __init__(self, query_width: int, key_width: int, attention_width: int) -> None:
        super().__init__()
        self.of_query = nn.Linear(query_width, attention_width)
        self.of_key = nn.Linear(key_width, attention_width, bias=False)
        self.v = nn.Linear(attention_width, 1, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        """The part that does not depend on the query: once per source, not once per step."""
        keys_BSA: Tensor = self.of_key(keys_BSE)
        return keys_BSA

    def forward(self, queries_BTD: Tensor, prepared_BSA: Tensor) -> Tensor:
        sum_BTSA = self.of_query(queries_BTD)[:, :, None] + prepared_BSA[:, None]
        scores_BTS: Tensor = self.v(torch.tanh(sum_BTSA)).squeeze(-1)  # (B,T,S,1) -> (B,T,S)
        return scores_BTS


def make_score(kind: ScoreKind, query_width: int, key_width: int, attention_width: int) -> Dot | General | Additive:
    match kind:
        case "dot":
            return Dot()
        case "general":
            return General(query_width, key_width)
        case "additive":
            return Additive(query_width, key_width, attention_width)


def attend(scores: Tensor, values: Tensor, may_look: Tensor | None) -> tuple[Tensor, Tensor]:
    """The values' mean, weighted by softmax(scores) over the last dimension; a row that may look nowhere gets zeros."""
    precise = torch.promote_types(scores.dtype, torch.float32)  # half precision is too coarse for sums of many weights
    if may_look is None:
        weights = scores.softmax(-1, dtype=precise)
    else:
        blocked = torch.finfo(scores.dtype).min  # not -inf: a fully blocked row must not become NaN
        weights = scores.masked_fill(~may_look, blocked).softmax(-1, dtype=precise) * may_look
    return weights.to(values.dtype) @ values, weights


def look(
    q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, *, causal: bool, watch: Watch, kind: str
) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, equation 1) of each head, watched: (…, H, K)."""
    q_BTHK, k_BSHK, v_BSHK = masks.pad(q, queries), masks.pad(k, keys), masks.pad(v, keys)
    seen = masks.causal_TS(queries.longest, keys.longest, q.device) if causal else masks.keys_B1S(keys)
    scores_BHTS = torch.einsum("bthk,bshk->bhts", q_BTHK, k_BSHK) * q.shape[-1] ** -0.5
    may_look = seen[:, None] if seen is not None and seen.ndim == 3 else seen  # (B,1,S) -> (B,1,1,S)
    mixed_BHTK, weights_BHTS = attend(scores_BHTS, v_BSHK.transpose(1, 2), may_look)
    watch.saw_attention(kind, weights_BHTS)
    return masks.pack(mixed_BHTK.transpose(1, 2), queries)


class Heads(nn.Module):
    """Side by side, contiguous slices of the width; mapped once more where they are joined."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.out = projection(width, width, parts=1)

    def split(self, x: Tensor, parts: int) -> Tensor:
        """(…, parts · D) -> (…, parts, H, K)."""
        return x.view(*x.shape[:-1], parts, self.heads, -1)

    def join(self, mixed: Tensor) -> Product:
        """(…, H, K) -> (…, D)."""
        return kernels.product(mixed.flatten(-2), self.out)


class SelfAttention(nn.Module):
    """Several attentions of a sequence to itself (Vaswani et al. 2017, section 3.2).

    Every projection has a bias, as in torch.nn.MultiheadAttention; queries, keys and values are made by one product.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.of_input = projection(width, width, parts=3)
        self.heads = Heads(width, heads)

    def project(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, 3, H, K): queries, keys, values."""
        return self.heads.split(self.of_input(x), 3)

    def look(self, qkv: Tensor, layout: Layout, *, causal: bool, watch: Watch | None = None, kind: str = "") -> Tensor:
        """What each token sees of each head's values (…, H, K)."""
        if watch is None:
            return kernels.self_attention(qkv, layout, causal=causal)
        q, k, v = qkv.unbind(-3)
        return look(q, k, v, layout, layout, causal=causal, watch=watch, kind=kind)


class CrossAttention(nn.Module):
    """Several attentions of one sequence to another."""

    def __init__(self, width: int, heads: int, memory_width: int) -> None:
        super().__init__()
        self.of_query = projection(width, width, parts=1)
        self.of_memory = projection(memory_width, width, parts=2)
        self.heads = Heads(width, heads)

    def queries(self, x: Tensor) -> Tensor:
        """(…, D) -> (…, H, K)."""
        return self.heads.split(self.of_query(x), 1).squeeze(-3)

    def keys_values(self, memory: Tensor) -> Tensor:
        """(…, E) -> (…, 2, H, K)."""
        return self.heads.split(self.of_memory(memory), 2)

    def look(self, q: Tensor, kv: Tensor, queries: Layout, keys: Layout, watch: Watch | None = None) -> Tensor:
        """What each query sees of each head's values (…, H, K), laid out as the queries."""
        if watch is None:
            return kernels.cross_attention(q, kv, queries, keys)
        k, v = kv.unbind(-3)
        return look(q, k, v, queries, keys, causal=False, watch=watch, kind="cross")


def projection(width_in: int, width: int, *, parts: int) -> nn.Linear:
    """A linear map to several vectors of the same width, each drawn as if it were alone."""
    linear = nn.Linear(width_in, parts * width)
    for weight in linear.weight.data.chunk(parts):
        nn.init.xavier_uniform_(weight)
    nn.init.zeros_(linear.bias)
    return linear


class FeedForward(nn.Module):
    """W₂ φ(W₁ x + b₁) + b₂ on every token by itself."""

    def __init__(self, width: int, inner: int, dropout: float, activation: Literal["relu", "gelu"] = "relu") -> None:
        super().__init__()
        self.widen = projection(width, inner, parts=1)
        self.narrow = projection(inner, width, parts=1)
        self.dropout = Dropout(dropout)
        self.activation: Literal["relu", "gelu"] = activation

    def forward(self, x: Tensor) -> Product:
        inner = kernels.activate(kernels.product(x, self.widen), self.activation, self.dropout)
        return kernels.product(inner, self.narrow)
