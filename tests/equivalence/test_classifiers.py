"""Every law for every classifier, hierarchical ones included."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade import checkpoint
from saccade.config import plain
from saccade.data.sizes import filled, size_for
from saccade.disk import read_tensors
from saccade.nn.cells import Elman, Gru, Lstm
from saccade.nn.lstmn import Lstmn
from saccade.nn.watch import Watch
from saccade.types import PAD, Batch, Layout, Tokens
from tests.cases import assert_same
from tests.classifier_cases import _CONFIG, LABELS, ClassifierCase, Model, every_classifier, name_of

every = pytest.mark.parametrize("case", every_classifier(), ids=name_of)


def graded(model: Model, batch: Batch, smoothing: float = 0.1) -> tuple[Tensor, dict[str, Tensor]]:
    loss = model.loss(batch, smoothing)
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss.total, list(named.values()), allow_unused=True, materialize_grads=True)
    return loss.total.detach(), dict(zip(named, gradients, strict=True))


@every
@torch.no_grad()
def test_padded_equals_alone_equals_packed(case: ClassifierCase) -> None:
    model, batch = case.build(), case.batch()
    scores_BL = model(batch.source)
    assert scores_BL.shape == (len(batch), LABELS)
    for b, row in enumerate(case.sources()):
        assert_same(scores_BL[b], model(case.tokens([row]))[0], f"row {b}")
    assert_same(model(batch.packed().source), scores_BL)
    assert_same(model.predict(batch.source).sum(-1), torch.ones(len(batch)))


@every
@torch.no_grad()
def test_rows_in_another_order_give_their_scores_in_that_order(case: ClassifierCase) -> None:
    model, rows = case.build(), case.sources()
    assert_same(model(case.tokens(rows[::-1])).flip(0), model(case.tokens(rows)))


@every
def test_packed_and_filled_equal_padded_in_loss_and_gradients(case: ClassifierCase) -> None:
    model, batch = case.build().double(), case.batch()
    total, gradients = graded(model, batch)
    others = [batch.packed()]
    if model.fills:
        others += [filled(others[0], size_for(others[0], tight=tight)) for tight in (True, False)]
        assert len(others[1].source.ids) > len(others[0].source.ids)
    for other in others:
        other_total, other_gradients = graded(model, other)
        assert_close(other_total, total)
        for name, gradient in gradients.items():
            assert_close(other_gradients[name], gradient, rtol=1e-6, atol=1e-9, msg=name)
        assert model.loss(other).tokens == batch.tokens == len(batch)


@every
@torch.no_grad()
def test_what_stands_in_the_padding_changes_nothing(case: ClassifierCase) -> None:
    """Of texts, of sentences and of words."""
    model, batch = case.build(), case.batch()

    def noisy(side: Tokens) -> Tokens:
        longest = side.layout.longest + 2
        more = torch.full((len(side.ids), 2), 5)
        ids = torch.cat([torch.where(side.ids == PAD, 7, side.ids), more], dim=1)
        layout = Layout(side.layout.lengths_B, longest)
        return Tokens(ids, layout, None, None if side.inside is None else noisy(side.inside))

    changed = replace(batch, source=noisy(batch.source))
    assert_same(model(changed.source), model(batch.source))
    assert_same(model.loss(changed, 0.1).total, model.loss(batch, 0.1).total)


@every
def test_fast_equals_readable(case: ClassifierCase) -> None:
    """Scores and gradients, in training with the same dropout."""
    for training in (False, True):
        model, batch = case.build().double().train(training), case.batch()

        def run(watch: Watch | None, model: Model = model, batch: Batch = batch) -> tuple[Tensor, list[Tensor]]:
            torch.manual_seed(7)
            scores_BL = model(batch.source, watch)
            weights = list(model.parameters())
            total = scores_BL.square().sum()
            return scores_BL.detach(), list(
                torch.autograd.grad(total, weights, allow_unused=True, materialize_grads=True)
            )

        (fast, gradients), (readable, expected) = run(None), run(Watch())
        assert_close(fast, readable)
        assert_close(gradients, expected)


@every
def test_every_parameter_is_reached_by_backward(case: ClassifierCase) -> None:
    model = case.build().train()
    torch.manual_seed(1)
    torch.autograd.backward(model.loss(case.batch(), 0.1).total)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        owner = model.get_submodule(name.rpartition(".")[0])
        parts: tuple[Tensor, ...] = (parameter.grad,)
        if isinstance(owner, Elman | Gru | Lstm | Lstmn):
            parts = parameter.grad.chunk(len(parameter) // owner.width)
        for part, gradient in enumerate(parts):
            assert gradient.isfinite().all()
            assert gradient.abs().max() > 1e-9, f"{name}, part {part}, is not reached"


@every
def test_saved_and_loaded_it_is_the_same(case: ClassifierCase, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model, other, source = case.build(), case.build(seed=1), case.batch().source
    save_file({name: tensor.contiguous() for name, tensor in checkpoint.model_tensors(model).items()}, tmp_path / "m")
    with torch.no_grad():
        expected = model(source)
        assert not torch.equal(other(source), expected)
        checkpoint.restore_model(other, read_tensors(tmp_path / "m"), "m")
        assert torch.equal(other(source), expected)
    assert _CONFIG.validate_python(plain(case.config)) == case.config


@every
@torch.no_grad()
def test_a_text_without_tokens_is_no_harm(case: ClassifierCase) -> None:
    """Nothing at all in a row, or nothing in a text of it: a label all the same, and the others' are what they were."""
    model, rows = case.build(), case.sources()
    nothing: list[Any] = [[]] if not case.config.nests else [[[], []]] if case.config.kind == "sequence" else [[], [[]]]
    scores_BL = model(case.tokens([*nothing, *rows]))
    assert scores_BL.isfinite().all()
    assert_same(scores_BL[len(nothing) :], model(case.tokens(rows)))
    alone = model(case.tokens(nothing))
    assert_same(alone, scores_BL[: len(nothing)])
    assert_same(model(case.tokens(nothing).packed()), alone)


@every
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@torch.no_grad()
def test_the_loss_is_that_of_the_scores(case: ClassifierCase, smoothing: float) -> None:
    """A label that is PAD, one that was never seen in training, is not counted."""
    model, batch = case.build(), case.batch()
    log_p_BL = model(batch.source).log_softmax(-1)
    gold_B = batch.target.ids.flatten()
    nll_B = -log_p_BL.gather(1, gold_B[:, None] - 1).squeeze(1)
    smooth_B = (1 - smoothing) * nll_B - smoothing * log_p_BL.mean(-1)
    loss = model.loss(batch, smoothing)
    assert_same(loss.nll, nll_B.sum())
    assert_same(loss.total, smooth_B.sum())
    unseen = batch.target.ids.clone()
    unseen[1] = PAD
    partial = model.loss(replace(batch, target=replace(batch.target, ids=unseen)), smoothing)
    assert_same(partial.total, smooth_B.sum() - smooth_B[1])
    assert partial.tokens == len(batch) - 1
