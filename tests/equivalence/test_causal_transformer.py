"""The decoder by itself: the same laws as with a memory, and what it shares with the encoder."""

import pytest
import torch
from torch.testing import assert_close

from saccade.errors import SaccadeError
from saccade.models.causal_transformer import CausalTransformer
from saccade.models.transformer_config import TransformerConfig
from saccade.models.transformer_decoder import TransformerDecoder
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn.masks import pack
from saccade.types import Tokens
from tests.cases import assert_same, every_translator, tokens, whole

V = 13
CONFIGS = {
    case.name: case.config.decoder for case in every_translator() if isinstance(case.config.decoder, TransformerConfig)
}
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def built(config: TransformerConfig) -> CausalTransformer:
    torch.manual_seed(0)
    model = CausalTransformer(config, V)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


@configs
@torch.no_grad()
def test_stepwise_equals_teacher_forced(config: TransformerConfig) -> None:
    """One token at a time; a prefix at once, then more."""
    model, given = built(config), tokens([6] * 3, V)
    forced_BTV = model(given)
    state = model.start(3, max_steps=6)
    for t, forced_BV in enumerate(forced_BTV.unbind(1)):
        logits_BV, state = model.step(given.ids[:, t], state)
        assert_same(logits_BV, forced_BV, f"step {t}")
    state = model.start(3, max_steps=9)
    first, state = model.prefill(given.ids[:, :2], state)
    second, _ = model.prefill(given.ids[:, 2:], state)
    assert_same(torch.cat([first, second], dim=1), forced_BTV)


@configs
@torch.no_grad()
def test_padded_equals_alone_equals_packed(config: TransformerConfig) -> None:
    model, given = built(config), tokens([5, 7, 1, 3], V)
    logits_BTV = model(given)
    for b, length in enumerate([5, 7, 1, 3]):
        assert_same(logits_BTV[b, :length], model(Tokens.of([given.ids[b, :length].tolist()]))[0])
    packed = given.packed()
    assert_same(model(packed), pack(logits_BTV, packed.layout))
    assert_same(model.output(model.features(given)), logits_BTV)


@configs
@torch.no_grad()
def test_no_future_leaks(config: TransformerConfig) -> None:
    model, given = built(config), tokens([6] * 2, V)
    before = model(given)
    other = given.ids.clone()
    other[:, 4] = 4 + (other[:, 4] - 3) % (V - 4)
    after = model(whole(other))
    assert torch.equal(after[:, :4], before[:, :4])
    assert ((after - before)[:, 4].abs().amax(-1) > 1e-7).all()


@configs
@torch.no_grad()
def test_it_is_the_decoder_less_its_cross_attention(config: TransformerConfig) -> None:
    model, decoder = built(config), TransformerDecoder(config, V, memory_width=5).eval()
    own = {name.removeprefix("decoder."): weight for name, weight in model.state_dict().items()}
    left = decoder.load_state_dict(own, strict=False)
    assert not left.unexpected_keys
    assert all("_memory." in name for name in left.missing_keys)
    given = tokens([6, 4], V)
    assert_close(decoder(given, None), model(given))


@configs
@torch.no_grad()
def test_without_its_mask_it_is_the_encoder(config: TransformerConfig) -> None:
    model, encoder = built(config), TransformerEncoder(config, V).eval()
    own = {name.removeprefix("decoder."): weight for name, weight in model.state_dict().items()}
    encoder.load_state_dict({name: weight for name, weight in own.items() if not name.startswith("output.")})
    given = tokens([6, 6], V)
    memory = encoder(given).memory
    for block in model.decoder.stack:
        block.causal = False
    assert_close(model.features(given), memory)


def test_what_would_show_the_future_is_refused() -> None:
    config = TransformerConfig.model_validate({"pattern": {"kind": "linformer"}})
    with pytest.raises((ValueError, SaccadeError), match="would show a token what follows it"):
        CausalTransformer(config, V)
