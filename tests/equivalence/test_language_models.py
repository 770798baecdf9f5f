"""Every law for every language model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from saccade import checkpoint
from saccade.config import plain
from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.greedy import greedy
from saccade.disk import read_tensors
from saccade.loss import cross_entropy
from saccade.models.build import build_language_model
from saccade.models.language_model import LanguageModel, LanguageModelConfig
from saccade.nn.cells import Elman, Gru, Lstm
from saccade.nn.lstmn import Lstmn
from saccade.nn.masks import pack
from saccade.nn.watch import Watch
from saccade.types import END, PAD, Batch, Tokens
from tests.cases import assert_same, tokens, whole
from tests.language_cases import VOCABULARY, LanguageCase, every_language_model, name_of, sentences

every = pytest.mark.parametrize("case", every_language_model(), ids=name_of)


def row_of(side: Tokens, b: int) -> Tokens:
    return Tokens.of([side.ids[b, : int(side.layout.lengths_B[b])].tolist()])


@every
@torch.no_grad()
def test_stepwise_equals_teacher_forced(case: LanguageCase) -> None:
    """One token at a time; a prefix at once, then more; with room left over."""
    model, given = case.build(), tokens([6] * 3, VOCABULARY)
    forced_BTV = model(given)
    state = model.start(3, max_steps=6)
    for t, forced_BV in enumerate(forced_BTV.unbind(1)):
        logits_BV, state = model.step(given.ids[:, t], state)
        assert_same(logits_BV, forced_BV, f"step {t}")
    state = model.start(3, max_steps=9)
    first, state = model.prefill(given.ids[:, :2], state)
    second, state = model.prefill(given.ids[:, 2:5], state)
    third, _ = model.step(given.ids[:, 5], state)
    assert_same(torch.cat([first, second, third[:, None]], dim=1), forced_BTV)


@every
@torch.no_grad()
def test_padded_equals_alone_equals_packed(case: LanguageCase) -> None:
    model, batch = case.build(), sentences()
    logits_BTV = model(batch.source)
    for b, length in enumerate(batch.source.layout.lengths_B.tolist()):
        assert_same(logits_BTV[b, :length], model(row_of(batch.source, b))[0])
    packed = batch.packed()
    assert_same(model(packed.source), pack(logits_BTV, packed.source.layout))
    assert_same(model.loss(packed).total, model.loss(batch).total)


@every
@torch.no_grad()
def test_what_stands_in_the_padding_changes_nothing(case: LanguageCase) -> None:
    model, batch = case.build(), sentences()
    read, after = (replace(side, ids=side.ids + 7 * (side.ids == PAD)) for side in (batch.source, batch.target))
    noisy, clean = model.loss(Batch(read, after)), model.loss(batch)
    assert_same(noisy.total, clean.total)
    assert noisy.tokens == clean.tokens == sum(batch.target.layout.lengths_B.tolist())


@every
@torch.no_grad()
def test_no_future_leaks(case: LanguageCase) -> None:
    model, given = case.build(), tokens([6] * 2, VOCABULARY)
    before = model(given)
    other = given.ids.clone()
    other[:, 4] = 4 + (other[:, 4] - 3) % (VOCABULARY - 4)
    after = model(whole(other))
    assert torch.equal(after[:, :4], before[:, :4])
    assert ((after - before)[:, 4].abs().amax(-1) > 1e-7).all()


@every
@torch.no_grad()
def test_fast_equals_readable(case: LanguageCase) -> None:
    model, batch = case.build(), sentences()
    valid = batch.target.ids != PAD
    assert_same(model(batch.source, Watch())[valid], model(batch.source)[valid])


@every
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_logits_and_the_terms(case: LanguageCase, smoothing: float) -> None:
    model, batch = case.build(), sentences()
    readable, loss = cross_entropy(model(batch.source), batch.target, smoothing), model.loss(batch, smoothing)
    assert_same(loss.nll, readable.nll)
    assert_same(loss.total, sum(loss.extra.values(), readable.total))
    decoder = case.config.decoder
    asked = {"activation": "activation_penalty", "change": "change_penalty"}
    assert loss.extra.keys() == {name for name, field in asked.items() if getattr(decoder, field, 0.0)}


@every
def test_every_parameter_is_reached_by_backward(case: LanguageCase) -> None:
    model, batch = case.build().train(), sentences((9, 8, 9, 7, 9, 9), seed=3)
    torch.manual_seed(1)
    torch.autograd.backward(model.loss(batch).total)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        owner = model.get_submodule(name.rpartition(".")[0])
        parts: tuple[Tensor, ...] = (parameter.grad,)
        if isinstance(owner, Elman | Gru | Lstm | Lstmn):
            parts = parameter.grad.chunk(len(parameter) // owner.width)
        for part, gradient in enumerate(parts):
            assert gradient.isfinite().all()
            assert gradient.abs().max() > 1e-7, f"{name}, part {part}, is not reached"


@every
def test_saved_and_loaded_it_is_the_same(case: LanguageCase, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model, other, given = case.build(), case.build(seed=1), sentences().source
    save_file({name: tensor.contiguous() for name, tensor in checkpoint.model_tensors(model).items()}, tmp_path / "m")
    with torch.no_grad():
        expected = model(given)
        assert not torch.equal(other(given), expected)
        checkpoint.restore_model(other, read_tensors(tmp_path / "m"), "m")
        assert torch.equal(other(given), expected)
    assert LanguageModelConfig.model_validate(plain(case.config)) == case.config


@every
def test_weights_are_shared_where_tied_and_only_there(case: LanguageCase) -> None:
    model, V = case.build(), VOCABULARY
    table, output = model.decoder.embed.table.weight, model.output
    tied = case.config.tie == "output"
    assert (table.data_ptr() == output.weight.data_ptr()) == tied
    if not tied:
        return
    untied = build_language_model(case.config.model_copy(update={"tie": "none"}), V)
    assert _size(model) == _size(untied) - V * output.in_features
    given = sentences().source
    assert_close(model(given), model.features(given) @ table.T + output.bias)
    # The gradient is the sum of both uses.
    batch = sentences()
    untied.load_state_dict(model.state_dict())
    for each in (model, untied.eval()):
        torch.autograd.backward(each.loss(batch).total)
    read, written = untied.decoder.embed.table.weight.grad, untied.output.weight.grad
    assert read is not None
    assert written is not None
    assert table.grad is not None
    assert_same(table.grad, read + written)


def _size(model: LanguageModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@every
def test_the_state_is_a_pytree_batch_first_that_never_grows(case: LanguageCase) -> None:
    model, given = case.build(), tokens([5] * 3, VOCABULARY)
    with torch.no_grad():
        state = model.start(3, max_steps=5)
        leaves, spec = pytree.tree_flatten(state)
        assert all(isinstance(leaf, Tensor) and len(leaf) == 3 for leaf in leaves)
        for t in range(5):
            _, state = model.step(given.ids[:, t], state)
            after, same = pytree.tree_flatten(state)
            assert same == spec
            assert [leaf.shape for leaf in after] == [leaf.shape for leaf in leaves]


@every
@torch.no_grad()
def test_decoding_works_on_it(case: LanguageCase) -> None:
    """Greedy is the best token at each step of the teacher-forced pass, and so is a beam of one."""
    model = case.build()
    found = [one for [one] in greedy(model.step, model.start(2, 6), limits=[6, 4])]
    narrow = beam_search(model.step, model.start(2, 6), limits=[6, 4], rule=BeamRule(beam=1, length="none"))
    wide = beam_search(model.step, model.start(2, 6), limits=[6, 4], rule=BeamRule(beam=3, length="none", n_best=3))
    for b, hypothesis in enumerate(found):
        target = [*hypothesis.tokens, *([END] if hypothesis.ended else [])]
        given = Tokens.of([[1, *target[:-1]]])
        log_p_TV = model(given)[0].log_softmax(-1)
        own = log_p_TV.gather(1, torch.tensor(target)[:, None])[:, 0]
        assert_same(torch.tensor(hypothesis.token_log_probabilities), own)
        log_p_TV[:, :2] = -torch.inf
        assert log_p_TV.argmax(-1).tolist() == target
        assert narrow[b][0].tokens == hypothesis.tokens
        assert len(wide[b]) > 1


@every
def test_dropout_acts_in_training_only(case: LanguageCase) -> None:
    tree: dict[str, Any] = plain(case.config)
    tree["decoder"] |= {"dropout": 0.5}
    dropping = LanguageCase(case.name, LanguageModelConfig.model_validate(tree))
    model, given = dropping.build(), sentences().source
    with torch.no_grad():
        assert torch.equal(model(given), case.build()(given))
        assert not torch.allclose(model.train()(given), model(given))
        torch.manual_seed(5)
        first = model(given)
        torch.manual_seed(5)
        assert torch.equal(model(given), first)


@pytest.mark.parametrize(
    ("decoder", "tie", "reason"),
    [
        ({"kind": "lstm", "last_width": 4}, "none", "there is one layer: set its width"),
        ({"kind": "gru", "layers": 2, "last_width": 4, "stack": "residual"}, "none", "must be of one width"),
        ({"kind": "lstm", "uniform": 0.1, "cell": {"layer_norm": True}}, "none", "which begin at 1"),
        ({"kind": "lstm", "embedding": 3}, "output", "must be as wide as what the output layer reads"),
        ({"kind": "lstm", "layers": 2, "last_width": 3}, "output", "must be as wide as what the output layer reads"),
        ({"kind": "window", "direct": True}, "output", "must be as wide as what the output layer reads"),
        ({"kind": "window", "order": 1}, "none", "greater than or equal to 2"),
        ({"kind": "gru", "cell": {"peepholes": True}}, "none", "setting of lstm; kind is gru"),
        ({"kind": "transformer", "pattern": {"kind": "linformer"}}, "none", "would show a token what follows it"),
    ],
)
def test_senseless_combinations_are_refused(decoder: dict[str, Any], tie: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        LanguageModelConfig.model_validate({"decoder": decoder, "tie": tie})
