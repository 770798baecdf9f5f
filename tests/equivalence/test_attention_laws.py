"""What holds of attention whatever its weights: heads, permutations, masks, and nothing to look at."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.nn.attention import CrossAttention, SelfAttention
from saccade.nn.kernels import dot_product
from saccade.nn.masks import causal_TS
from saccade.nn.scores import ScoreKind, attend, make_score
from saccade.nn.transformer import Block, NormPlace
from saccade.nn.watch import Watch
from saccade.types import Layout

norms = pytest.mark.parametrize("norm", ["pre", "post"])
scores = pytest.mark.parametrize(
    "kind", ["dot", "scaled-dot", "general", "reduced-rank", "additive", "concat", "cosine", "mean"]
)


def self_attention(multi: SelfAttention, x_BTD: Tensor, layout: Layout, causal: bool, watch: Watch | None) -> Tensor:
    return multi.heads.join(multi.look(multi.project(x_BTD), layout, causal=causal, watch=watch)).whole()


def random_block(norm: NormPlace, memory_width: int | None, causal: bool) -> Block:
    torch.manual_seed(0)
    block = Block(6, 3, 11, dropout=0.0, norm=norm, activation="gelu", memory_width=memory_width, causal=causal)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return block


@pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize("heads", [1, 2, 3, 6])
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_heads_by_reshape_equal_a_loop_over_heads(heads: int, causal: bool, watched: bool) -> None:
    torch.manual_seed(heads)
    multi, x_BTD = SelfAttention(6, heads), torch.randn(2, 5, 6)
    k = 6 // heads
    mixed = []
    for h in range(heads):
        mine = slice(h * k, (h + 1) * k)
        of_query, of_key, of_value = multi.of_input.weight.chunk(3)
        query_bias, key_bias, value_bias = multi.of_input.bias.chunk(3)
        q = x_BTD @ of_query[mine].T + query_bias[mine]
        keys, values = x_BTD @ of_key[mine].T + key_bias[mine], x_BTD @ of_value[mine].T + value_bias[mine]
        e_BTT = q @ keys.transpose(1, 2) / k**0.5
        if causal:
            e_BTT = e_BTT + torch.full((5, 5), -torch.inf).triu(1)
        mixed.append(e_BTT.softmax(-1) @ values)
    expected = torch.cat(mixed, dim=-1) @ multi.heads.out.weight.T + multi.heads.out.bias
    watch = Watch() if watched else None
    assert_close(self_attention(multi, x_BTD, Layout.padded([5, 5]), causal, watch), expected)


@norms
@torch.no_grad()
def test_full_attention_without_positions_is_permutation_equivariant(norm: NormPlace) -> None:
    block, x_BTD, layout = random_block(norm, None, causal=False), torch.randn(2, 7, 6), Layout.padded([7, 7])
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    assert_close(block(x_BTD[:, order], layout), block(x_BTD, layout)[:, order])
    causal = random_block(norm, None, causal=True)
    assert not torch.allclose(causal(x_BTD[:, order], layout), causal(x_BTD, layout)[:, order], atol=1e-3)


@norms
@torch.no_grad()
def test_the_order_of_the_memory_does_not_matter(norm: NormPlace) -> None:
    block, x_BTD, layout = random_block(norm, 5, causal=True), torch.randn(2, 4, 6), Layout.padded([4, 4])
    memory_BSE, source = torch.randn(2, 5, 5), Layout.padded([5, 5])
    order = torch.tensor([3, 0, 2, 4, 1])
    straight = block(x_BTD, layout, memory=block.remember(memory_BSE, source))
    assert_close(block(x_BTD, layout, memory=block.remember(memory_BSE[:, order], source)), straight)


@norms
@torch.no_grad()
def test_the_encoder_is_the_decoder_minus_mask_and_cross_attention(norm: NormPlace) -> None:
    decoder, encoder = random_block(norm, 5, causal=True), random_block(norm, None, causal=False)
    shared = {k: v for k, v in decoder.state_dict().items() if not k.startswith(("look_memory.", "around_memory."))}
    encoder.load_state_dict(shared)  # strict: nothing else differs
    x_BTD, layout = torch.randn(2, 5, 6), Layout.padded([5, 5])
    encoded = encoder(x_BTD, layout)
    assert_close(decoder(x_BTD, layout)[:, -1], encoded[:, -1])  # the last token may look everywhere, masked or not
    decoder.causal = False
    assert_close(decoder(x_BTD, layout), encoded)


@norms
@torch.no_grad()
def test_a_block_whose_parts_give_nothing(norm: NormPlace) -> None:
    """With W_O = W₂ = 0 a pre-norm block is the identity and a post-norm block three layer norms in a row."""
    block = random_block(norm, 5, causal=True)
    assert block.look_memory is not None
    assert block.around_memory is not None
    for linear in (block.look_self.heads.out, block.look_memory.heads.out, block.feed_forward.narrow):
        linear.weight.zero_()
        linear.bias.zero_()
    x_BTD, layout = torch.randn(2, 4, 6), Layout.padded([4, 4])
    out = block(x_BTD, layout, memory=block.remember(torch.randn(2, 3, 5), Layout.padded([3, 2])))
    expected = x_BTD
    if norm == "post":
        for around in (block.around_self, block.around_memory, block.around_feed_forward):
            expected = around.norm(expected)
    assert_close(out, expected)


@torch.no_grad()
def test_beams_are_further_queries_to_one_memory() -> None:
    block = random_block("pre", 5, causal=True)
    x_NTD, layout = torch.randn(6, 4, 6), Layout.padded([4] * 6)
    memory_BSE, source = torch.randn(2, 5, 5), Layout.padded([5, 3])
    shared = block(x_NTD, layout, memory=block.remember(memory_BSE, source))
    repeated = block.remember(memory_BSE.repeat_interleave(3, 0), Layout.padded([5, 5, 5, 3, 3, 3]))
    assert_close(shared, block(x_NTD, layout, memory=repeated))


# ---- nothing to look at


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_row_that_may_look_nowhere_gets_zeros_and_sends_back_zeros(device: str) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 4, 5, device=device, requires_grad=True) for _ in range(3))
    may_look = torch.ones(2, 1, 4, 4, dtype=torch.bool, device=device)
    may_look[0] = False
    may_look[1, :, 2] = False
    readable, weights = attend(q @ k.transpose(2, 3) * 5**-0.5, v, may_look)
    fast = dot_product(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), may_look, causal=False).transpose(1, 2)
    blocked = (~may_look.any(-1)).expand(2, 3, 4)
    for out in (readable, fast):
        assert (out[blocked] == 0).all()
        for gradient in torch.autograd.grad(out.square().sum(), (q, k, v), retain_graph=True):
            assert gradient.isfinite().all()
            assert (gradient[0] == 0).all()
            assert (gradient[1] != 0).any()
    assert (weights[blocked] == 0).all()
    assert_close(fast, readable)


def test_a_sentence_of_length_zero_is_read_as_zeros() -> None:
    torch.manual_seed(0)
    multi, memory_BSE, layout = CrossAttention(6, 2, memory_width=5), torch.randn(3, 4, 5), Layout.padded([4, 0, 2])
    x_BTD, even = torch.randn(3, 3, 6), Layout.padded([3, 3, 3])
    q, kv = multi.queries(x_BTD), multi.keys_values(memory_BSE)
    fast = multi.look(q, kv, even, layout)
    readable = multi.look(q, kv, even, layout, Watch())
    assert_close(fast, readable)
    assert (fast[1] == 0).all()


# ---- each score


@scores
@torch.no_grad()
def test_weights_and_context_follow_the_keys(kind: ScoreKind) -> None:
    """Permuting the annotations permutes the weights and leaves the context; one annotation has weight 1."""
    torch.manual_seed(0)
    score = make_score(kind, 5, 5, 7)
    queries, keys = torch.randn(2, 3, 5), torch.randn(2, 6, 5)
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    context, weights = attend(score(queries, score.prepare(keys)), keys, None)
    moved, moved_weights = attend(score(queries, score.prepare(keys[:, order])), keys[:, order], None)
    assert_close(moved, context)
    assert_close(moved_weights, weights[:, :, order])
    shifted, _ = attend(score(queries, score.prepare(keys)) + 3.0, keys, None)
    assert_close(shifted, context)
    single, one = attend(score(queries, score.prepare(keys[:, :1])), keys[:, :1], None)
    assert torch.equal(one, torch.ones(2, 3, 1))
    assert_close(single, keys[:, :1].expand(2, 3, 5))


@torch.no_grad()
def test_general_with_the_identity_is_dot() -> None:
    dot, general = make_score("dot", 5, 5, 0), make_score("general", 5, 5, 0)
    general.of_key.weight.copy_(torch.eye(5))  # type: ignore[union-attr,operator]
    queries, keys = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    assert_close(general(queries, general.prepare(keys)), dot(queries, dot.prepare(keys)))


@torch.no_grad()
def test_additive_with_v_zero_looks_everywhere_alike() -> None:
    additive = make_score("additive", 5, 4, 7)
    additive.v.weight.zero_()  # type: ignore[union-attr,operator]
    keys = torch.randn(1, 4, 4)
    may_look = torch.tensor([[[True, True, True, False]]])
    context, weights = attend(additive(torch.randn(1, 2, 5), additive.prepare(keys)), keys, may_look)
    assert_close(weights, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]).expand(1, 2, 4))
    assert_close(context, keys[:, :3].mean(1, keepdim=True).expand(1, 2, 4))


def test_causal_masks_align_at_the_last_key() -> None:
    expected = [[True, True, True, False, False], [True, True, True, True, False], [True, True, True, True, True]]
    assert causal_TS(3, 5, torch.device("cpu")).tolist() == expected
