"""Places in dependency trees = the definition followed edge by edge, on generated trees; so through an encoder."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.data.parses import on_tokens
from saccade.errors import UsageError
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn.embedding import Sinusoidal
from saccade.nn.scores import attend
from saccade.nn.transformer import Block
from saccade.nn.tree import AbsoluteStructure, RelativeStructure, between, depths
from saccade.types import END, Layout, Parse, Tokens
from tests.cases import assert_same, random_parse


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


def padded(rows: list[list[int]], filler: int = 7) -> tuple[Parse, Layout]:
    """Each word is one token."""
    longest = max(map(len, rows))
    heads_BT = torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
    return Parse(torch.arange(longest).expand_as(heads_BT), heads_BT), Layout.padded(list(map(len, rows)))


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
    parse, layout = padded(rows)
    depth_BT, rel_BTT = depths(parse, layout), between(parse, layout)
    for b, heads in enumerate(rows):
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
    parse, layout = padded([chain, flat])
    depth_BT, rel_BTT = depths(parse, layout), between(parse, layout)
    assert depth_BT.tolist() == [[0, 1, 2, 3, 4], [1, 0, 1, 1, 1]]
    assert rel_BTT[0].diagonal(-1).tolist() == [1] * 4
    assert rel_BTT[0, 3, 1] == 4  # not on one edge: 3 + 1
    assert rel_BTT[1, 4, 0] == 2
    assert rel_BTT[1, 0, 4] == -2
    assert set(rel_BTT[1, :, 1].tolist()) == {0, 1}


def test_pieces_have_what_their_words_have() -> None:
    """And the end of the sentence is a root by itself."""
    heads, word_of = [2, 0, 2], [0, 0, 1, 2, 2]
    parse, layout = Parse.of([on_tokens(tuple(heads), word_of)], 6), Layout.padded([6])
    assert depths(parse, layout).tolist() == [[1, 1, 0, 1, 1, 0]]
    of_words = between(*padded([heads]))[0]
    of_pieces = between(parse, layout)[0]
    for p, i in enumerate(word_of):
        assert of_pieces[5, p] == depth(heads, i)  # it stands behind all
        for q, j in enumerate(word_of):
            assert of_pieces[p, q] == of_words[i, j]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 1000))
def test_packed_trees_are_the_padded_ones(lengths: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    source = Tokens.of([[END] * n for n in lengths], [random_parse(n, generator) for n in lengths])
    packed = source.packed()
    assert source.parse is not None
    assert packed.parse is not None
    assert torch.equal(depths(packed.parse, packed.layout), depths(source.parse, source.layout))
    assert torch.equal(between(packed.parse, packed.layout), between(source.parse, source.layout))


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


# ---- through a whole encoder


def sinusoid(place: int, width: int) -> Tensor:
    angles = [place / 10000 ** (2 * i / width) for i in range(width // 2)]
    return torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)], dtype=torch.float64)


def clip(distance: int, most: int) -> int:
    return max(-most, min(distance, most)) + most


def looked(block: Block, x_TD: Tensor, heads: list[int], words: list[int]) -> Tensor:
    """Self-attention of one sentence, pair by pair; END is word len(heads), on which nothing hangs."""
    look, places = block.look_self, block.look_self.places
    H = look.heads.heads
    T, D = x_TD.shape
    K = D // H
    q, k, v = look.of_input(x_TD).view(T, 3, H, K).unbind(1)
    forest = [*heads, 0]
    mixed = torch.zeros(T, H, K, dtype=torch.float64)
    for h in range(H):
        for i in range(T):
            keys, values = [], []
            for j in range(T):
                key, value = k[j, h], v[j, h]
                if isinstance(places, RelativeStructure):
                    rel = 0 if words[i] == words[j] else relation(forest, words[i], words[j])
                    for table, row in (
                        (places.on_line, clip(j - i, places.on_line.distance)),
                        (places.in_tree, clip(rel, places.in_tree.distance)),
                    ):
                        own = h if len(table.of_keys_HRK) > 1 else 0
                        key = key + table.of_keys_HRK[own, row]
                        value = value if table.of_values_HRK is None else value + table.of_values_HRK[own, row]
                keys.append(key)
                values.append(value)
            alpha = (torch.stack(keys) @ q[i, h] / math.sqrt(K)).softmax(0)
            mixed[i, h] = alpha @ torch.stack(values)
    out: Tensor = look.heads.out(mixed.flatten(1))
    return out


def encoded(encoder: TransformerEncoder, ids: list[int], heads: list[int], words: list[int]) -> Tensor:
    """Post-norm, ReLU: x = norm(x + attention), x = norm(x + feed-forward)."""
    words = [*words, len(heads)]
    forest, D = [*heads, 0], encoder.width
    rows = []
    for place, (each, word) in enumerate(zip(ids, words, strict=True)):
        x = encoder.embed.table.weight[each] * math.sqrt(D)
        if encoder.structure is not None:
            both = torch.cat([sinusoid(place, D), sinusoid(depth(forest, word), D)])
            x = x + torch.tanh(encoder.structure.fuse.weight @ both + encoder.structure.fuse.bias)
        rows.append(x)
    x_TD = torch.stack(rows)
    for block in encoder.stack:
        x_TD = block.around_self.norm(x_TD + looked(block, x_TD, heads, words))
        feed = block.feed_forward
        x_TD = block.around_feed_forward.norm(x_TD + feed.narrow(F.relu(feed.widen(x_TD))))
    return x_TD


@pytest.mark.parametrize("tree", ["absolute", "relative", "both"])
@pytest.mark.parametrize("per_head", [False, True])
@torch.no_grad()
def test_an_encoder_is_the_papers_equations(tree: str, per_head: bool) -> None:
    torch.manual_seed(0)
    config = TransformerConfig.model_validate(
        {"layers": 2, "width": 6, "heads": 2, "norm": "post", "positions": "tree", "tree": tree, "tree_distance": 2,
         "relative_distance": 2, "relative_per_head": per_head}
    )  # fmt: skip
    encoder = TransformerEncoder(config, 13).double().eval()
    for parameter in encoder.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    parsed = [([3, 3, 0, 5, 3], [0, 1, 1, 2, 3, 4]), ([0, 1, 2], [0, 1, 1, 2]), ([0], [0])]
    rows = [[*torch.randint(4, 13, (len(words),)).tolist(), END] for _, words in parsed]
    source = Tokens.of(rows, [on_tokens(tuple(heads), words) for heads, words in parsed])
    memory_BSD, memory_ND = encoder(source).memory, encoder(source.packed()).memory
    expected = [encoded(encoder, ids, heads, words) for ids, (heads, words) in zip(rows, parsed, strict=True)]
    for b, each in enumerate(expected):
        assert_close(memory_BSD[b, : len(each)], each, rtol=1e-6, atol=1e-6)  # sinusoids are made in float32
    assert_close(memory_ND, torch.cat(expected), rtol=1e-6, atol=1e-6)


def read_with(heads: tuple[int, ...], tree: str, tree_distance: int) -> Tensor:
    config = TransformerConfig.model_validate(
        {"layers": 1, "width": 8, "heads": 2, "positions": "tree", "tree": tree, "tree_distance": tree_distance}
    )
    torch.manual_seed(0)
    with torch.no_grad():
        source = Tokens.of([[*range(4, 4 + len(heads)), END]], [on_tokens(heads, range(len(heads)))])
        memory: Tensor = TransformerEncoder(config, 13).eval()(source).memory
    return memory


@pytest.mark.parametrize("tree", ["absolute", "relative", "both"])
def test_another_tree_over_the_same_tokens_is_seen(tree: str) -> None:
    chain, flat, other = (read_with(heads, tree, 3) for heads in ((0, 1, 2, 3), (0, 1, 1, 1), (0, 1, 2, 2)))
    assert not torch.allclose(chain, flat)
    assert not torch.allclose(flat, other)
    assert torch.equal(read_with((0, 1, 2, 3), tree, 3), chain)


def test_trees_whose_distances_are_clipped_alike_are_not_told_apart() -> None:
    """Words that all hang on earlier ones: at distance 1, nothing but the order of two words is left."""
    assert_same(read_with((0, 1, 2, 3), "relative", 1), read_with((0, 1, 1, 1), "relative", 1))


def test_without_a_parse_nothing_is_read() -> None:
    encoder = TransformerEncoder(TransformerConfig(width=8, heads=2, positions="tree"), 13)
    with pytest.raises(UsageError, match="positions are tree: its source must come with dependency trees"):
        encoder(Tokens.of([[4, END]]))
