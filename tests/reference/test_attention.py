"""Attention = torch's own on copied weights; every score checked against finite differences and by hand."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.nn.attention import CrossAttention, SelfAttention
from saccade.nn.kernels import dot_product
from saccade.nn.scores import ScoreKind, attend, make_score
from saccade.nn.watch import Watch
from saccade.types import Layout

paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])


def twin_of(multi: CrossAttention, width: int, memory_width: int) -> nn.MultiheadAttention:
    """torch's module with the same weights; it keeps three matrices where the memory has a width of its own."""
    unlike = memory_width != width
    twin = nn.MultiheadAttention(
        width,
        multi.heads.heads,
        batch_first=True,
        kdim=memory_width if unlike else None,
        vdim=memory_width if unlike else None,
    )
    with torch.no_grad():
        if unlike:
            twin.q_proj_weight.copy_(multi.of_query.weight)
            twin.k_proj_weight.copy_(multi.of_memory.weight.chunk(2)[0])
            twin.v_proj_weight.copy_(multi.of_memory.weight.chunk(2)[1])
        else:
            twin.in_proj_weight.copy_(torch.cat([multi.of_query.weight, multi.of_memory.weight]))
        twin.in_proj_bias.copy_(torch.cat([multi.of_query.bias, multi.of_memory.bias]))
        twin.out_proj.load_state_dict(multi.heads.out.state_dict())
    return twin


@paths
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("memory_width", [6, 5])
def test_multi_head_equals_torch(heads: int, memory_width: int, watched: bool) -> None:
    """Outputs, weights and gradients, with padding behind the memory."""
    torch.manual_seed(0)
    multi = CrossAttention(6, heads, memory_width)
    nn.init.normal_(multi.of_query.bias)
    nn.init.normal_(multi.of_memory.bias)
    twin = twin_of(multi, 6, memory_width)
    x = torch.randn(3, 4, 6, requires_grad=True)
    memory = torch.randn(3, 5, memory_width, requires_grad=True)
    blocked = torch.arange(5) >= torch.tensor([5, 2, 3])[:, None]  # torch: True = may not look
    expected, expected_weights = twin(x, memory, memory, key_padding_mask=blocked, average_attn_weights=False)

    watch = Watch() if watched else None
    kv = multi.keys_values(memory)
    read, source = Layout.padded([4] * 3), Layout.padded([5, 2, 3])
    out = multi.heads.join(multi.look(multi.queries(x), kv, read, source, watch)).whole()
    assert_close(out, expected)
    if watch is not None:
        assert_close(watch.attention["cross"][0], expected_weights)
    for one, other in zip(
        torch.autograd.grad(out.square().sum(), (x, memory)),
        torch.autograd.grad(expected.square().sum(), (x, memory)),
        strict=True,
    ):
        assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_readable_dot_product_equals_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 4, 5, dtype=dtype) for _ in range(3))
    may_look = torch.rand(2, 1, 4, 4) > 0.4
    may_look[..., 0] = True
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
    scores = q @ k.transpose(2, 3) * 5**-0.5
    out, weights = attend(scores, v, may_look)
    assert out.dtype == dtype
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=may_look)
    assert_close(out, expected, rtol=tolerance, atol=tolerance)
    fast = dot_product(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), may_look, causal=False)
    assert_close(fast.transpose(1, 2), expected)


def test_attend_by_hand() -> None:
    """Scores 0, ln 3 and a blocked one: weights ¼, ¾, 0."""
    scores = torch.tensor([[0.0, math.log(3), 9.0]])
    values = torch.tensor([[4.0, 0.0], [0.0, 8.0], [100.0, 100.0]])
    context, weights = attend(scores, values, torch.tensor([[True, True, False]]))
    assert_close(weights, torch.tensor([[0.25, 0.75, 0.0]]))
    assert_close(context, torch.tensor([[1.0, 6.0]]))


@torch.no_grad()
def test_scores_by_hand() -> None:
    queries, keys = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 4.0], [0.0, -1.0]]])
    dot = make_score("dot", 2, 2, 0)
    assert dot(queries, dot.prepare(keys)).tolist() == [[[11.0, -2.0]]]
    general = make_score("general", 2, 2, 0)
    general.load_state_dict({"of_key.weight": torch.tensor([[0.0, 1.0], [2.0, 0.0]])})  # W k = (4, 6) and (−1, 0)
    assert general(queries, general.prepare(keys)).tolist() == [[[16.0, -1.0]]]
    additive = make_score("additive", 2, 2, 1)
    weights = {
        "of_query.weight": [[1.0, 0.0]],
        "of_query.bias": [0.5],
        "of_key.weight": [[0.0, 1.0]],
        "v.weight": [[2.0]],
    }
    additive.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    expected = torch.tensor([[[2 * math.tanh(5.5), 2 * math.tanh(0.5)]]])
    assert_close(additive(queries, additive.prepare(keys)), expected)


@pytest.mark.parametrize("kind", ["dot", "general", "additive"])
def test_gradcheck_of_every_score_and_the_mean_that_follows(kind: ScoreKind) -> None:
    torch.manual_seed(0)
    score = make_score(kind, 4, 4, 3).double()
    queries = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    may_look = torch.tensor([[[True, True, True]], [[True, True, False]]])

    def context(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return attend(score(q, score.prepare(k)), k, may_look)

    assert torch.autograd.gradcheck(context, (queries, keys))


@paths
def test_gradcheck_of_multi_head(watched: bool) -> None:
    torch.manual_seed(0)
    multi, layout = SelfAttention(4, 2).double(), Layout.padded([3])
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)

    def mixed(x_BTD: Tensor) -> Tensor:
        watch = Watch() if watched else None
        return multi.heads.join(multi.look(multi.project(x_BTD), layout, causal=True, watch=watch)).whole()

    assert torch.autograd.gradcheck(mixed, (x,))


def test_the_scale_keeps_scores_at_unit_variance() -> None:
    """Var(q·k) = K for unit normal q and k; divided by √K it is 1."""
    torch.manual_seed(0)
    multi = CrossAttention(64, 1, 64)
    q = k = torch.eye(64)[None, :, None] * 8.0  # q·k/√64 = 8 on the diagonal
    watch, layout = Watch(), Layout.padded([64])
    multi.look(q, torch.stack([k, k], dim=2), layout, layout, watch)
    expected = torch.full((64, 64), 1.0).fill_diagonal_(math.exp(8.0))
    assert_close(watch.attention["cross"][0][0, 0], expected / expected.sum(-1, keepdim=True))
