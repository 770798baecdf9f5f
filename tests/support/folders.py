"""A finished run to take apart, and what its model weighs."""

from pathlib import Path

import torch
from torch import Tensor

import saccade
from saccade import checkpoint
from saccade.checkpoint import model_tensors
from tests.support.tiny import recipe, write_corpus

CPU = torch.device("cpu")


def finished_run(folder: Path) -> Path:
    """A small run with a tokenizer for each side, tied weights and two checkpoints."""
    corpus = write_corpus(folder / "corpus")
    chosen = recipe(corpus, "transformer", "text.shared=false", "train.save_every=4", "train.updates=8")
    return saccade.train(chosen, folder / "run", device="cpu").path


def weights(run: Path) -> dict[str, Tensor]:
    return model_tensors(checkpoint.load(run, CPU).model)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def shifted(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor + 1.0 for name, tensor in tensors.items()}
