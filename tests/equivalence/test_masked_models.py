"""Masked language models: a text is worth the same alone, padded, packed, filled up, and beside whichever others."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.checkpoint import model_tensors, restore_model
from saccade.data.sizes import filled, size_for
from saccade.disk import read_tensors
from saccade.models import masked
from saccade.models.masked import MaskedModel
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn.linear_loss import linear_cross_entropy
from saccade.nn.masks import pack, valid_BT
from saccade.nn.watch import Watch
from saccade.train.gradient import Gradient
from saccade.train.numerics import numerics
from saccade.train.settings import Precision
from saccade.types import END, PAD, Batch, Layout, Tokens
from tests.cases import sentence
from tests.masked_cases import MaskedCase, every_masked_model, name_of

models = pytest.mark.parametrize("case", every_masked_model(), ids=name_of)
Graded = tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]


def graded(model: MaskedModel, batch: Batch) -> Graded:
    loss = model.loss(batch, 0.1)
    named = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss.total, list(named.values()), allow_unused=True, materialize_grads=True)
    return loss.total.detach(), loss.nll, loss.tokens, dict(zip(named, gradients, strict=True))


def assert_equal_graded(actual: Graded, expected: Graded) -> None:
    for mine, theirs in zip(actual[:3], expected[:3], strict=True):
        assert_close(mine, theirs, rtol=1e-9, atol=1e-10)
    for name, theirs in expected[3].items():
        assert torch.allclose(actual[3][name], theirs, rtol=1e-7, atol=1e-9), name


def with_other_padding(batch: Batch, filler: int) -> Batch:
    def changed(side: Tokens) -> Tokens:
        return Tokens(side.ids.masked_fill(~valid_BT(side.layout), filler), side.layout)

    return Batch(changed(batch.source), changed(batch.target))


@models
def test_the_loss_is_that_of_the_logits(case: MaskedCase) -> None:
    """Of blanks alone, and of pairs weighted as all blanks of their row: written out in plain terms."""
    model, batch = case.build().double(), case.batch()
    logits_BSV = model(batch.source)
    scores_B2 = None if model.next_sentence is None else model.next_sentence(model.encode(batch.source))
    blanks = pairs = pair_sum = torch.zeros((), dtype=torch.float64)
    counted = 0
    for b in range(len(batch)):
        length = int(batch.source.layout.lengths_B[b])
        places = [t for t in range(length - 1) if batch.target.ids[b, t] != PAD]
        of_row = [F.cross_entropy(logits_BSV[b, t], batch.target.ids[b, t]) for t in places]
        blanks, counted = blanks + torch.stack(of_row).sum(), counted + len(places)
        if scores_B2 is not None:
            said = F.cross_entropy(scores_B2[b], batch.target.ids[b, length - 1] - 1)
            pairs, pair_sum, counted = pairs + len(places) * said, pair_sum + said, counted + 1
    loss = model.loss(batch)
    assert_close(loss.total, blanks + pairs)
    assert_close(loss.nll, (blanks + pair_sum).detach())
    assert int(loss.tokens) == counted == batch.tokens
    assert loss.extra.keys() == ({"next_sentence"} if scores_B2 is not None else set())


@models
def test_padded_packed_and_filled_are_the_same(case: MaskedCase) -> None:
    model, batch = case.build().double(), case.batch()
    expected = graded(model, batch)
    packed = batch.packed()
    full = filled(packed, size_for(packed, tight=model.computes_padding))
    assert len(full.source.ids) > len(packed.source.ids)
    assert_equal_graded(graded(model, packed), expected)
    assert_equal_graded(graded(model, full), expected)
    with torch.no_grad():
        assert_close(model(packed.source), pack(model(batch.source), packed.source.layout))
    for filler in (PAD, END, 5):
        assert_equal_graded(graded(model, with_other_padding(batch, filler)), expected)


@models
def test_the_whole_is_the_sum_of_its_rows(case: MaskedCase) -> None:
    """So no row depends on its batch-mates, and a batch may be worked off in pieces."""
    model, batch = case.build().double(), case.batch()
    alone = [Batch(sentence(batch.source, b), sentence(batch.target, b)) for b in range(len(batch))]
    parts = [graded(model, each) for each in alone]
    total, nll, tokens = (torch.stack([part[i] for part in parts]).sum(0) for i in range(3))  # type: ignore[misc]
    summed = {name: torch.stack([part[3][name] for part in parts]).sum(0) for name in parts[0][3]}
    assert_equal_graded(graded(model, batch), (total, nll, tokens, summed))
    pieces = [graded(model, batch.packed().rows(*some)) for some in ((0, 1), (1, 4))]
    assert_close(sum(piece[0] for piece in pieces), total)


@models
def test_what_is_not_there_has_no_target_and_no_say(case: MaskedCase) -> None:
    """A batch without any blank costs nothing but its labels, and one without labels nothing but its blanks."""
    model, batch = case.build().double(), case.batch()
    nothing = Batch(batch.source, Tokens(torch.zeros_like(batch.target.ids), batch.target.layout))
    loss = model.loss(nothing)
    assert float(loss.total.detach()) == float(loss.nll) == 0.0
    assert int(loss.tokens) == 0
    unlabelled = batch.target.ids.masked_fill(batch.source.ids == END, PAD)
    blanks = model.loss(Batch(batch.source, Tokens(unlabelled, batch.target.layout)))
    both = model.loss(batch)
    assert_close(blanks.total, both.total - sum(both.extra.values()))


@models
@pytest.mark.parametrize("training", [False, True])
def test_fast_equals_readable(case: MaskedCase, training: bool) -> None:
    model, batch = case.build().double().train(training), case.batch()

    def run(watch: Watch | None) -> Tensor:
        torch.manual_seed(7)
        logits_BSV: Tensor = model(batch.source, watch)
        return logits_BSV[valid_BT(batch.source.layout)]

    assert_close(run(None), run(Watch()))


@models
def test_every_weight_is_reached(case: MaskedCase) -> None:
    """But for vectors of segments that no text of the batch has."""
    model, batch = case.build().double().train(), case.batch().packed()
    torch.manual_seed(0)
    torch.autograd.backward(model.loss(batch).total)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-9, name


@models
def test_saved_and_loaded_is_the_same(case: MaskedCase, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model, batch = case.build(), case.batch()
    save_file(model_tensors(model), tmp_path / "model.safetensors")
    other = case.build(seed=1)
    assert not torch.equal(other(batch.source), model(batch.source))
    restore_model(other, read_tensors(tmp_path / "model.safetensors"), "model.safetensors")
    assert torch.equal(other(batch.source), model(batch.source))
    assert torch.equal(other.loss(batch).total, model.loss(batch).total)


@models
def test_what_is_judged_is_what_the_logits_say(case: MaskedCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are judged at once."""
    model, batch = case.build().double(), case.batch()
    loss, judged = model.loss(batch), model.judge(batch)
    assert_close(judged.nll + judged.pair_nll, loss.nll.double())
    assert int(judged.tokens + judged.pairs) == int(loss.tokens)
    said = model(batch.source).argmax(-1)
    places = (batch.target.ids != PAD) & (batch.source.ids != END)
    assert int(judged.correct) == int((said == batch.target.ids)[places].sum())
    (rows_B3,) = judged.rows
    alone = [model.judge(batch.packed().rows(row, row + 1)) for row in range(len(batch))]
    told = [torch.stack([each.nll, each.correct.double(), each.tokens.double()]) for each in alone]
    assert_close(rows_B3, torch.stack(told))
    monkeypatch.setattr(masked, "JUDGED_AT_ONCE", 1)
    again = model.judge(batch.packed())
    assert_close(again.rows[0], rows_B3)
    assert [int(each) for each in (again.tokens, again.correct, again.pairs, again.correct_pairs)] == [
        int(each) for each in (judged.tokens, judged.correct, judged.pairs, judged.correct_pairs)
    ]


