"""One update's gradient: the same whatever pieces it is made in, and whatever memory says on the way."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.config import parse, plain
from saccade.errors import SaccadeError
from saccade.loss import Loss
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.train.gradient import Gradient, cost, pieces
from saccade.train.loop import Progress
from saccade.train.numerics import seed_everything
from saccade.types import END, Batch, Tokens
from tests.support.loop import LONG, SHORT, VOCABULARY, WIDE, Rig, model, settings
from tests.support.tiny import MODELS

CPU = torch.device("cpu")


def of(translator: Translator, batches: list[Batch], fits: int | None = None) -> tuple[Tensor, list[Tensor], Gradient]:
    made = Gradient(translator, CPU, "fp32", 0.1, seed=1, fits=fits)
    translator.zero_grad(set_to_none=True)
    nll = made.accumulate(batches, update=3)
    return nll, [p.grad.clone() for p in translator.parameters() if p.grad is not None], made


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(1, 60)),
)
def test_pieces_hold_every_row_once_and_cost_no_more_than_fits(
    lengths: list[tuple[int, int]], fits: int | None
) -> None:
    rows = [([4 + i] * (s - 1) + [END], [5 + i] * (t - 1) + [END]) for i, (s, t) in enumerate(lengths)]
    batch = Batch(Tokens.of([s for s, _ in rows]), Tokens.of([t for _, t in rows]), tuple(range(len(rows)))).packed()
    found = list(pieces(batch, fits))
    assert [i for piece in found for i in piece.index] == list(range(len(rows)))
    assert torch.equal(torch.cat([piece.source.ids for piece in found]), batch.source.ids)
    assert torch.equal(torch.cat([piece.target.ids for piece in found]), batch.target.ids)
    assert all(fits is None or cost(piece) <= fits or len(piece) == 1 for piece in found)
    if fits is not None and cost(batch) <= fits:
        assert len(found) == 1


@pytest.mark.parametrize("fits", [1, 8, 16, 24, 1000])
def test_the_gradient_does_not_depend_on_the_pieces(fits: int) -> None:
    translator = model(dtype=torch.float64)
    nll, whole, _ = of(translator, [WIDE, LONG])
    same, parts, _ = of(translator, [WIDE, LONG], fits)
    torch.testing.assert_close(same.double(), nll.double())
    for one, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@contextmanager
def scarce(limit: int, where: str) -> Iterator[list[int]]:
    """Memory runs out where a piece costs more than the limit: on the way forward, or on the way back."""
    tried: list[int] = []
    real = Translator.loss

    def loss(self: Translator, batch: Batch, smoothing: float = 0.0) -> Loss:
        tried.append(cost(batch))
        if tried[-1] > limit and where == "forward":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore words")
        out = real(self, batch, smoothing)
        if tried[-1] > limit and out.total.requires_grad:
            out.total.register_hook(_run_out)  # type: ignore[no-untyped-call]
        return out

    with mock.patch.object(Translator, "loss", loss):
        yield tried


def _run_out(_: Tensor) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_what_does_not_fit_is_made_in_halves_with_the_same_gradient(where: str) -> None:
    translator = model(dtype=torch.float64)
    nll, whole, _ = of(translator, [SHORT, WIDE])
    with scarce(10, where) as tried:
        same, parts, made = of(translator, [SHORT, WIDE])
    assert cost(WIDE) == 32
    assert tried[:2] == [2, 32]  # the whole is tried first
    assert made.fits == 8  # 32 and 16 were too much
    assert all(each <= 10 for each in tried[-3:])
    torch.testing.assert_close(same.double(), nll.double())
    for one, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("enough", [True, False])
def test_a_rehearsal_finds_out_what_fits_and_leaves_nothing_behind(enough: bool) -> None:
    translator = model()
    made = Gradient(translator, CPU, "fp32", 0.1, seed=1)
    with scarce(1000 if enough else 10, "backward"):
        made.rehearse([WIDE, LONG])
    assert made.fits == (None if enough else 8)
    assert all(parameter.grad is None for parameter in translator.parameters())


def test_what_a_model_learns_on_its_way_forward_counts_once_and_never_in_a_rehearsal() -> None:
    """The baseline of hard attention, where memory runs out in the first attempt."""

    def baseline(limit: int, fits: int | None) -> Tensor:
        tree = plain(TranslatorConfig.model_validate(MODELS["hard"]))
        seed_everything(0)
        translator = build_translator(parse(TranslatorConfig, tree), VOCABULARY, VOCABULARY).double().train()
        made = Gradient(translator, CPU, "fp32", 0.1, seed=1, fits=fits)
        with scarce(limit, "backward"):
            made.rehearse([WIDE])
            assert not translator.state_dict()["decoder.reader.hard.baseline"].any()
            made.fits = fits
            made.accumulate([WIDE], update=3)
        learnt: Tensor = translator.state_dict()["decoder.reader.hard.baseline"]
        return learnt

    assert torch.equal(baseline(10, None), baseline(1000, 8))


def test_a_cpu_that_has_no_more_memory_is_heard_and_another_error_is_not_taken_for_it() -> None:
    translator, real = model(), Translator.loss
    errors = [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] data. DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("shapes do not fit"),
    ]

    def loss(self: Translator, batch: Batch, smoothing: float = 0.0) -> Loss:
        if errors and len(batch) > 1:
            raise errors.pop(0)
        return real(self, batch, smoothing)

    made = Gradient(translator, CPU, "fp32", 0.1, seed=1)
    with mock.patch.object(Translator, "loss", loss), pytest.raises(RuntimeError, match="shapes do not fit"):
        made.accumulate([WIDE], update=1)
    assert made.fits == 16
    assert not errors


def test_a_pair_that_alone_does_not_fit_is_an_error_that_says_what_to_do() -> None:
    with scarce(3, "forward"), pytest.raises(SaccadeError, match=r"Tried to allocate 2.00 GiB\. Lower data.max_length"):
        of(model(), [LONG])


def test_a_training_says_once_that_it_shrank_and_remembers_it() -> None:
    rig = Rig(settings("updates=4"))
    with scarce(10, "backward") as tried:
        events = rig.run(WIDE)
        assert [vars(event) for event in events if type(event).__name__ == "Shrunk"] == [{"update": 1, "fits": 8}]
        assert rig.progress.fits == 8
        first = len(tried)
        again = Rig(settings("updates=1"), progress=Progress(fits=8))
        again.run(WIDE)
    assert all(each <= 8 for each in tried[first:])  # a resumed run does not run out again


# ---- what is not finite


def spoiled(at: set[int], value: float) -> Callable[..., Any]:
    """The loss of these updates is no number."""
    real = Gradient.accumulate

    def accumulate(self: Gradient, batches: list[Batch], update: int) -> Tensor:
        nll = real(self, batches, update)
        if update not in at:
            return nll
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.view(-1)[0] = value
        return nll

    return accumulate


@pytest.mark.parametrize(
    "optimizer", ["{kind: adamw, rate: 0.1}", "{kind: sgd, rate: 0.1, momentum: 0.9}", "{kind: muon}"]
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(value: float, optimizer: str) -> None:
    chosen = settings("updates=4", f"optimizer={optimizer}")
    rig = Rig(chosen)
    with mock.patch.object(Gradient, "accumulate", spoiled({2, 4}, value)):
        events = [event for event in rig.run(SHORT, WIDE, LONG) if type(event).__name__ == "Updated"]
    assert [bool(event.not_finite) for event in events] == [False, True, False, True]  # type: ignore[union-attr]
    assert (rig.progress.update, rig.progress.skipped, rig.progress.skipped_in_a_row) == (4, 2, 1)
    # The first and the third batch alone: the rate is constant, so that the weights must be the same.
    without = Rig(settings("updates=2", f"optimizer={optimizer}"))
    without.run(SHORT, LONG)
    assert rig.moved().abs().max() > 0
    torch.testing.assert_close(rig.moved(), without.moved(), rtol=0, atol=0)


def test_training_ends_after_too_many_in_a_row_with_the_last_good_weights() -> None:
    chosen = settings("updates=50", "skip_limit=3", "log_every=1", "optimizer={kind: adamw, rate: 0.1}")
    rig, good = Rig(chosen), Rig(settings("updates=4", "optimizer={kind: adamw, rate: 0.1}"))
    good.run(SHORT)
    with mock.patch.object(Gradient, "accumulate", spoiled(set(range(5, 99)), float("nan"))):
        events = rig.run(SHORT)
    last = events[-1]
    assert type(last).__name__ == "Stopped"
    assert vars(last) == {"reason": "not finite", "update": 7}
    assert (rig.progress.skipped, rig.progress.skipped_in_a_row) == (3, 3)
    torch.testing.assert_close(rig.moved(), good.moved(), rtol=0, atol=0)


def test_an_interruption_saves_the_count_up_to_the_last_update() -> None:
    asked = iter([False, False, False, True])
    rig = Rig(settings("updates=9", "log_every=50"), stop=lambda: next(asked))
    with mock.patch.object(Gradient, "accumulate", spoiled({2, 3}, float("nan"))):
        events = rig.run(SHORT)
    assert vars(events[-1]) == {"reason": "interrupted", "update": 3}
    assert (rig.progress.skipped, rig.progress.skipped_in_a_row) == (2, 2)


def test_the_count_of_skips_goes_on_where_it_was() -> None:
    rig = Rig(settings("updates=9", "skip_limit=3", "log_every=1"), progress=Progress(skipped=5, skipped_in_a_row=2))
    with mock.patch.object(Gradient, "accumulate", spoiled({1}, float("nan"))):
        events = rig.run(SHORT)
    assert vars(events[-1]) == {"reason": "not finite", "update": 1}
    assert rig.progress.skipped == 6


def test_graphs_give_way_to_a_validation_that_finds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only where there are any: else the error is the user's to know."""
    trainer = Rig(settings()).trainer()
    left = [torch.OutOfMemoryError("CUDA out of memory.")]

    def validate() -> dict[str, float]:
        if left:
            raise left.pop()
        return {"loss": 1.0}

    monkeypatch.setattr(trainer.gradient, "give_way", lambda: True)
    assert trainer._values(validate) == {"loss": 1.0}
    left.append(torch.OutOfMemoryError("CUDA out of memory."))
    monkeypatch.setattr(trainer.gradient, "give_way", lambda: False)
    with pytest.raises(torch.OutOfMemoryError):
        trainer._values(validate)
