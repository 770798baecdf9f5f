"""No future leak: what comes later in the target changes nothing before it."""

import pytest
import torch
from torch import Tensor

from saccade.nn.watch import Watch
from tests.cases import DecoderCase, assert_same, every_decoder, name_of, whole

decoders = pytest.mark.parametrize("case", every_decoder(), ids=name_of)
paths = pytest.mark.parametrize("watched", [False, True], ids=["fast", "readable"])


@paths
@decoders
@torch.no_grad()
def test_a_token_changes_no_logits_before_it(case: DecoderCase, watched: bool) -> None:
    decoder, encoded, input_BT = case.build()

    def logits(ids_BT: Tensor) -> Tensor:
        out: Tensor = decoder(whole(ids_BT), encoded, Watch() if watched else None)
        return out

    before_BTV = logits(input_BT)
    for t in range(1, input_BT.shape[1]):
        other_BT = input_BT.clone()
        other_BT[:, t] = 4 + (input_BT[:, t] - 3) % (case.of.vocabularies[1] - 4)
        assert (other_BT != input_BT).any(1).all()
        after_BTV = logits(other_BT)
        assert torch.equal(after_BTV[:, :t], before_BTV[:, :t]), f"token {t} is seen before its time"
        assert ((after_BTV - before_BTV)[:, t].abs().amax(-1) > 1e-7).all(), f"token {t} is not seen at all"


@paths
@decoders
def test_the_gradient_from_the_past_to_the_future_is_exactly_zero(case: DecoderCase, watched: bool) -> None:
    decoder, encoded, input_BT = case.build()
    kept: list[Tensor] = []
    decoder.embed.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    logits_BTV = decoder(whole(input_BT), encoded, Watch() if watched else None)
    (x_BTD,) = kept
    for t in range(input_BT.shape[1]):
        loss = logits_BTV[:, t].square().sum()
        (gradient_BTD,) = torch.autograd.grad(loss, x_BTD, retain_graph=True)
        assert (gradient_BTD[:, t + 1 :] == 0).all(), f"logits {t} depend on later tokens"
        assert (gradient_BTD[:, t].abs().amax(-1) > 0).all()


@decoders
@torch.no_grad()
def test_a_longer_target_leaves_its_prefix_alone(case: DecoderCase) -> None:
    decoder, encoded, input_BT = case.build()
    long_BTV = decoder(whole(input_BT), encoded)
    for t in (1, 3, 5):
        assert_same(decoder(whole(input_BT[:, :t]), encoded), long_BTV[:, :t])
