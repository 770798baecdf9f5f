"""BERT and GPT-2 = Hugging Face's on copied weights, and as large as published."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from saccade import presets
from saccade.models.causal_transformer import CausalTransformer
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn.masks import valid_BT
from saccade.nn.transformer import Block
from saccade.types import Layout, Tokens

V, WIDTH, HEADS, LAYERS, PLACES = 29, 12, 3, 2, 20


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers")


def randomised(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def linear(ours: nn.Linear, weights: list[Tensor], biases: list[Tensor]) -> None:
    ours.weight.copy_(torch.cat(weights))
    ours.bias.copy_(torch.cat(biases))


def norm(ours: object, theirs: nn.LayerNorm) -> None:
    assert isinstance(ours, nn.LayerNorm)
    assert ours.eps == theirs.eps
    ours.load_state_dict(theirs.state_dict())


def block_of_gpt2(ours: Block, theirs: Any) -> None:
    """Their Conv1D holds weights transposed."""
    linear(ours.look_self.of_input, [theirs.attn.c_attn.weight.T], [theirs.attn.c_attn.bias])
    linear(ours.look_self.heads.out, [theirs.attn.c_proj.weight.T], [theirs.attn.c_proj.bias])
    linear(ours.feed_forward.widen, [theirs.mlp.c_fc.weight.T], [theirs.mlp.c_fc.bias])
    linear(ours.feed_forward.narrow, [theirs.mlp.c_proj.weight.T], [theirs.mlp.c_proj.bias])
    norm(ours.around_self.norm, theirs.ln_1)
    norm(ours.around_feed_forward.norm, theirs.ln_2)


@torch.no_grad()
def test_gpt2(transformers: Any) -> None:
    """Logits of a padded batch, and of single steps."""
    torch.manual_seed(0)
    settings = transformers.GPT2Config(
        vocab_size=V, n_positions=PLACES, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, attn_implementation="eager"
    )
    theirs = randomised(transformers.GPT2LMHeadModel(settings))
    config = TransformerConfig.model_validate(
        {
            "layers": LAYERS, "width": WIDTH, "heads": HEADS, "activation": "gelu-tanh", "positions": "learned",
            "places": PLACES, "scale_embedding": False, "dropout": 0.1,
        }
    )  # fmt: skip
    ours = CausalTransformer(config, V).eval()
    decoder = ours.decoder
    decoder.embed.table.load_state_dict(theirs.transformer.wte.state_dict())
    assert decoder.embed.positions is not None
    decoder.embed.positions.load_state_dict({"table.weight": theirs.transformer.wpe.weight})
    for mine, their in zip(decoder.stack, theirs.transformer.h, strict=True):
        block_of_gpt2(mine, their)
    norm(decoder.stack.norm, theirs.transformer.ln_f)
    linear(decoder.output, [theirs.lm_head.weight], [torch.zeros(V)])

    ids_BT, layout = torch.randint(V, (3, 9)), Layout.padded([9, 4, 6])
    valid = valid_BT(layout)
    expected = theirs(input_ids=ids_BT, attention_mask=valid.long()).logits
    assert_close(ours(Tokens(ids_BT, layout))[valid], expected[valid], rtol=1e-5, atol=1e-5)
    state = ours.start(3, max_steps=9)
    for t in range(4):
        logits_BV, state = ours.step(ids_BT[:, t], state)
        assert_close(logits_BV, expected[:, t], rtol=1e-5, atol=1e-5)


def block_of_bert(ours: Block, theirs: Any) -> None:
    mine, attention = ours.look_self, theirs.attention
    parts = (attention.self.query, attention.self.key, attention.self.value)
    linear(mine.of_input, [part.weight for part in parts], [part.bias for part in parts])
    mine.heads.out.load_state_dict(attention.output.dense.state_dict())
    ours.feed_forward.widen.load_state_dict(theirs.intermediate.dense.state_dict())
    ours.feed_forward.narrow.load_state_dict(theirs.output.dense.state_dict())
    norm(ours.around_self.norm, attention.output.LayerNorm)
    norm(ours.around_feed_forward.norm, theirs.output.LayerNorm)


@torch.no_grad()
def test_bert(transformers: Any) -> None:
    """Of one segment: its vector, the same for every token, is a part of ours of the places."""
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=V, max_position_embeddings=PLACES, hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=17, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomised(transformers.BertModel(settings, add_pooling_layer=False))
    config = TransformerConfig.model_validate(
        {
            "layers": LAYERS, "width": WIDTH, "heads": HEADS, "feedforward": 17, "norm": "post", "activation": "gelu",
            "positions": "learned", "places": PLACES, "scale_embedding": False, "norm_embedding": True,
            "epsilon": 1e-12,
        }
    )  # fmt: skip
    ours, vectors = TransformerEncoder(config, V).eval(), theirs.embeddings
    ours.embed.table.load_state_dict(vectors.word_embeddings.state_dict())
    assert ours.embed.positions is not None
    places = vectors.position_embeddings.weight + vectors.token_type_embeddings.weight[0]
    ours.embed.positions.load_state_dict({"table.weight": places})
    assert ours.enter is not None
    norm(ours.enter.norm, vectors.LayerNorm)
    for mine, their in zip(ours.stack, theirs.encoder.layer, strict=True):
        block_of_bert(mine, their)
    assert ours.stack.norm is None

    ids_BT, layout = torch.randint(V, (3, 9)), Layout.padded([9, 4, 6])
    valid = valid_BT(layout)
    expected = theirs(input_ids=ids_BT, attention_mask=valid.long()).last_hidden_state[valid]
    assert_close(ours(Tokens(ids_BT, layout)).memory[valid], expected, rtol=1e-5, atol=1e-5)
    packed = Tokens(ids_BT, layout).packed()
    assert_close(ours(packed).memory, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "width", "heads", "size"), [(12, 768, 12, 109_482_240), (24, 1024, 16, 335_141_888)]
)
def test_the_size_of_bert(layers: int, width: int, heads: int, size: int) -> None:
    """With 30,522 tokens: all but the two segments' vectors and the pooler are the encoder's."""
    config = TransformerConfig.model_validate(
        {
            "layers": layers, "width": width, "heads": heads, "norm": "post", "activation": "gelu",
            "positions": "learned", "places": 512, "norm_embedding": True, "scale_embedding": False,
        }
    )  # fmt: skip
    with torch.device("meta"):
        encoder = TransformerEncoder(config, 30_522)
        pooler, segments = nn.Linear(width, width), nn.Embedding(2, width)
    parts = (encoder, pooler, segments)
    assert sum(p.numel() for part in parts for p in part.parameters()) == size


def test_the_presets_drop_as_much(transformers: Any) -> None:
    """Of values and of attention weights."""
    bert, gpt2 = transformers.BertConfig(), transformers.GPT2Config()
    encoder, decoder = (presets.tree_of(name)["model"] for name in ("bert-base", "gpt2-small"))
    dropped = {(each["dropout"], each["attention_dropout"]) for each in (encoder["encoder"], decoder["decoder"])}
    assert dropped == {(bert.hidden_dropout_prob, bert.attention_probs_dropout_prob)}
    assert dropped == {(gpt2.resid_pdrop, gpt2.attn_pdrop)}


def test_the_size_of_gpt2_small() -> None:
    """With its output tied to the token vectors."""
    config = TransformerConfig.model_validate(
        {"layers": 12, "width": 768, "heads": 12, "activation": "gelu-tanh", "positions": "learned", "places": 1024}
    )
    with torch.device("meta"):
        model = CausalTransformer(config, 50_257)
    output = sum(p.numel() for p in model.output.parameters())
    assert sum(p.numel() for p in model.parameters()) - output == 124_439_808
