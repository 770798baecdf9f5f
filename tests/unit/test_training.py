"""The loop and the run around it: what an update is, when it ends, which model is kept, and what is told."""

import json
import math
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import saccade
from saccade import checkpoint, config
from saccade.checkpoint import MODEL, RunFolder, read_tensors
from saccade.data.store import Store
from saccade.errors import UsageError
from saccade.recipe import Recipe
from saccade.tasks import translate
from saccade.train.events import Event, Finished, Logged, Prepared, Saved, SaveDue, Stopped, Updated, Validated
from saccade.train.loop import Progress, is_better
from saccade.train.settings import TrainConfig
from saccade.types import Batch, Tokens
from tests.support.killing import trace
from tests.support.loop import LONG, SHORT, WIDE, Rig, joined, model, settings
from tests.support.tiny import notes, of_kind, recipe, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def train(chosen: Recipe, out: Path, *, resume: bool = False) -> list[Event]:
    return list(saccade.training(chosen, out, resume=resume, device="cpu"))


def finish(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


# One update


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_micro_batches_make_the_same_update_as_one_batch(smoothing: float) -> None:
    """Each token counts the same: one of 2, one of 17 and one of 7 target tokens."""
    together = Rig(settings("updates=1", f"smoothing={smoothing}"))
    apart = Rig(settings("updates=1", "accumulate=3", f"smoothing={smoothing}"))
    (whole, *_), (parts, *_) = together.run(joined(SHORT, WIDE, LONG)), apart.run(SHORT, WIDE, LONG)
    assert isinstance(whole, Updated)
    assert isinstance(parts, Updated)
    assert parts.tokens == whole.tokens == 26
    assert together.moved().abs().max() > 1e-3
    assert_close(apart.moved(), together.moved(), atol=1e-6, rtol=0)
    assert_close(parts.nll, whole.nll, atol=1e-5, rtol=0)
    assert_close(parts.gradient_norm, whole.gradient_norm)
    assert apart.progress.cursor.batch == 3
    assert apart.progress.tokens == 26


def test_an_update_goes_along_the_gradient_of_the_mean_loss_of_a_token() -> None:
    rig = Rig(settings("updates=1", "optimizer.rate=0.5"), model(dtype=torch.float64))
    updated, *_ = rig.run(WIDE)
    assert isinstance(updated, Updated)
    reference = model(dtype=torch.float64)
    log_p_BTV = reference(WIDE).log_softmax(-1)
    lengths = WIDE.target.layout.lengths_B.tolist()
    nll = -torch.stack([
        log_p_BTV[b, t, WIDE.target.ids[b, t]] for b, length in enumerate(lengths) for t in range(length)
    ]).sum()  # fmt: skip
    torch.autograd.backward(nll / sum(lengths))
    assert_close(updated.nll.double(), nll.detach(), rtol=1e-6, atol=0)
    for moved, parameter in zip(rig.translator.parameters(), reference.parameters(), strict=True):
        assert parameter.grad is not None
        assert_close(moved.detach(), parameter.detach() - 0.5 * parameter.grad)


def test_gradients_are_clipped_by_the_norm_of_all_together() -> None:
    free, clipped, loose = (Rig(settings("updates=1", f"clip={clip}")) for clip in ("null", "0.25", "1000"))
    norms = []
    for rig in (free, clipped, loose):
        updated, *_ = rig.run(WIDE)
        assert isinstance(updated, Updated)
        norms.append(updated.gradient_norm.item())
    assert norms[0] > 0.25
    assert norms == pytest.approx([norms[0]] * 3)  # what is told is the norm before it was clipped
    assert free.moved().norm().item() == pytest.approx(norms[0], rel=1e-5)
    assert clipped.moved().norm().item() == pytest.approx(0.25, rel=1e-4)
    assert_close(clipped.moved(), free.moved() * 0.25 / norms[0], rtol=1e-3, atol=1e-7)
    assert torch.equal(loose.moved(), free.moved())


def test_each_update_draws_its_own_dropout_and_the_same_each_time() -> None:
    def losses(translator: Any) -> list[float]:
        rig = Rig(settings("updates=3", "optimizer.rate=1e-30"), translator)
        return [event.nll.item() for event in rig.run(WIDE) if isinstance(event, Updated)]

    first = losses(model(dropout=0.5))
    assert len(set(first)) == 3  # the weights stand still: only what is dropped changes
    torch.manual_seed(99)
    torch.rand(5)
    assert losses(model(dropout=0.5)) == first
    micro = Rig(settings("updates=1", "accumulate=3", "optimizer.rate=1e-30"), model(dropout=0.5))
    updated, *_ = micro.run(WIDE)
    assert isinstance(updated, Updated)
    assert updated.nll.item() != pytest.approx(3 * first[0])  # nor do the micro-batches of one update share theirs


def test_the_rate_is_the_schedule_times_the_optimisers() -> None:
    rig = Rig(settings("updates=5", "optimizer.rate=0.5", "schedule={kind: inverse-sqrt, warmup: 2}"))
    rates = [event.rate for event in rig.run() if isinstance(event, Updated)]
    assert rates == pytest.approx([0.25, 0.5, 0.5 * (2 / 3) ** 0.5, 0.5 * 0.5**0.5, 0.5 * 0.4**0.5])
    noam = Rig(settings("updates=1", "schedule={kind: noam, warmup: 4}"))
    updated, *_ = noam.run()
    assert isinstance(updated, Updated)
    assert updated.rate == pytest.approx(64**-0.5 * 4**-1.5)
    moved = [Rig(settings("updates=1", f"schedule={{kind: constant, warmup: {warmup}}}")) for warmup in (0, 4)]
    for each in moved:
        each.run()
    assert_close(moved[1].moved(), moved[0].moved() / 4)  # and the optimiser takes it


# When things happen


def happened(events: list[Any]) -> str:
    """u: an update, v: a validation, V: a new best, s: time to save, and the reason of the end."""
    told = ""
    for event in events:
        match event:
            case Updated():
                told += "u"
            case Validated():
                told += "V" if event.best else "v"
            case SaveDue():
                told += "s"
            case Stopped():
                told += event.reason
    return told


def test_validations_and_saves_come_when_they_are_due() -> None:
    assert happened(Rig(settings("updates=7", "validate_every=3")).run()) == "uuuVsuuuvsuvsupdates"
    assert happened(Rig(settings("updates=7", "validate_every=3", "save_every=2")).run()) == "uusuVusuuvsuvsupdates"
    assert happened(Rig(settings("updates=2", "validate_every=1", "save_every=9")).run()) == "uVuvsupdates"


def losses(*values: float) -> Iterator[dict[str, float]]:
    return iter([{"loss": value} for value in values])


def test_patience_ends_after_so_many_validations_without_a_best() -> None:
    rig = Rig(settings("updates=99", "validate_every=1", "save_every=50", "patience=3"))
    rig.losses = losses(5.0, 4.0, 4.5, 4.0, 3.0, 3.5, 3.0, 9.0)
    assert happened(rig.run()) == "uVuVuvuvuVuvuvuvpatience"
    assert (rig.progress.best_update, rig.progress.best, rig.progress.stale) == (5, {"loss": 3.0}, 3)


def test_a_plateau_cuts_the_rate_after_the_validations_it_bears() -> None:
    rig = Rig(settings("updates=10", "validate_every=1", "schedule={kind: plateau, factor: 0.5, patience: 1}"))
    rig.losses = losses(5.0, 6.0, 6.0, 6.0, 6.0, 4.0, 5.0, 5.0, 3.0, 9.0)
    rates = [event.rate for event in rig.run() if isinstance(event, Updated)]
    # flat: 0 1 2=cut 1 2=cut 0 1 2=cut 0; a rate holds from the update after the cut
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125]
    assert rig.progress.cuts == 3


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def after(self, seconds: float, value: Any) -> Any:
        self.now += seconds
        return value


