"""Resumed = uninterrupted, bit for bit, for classifiers: of texts, of pairs read apart, of documents."""

import random
from pathlib import Path

import pytest

import saccade
from tests.equivalence.test_resume import growing, train_with_drops
from tests.support.killing import leftovers, logged, trace
from tests.support.labels import PAIRED, recipe, write_labelled_corpus

CASES = {
    "lstm": ("lstm", "train.save_every=3"),
    "apart, ahead, accumulated": ("apart", "train.save_every=3", "train.workers=2", "train.accumulate=2"),
    "apart-transformer, bf16": ("apart-transformer", "train.save_every=3", "train.precision=bf16"),
    "documents, by macro-F1": ("han", "train.save_every=4", "train.metric=macro_f1", "train.smoothing=0.1"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_dropped_at_any_event_goes_on_as_if_it_had_not_been(case: str, tmp_path: Path) -> None:
    model, *settings = CASES[case]
    paired = model in PAIRED
    corpus = write_labelled_corpus(tmp_path / "corpus", paired=paired)
    chosen = recipe(corpus, model, "train.log_every=1", *settings, paired=paired)
    alone = saccade.train(chosen, tmp_path / "alone", device="cpu").finished
    expected = trace(tmp_path / "alone")
    assert len({note["fingerprint"] for note in expected["updates"]}) == alone.update
    out = tmp_path / "dropped"
    finished, stretches = train_with_drops(chosen, out, growing(random.Random(0)))
    assert stretches >= 2
    assert trace(out) == expected
    assert logged(out) == logged(tmp_path / "alone")
    assert not leftovers(out)
    assert (finished.best_update, finished.best) == (alone.best_update, alone.best)


def test_rows_of_one_seed_come_in_one_order_and_all_of_them_every_epoch(tmp_path: Path) -> None:
    """However many threads make the batches."""
    corpus = write_labelled_corpus(tmp_path / "corpus")
    losses = []
    for workers in (0, 3):
        chosen = recipe(corpus, "gru", f"train.workers={workers}", "train.updates=5", "train.log_every=1")
        saccade.train(chosen, tmp_path / f"run-{workers}", device="cpu")
        losses.append(logged(tmp_path / f"run-{workers}"))
    assert losses[0] == losses[1]
