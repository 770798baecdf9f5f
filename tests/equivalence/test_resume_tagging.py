"""A tagger's training that was dropped goes on as if it had not been, bit for bit."""

import random
from itertools import count
from pathlib import Path

import pytest

import saccade
from saccade.train.events import Finished
from tests.support.killing import leftovers, logged, trace
from tests.support.tagging import tag_recipe, write_tagged

CASES = {
    "lstm, cnn, crf": ("lstm, cnn, crf", "train.save_every=3", "train.metric=f1", "text.unknown=0.7"),
    "gru, lstm, crf, ahead": ("gru, lstm, crf", "train.save_every=3", "train.workers=2", "train.accumulate=2"),
    "transformer of pieces, bf16": ("transformer of pieces", "train.save_every=5", "train.precision=bf16"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_dropped_at_any_event_goes_on_as_if_it_had_not_been(case: str, tmp_path: Path) -> None:
    model, *settings = CASES[case]
    chosen = tag_recipe(write_tagged(tmp_path / "corpus"), model, "train.log_every=1", *settings)
    alone = saccade.train(chosen, tmp_path / "alone", device="cpu").finished
    expected = trace(tmp_path / "alone")
    assert len({note["fingerprint"] for note in expected["updates"]}) == alone.update
    draw, out, drops = random.Random(1), tmp_path / "dropped", 0
    for stretch in count():
        training = saccade.training(chosen, out, resume=(out / "train.yaml").exists(), device="cpu")
        events = [event for event, _ in zip(training, range(draw.randint(1, 4) + stretch), strict=False)]
        training.close()  # type: ignore[attr-defined]
        if isinstance(events[-1], Finished):
            break
        drops += 1
    assert drops >= 2
    assert trace(out) == expected
    assert logged(out) == logged(tmp_path / "alone")
    assert not leftovers(out)
