"""Every score = its equation written out, pair by pair, in double precision; and what the papers say of them."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.nn.scores import (
    Additive,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    ReducedRank,
    Score,
    ScoreKind,
    attend,
    make_score,
    weigh,
)

WIDTH, INNER, PLACES = 4, 3, 9
KINDS: list[ScoreKind] = [
    "dot", "scaled-dot", "general", "reduced-rank", "additive", "concat", "location", "cosine", "mean",
]  # fmt: skip
every_score = pytest.mark.parametrize("kind", KINDS)


def made(kind: ScoreKind) -> Score:
    torch.manual_seed(0)
    score = make_score(kind, WIDTH, WIDTH, INNER, places=PLACES).double()
    for parameter in score.parameters():
        nn.init.normal_(parameter)
    return score


def by_pair(score: Score, q: Tensor, k: Tensor, place: int) -> Tensor:
    """One query, one key, as printed."""
    match score:
        case Dot():
            return (q * k).sum() * score.scale
        case General():
            return q @ score.of_key.weight @ k
        case ReducedRank():
            return (score.of_query.weight @ q) @ (score.of_key.weight @ k)
        case Additive():
            sum_A = score.of_key.weight @ k + score.of_query.weight @ q + score.of_query.bias
            return score.v.weight[0] @ torch.tanh(sum_A)
        case Concat():
            return score.v.weight[0] @ torch.tanh(score.of_both.weight @ torch.cat([q, k]))
        case Location():
            return score.of_query.weight[place] @ q
        case Cosine():
            assert score.log_temperature is not None
            cosine: Tensor = (q @ k) / (q.norm() * k.norm())
            return cosine / score.log_temperature.exp()
        case _:
            return q.new_zeros(())


@every_score
@torch.no_grad()
def test_a_score_is_its_equation(kind: ScoreKind) -> None:
    score = made(kind)
    queries, keys = torch.randn(2, 3, WIDTH).double(), torch.randn(2, 5, WIDTH).double()
    scores_BTS = score(queries, score.prepare(keys))
    for b, t, s in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)).tolist():
        assert_close(scores_BTS[b, t, s], by_pair(score, queries[b, t], keys[b, s], s))


@every_score
def test_gradcheck(kind: ScoreKind) -> None:
    score = made(kind)
    queries = torch.randn(2, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(2, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    may_look = torch.tensor([[[True, True, True]], [[True, True, False]]])
    assert torch.autograd.gradcheck(lambda q, k: attend(score(q, score.prepare(k)), k, may_look), (queries, keys))


@every_score
def test_masked_keys_have_weight_0_and_gradient_0(kind: ScoreKind) -> None:
    score = made(kind)
    queries = torch.randn(1, 2, WIDTH, dtype=torch.float64)
    keys = torch.randn(1, 4, WIDTH, dtype=torch.float64, requires_grad=True)
    context, weights = attend(score(queries, score.prepare(keys)), keys, torch.tensor([[[True, False, True, False]]]))
    assert (weights[..., [1, 3]] == 0).all()
    (gradient,) = torch.autograd.grad(context.square().sum(), keys)
    assert (gradient[:, [1, 3]] == 0).all()
    assert (gradient[:, [0, 2]] != 0).all()


def test_scaled_dot_is_dot_over_the_root_of_the_width() -> None:
    queries, keys = torch.randn(1, 2, 16), torch.randn(1, 3, 16)
    dot, scaled = make_score("dot", 16, 16, 0), make_score("scaled-dot", 16, 16, 0)
    assert_close(scaled(queries, scaled.prepare(keys)), dot(queries, dot.prepare(keys)) / 4)


# ---- reduced rank


def reduced(query_width: int, key_width: int, rank: int) -> ReducedRank:
    torch.manual_seed(0)
    return ReducedRank(query_width, key_width, rank).double()


@torch.no_grad()
def test_reduced_rank_is_general_with_a_product_of_that_rank() -> None:
    few, general = reduced(6, 5, 2), General(6, 5).double()
    general.of_key.weight.copy_(few.of_query.weight.T @ few.of_key.weight)
    queries, keys = torch.randn(1, 20, 6).double(), torch.randn(1, 20, 5).double()
    scores = few(queries, few.prepare(keys))
    assert_close(scores, general(queries, general.prepare(keys)))
    assert torch.linalg.matrix_rank(scores[0]) == 2


@torch.no_grad()
def test_a_rank_as_large_as_the_narrower_side_can_be_any_general_score() -> None:
    few, general = reduced(6, 5, 5), General(6, 5).double()
    U, values, V = torch.linalg.svd(general.of_key.weight, full_matrices=False)
    few.of_query.weight.copy_((U * values).T)
    few.of_key.weight.copy_(V)
    queries, keys = torch.randn(1, 3, 6).double(), torch.randn(1, 4, 5).double()
    assert_close(few(queries, few.prepare(keys)), general(queries, general.prepare(keys)))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dot", 0),
        ("scaled-dot", 0),
        ("general", 6 * 5),
        ("reduced-rank", 3 * (6 + 5)),
        ("additive", 3 * 6 + 3 + 3 * 5 + 3),  # with a bias that the paper does not have
        ("concat", 3 * (6 + 5) + 3),
        ("location", 6 * 9),
        ("cosine", 1),
        ("mean", 0),
    ],
)
def test_a_score_has_as_many_weights_as_the_paper_says(kind: ScoreKind, expected: int) -> None:
    score = make_score(kind, 6, 5, 3, places=9)
    assert sum(p.numel() for p in score.parameters()) == expected


# ---- additive and concat


@torch.no_grad()
def test_concat_is_additive_without_its_bias() -> None:
    concat, additive = Concat(4, 5, 3), Additive(4, 5, 3)
    additive.of_query.weight.copy_(concat.of_both.weight[:, :4])
    additive.of_key.weight.copy_(concat.of_both.weight[:, 4:])
    additive.of_query.bias.zero_()
    additive.v.weight.copy_(concat.v.weight)
    queries, keys = torch.randn(2, 3, 4), torch.randn(2, 6, 5)
    assert_close(concat(queries, concat.prepare(keys)), additive(queries, additive.prepare(keys)))


@torch.no_grad()
def test_additive_whose_matrices_are_zero_looks_everywhere_alike() -> None:
    additive = Additive(5, 4, 7)
    additive.of_query.weight.zero_()
    additive.of_key.weight.zero_()
    weights = weigh(additive(torch.randn(1, 2, 5), additive.prepare(torch.randn(1, 4, 4))), None)
    assert_close(weights, torch.full((1, 2, 4), 0.25))


@torch.no_grad()
def test_coverage_is_one_more_term_of_the_sum() -> None:
    score = Additive(4, 5, 3, covers=True).double()
    queries, keys, coverage = torch.randn(2, 1, 4).double(), torch.randn(2, 6, 5).double(), torch.rand(2, 1, 6).double()
    assert score.of_coverage is not None
    inside = (
        (keys @ score.of_key.weight.T)[:, None]
        + (queries @ score.of_query.weight.T + score.of_query.bias)[:, :, None]
        + coverage[..., None] * score.of_coverage.weight[:, 0]
    )
    assert_close(score(queries, score.prepare(keys), coverage), torch.tanh(inside) @ score.v.weight[0])


# ---- location


@torch.no_grad()
def test_location_asks_the_state_alone_and_cuts_what_is_too_long() -> None:
    score = Location(5, 4)
    queries = torch.randn(1, 2, 5)
    one, other = (weigh(score(queries, score.prepare(torch.randn(1, 3, 6))), None) for _ in range(2))
    assert torch.equal(one, other)
    assert_close(one, (queries @ score.of_query.weight[:3].T).softmax(-1))
    long = weigh(score(queries, score.prepare(torch.randn(1, 7, 6))), None)
    assert (long[..., 4:] == 0).all()
    assert_close(long[..., :4], (queries @ score.of_query.weight.T).softmax(-1))
    behind = torch.tensor([False] * 5 + [True] * 2)  # all that may be looked at lies behind the last place
    assert (weigh(score(queries, score.prepare(torch.randn(1, 7, 6))), behind) == 0).all()


# ---- cosine


@torch.no_grad()
def test_cosine_does_not_ask_how_long_a_vector_is() -> None:
    score = Cosine(0.5)
    queries, keys = torch.randn(1, 2, 5), torch.randn(1, 3, 5)
    scores = score(queries, score.prepare(keys))
    assert_close(score(3 * queries, score.prepare(0.1 * keys)), scores)
    assert (scores.abs() <= 2.0).all()
    assert_close(score(keys, score.prepare(keys)).diagonal(dim1=1, dim2=2), torch.full((1, 3), 2.0))
    assert not list(score.parameters())


def test_a_learned_temperature_begins_at_a_tenth() -> None:
    score = Cosine(None)
    with torch.no_grad():
        assert float(score.temperature) == pytest.approx(0.1)
    queries = keys = torch.eye(2)[None]
    assert score(queries, score.prepare(keys))[0].tolist() == [[pytest.approx(10.0), 0.0], [0.0, pytest.approx(10.0)]]
    score(queries, score.prepare(keys))[0, 0, 0].backward()
    assert score.log_temperature is not None
    assert score.log_temperature.grad is not None
    assert float(score.log_temperature.grad) == pytest.approx(-10.0)  # d(e^−θ)/dθ


@torch.no_grad()
def test_the_mean_has_no_query() -> None:
    score = make_score("mean", 5, 4, 0)
    keys, may_look = torch.randn(1, 3, 4), torch.tensor([[[True, True, False]]])
    context, weights = attend(score(torch.randn(1, 2, 5), score.prepare(keys)), keys, may_look)
    assert weights.tolist() == [[[0.5, 0.5, 0.0]] * 2]
    assert_close(context, keys[:, :2].mean(1, keepdim=True).expand(1, 2, 4))


def test_unscaled_scores_grow_with_the_width() -> None:
    """Var(q · k) = D for unit normal vectors; the scaled ones' is 1, the cosine's at most 1."""
    torch.manual_seed(0)
    queries, keys = torch.randn(1, 200, 64), torch.randn(1, 200, 64)
    spread = {kind: make_score(kind, 64, 64, 0)(queries, keys).std().item() for kind in ("dot", "scaled-dot")}
    assert spread["dot"] == pytest.approx(8.0, rel=0.03)
    assert spread["scaled-dot"] == pytest.approx(1.0, rel=0.03)
    cosine = Cosine(1.0)
    assert cosine(queries, cosine.prepare(keys)).std().item() == pytest.approx(math.sqrt(1 / 64), rel=0.03)
