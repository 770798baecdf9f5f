"""Laws that every model keeps, as functions of a case, in double precision: for combinations beyond the one list."""

import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.data.sizes import filled, size_for
from saccade.models.translator import Translator
from saccade.nn.masks import pack, valid_BT
from saccade.nn.watch import Watch
from saccade.types import Batch
from tests.cases import TranslatorCase, whole

Graded = tuple[Tensor, Tensor, dict[str, Tensor]]


def built(case: TranslatorCase) -> tuple[Translator, Batch]:
    """Weights are small: where no norm holds the values in range, softmaxes must not lose their gradient."""
    model = case.build().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7)
    return model, case.batch()


def graded(model: Translator, batch: Batch) -> Graded:
    """What is trained on, its likelihood, and the gradient of every weight."""
    loss = model.loss(batch, 0.1)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    gradients = torch.autograd.grad(loss.total, list(named.values()), allow_unused=True, materialize_grads=True)
    return loss.total.detach(), loss.nll, dict(zip(named, gradients, strict=True))


def assert_equal_gradients(actual: Graded, expected: Graded) -> None:
    for mine, theirs in zip(actual[:2], expected[:2], strict=True):
        near(mine, theirs, "loss")
    assert_equal_all(actual[2], expected[2])


def assert_equal_all(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Beside the largest of all: what is 0 but for rounding has no digits of its own."""
    largest = max(float(each.abs().max()) for each in expected.values())
    for name, theirs in expected.items():
        near(actual[name], theirs, name, scale=largest)


def near(actual: Tensor, expected: Tensor, what: str, *, scale: float = 1.0) -> None:
    assert_close(actual, expected, rtol=1e-7, atol=1e-9 * max(1.0, scale), msg=lambda reason: f"{what}: {reason}")


@torch.no_grad()
def stepwise_equals_teacher_forced(case: TranslatorCase) -> None:
    """With two hypotheses a sentence."""
    model, batch = built(case)
    encoded, input_BT = model.encode(batch.source), batch.decoder_input.ids
    forced_BTV = model.decoder(whole(input_BT), encoded)
    state = model.start(encoded, input_BT.shape[1]).widen(2)
    for t in range(input_BT.shape[1]):
        logits_NV, state = model.step(input_BT[:, t].repeat_interleave(2), state)
        near(logits_NV[::2], forced_BTV[:, t], f"step {t}")
        near(logits_NV[1::2], forced_BTV[:, t], f"step {t}")


def packed_and_filled_equal_padded(case: TranslatorCase) -> None:
    """Loss and gradients; sentences of PAD that fill a batch are never seen."""
    model, batch = built(case)
    packed = batch.packed()
    full = filled(packed, size_for(packed, tight=model.computes_padding))
    assert len(full.target.ids) > len(packed.target.ids)
    expected = graded(model, batch)
    assert_equal_gradients(graded(model, packed), expected)
    assert_equal_gradients(graded(model, full), expected)
    with torch.no_grad():
        near(model(packed), pack(model(batch), packed.target.layout), "logits")


def fast_equals_readable(case: TranslatorCase, *, training: bool) -> None:
    """Logits and gradients; in training with the same dropout, drawn from the same seed."""
    model, batch = built(case)
    model.train(training)
    valid = valid_BT(batch.target.layout)

    def run(watch: Watch | None) -> tuple[Tensor, dict[str, Tensor]]:
        torch.manual_seed(7)
        logits_QV = model(batch, watch)[valid]
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        gradients = torch.autograd.grad(
            logits_QV.square().sum(), list(named.values()), allow_unused=True, materialize_grads=True
        )
        return logits_QV.detach(), dict(zip(named, gradients, strict=True))

    (fast, gradients), (readable, expected) = run(None), run(Watch())
    near(fast, readable, "logits")
    assert_equal_all(gradients, expected)


def every_weight_is_reached(case: TranslatorCase) -> None:
    """By the gradient of training, with all that is drawn there."""
    model, batch = built(case)
    torch.manual_seed(0)
    model.train().loss(batch.packed()).total.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 1e-9, name
