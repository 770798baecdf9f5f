"""Resumed = uninterrupted for language models: streams with what they carry, windows, means of weights."""

import random
from pathlib import Path

import pytest

import saccade
from tests.equivalence.test_resume import growing, train_with_drops
from tests.support.killing import leftovers, logged, trace
from tests.support.language import recipe

CASES = {
    "lstm, varied streams": ("lstm", "read.varied=true", "train.save_every=2"),
    "gru, accumulated": ("gru", "train.accumulate=3", "train.save_every=1"),
    "lstmn": ("lstmn", "train.save_every=2"),
    "window": ("window", "train.save_every=2", "train.optimizer={kind: sgd, rate: 0.5, momentum: 0.9}"),
    "lstm, averaged": ("lstm", "train.save_every=2", "train.optimizer={kind: nt-asgd, rate: 3.0, patience: 1}"),
    "transformer, windows ahead": ("transformer", "train.workers=2", "train.save_every=2"),
    "elman on windows": ("elman", "read={kind: windows, length: 9}", "train.save_every=3"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_dropped_at_any_event_goes_on_as_if_it_had_not_been(case: str, tmp_path: Path) -> None:
    kind, *settings = CASES[case]
    # So little text that epochs end on the way.
    chosen = recipe(kind, "char", "data.train=12", "train.updates=14", "train.log_every=1", "train.fingerprint=true",
                    *settings)  # fmt: skip
    alone = saccade.train(chosen, tmp_path / "alone", device="cpu").finished
    expected = trace(tmp_path / "alone")
    assert len({note["fingerprint"] for note in expected["updates"]}) == alone.update == 14
    finished, stretches = train_with_drops(chosen, tmp_path / "dropped", growing(random.Random(1)))
    assert stretches >= 2
    assert trace(tmp_path / "dropped") == expected
    assert logged(tmp_path / "dropped") == logged(tmp_path / "alone")
    assert not leftovers(tmp_path / "dropped")
    assert (finished.best, finished.tokens) == (alone.best, alone.tokens)
    assert expected["progress"]["cursor"]["epoch"] >= 1
