"""The peer that rows of translation are trained beside is the same network as ours: equal logits on copied weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from bench.peers.hugging_face_models import network
from saccade.models.build import build_translator
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.translator import TranslatorConfig
from saccade.nn.embedding import Sinusoidal
from saccade.nn.masks import valid_BT
from saccade.nn.transformer import Block
from saccade.types import PAD, Batch
from tests.cases import tokens

V, WIDTH = 31, 12


def config(norm: str, **changed: Any) -> TranslatorConfig:
    side = {"kind": "transformer", "layers": 2, "width": WIDTH, "heads": 3, "feedforward": 20, "norm": norm} | changed
    return TranslatorConfig.model_validate({"encoder": side, "decoder": side, "tie": "all"})


def copy_places(theirs: Any, rates: Tensor) -> None:
    """Ours in the place of theirs, which have all sines first, other rates, and count from 1, as tensor2tensor's."""
    for side in (theirs.model.encoder, theirs.model.decoder):
        table = getattr(side.embed_positions, "weights", None)
        first = 0 if table is None else PAD + 1
        table = side.embed_positions.weight if table is None else table
        places = torch.arange(len(table) - first)[:, None] * rates
        table[first:] = torch.stack([places.sin(), places.cos()], -1).flatten(1)


def copy_linear(ours: nn.Linear, *theirs: nn.Linear) -> None:
    ours.weight.copy_(torch.cat([each.weight for each in theirs]))
    ours.bias.copy_(torch.cat([each.bias for each in theirs]))


def copy_block(ours: Block, theirs: Any) -> None:
    attention = theirs.self_attn
    copy_linear(ours.look_self.of_input, attention.q_proj, attention.k_proj, attention.v_proj)
    copy_linear(ours.look_self.heads.out, attention.out_proj)
    ours.around_self.norm.load_state_dict(theirs.self_attn_layer_norm.state_dict())
    copy_linear(ours.feed_forward.widen, theirs.fc1)
    copy_linear(ours.feed_forward.narrow, theirs.fc2)
    ours.around_feed_forward.norm.load_state_dict(theirs.final_layer_norm.state_dict())
    if ours.look_memory is not None:
        attention = theirs.encoder_attn
        copy_linear(ours.look_memory.of_query, attention.q_proj)
        copy_linear(ours.look_memory.of_memory, attention.k_proj, attention.v_proj)
        copy_linear(ours.look_memory.heads.out, attention.out_proj)
        assert ours.around_memory is not None
        ours.around_memory.norm.load_state_dict(theirs.encoder_attn_layer_norm.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_it_has_our_logits(norm: str) -> None:
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    theirs = network(config(norm), V).eval()
    for parameter in theirs.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    ours = build_translator(config(norm), V, V).eval()
    encoder, decoder = ours.encoder, ours.decoder
    assert isinstance(encoder, TransformerEncoder)
    assert isinstance(decoder, TransformerDecoder)
    encoder.embed.table.weight.copy_(theirs.model.shared.weight)
    for mine, their in ((encoder.stack, theirs.model.encoder), (decoder.stack, theirs.model.decoder)):
        for block, layer in zip(mine, their.layers, strict=True):
            copy_block(block, layer)
        if mine.norm is not None:
            mine.norm.load_state_dict(their.layer_norm.state_dict())
    assert isinstance(encoder.embed.positions, Sinusoidal)
    decoder.output.bias.zero_()
    copy_places(theirs, encoder.embed.positions.rates)

    batch = Batch(tokens([6, 2, 9], V), tokens([3, 7, 5], V, 1))
    source, given = batch.source, batch.decoder_input
    counted = valid_BT(given.layout)
    logits_BTV = theirs(
        input_ids=source.ids * valid_BT(source.layout),
        attention_mask=valid_BT(source.layout).long(),
        decoder_input_ids=given.ids * counted,
    ).logits
    assert_close(ours(batch)[counted], logits_BTV[counted], rtol=1e-4, atol=1e-4)


def test_it_has_as_many_weights_but_for_the_outputs_bias() -> None:
    pytest.importorskip("transformers")
    for norm in ("pre", "post"):
        theirs, ours = network(config(norm), V), build_translator(config(norm), V, V)
        assert sum(each.numel() for each in theirs.parameters() if each.requires_grad) + V == sum(
            each.numel() for each in ours.parameters()
        )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"positions": "rotary"}, "positions: sinusoidal and not rotary"),
        ({"norm_kind": "rms", "gated": True}, "gated: False and not True, norm_kind: layer and not rms"),
    ],
)
def test_what_it_cannot_be_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(SystemExit, match=told):
        network(config("pre", **changed), V)
    with pytest.raises(SystemExit, match=r"tie: all and not none"):
        network(config("pre").model_copy(update={"tie": "none"}), V)
    with pytest.raises(SystemExit, match="segments: 0 and not 2"):
        network(
            config("pre").model_copy(update={"encoder": config("pre").encoder.model_copy(update={"segments": 2})}), V
        )