def test_pairs_are_judged_by_the_sign_of_their_score() -> None:
    """With a classifier that always says 2, exactly the pairs of that label are right."""
    case = next(case for case in every_masked_model() if case.config.next_sentence)
    model, batch = case.build(), case.batch()
    assert model.next_sentence is not None
    with torch.no_grad():
        model.next_sentence.output.weight.zero_()
        model.next_sentence.output.bias.copy_(torch.tensor([0.0, 9.0]))
    judged = model.judge(batch)
    assert (int(judged.correct_pairs), int(judged.pairs)) == (2, 4)


def test_the_output_layer_reads_blanks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    case = every_masked_model()[0]
    model, batch = case.build(), case.batch()
    seen: list[int] = []

    def noted(x_ND: Tensor, *rest: Any) -> Any:
        seen.append(len(x_ND))
        return linear_cross_entropy(x_ND, *rest)

    monkeypatch.setattr(masked, "linear_cross_entropy", noted)
    model.loss(batch)
    assert seen == [7]  # of 26 tokens


def test_the_output_is_tied_to_the_token_vectors() -> None:
    for case in every_masked_model():
        model = case.build()
        assert (model.output.weight is model.encoder.embed.table.weight) == (case.config.tie == "output")


def test_where_blanks_are_on_a_gpu_is_found_without_asking() -> None:
    """The same places and others behind them, in a number fixed beforehand; more blanks than that are told."""
    case = every_masked_model()[1]
    model = case.build()
    gold_N = torch.tensor([0, 7, 0, 0, 0, 0, 5, 0, 0, 0])

    class OnGpu(Tensor):
        is_cuda = True

    model.most = 0.1
    places, too_many = model._places(gold_N.as_subclass(OnGpu), rows=1)
    assert places.tolist() == [1, 6, 0]
    assert too_many is not None
    assert not too_many
    places, too_many = model._places(torch.full((10,), 5).as_subclass(OnGpu), rows=1)
    assert too_many


