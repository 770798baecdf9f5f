"""Resumed = uninterrupted, bit for bit: every update's weights and loss, every validation, every file that is kept."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import saccade
from saccade.checkpoint import RunFolder, read_json
from saccade.data.batching import Plan
from saccade.data.store import Store
from saccade.recipe import Recipe
from saccade.train.events import Event, Finished, Prepared, Saved
from tests.support.killing import leftovers, logged, trace, train_with_kills
from tests.support.tiny import of_kind, recipe, write_corpus

PLATEAU = "train.schedule={kind: plateau, warmup: 2, factor: 0.5, patience: 0}"
CASES = {
    "lstm": ("lstm", "train.save_every=3"),
    "lstm, ahead, accumulated": ("lstm", "train.save_every=3", "train.workers=2", "train.accumulate=3"),
    "hard attention, scheduled sampling": ("hard", "train.save_every=3"),
    "transformer, ahead, BPE-dropout": (
        "transformer",
        "train.save_every=5",
        "train.workers=2",
        "text={kind: bpe, size: 290, dropout: 0.3}",
        "train.schedule={kind: cosine, warmup: 3, floor: 0.1}",
    ),
    "transformer, attention dropout": (
        "transformer",
        "train.save_every=4",
        "model.encoder.attention_dropout=0.3",
        "model.decoder.attention_dropout=0.2",
        "model.decoder.dropout=0.0",
        "model.decoder.pattern={kind: window, width: 2}",
    ),
    "transformer, accumulated, averaged": (
        "transformer",
        "train.save_every=3",
        "train.accumulate=3",
        "train.average=3",
        "train.keep=1",
        "train.smoothing=0.1",
        "train.optimizer={kind: sgd, rate: 0.5, momentum: 0.9, decay: 1e-3}",
    ),
    "transformer, bf16, by exact match": ("transformer", "train.precision=bf16", "train.metric=exact_match"),
    "lstm, stale": (  # a rate this high soon makes validation worse
        "lstm",
        "train.updates=40",
        "train.save_every=5",
        "train.validate_every=2",
        "train.patience=4",
        "train.optimizer.rate=0.3",
        PLATEAU,
    ),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def until(chosen: Recipe, out: Path, events: int) -> list[Event]:
    """The next so many events of the run; then it is dropped as it stands."""
    training = saccade.training(chosen, out, resume=(out / "train.yaml").exists(), device="cpu")
    try:
        return [event for event, _ in zip(training, range(events), strict=False)]
    finally:
        training.close()  # type: ignore[attr-defined]


def train_with_drops(chosen: Recipe, out: Path, lengths: Iterator[int]) -> tuple[Finished, int]:
    """Train in stretches of so many events each, until it is finished."""
    for stretch, length in enumerate(lengths):
        events = until(chosen, out, length)
        if isinstance(events[-1], Finished):
            return events[-1], stretch
    raise AssertionError("the lengths have an end")


def growing(draw: random.Random) -> Iterator[int]:
    """Stretches that grow, so that each run ends, however rarely it saves."""
    return (draw.randint(1, 4) + k for k in count())


@pytest.mark.parametrize("case", CASES)
def test_a_run_dropped_at_any_event_goes_on_as_if_it_had_not_been(case: str, corpus: Path, tmp_path: Path) -> None:
    model, *settings = CASES[case]
    chosen = recipe(corpus, model, "train.log_every=1", *settings)
    alone = saccade.train(chosen, tmp_path / "alone", device="cpu").finished
    expected = trace(tmp_path / "alone")
    assert len(expected["updates"]) == alone.update
    assert len({note["fingerprint"] for note in expected["updates"]}) == alone.update  # each update changed something
    drops = 0
    for seed in range(2):
        out = tmp_path / f"dropped-{seed}"
        finished, stretches = train_with_drops(chosen, out, growing(random.Random(seed)))
        drops += stretches
        assert trace(out) == expected
        assert logged(out) == logged(tmp_path / "alone")
        assert not leftovers(out)
        told = (finished.reason, finished.update, finished.best_update, finished.best, finished.tokens)
        assert told == (alone.reason, alone.update, alone.best_update, alone.best, alone.tokens)
        assert finished.averaged == alone.averaged
    assert drops >= 4


def test_the_stale_case_tests_what_it_says(corpus: Path, tmp_path: Path) -> None:
    model, *settings = CASES["lstm, stale"]
    finished = saccade.train(recipe(corpus, model, *settings), tmp_path, device="cpu").finished
    progress = trace(tmp_path)["progress"]
    assert finished.reason == "patience"
    assert progress["stale"] == 4
    assert progress["cuts"] >= 4


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_a_run_asked_to_stop_saves_and_goes_on(model: str, corpus: Path, tmp_path: Path) -> None:
    """Stopped after every update in turn; the checkpoints this adds do not enter the mean at the end."""
    chosen = recipe(corpus, model, "train.save_every=3", "train.average=3", "train.keep=1")
    alone = saccade.train(chosen, tmp_path / "alone", device="cpu").finished
    out = tmp_path / "stopped"
    for update in range(1, 10):
        asked = partial(next, iter([False, True]))
        events = list(saccade.training(chosen, out, resume=update > 1, device="cpu", stop=asked))
        assert isinstance(events[0], Prepared)
        assert events[0].done == update - 1
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert (finished.reason, finished.update) == ("interrupted", update)
        assert of_kind(events, Saved)[-1].update == update
        saccade.load(out, "cpu")  # what was trained so far can be used
    finished = saccade.train(chosen, out, resume=True, device="cpu").finished
    assert (finished.reason, finished.averaged) == ("updates", alone.averaged)
    assert trace(out) == trace(tmp_path / "alone")


def test_a_run_stopped_before_its_first_update_begins_anew(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus)
    events = list(saccade.training(chosen, tmp_path / "stopped", device="cpu", stop=lambda: True))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.update, finished.best) == ("interrupted", 0, {})
    saccade.train(chosen, tmp_path / "stopped", resume=True, device="cpu")
    saccade.train(chosen, tmp_path / "alone", device="cpu")
    assert trace(tmp_path / "stopped") == trace(tmp_path / "alone")


@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_run_resumed_around_the_end_of_an_epoch(beside: int, corpus: Path, tmp_path: Path) -> None:
    probe = recipe(corpus, "lstm", "train.updates=1")
    saccade.train(probe, tmp_path / "probe", device="cpu")
    lengths = Store.open(tmp_path / "probe" / "data" / "train").lengths
    epoch = len(Plan(lengths, probe.train.planned_tokens, probe.seed).epoch(0))
    settings = (f"train.save_every={epoch + beside}", f"train.updates={2 * epoch + 2}", "train.batch_tokens=128")
    chosen = recipe(corpus, "lstm", "train.validate_every=1000", *settings)
    events = saccade.training(chosen, tmp_path / "dropped", device="cpu")
    saved = next(event for event in events if isinstance(event, Saved))
    events.close()  # type: ignore[attr-defined]
    cursor = read_json(saved.path / "state.json")["progress"]["cursor"]
    assert (
        cursor
        == {
            -1: {"epoch": 0, "batch": epoch - 1},
            0: {"epoch": 1, "batch": 0},
            1: {"epoch": 1, "batch": 1},
        }[beside]
    )
    saccade.train(chosen, tmp_path / "dropped", resume=True, device="cpu")
    saccade.train(chosen, tmp_path / "alone", device="cpu")
    assert trace(tmp_path / "dropped") == trace(tmp_path / "alone")


def test_a_resumed_run_may_be_longer_than_it_was_begun(corpus: Path, tmp_path: Path) -> None:
    saccade.train(recipe(corpus, "lstm", "train.updates=8"), tmp_path / "longer", device="cpu")
    longer = recipe(corpus, "lstm", "train.updates=12", "train.workers=2", "train.keep=1", "train.log_every=1")
    finished = saccade.train(longer, tmp_path / "longer", resume=True, device="cpu").finished
    assert (finished.reason, finished.update) == ("updates", 12)
    saccade.train(recipe(corpus, "lstm", "train.updates=12"), tmp_path / "alone", device="cpu")
    assert trace(tmp_path / "longer") == trace(tmp_path / "alone")
    assert saccade.recipe(tmp_path / "longer" / "train.yaml") == longer  # the folder tells how the model was made


def test_a_finished_run_has_nothing_left_to_do(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "transformer", "train.average=2", "train.save_every=3")
    finished = saccade.train(chosen, tmp_path, device="cpu").finished
    before = trace(tmp_path)
    again = saccade.train(chosen, tmp_path, resume=True, device="cpu").finished
    assert (again.update, again.best, again.averaged) == (finished.update, finished.best, finished.averaged)
    assert trace(tmp_path) == before


def test_a_run_goes_on_from_an_older_checkpoint_where_the_newest_is_broken(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "lstm", "train.save_every=3")
    saccade.train(chosen, tmp_path / "alone", device="cpu")
    until(chosen, tmp_path / "broken", 8)
    whole, broken = RunFolder(tmp_path / "broken").steps()
    content = (broken / "optimizer.safetensors").read_bytes()
    (broken / "optimizer.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    prepared, *_, finished = saccade.training(chosen, tmp_path / "broken", resume=True, device="cpu")
    assert isinstance(prepared, Prepared)
    assert prepared.done == int(whole.name.removeprefix("step-"))
    assert any(f"{broken / 'optimizer.safetensors'}: is not the file" in remark for remark in prepared.remarks)
    assert isinstance(finished, Finished)
    assert trace(tmp_path / "broken") == trace(tmp_path / "alone")


def test_neither_workers_nor_logging_change_a_run(corpus: Path, tmp_path: Path) -> None:
    for name, settings in {
        "plain": ("train.workers=0",),
        "ahead": ("train.workers=3", "train.log_every=1", "train.keep=1", "train.patience=100", "train.minutes=60"),
    }.items():
        saccade.train(recipe(corpus, "lstm", *settings), tmp_path / name, device="cpu")
    assert trace(tmp_path / "plain") == trace(tmp_path / "ahead")


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("lstm", ("train.workers=2", "train.accumulate=3")),
        ("transformer", ("text={kind: bpe, size: 290, dropout: 0.3}", "train.average=3", "train.metric=bleu")),
    ],
    ids=["lstm", "transformer"],
)
def test_a_run_killed_at_any_moment_goes_on_as_if_it_had_not_been(
    model: str, settings: tuple[str, ...], corpus: Path, tmp_path: Path
) -> None:
    chosen = recipe(corpus, model, "train.updates=40", "train.save_every=3", "train.validate_every=7", *settings)
    saccade.train(chosen, tmp_path / "alone", device="cpu")
    kills = train_with_kills(chosen, tmp_path / "killed", draw=random.Random(1), kills=8, longest=0.3)
    assert kills.in_saves >= 1
    assert trace(tmp_path / "killed") == trace(tmp_path / "alone")
    assert logged(tmp_path / "killed") == logged(tmp_path / "alone")
    assert not leftovers(tmp_path / "killed")
