"""Scoring in pieces = scoring at once, for a recurrent model, one with input feeding, and a Transformer."""

from pathlib import Path

import pytest
import torch

import saccade
from saccade import evaluate
from saccade.types import END, Batch, Tokens
from tests.support.tiny import MODELS, recipe, write_corpus

KINDS = {**MODELS, "lstm, nothing fed": {**MODELS["lstm"], "decoder": {"kind": "lstm", "width": 8, "attention": {}}}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_target_is_scored_as_if_at_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = saccade.train(recipe(write_corpus(tmp_path / "data"), KINDS[kind], "train.updates=2"), tmp_path / "run")
    model = run.load("cpu")
    sources, targets = ["abc", "hgfedcba", "c"], ["cba", "abcdefghabcdefgh", ""]
    monkeypatch.setattr(evaluate, "SCORED_AT_ONCE", 5)
    scored = list(model.score(sources, targets))
    for source, target, one in zip(sources, targets, scored, strict=True):
        text = model.engine.text
        gold = [*text.target.encode(target), END]
        batch = Batch(Tokens.of([[*text.source.encode(source), END]]), Tokens.of([gold]))
        with torch.inference_mode():
            log_p_TV = model.engine.model(batch)[0].log_softmax(-1)
        expected = [log_p_TV[t, token].item() for t, token in enumerate(gold)]
        assert one.token_log_probabilities == pytest.approx(expected, abs=1e-5)
        assert one.log_probability == pytest.approx(sum(expected), abs=1e-4)


def test_a_reference_that_is_given_again_makes_nothing_surer(tmp_path: Path) -> None:
    run = saccade.train(recipe(write_corpus(tmp_path / "data"), MODELS["lstm"], "train.updates=2"), tmp_path / "run")
    model = run.load("cpu")
    sources, targets = ["abc", "hgfedcba", "c", "de"], ["cba", "abc", "g", "ed"]
    once = model.evaluate(sources, targets, metrics=["perplexity"])["perplexity"]
    thrice = model.evaluate(sources, [[each] * 3 for each in targets], metrics=["perplexity"])["perplexity"]
    assert (thrice.value, thrice.low, thrice.high) == pytest.approx((once.value, once.low, once.high), rel=1e-6)
    assert (once.signature, thrice.signature) == ("nrefs:1|per:token|end:yes", "nrefs:3|per:token|end:yes")