@pytest.mark.gpu
@models
def test_a_gpu_computes_the_same(case: MaskedCase) -> None:
    """Loss and gradients, with no more places than there may be blanks."""
    model, batch = case.build(), case.batch().packed()
    expected = graded(model, batch)
    on_gpu, device = case.build().cuda(), torch.device("cuda")
    for most in (1.0, 0.25):
        on_gpu.most = most
        with numerics("fp32", device):
            total, nll, tokens, gradients = graded(on_gpu, batch.to(device))
        assert_close(total.cpu(), expected[0], rtol=1e-4, atol=1e-4)
        assert_close(nll.cpu(), expected[1], rtol=1e-4, atol=1e-4)
        assert int(tokens) == int(expected[2])
        for name, theirs in expected[3].items():
            assert torch.allclose(gradients[name].cpu(), theirs, rtol=1e-3, atol=1e-4), name
    if case.config.next_sentence:  # a pair's label stands among the targets, and is no token
        return
    on_gpu.most = 0.0
    crowded = Batch(batch.source, Tokens(torch.full_like(batch.target.ids, 5), batch.target.layout))
    assert on_gpu.loss(crowded.to(device)).total.isnan()  # told, not passed over


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_equals_launched(precision: Precision) -> None:
    """To the bit, for several batches of one size."""
    device = torch.device("cuda")
    model = every_masked_model()[0].build().to(device).train()
    batches = [case.batch().packed() for case in [every_masked_model()[0]] * 3]
    with numerics(precision, device, deterministic=True):

        def gradients(captures: bool) -> list[list[Tensor]]:
            made = []
            gradient = Gradient(model, device, precision, 0.1, seed=1, captures=captures)
            for update, batch in enumerate(batches):
                gradient.clear()
                nll = gradient.accumulate([batch], update)
                made.append([nll.clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
            assert gradient._graphs is not None
            assert bool(gradient._graphs.captured) == captures
            return made

        for mine, theirs in zip(gradients(captures=True), gradients(captures=False), strict=True):
            assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


# ---- segments


def test_segments_go_by_the_ends_before() -> None:
    """Swapping the vectors of two segments is swapping the texts' segments: what it changes is seen."""
    case = every_masked_model()[0]
    model, batch = case.build(), case.batch()
    assert isinstance(model.encoder, TransformerEncoder)
    assert model.encoder.segments is not None
    table = model.encoder.segments.table.weight
    before = model(batch.source)
    with torch.no_grad():
        table.copy_(table.flip(0).clone())
    assert not torch.allclose(model(batch.source), before, atol=1e-3)


def test_how_many_stand_before() -> None:
    from saccade.nn import masks

    ids = torch.tensor([[5, 2, 6, 2, 7, 2], [2, 2, 9, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    layout = Layout.padded([6, 3, 0])
    expected = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 2])
    valid = valid_BT(layout)
    assert torch.equal(masks.before(ids == END, layout)[valid], expected)
    packed = Tokens(ids, layout).packed()
    assert torch.equal(masks.before(packed.ids == END, packed.layout), expected)
    assert packed.ids[masks.ends_B(packed.layout)[:2]].tolist() == [2, 9]
    assert ids.flatten()[masks.ends_B(layout)[:2]].tolist() == [2, 9]