def test_minutes_end_a_training_and_the_last_update_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    rig = Rig(settings("updates=99", "minutes=1", "validate_every=50"))
    rig.stop = lambda: clock.after(25.0, value=False)
    assert happened(rig.run()) == "uuuVsminutes"
    assert rig.progress.seconds == 75.0

    resumed = Rig(rig.config, progress=Progress(seconds=30.0))
    resumed.stop = rig.stop
    assert happened(resumed.run()) == "uuVsminutes"  # the time before a resume counts


def test_time_that_runs_out_in_a_save_still_leaves_a_validated_update(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    rig = Rig(settings("updates=99", "minutes=1", "validate_every=50", "save_every=1"))
    events = []
    for event in rig.events():
        events.append(event)
        clock.now += 61.0 * isinstance(event, SaveDue)
    assert happened(events) == "usuVsminutes"


@pytest.mark.parametrize(
    ("values", "best", "metric", "expected"),
    [
        ({"loss": 2.0}, {}, "loss", True),
        ({"loss": 2.0}, {"loss": 3.0}, "loss", True),
        ({"loss": 3.0}, {"loss": 3.0}, "loss", False),
        ({"loss": 4.0}, {"loss": 3.0}, "loss", False),
        ({"loss": math.nan}, {}, "loss", False),
        ({"loss": math.nan}, {"loss": 3.0}, "loss", False),
        ({"loss": 9.0, "bleu": 30.0}, {"loss": 3.0, "bleu": 29.0}, "bleu", True),
        ({"loss": 1.0, "bleu": 28.0}, {"loss": 3.0, "bleu": 29.0}, "bleu", False),
        ({"loss": 2.9, "bleu": 29.0}, {"loss": 3.0, "bleu": 29.0}, "bleu", True),
        ({"loss": 3.0, "bleu": 29.0}, {"loss": 3.0, "bleu": 29.0}, "bleu", False),
        ({"loss": math.nan, "bleu": 29.0}, {"loss": 3.0, "bleu": 29.0}, "bleu", False),
        ({"loss": 3.0, "bleu": math.nan}, {"loss": 3.0, "bleu": 29.0}, "bleu", False),
    ],
)
def test_what_is_better(values: dict[str, float], best: dict[str, float], metric: str, expected: bool) -> None:
    assert is_better(values, best, metric) is expected


# The run: which model is kept


@pytest.mark.parametrize("metric", ["bleu", "chrf", "exact_match"])
def test_the_best_model_is_chosen_by_the_metric_and_ties_by_the_loss(
    metric: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([10.0, 30.0, 30.0, 20.0])
    monkeypatch.setattr(
        "saccade.tasks.translate.decoded_metrics",
        lambda *_, **__: {"bleu": 0.0, "chrf": 0.0, "exact_match": 0.0} | {metric: next(told)},
    )
    loss = iter([4.0, 3.0, 2.5, 1.0])
    monkeypatch.setattr(translate, "mean_loss", lambda *_: {"loss": next(loss), "perplexity": 1.0})
    chosen = recipe(
        corpus, "lstm", f"train.metric={metric}", "train.updates=8", "train.validate_every=2", "train.keep=9"
    )
    events = train(chosen, tmp_path)
    assert [event.best for event in of_kind(events, Validated)] == [True, True, True, False]
    assert finish(events).best_update == 6
    assert finish(events).best == {"bleu": 0.0, "chrf": 0.0, "exact_match": 0.0, metric: 30.0} | {
        "loss": 2.5,
        "perplexity": 1.0,
    }
    assert (tmp_path / MODEL).read_bytes() == (tmp_path / "checkpoints" / "step-6" / MODEL).read_bytes()


def test_metrics_are_those_of_the_greedily_decoded_validation_data(corpus: Path, tmp_path: Path) -> None:
    events = train(recipe(corpus, "transformer", "train.metric=chrf", "train.updates=60"), tmp_path)
    sources, references = ((corpus / f"valid.{side}").read_text().splitlines() for side in ("src", "tgt"))
    trained = saccade.load(tmp_path, "cpu")
    scores = trained.evaluate(sources, references, decode=trained.decoding(beam=1))
    best = finish(events).best
    assert best["chrf"] > 0
    for name, score in zip(("bleu", "chrf", "exact_match"), scores.scores, strict=True):
        assert score.value == pytest.approx(best[name])


def weights_of(path: Path) -> dict[str, Tensor]:
    return read_tensors(path / MODEL)


AVERAGED = ("train.average=3", "train.keep=1", "train.save_every=2", "train.updates=24", "train.validate_every=6")


def test_a_mean_that_is_better_is_kept(corpus: Path, tmp_path: Path) -> None:
    # steps so long that the mean lies lower than its parts
    noisy = ("train.optimizer.rate=0.5", "model.encoder.dropout=0", "model.decoder.dropout=0")
    many = ("train.average=6", "train.updates=40", "train.validate_every=20")
    events = train(recipe(corpus, "transformer", *AVERAGED, *many, *noisy), tmp_path)
    mean, before = of_kind(events, Validated)[-1], of_kind(events, Validated)[:-1]
    assert (mean.averaged, mean.best, finish(events).averaged) == (6, True, 6)
    assert mean.values["loss"] < min(each.values["loss"] for each in before)
    assert finish(events).best == mean.values
    steps = [weights_of(path) for path in RunFolder(tmp_path).steps()]
    assert len(steps) == 6
    for name, tensor in weights_of(tmp_path).items():
        assert_close(tensor, torch.stack([step[name] for step in steps]).mean(0))
    assert notes(tmp_path, "averaged") == [
        {"kind": "averaged", "update": 40, "checkpoints": 6, "best": True, **mean.values}
    ]


def test_a_mean_that_is_worse_is_not_kept(corpus: Path, tmp_path: Path) -> None:
    events = train(recipe(corpus, "transformer", *AVERAGED), tmp_path)  # the loss still falls: the last is best
    mean = of_kind(events, Validated)[-1]
    assert (mean.averaged, mean.best, finish(events).averaged) == (3, False, 0)
    assert finish(events).best == of_kind(events, Validated)[-2].values
    assert (tmp_path / MODEL).read_bytes() == (RunFolder(tmp_path).steps()[-1] / MODEL).read_bytes()


def test_a_broken_checkpoint_is_left_out_of_the_mean(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "transformer", *AVERAGED)
    train(chosen, tmp_path)
    oldest = RunFolder(tmp_path).steps()[1]  # of the last three before update 26
    (oldest / MODEL).write_bytes(b"")
    events = train(recipe(corpus, "transformer", *AVERAGED, "train.updates=26"), tmp_path, resume=True)
    assert of_kind(events, Validated)[-1].averaged == 2
    assert any(f"{oldest / MODEL}" in remark and "left out of the mean" in remark for remark in finish(events).remarks)


# The run: what is told and kept


def test_the_loss_of_validation_is_that_of_each_sentence_alone(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "lstm", "train.smoothing=0.3")
    best = finish(train(chosen, tmp_path)).best
    translator = checkpoint.load(tmp_path, torch.device("cpu")).model.double()
    store = Store.open(tmp_path / "data" / "valid")
    total, tokens = 0.0, 0
    for i in range(len(store)):
        target = store.target(i).tolist()
        log_p_TV = translator(Batch(Tokens.of([store.source(i).tolist()]), Tokens.of([target])))[0].log_softmax(-1)
        total -= sum(log_p_TV[t, token].item() for t, token in enumerate(target))
        tokens += len(target)
    assert best["loss"] == pytest.approx(total / tokens, rel=1e-6)
    assert best["perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-5)


def test_smoothing_is_trained_on_but_not_reported(corpus: Path, tmp_path: Path) -> None:
    plain, smooth = (
        train(recipe(corpus, "lstm", f"train.smoothing={share}"), tmp_path / str(share)) for share in (0.0, 0.4)
    )
    first, second = (notes(tmp_path / str(share), "update") for share in (0.0, 0.4))
    assert first[0]["loss"] == pytest.approx(second[0]["loss"], rel=1e-6)  # the same weights, before any step
    assert first[0]["fingerprint"] != second[0]["fingerprint"]
    assert finish(plain).best != finish(smooth).best


def test_the_log_has_the_means_since_its_last_line(corpus: Path, tmp_path: Path) -> None:
    settings = ("train.updates=7", "train.log_every=3", "train.validate_every=5", "train.save_every=100")
    events = train(recipe(corpus, "lstm", *settings), tmp_path)
    logged = of_kind(events, Logged)
    assert [event.update for event in logged] == [3, 5, 6, 7]
    by_update = {note["update"]: note["loss"] for note in notes(tmp_path, "update")}
    tokens = _tokens_by_update(tmp_path, tmp_path / "single", corpus)
    for event, updates in zip(logged, ([1, 2, 3], [4, 5], [6], [7]), strict=True):
        expected = sum(by_update[k] * tokens[k] for k in updates) / sum(tokens[k] for k in updates)
        assert event.loss == pytest.approx(expected, rel=1e-5)
        assert event.tokens_per_second > 0
    assert [note["update"] for note in notes(tmp_path, "trained")] == [3, 5, 6, 7]
    assert finish(events).tokens == sum(tokens[k] for k in range(1, 8))


def _tokens_by_update(_: Path, out: Path, corpus: Path) -> dict[int, int]:
    """From a run that saves after each of its updates."""
    train(recipe(corpus, "lstm", "train.updates=7", "train.save_every=1", "train.keep=7"), out)
    states = [checkpoint.read_json(path / "state.json")["progress"] for path in RunFolder(out).steps()]
    totals = [0, *(state["tokens"] for state in states)]
    return {state["update"]: state["tokens"] - before for state, before in zip(states, totals, strict=False)}


def test_checkpoints_come_when_due_and_only_the_last_are_kept(corpus: Path, tmp_path: Path) -> None:
    settings = ("train.updates=11", "train.validate_every=4", "train.save_every=3", "train.keep=3")
    events = train(recipe(corpus, "lstm", *settings), tmp_path)
    assert [event.update for event in of_kind(events, Saved)] == [3, 6, 9, 11]
    assert [event.update for event in of_kind(events, Validated)] == [4, 8, 11]
    assert [path.name for path in RunFolder(tmp_path).steps()] == ["step-6", "step-9", "step-11"]
    by_default = train(recipe(corpus, "lstm", "train.updates=8"), tmp_path / "default")
    assert [event.update for event in of_kind(by_default, Saved)] == [4, 8]  # one with each validation


def test_a_run_tells_what_it_begins_with(corpus: Path, tmp_path: Path) -> None:
    prepared, *_ = train(recipe(corpus, "lstm", "text.shared=false"), tmp_path)
    assert isinstance(prepared, Prepared)
    trained = saccade.load(tmp_path, "cpu")
    assert prepared.parameters == trained.parameters
    text = trained.engine.text
    assert prepared.vocabularies == {"source tokens": text.source.size, "target tokens": text.target.size}
    assert (prepared.examples, prepared.unit) == (240, "pairs")
    assert (prepared.updates, prepared.done, prepared.device) == (10, 0, "cpu")
    facts = checkpoint.read_json(tmp_path / "environment.json")
    assert facts["saccade"] == saccade.__version__
    assert facts["packages"]["torch"] == torch.__version__


def test_batches_hold_no_more_than_they_may(corpus: Path, tmp_path: Path) -> None:
    """The longest side of these pairs has 7 tokens, END included: so many more updates an epoch."""

    def epochs(*settings: str) -> int:
        events = train(
            recipe(corpus, "lstm", "train.updates=30", "train.log_every=1", *settings), tmp_path / settings[-1]
        )
        return of_kind(events, Logged)[-1].epoch

    assert epochs("train.batch_tokens=100000") == 29  # all 240 pairs at once
    assert epochs("train.batch_tokens=100000", "train.batch_sentences=12") == 1  # 20 updates an epoch
    assert epochs("train.batch_tokens=100000", "train.batch_sentences=12", "train.accumulate=2") == 2
    assert epochs("train.batch_tokens=1") == 0  # a pair an update


def test_a_seed_fixes_the_run_and_another_changes_it(corpus: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        train(recipe(corpus, "transformer", f"seed={seed}"), tmp_path / name)
    assert trace(tmp_path / "one") == trace(tmp_path / "same")
    assert trace(tmp_path / "one")["updates"][0] != trace(tmp_path / "other")["updates"][0]


GRU = {"encoder": {"kind": "gru", "width": 8}, "decoder": {"kind": "gru", "width": 8, "attention": {"score": "dot"}}}
ELMAN = {"encoder": {"kind": "elman", "width": 8}, "decoder": {"kind": "elman", "width": 8}}


@pytest.mark.parametrize(
    "architecture", ["lstm", "transformer", GRU, ELMAN], ids=["lstm", "transformer", "gru", "elman"]
)
def test_every_precision_trains_and_keeps_float32_weights(
    architecture: str | dict[str, Any], corpus: Path, tmp_path: Path
) -> None:
    found = {}
    for precision in ("fp32", "tf32", "bf16"):
        out = tmp_path / precision
        events = train(recipe(corpus, architecture, f"train.precision={precision}", "train.updates=12"), out)
        first, *_, last = notes(out, "update")
        assert last["loss"] < first["loss"]
        assert all(tensor.dtype == torch.float32 for tensor in weights_of(out).values())
        found[precision] = finish(events).best["loss"]
    assert found["bf16"] == pytest.approx(found["fp32"], rel=0.05)
    assert found["bf16"] != found["fp32"]


def test_a_training_leaves_the_process_as_it_found_it(corpus: Path, tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        smallest = torch.tensor([2.0**-149])
        return (smallest + 0.0).item() == 0.0, torch.get_float32_matmul_precision(), torch.is_grad_enabled()

    for flushes in (True, False):
        torch.set_flush_denormal(flushes)
        before = state()
        assert before[0] is flushes
        events = saccade.training(recipe(corpus, "lstm", "train.precision=tf32"), tmp_path / str(flushes), device="cpu")
        assert all(state() == before for _ in events)


def test_two_trainings_side_by_side_do_not_change_each_other(corpus: Path, tmp_path: Path) -> None:
    recipes = [recipe(corpus, "lstm", "train.precision=tf32"), recipe(corpus, "transformer", "train.workers=2")]
    alone = [train(each, tmp_path / f"alone-{i}") for i, each in enumerate(recipes)]
    both = [saccade.training(each, tmp_path / f"beside-{i}", device="cpu") for i, each in enumerate(recipes)]
    for _ in zip_longest(*both):
        pass
    for i in range(2):
        assert finish(alone[i]).update == 10
        assert trace(tmp_path / f"beside-{i}") == trace(tmp_path / f"alone-{i}")


def test_no_fingerprints_unless_asked_for(corpus: Path, tmp_path: Path) -> None:
    train(recipe(corpus, "lstm", "train.fingerprint=false"), tmp_path)
    assert not notes(tmp_path, "update")
    assert [note["update"] for note in notes(tmp_path, "validated")] == [4, 8, 10]


def test_settings_that_make_no_sense_are_refused() -> None:
    for setting in (
        "updates=0",
        "minutes=0",
        "patience=0",
        "batch_tokens=0",
        "batch_sentences=0",
        "accumulate=0",
        "clip=0",
        "smoothing=1",
        "validate_every=0",
        "save_every=0",
        "keep=0",
        "average=-1",
        "log_every=0",
        "precision=fp16",
        "workers=-1",
        "fingerprint=perhaps",
    ):
        name = setting.partition("=")[0]
        with pytest.raises(UsageError, match=f"{name} is "):
            settings(setting)


def test_a_metric_is_one_of_the_tasks(corpus: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.metric is 'blue'; .* loss, bleu, .*Did you mean `bleu`\?"):
        recipe(corpus, "lstm", "train.metric=blue")
    assert config.parse(TrainConfig, {}).saves_every == 500
    assert json.loads(json.dumps(config.plain(TrainConfig())))["schedule"] == {"kind": "inverse-sqrt", "warmup": 1000}
