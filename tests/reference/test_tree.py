"""Places in dependency trees = the definition followed edge by edge, on generated trees."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from saccade.errors import UsageError
from saccade.nn.embedding import Sinusoidal
from saccade.nn.scores import attend
from saccade.nn.tree import AbsoluteStructure, RelativeStructure, between, check_heads, depths, of_pieces
from saccade.types import Layout


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Heads counted from 1, 0 for roots: each word hangs on one that was placed before, in a shuffled order."""
    n = draw(st.integers(1, 12))
    order = draw(st.permutations(range(n)))
    heads = [0] * n
    for at in range(1, n):
        heads[order[at]] = draw(st.sampled_from([0, *(order[before] + 1 for before in range(at))]))
    return heads


forests = st.lists(trees(), min_size=1, max_size=4)


def padded(rows: list[list[int]], filler: int = 7) -> tuple[Tensor, Layout]:
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows]), Layout.padded(list(map(len, rows)))


def depth(heads: list[int], word: int) -> int:
    return 0 if heads[word] == 0 else 1 + depth(heads, heads[word] - 1)


def relation(heads: list[int], i: int, j: int) -> int:
    if heads[i] == j + 1 or heads[j] == i + 1:
        return depth(heads, i) - depth(heads, j)
    return ((i > j) - (i < j)) * (depth(heads, i) + depth(heads, j))


@settings(deadline=None)
@given(forests)
def test_depths_and_relations_as_defined(rows: list[list[int]]) -> None:
    """abs(root) = 0, abs(child) = abs(parent) + 1; rel is antisymmetric; padding has none."""
    heads_BT, layout = padded(rows)
    depth_BT, rel_BTT = depths(heads_BT, layout), between(heads_BT, layout)
    for b, heads in enumerate(rows):
        check_heads(heads)
        n = len(heads)
        assert depth_BT[b, :n].tolist() == [depth(heads, word) for word in range(n)]
        assert rel_BTT[b, :n, :n].tolist() == [[relation(heads, i, j) for j in range(n)] for i in range(n)]
        assert (depth_BT[b, n:] == 0).all()
        assert (rel_BTT[b, n:] == 0).all()
        assert (rel_BTT[b, :, n:] == 0).all()
        for child, head in enumerate(heads):
            if head:
                assert rel_BTT[b, child, head - 1] == 1
                assert rel_BTT[b, head - 1, child] == -1
    assert torch.equal(rel_BTT, -rel_BTT.mT)
    assert (rel_BTT.diagonal(dim1=1, dim2=2) == 0).all()


def test_a_chain_and_a_flat_tree() -> None:
    chain, flat = [0, 1, 2, 3, 4], [2, 0, 2, 2, 2]
    heads_BT, layout = padded([chain, flat])
    depth_BT, rel_BTT = depths(heads_BT, layout), between(heads_BT, layout)
    assert depth_BT.tolist() == [[0, 1, 2, 3, 4], [1, 0, 1, 1, 1]]
    assert rel_BTT[0].diagonal(-1).tolist() == [1] * 4
    assert rel_BTT[0, 3, 1] == 4  # not on one edge: 3 + 1
    assert rel_BTT[1, 4, 0] == 2
    assert rel_BTT[1, 0, 4] == -2
    assert set(rel_BTT[1, :, 1].tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("heads", "reason"),
    [([2, 1], "circle"), ([0, 3, 2], "circle"), ([1], "circle"), ([0, 5], "word 2 has the head 5"), ([-1], "head -1")],
)
def test_what_is_no_tree_is_refused(heads: list[int], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_heads(heads)


def test_pieces_have_what_their_words_have() -> None:
    heads_BT, layout = padded([[2, 0, 2]])
    word_BP = torch.tensor([[0, 0, 1, 2, 2]])
    depth_BT, rel_BTT = depths(heads_BT, layout), between(heads_BT, layout)
    assert of_pieces(depth_BT, word_BP).tolist() == [[1, 1, 0, 1, 1]]
    pieces = of_pieces(rel_BTT, word_BP)[0]
    for p, i in enumerate(word_BP[0].tolist()):
        for q, j in enumerate(word_BP[0].tolist()):
            assert pieces[p, q] == rel_BTT[0, i, j]


@torch.no_grad()
def test_the_absolute_code_fuses_place_and_depth() -> None:
    torch.manual_seed(0)
    structure, sinusoid = AbsoluteStructure(6), Sinusoidal(6)
    assert sum(p.numel() for p in structure.parameters()) == 2 * 6 * 6 + 6
    depth_BT = torch.tensor([[1, 0, 1], [0, 1, 2]])
    out_BTD = structure(torch.arange(3), depth_BT)
    for b in range(2):
        for t in range(3):
            both = torch.cat([sinusoid(torch.tensor(t)), sinusoid(depth_BT[b, t])])
            assert_close(out_BTD[b, t], torch.tanh(structure.fuse.weight @ both + structure.fuse.bias))


@pytest.mark.parametrize("values", [False, True])
@torch.no_grad()
def test_the_relative_code_is_added_to_keys_and_values(values: bool) -> None:
    """e_ij = q_i · (k_j + a_{j−i} + b_{rel(i,j)}) / √K, z_i = Σ α_ij (v_j + …), clipped each by itself."""
    torch.manual_seed(0)
    H, T, K, line, tree = 2, 5, 3, 2, 1
    structure = RelativeStructure(H, K, distance=line, tree_distance=tree, values=values).double()
    q, k, v = (torch.randn(1, H, T, K, dtype=torch.float64) for _ in range(3))
    heads = [3, 3, 0, 5, 3]
    rel_BTT = between(*padded([heads]))
    distance_TT = torch.arange(T) - torch.arange(T)[:, None]
    mixed, weights = attend(q @ k.mT / math.sqrt(K) + structure.bias(q, distance_TT, rel_BTT), v, None)
    more = structure.of_values(weights, distance_TT, rel_BTT)
    assert (more is not None) == values
    for h in range(H):
        for i in range(T):
            rows = [
                (min(max(j - i, -line), line) + line, min(max(relation(heads, i, j), -tree), tree) + tree)
                for j in range(T)
            ]
            on_line, in_tree = structure.on_line, structure.in_tree
            e = [
                q[0, h, i] @ (k[0, h, j] + on_line.of_keys_HRK[0, r] + in_tree.of_keys_HRK[0, s])
                for j, (r, s) in enumerate(rows)
            ]
            alpha = (torch.stack(e) / math.sqrt(K)).softmax(0)
            assert_close(weights[0, h, i], alpha)
            z = alpha @ v[0, h]
            if on_line.of_values_HRK is not None and in_tree.of_values_HRK is not None and more is not None:
                z = z + sum(
                    a * (on_line.of_values_HRK[0, r] + in_tree.of_values_HRK[0, s])
                    for a, (r, s) in zip(alpha, rows, strict=True)
                )
                assert_close(mixed[0, h, i] + more[0, h, i], z)
            else:
                assert_close(mixed[0, h, i], z)
