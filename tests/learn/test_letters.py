"""Every kind of model learns to copy or turn round strings of letters it has not seen: from files to translations."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade.recipe import Recipe, parse_recipe
from tests.support.tiny import Rewrite, copied, reversed_text, write_corpus

LETTERS = "abcdefgh"
TESTED = 200


@dataclass(frozen=True)
class Case:
    encoder: dict[str, Any]
    decoder: dict[str, Any]
    updates: int
    rewrite: Rewrite = reversed_text
    longest: int = 6
    rate: float = 1e-2


CASES = {
    "lstm, additive": Case(
        {"kind": "lstm", "width": 32},
        {"kind": "lstm", "width": 32, "attention": {"score": "additive"}},
        updates=400,
    ),
    "gru, dot, fed": Case(
        {"kind": "gru", "width": 48},
        {"kind": "gru", "width": 48, "attention": {"score": "dot"}, "feed_input": True},
        updates=400,
    ),
    "transformer, pre-norm": Case(
        {"kind": "transformer", "layers": 1, "width": 48, "heads": 4, "norm": "pre", "dropout": 0.0},
        {"kind": "transformer", "layers": 1, "width": 48, "heads": 4, "norm": "pre", "dropout": 0.0},
        updates=550,
        rate=5e-3,
    ),
    "lstm, no attention": Case(
        {"kind": "lstm", "width": 96},
        {"kind": "lstm", "width": 96},
        updates=500,
        longest=4,  # all of it goes through one vector
    ),
    "elman, general": Case(
        {"kind": "elman", "width": 48},
        {"kind": "elman", "width": 48, "attention": {"score": "general"}},
        updates=300,
        rewrite=copied,
    ),
}


def recipe_of(case: Case, corpus: Path) -> Recipe:
    files = {
        split: {"source": str(corpus / f"{split}.src"), "target": str(corpus / f"{split}.tgt")}
        for split in ("train", "valid")
    }
    tree = {
        "data": {"kind": "files", **files},
        "text": {"kind": "char"},
        "model": {"encoder": case.encoder, "decoder": case.decoder},
        "train": {
            "updates": case.updates,
            "batch_tokens": 512,
            "optimizer": {"kind": "adamw", "rate": case.rate},
            "schedule": {"kind": "cosine", "warmup": 30, "floor": 0.05},
            "validate_every": 100,
        },
    }
    return parse_recipe(tree)


def unseen(case: Case, corpus: Path) -> list[str]:
    """Strings that are in neither file."""
    seen = {line for split in ("train", "valid") for line in (corpus / f"{split}.src").read_text().splitlines()}
    draw = random.Random(9)
    drawn = ("".join(draw.choices(LETTERS, k=draw.randint(2, case.longest))) for _ in range(100 * TESTED))
    return [line for line in dict.fromkeys(drawn) if line not in seen][:TESTED]


@pytest.mark.parametrize("name", CASES)
def test_a_model_learns_what_to_do_with_letters(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    corpus = write_corpus(
        tmp_path / "corpus", train=10_000, valid=100, longest=case.longest, letters=LETTERS, rewrite=case.rewrite
    )
    saccade.train(recipe_of(case, corpus), tmp_path / "run", device="cpu")
    trained = saccade.load(tmp_path / "run", "cpu")
    lines = unseen(case, corpus)
    assert len(lines) == TESTED
    for beam in (1, 4):
        outputs = [each.text for each in trained.translate(lines, beam=beam)]
        right = sum(output == case.rewrite(line) for output, line in zip(outputs, lines, strict=True))
        assert right >= 0.95 * TESTED, f"beam {beam}: {right} of {TESTED}"


def test_scaled_token_vectors_are_learnt_sooner(tmp_path: Path) -> None:
    """Everything else alike: in as many updates a model reads whole strings through one vector, or but half of them."""
    right = {}
    for scaled in (False, True):
        side = {"kind": "lstm", "width": 64, "embedding": 16, "scale_embedding": scaled}
        case = Case(side, side, updates=400, longest=5)
        corpus = write_corpus(tmp_path / f"corpus-{scaled}", train=4_000, valid=40, shortest=2, longest=case.longest)
        run = saccade.train(recipe_of(case, corpus), tmp_path / f"run-{scaled}", device="cpu")
        lines = unseen(case, corpus)
        outputs = saccade.load(run.path, "cpu").translate(lines)
        right[scaled] = sum(output.text == line[::-1] for output, line in zip(outputs, lines, strict=True)) / TESTED
    assert right[True] > 0.85, right
    assert right[True] > right[False] + 0.2, right
