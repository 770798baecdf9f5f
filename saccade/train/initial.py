"""Going on from another run: its tokenizer, and the weights of its encoder (`init_from` in a recipe)."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from saccade import checkpoint, disk
from saccade.checkpoint import Loaded
from saccade.config import difference, plain
from saccade.errors import SaccadeError, UsageError
from saccade.models.build import settings_of
from saccade.models.trainable import Trainable
from saccade.models.transfer import check_alike, take_encoder
from saccade.text.pair import SOURCE_FILE
from saccade.train.layer_rates import freeze_encoder

FACT = "init_from"
"""In config.json: where the first weights came from."""
_MAY_DIFFER = ("dropout", "least", "sample", "shared")
"""Settings of text that change no tokenizer that is learnt already."""


@dataclass(frozen=True)
class Initial:
    """What a run begins with."""

    name: str
    """The other run, as the recipe names it."""
    run: Path
    freeze: bool
    """The encoder stays as it is."""

    @cached_property
    def _loaded(self) -> Loaded:
        """Checked, as every model that is loaded."""
        try:
            checkpoint.RunFolder.open(self.run)
            return checkpoint.load(self.run, torch.device("cpu"))
        except SaccadeError as error:
            raise type(error)(f"init_from: {error}") from None

    def check(self, recipe: Mapping[str, Any]) -> None:
        """Refuse a recipe whose text or encoder is another than that of the run, whose weights would mean nothing."""
        tree = self._loaded.config["model"]
        encoder = getattr(settings_of(self._loaded.task, tree, str(self.run / checkpoint.CONFIG)), "encoder", None)
        if encoder is None or SOURCE_FILE not in checkpoint.files_of(self.run):
            raise UsageError(
                f"init_from: {self.name} is a run of the task {self._loaded.task} without an encoder of tokens that "
                "could be taken from it."
            )
        own, theirs = recipe["text"], self._loaded.config.get("text")
        if isinstance(theirs, dict):
            told = [
                f"{name} is {there} there and {here} here"
                for name, (here, there) in difference(own, theirs).items()
                if name not in _MAY_DIFFER
            ]
            if told:
                raise UsageError(
                    f"init_from: the text of {self.name} is cut another way: {'; '.join(told)}. Leave `text` out: the "
                    "tokenizer comes with the encoder."
                )
        check_alike(recipe["model"]["encoder"], plain(encoder), self.name)
        here, there = _beside(recipe["model"]), _beside(tree)
        if here != there:
            raise UsageError(
                f"init_from: the encoder in {self.name} is another: beside each token it reads {there} there, "
                f"{here} here (model.characters). Set model.characters as it is there."
            )

    def give_text(self, folder: Path) -> None:
        """The run's tokenizer, in the place of one that would be learnt from the data."""
        try:
            shutil.copyfile(self.run / SOURCE_FILE, folder / SOURCE_FILE)
        except OSError as error:
            raise SaccadeError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}.") from None

    def facts(self) -> dict[str, Any]:
        """What is kept of it in config.json."""
        return {FACT: {"run": self.name, "sha256": disk.checksum(self.run / checkpoint.MODEL)}}

    def take(self, model: Trainable, noted: Mapping[str, Any]) -> str:
        """Give the model its first weights; what was done, in words.

        `noted`: what `facts` gave when the run began, for one that goes on before its first checkpoint.
        """
        theirs = self._loaded
        if noted and noted.get(FACT) != self.facts()[FACT]:
            raise UsageError(
                f"init_from: the model in {self.name} is another than this run began with. Put that back, or begin "
                "anew in --out."
            )
        taken = take_encoder(model, checkpoint.model_tensors(theirs.model), self.name)
        return taken.told(self.name) + (" The encoder stays as it is." if self.freeze else "")

    def frozen(self, model: Trainable) -> None:
        if self.freeze:
            freeze_encoder(model)


def _beside(model: Mapping[str, Any]) -> str:
    """What an encoder reads of a word's characters, of which the width alone matters to its weights."""
    characters = model.get("characters")
    if not characters:
        return "nothing"
    return f"{characters.get('filters', characters.get('width'))} numbers of its characters"
