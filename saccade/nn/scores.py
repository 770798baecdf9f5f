"""How well a query matches each key, and the mean of the values that follows.

A score has `prepare`, the part that does not depend on the query: it is made once a source, not once a step.
Shapes: B batch, T queries, S keys, D query width, E key width, A inner width of a score.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.nn.dropout import Dropout

ScoreKind = Literal[
    "dot", "scaled-dot", "general", "reduced-rank", "additive", "concat", "location", "cosine", "mean", "last"
]


class Dot(nn.Module):
    """e = q · k (Luong et al. 2015, section 3.1), or e = q · k / √D (Vaswani et al. 2017): one width for both."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        return keys_BSE

    def forward(self, queries_BTD: Tensor, prepared_BSE: Tensor) -> Tensor:
        scores_BTS = queries_BTD @ prepared_BSE.transpose(1, 2)
        return scores_BTS if self.scale == 1.0 else scores_BTS * self.scale


class General(nn.Module):
    """e = q · W k (Luong et al. 2015, section 3.1)."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.of_key = nn.Linear(key_width, query_width, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        keys_BSD: Tensor = self.of_key(keys_BSE)
        return keys_BSD

    def forward(self, queries_BTD: Tensor, prepared_BSD: Tensor) -> Tensor:
        return queries_BTD @ prepared_BSD.transpose(1, 2)


class ReducedRank(nn.Module):
    """e = (U q) · (V k): `General` with a W = Uᵀ V of at most this rank (Britz et al. 2017); not scaled."""

    def __init__(self, query_width: int, key_width: int, rank: int) -> None:
        super().__init__()
        self.of_query = nn.Linear(query_width, rank, bias=False)
        self.of_key = nn.Linear(key_width, rank, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        keys_BSA: Tensor = self.of_key(keys_BSE)
        return keys_BSA

    def forward(self, queries_BTD: Tensor, prepared_BSA: Tensor) -> Tensor:
        scores_BTS: Tensor = self.of_query(queries_BTD) @ prepared_BSA.transpose(1, 2)
        return scores_BTS


class Additive(nn.Module):
    """e = v · tanh(W k + U q + b), the alignment model of Bahdanau et al. (2015), section 3.1, who have no bias.

    With coverage it is e = v · tanh(W k + U q + w c + b), c the sum of all weights the key has had so far
    (See et al. 2017, equation 11).
    """

    def __init__(self, query_width: int, key_width: int, inner: int, *, covers: bool = False) -> None:
        super().__init__()
        self.of_query = nn.Linear(query_width, inner)
        self.of_key = nn.Linear(key_width, inner, bias=False)
        self.of_coverage = nn.Linear(1, inner, bias=False) if covers else None
        self.v = nn.Linear(inner, 1, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        keys_BSA: Tensor = self.of_key(keys_BSE)
        return keys_BSA

    def forward(self, queries_BTD: Tensor, prepared_BSA: Tensor, coverage_BTS: Tensor | None = None) -> Tensor:
        sum_BTSA = self.of_query(queries_BTD)[:, :, None] + prepared_BSA[:, None]
        if self.of_coverage is not None and coverage_BTS is not None:
            sum_BTSA = sum_BTSA + self.of_coverage(coverage_BTS[..., None])
        scores_BTS: Tensor = self.v(torch.tanh(sum_BTSA)).squeeze(-1)  # (B,T,S,1) -> (B,T,S)
        return scores_BTS


class Concat(nn.Module):
    """e = v · tanh(W [q; k]): the later printing of Luong et al. (2015); the earlier has neither v nor tanh."""

    def __init__(self, query_width: int, key_width: int, inner: int) -> None:
        super().__init__()
        self.query_width = query_width
        self.of_both = nn.Linear(query_width + key_width, inner, bias=False)
        self.v = nn.Linear(inner, 1, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        """W [q; k] = W₁ q + W₂ k."""
        return F.linear(keys_BSE, self.of_both.weight[:, self.query_width :])

    def forward(self, queries_BTD: Tensor, prepared_BSA: Tensor) -> Tensor:
        queries_BTA = F.linear(queries_BTD, self.of_both.weight[:, : self.query_width])
        scores_BTS: Tensor = self.v(torch.tanh(queries_BTA[:, :, None] + prepared_BSA[:, None])).squeeze(-1)
        return scores_BTS


class Location(nn.Module):
    """e = W q, one row of W a place (Luong et al. 2015, section 3.1): what stands there is not asked.

    Sources longer than the places are looked at as far as those reach; shorter ones leave the last rows out.
    """

    def __init__(self, query_width: int, places: int) -> None:
        super().__init__()
        self.of_query = nn.Linear(query_width, places, bias=False)

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        return keys_BSE

    def forward(self, queries_BTD: Tensor, prepared_BSE: Tensor) -> Tensor:
        longest, places = prepared_BSE.shape[1], self.of_query.out_features
        scores_BTS: Tensor = self.of_query(queries_BTD)[..., :longest]
        return scores_BTS if longest <= places else F.pad(scores_BTS, (0, longest - places), value=-torch.inf)


class Cosine(nn.Module):
    """e = cos(q, k) / τ. The temperature is fixed where given; else it is learned, as log τ, and begins at 0.1."""

    def __init__(self, temperature: float | None) -> None:
        super().__init__()
        self.fixed = temperature
        self.log_temperature = nn.Parameter(torch.tensor(0.1).log()) if temperature is None else None

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        return F.normalize(keys_BSE, dim=-1)

    def forward(self, queries_BTD: Tensor, prepared_BSE: Tensor) -> Tensor:
        cosines_BTS = F.normalize(queries_BTD, dim=-1) @ prepared_BSE.transpose(1, 2)
        return cosines_BTS / self.temperature

    @property
    def temperature(self) -> Tensor | float:
        return self.log_temperature.exp() if self.log_temperature is not None else self.fixed or 1.0


class Even(nn.Module):
    """e = 0: all keys that may be looked at weigh the same, whatever the query. The baseline without a query."""

    def prepare(self, keys_BSE: Tensor) -> Tensor:
        return keys_BSE

    def forward(self, queries_BTD: Tensor, prepared_BSE: Tensor) -> Tensor:
        return queries_BTD.new_zeros(*queries_BTD.shape[:2], prepared_BSE.shape[1])


Score = Dot | General | ReducedRank | Additive | Concat | Location | Cosine | Even


def make_score(
    kind: ScoreKind,
    query_width: int,
    key_width: int,
    inner: int,
    *,
    places: int = 1,
    temperature: float | None = None,
    covers: bool = False,
) -> Score:
    """`inner`: the width of an additive score's sum, or the rank of a reduced one."""
    match kind:
        case "dot":
            return Dot()
        case "scaled-dot":
            return Dot(query_width**-0.5)
        case "general":
            return General(query_width, key_width)
        case "reduced-rank":
            return ReducedRank(query_width, key_width, inner)
        case "additive":
            return Additive(query_width, key_width, inner, covers=covers)
        case "concat":
            return Concat(query_width, key_width, inner)
        case "location":
            return Location(query_width, places)
        case "cosine":
            return Cosine(temperature)
        case "mean" | "last":  # the last has one key alone
            return Even()


def weigh(scores: Tensor, may_look: Tensor | None) -> Tensor:
    """Softmax(scores) over the last dimension, in float32 at least; a row that may look nowhere gets zeros."""
    precise = torch.promote_types(scores.dtype, torch.float32)  # half precision is too coarse for sums of many weights
    if may_look is None:
        return scores.softmax(-1, dtype=precise)
    blocked = torch.finfo(scores.dtype).min  # not -inf: a fully blocked row must not become NaN
    return scores.masked_fill(~may_look, blocked).softmax(-1, dtype=precise) * may_look


def attend(
    scores: Tensor, values: Tensor, may_look: Tensor | None, dropout: Dropout | None = None
) -> tuple[Tensor, Tensor]:
    """The values' mean, weighted by softmax(scores) over the last dimension; a row that may look nowhere gets zeros.

    In training, Drop(softmax(scores)): the weights that are given back are those that the values were taken with.
    """
    weights = weigh(scores, may_look)
    weights = weights if dropout is None else dropout(weights)
    return weights.to(values.dtype) @ values, weights
