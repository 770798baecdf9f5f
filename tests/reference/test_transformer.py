"""Blocks = torch's encoder and decoder layers on copied weights; positions as printed in the paper."""

import math
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade.nn import masks
from saccade.nn.attention import CrossAttention, SelfAttention
from saccade.nn.embedding import Learned, Sinusoidal, TokenEmbedding
from saccade.nn.transformer import Block, NormPlace
from saccade.nn.watch import Watch
from saccade.types import Layout

norms = pytest.mark.parametrize("norm", ["pre", "post"])
activations = pytest.mark.parametrize("activation", ["relu", "gelu"])
paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
Activation = Literal["relu", "gelu"]


def random_block(norm: NormPlace, activation: Activation, *, memory: bool, causal: bool) -> Block:
    torch.manual_seed(0)
    block = Block(
        6, 3, 11, dropout=0.0, norm=norm, activation=activation, memory_width=6 if memory else None, causal=causal
    )
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return block


def attention_into(twin: nn.MultiheadAttention, ours: SelfAttention | CrossAttention) -> None:
    parts = [ours.of_input] if isinstance(ours, SelfAttention) else [ours.of_query, ours.of_memory]
    twin.load_state_dict(
        {
            "in_proj_weight": torch.cat([part.weight for part in parts]),
            "in_proj_bias": torch.cat([part.bias for part in parts]),
            "out_proj.weight": ours.heads.out.weight,
            "out_proj.bias": ours.heads.out.bias,
        }
    )


def copy_into(twin: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, ours: Block) -> None:
    attention_into(twin.self_attn, ours.look_self)
    around = [ours.around_self, ours.around_feed_forward]
    if isinstance(twin, nn.TransformerDecoderLayer):
        assert ours.look_memory is not None
        assert ours.around_memory is not None
        attention_into(twin.multihead_attn, ours.look_memory)
        around.insert(1, ours.around_memory)
    for place, residual in enumerate(around, start=1):
        getattr(twin, f"norm{place}").load_state_dict(residual.norm.state_dict())
    twin.linear1.load_state_dict(ours.feed_forward.widen.state_dict())
    twin.linear2.load_state_dict(ours.feed_forward.narrow.state_dict())


def assert_same_gradients(one: Tensor, other: Tensor, inputs: tuple[Tensor, ...]) -> None:
    gradients = (torch.autograd.grad(out.square().sum(), inputs, retain_graph=True) for out in (one, other))
    for mine, theirs in zip(*gradients, strict=True):
        assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


@paths
@activations
@norms
def test_an_encoder_block_equals_torch(norm: NormPlace, activation: Activation, watched: bool) -> None:
    block = random_block(norm, activation, memory=False, causal=False)
    twin = nn.TransformerEncoderLayer(6, 3, 11, 0.0, activation, batch_first=True, norm_first=norm == "pre")
    copy_into(twin, block)
    x, layout = torch.randn(3, 5, 6, requires_grad=True), Layout.padded([5, 2, 3])
    valid = masks.valid_BT(layout)
    expected = twin(x, src_key_padding_mask=~valid)[valid]
    actual = block(x, layout, watch=Watch() if watched else None)[valid]
    assert_close(actual, expected)
    assert_same_gradients(actual, expected, (x,))


@paths
@activations
@norms
def test_a_decoder_block_equals_torch(norm: NormPlace, activation: Activation, watched: bool) -> None:
    block = random_block(norm, activation, memory=True, causal=True)
    twin = nn.TransformerDecoderLayer(6, 3, 11, 0.0, activation, batch_first=True, norm_first=norm == "pre")
    copy_into(twin, block)
    x, memory = torch.randn(3, 4, 6, requires_grad=True), torch.randn(3, 5, 6, requires_grad=True)
    source = Layout.padded([5, 2, 3])
    expected = twin(
        x,
        memory,
        tgt_mask=torch.ones(4, 4, dtype=torch.bool).triu(1),
        memory_key_padding_mask=~masks.valid_BT(source),
    )
    watch = Watch() if watched else None
    actual = block(x, Layout.padded([4] * 3), memory=block.remember(memory, source), watch=watch)
    assert_close(actual, expected)
    assert_same_gradients(actual, expected, (x, memory))


# ---- positions


def test_sinusoids_as_printed() -> None:
    table = Sinusoidal(6)(torch.arange(40))
    for place in (0, 1, 7, 39):
        for i in range(3):
            angle = place / 10000 ** (2 * i / 6)
            assert table[place, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[place, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoids_know_distance_not_place() -> None:
    table = Sinusoidal(16).double()(torch.arange(64))
    assert_close(table.square().sum(-1), torch.full((64,), 8.0, dtype=torch.float64))
    assert table.abs().max() <= 1
    for k in (1, 5, 20):
        products = (table[:-k] * table[k:]).sum(-1)
        assert_close(products, products[:1].expand_as(products))


def test_a_shift_is_a_rotation_of_each_pair() -> None:
    sinusoid = Sinusoidal(6).double()
    table, k = sinusoid(torch.arange(20)), 4
    angle = k * sinusoid.rates
    sines, cosines = table[:-k, 0::2], table[:-k, 1::2]
    assert_close(table[k:, 0::2], sines * angle.cos() + cosines * angle.sin())
    assert_close(table[k:, 1::2], cosines * angle.cos() - sines * angle.sin())


def test_sinusoids_are_exact_far_out_and_follow_any_shape() -> None:
    places = torch.tensor([[0, 5000], [9999, 3]])
    table = Sinusoidal(6)(places)
    assert table.shape == (2, 2, 6)
    assert table[1, 0, 0].item() == pytest.approx(math.sin(9999), abs=1e-3)


def test_learned_places_beyond_the_last_share_it() -> None:
    learned = Learned(5, places=3)
    out = learned(torch.tensor([0, 1, 2, 3, 100]))
    assert torch.equal(out[2], out[3])
    assert torch.equal(out[2], out[4])
    assert len(torch.unique(out, dim=0)) == 3


@torch.no_grad()
def test_an_embedding_is_scaled_then_placed() -> None:
    torch.manual_seed(0)
    ids, place = torch.tensor([[4, 2], [3, 3]]), torch.arange(2)
    scaled = TokenEmbedding(7, 6, scaled=True, positions="sinusoidal")
    assert_close(scaled(ids, place), scaled.table.weight[ids] * 6**0.5 + Sinusoidal(6)(place))
    plain = TokenEmbedding(7, 6)
    assert torch.equal(plain(ids, place), plain.table.weight[ids])
    learned = TokenEmbedding(7, 6, positions="learned", places=2)
    assert isinstance(learned.positions, Learned)
    assert_close(learned(ids, place), learned.table.weight[ids] + learned.positions.table.weight)


def test_the_table_is_drawn_so_that_it_can_score() -> None:
    torch.manual_seed(0)
    weight = TokenEmbedding(1000, 64).table.weight
    assert weight.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert weight.mean().item() == pytest.approx(0, abs=0.002)
