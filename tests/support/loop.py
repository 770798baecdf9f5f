"""The training loop alone: a small model, batches made by hand, and a validation that says what it is told to."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, repeat

import torch
from torch import Tensor

from saccade.config import override, parse
from saccade.data.batching import Cursor
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.train.events import LoopEvent
from saccade.train.loop import Progress, Stream, Trainer
from saccade.train.numerics import seed_everything
from saccade.train.optimizer import make_optimizer
from saccade.train.settings import TrainConfig
from saccade.types import END, Batch, Tokens

VOCABULARY = 11
SHORT = Batch(Tokens.of([[4, END]]), Tokens.of([[5, END]]))
WIDE = Batch(
    Tokens.of([[4, 5, 6, END], [7, END], [8, 9, END], [10, END]]),
    Tokens.of([[6, 5, 4, 7, 8, 9, 10, END], [7, END], [9, 8, END], [10, 4, 4, END]]),
)
LONG = Batch(Tokens.of([[4, 4, 5, 5, 6, 6, END]]), Tokens.of([[6, 6, 5, 5, 4, 4, END]]))


def joined(*batches: Batch) -> Batch:
    def side(tokens: Iterable[Tokens]) -> Tokens:
        rows = [
            ids[:length].tolist()
            for each in tokens
            for ids, length in zip(each.ids, each.layout.lengths_B.tolist(), strict=True)
        ]
        return Tokens.of(rows)

    return Batch(side(each.source for each in batches), side(each.target for each in batches))


def model(*, dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> Translator:
    """Always the same first weights."""
    side = {"kind": "lstm", "width": 6, "dropout": dropout}
    config = parse(TranslatorConfig, {"encoder": side, "decoder": {**side, "attention": {"score": "additive"}}})
    seed_everything(0)
    return build_translator(config, VOCABULARY, VOCABULARY).to(dtype)


def settings(*given: str) -> TrainConfig:
    """Plain gradient descent of rate 1, unclipped, unless something else is given."""
    tree = {"optimizer": {"kind": "sgd"}, "schedule": {"kind": "constant"}, "clip": None}
    for setting in given:
        tree = override(tree, setting)
    return parse(TrainConfig, tree)


def endless(*batches: Batch) -> Stream:
    return ((Cursor(0, at + 1), batches[at % len(batches)]) for at in count())


@dataclass
class Rig:
    """One training with everything in hand."""

    config: TrainConfig
    translator: Translator = field(default_factory=model)
    progress: Progress = field(default_factory=Progress)
    losses: Iterator[dict[str, float]] = field(default_factory=lambda: repeat({"loss": 1.0}))
    """What validation will say."""
    stop: Callable[[], bool] = lambda: False

    def run(self, *batches: Batch) -> list[LoopEvent]:
        return list(self.events(*batches))

    def events(self, *batches: Batch) -> Iterator[LoopEvent]:
        return self.trainer().run(endless(*(batches or (SHORT,))), lambda: next(self.losses), self.stop)

    def trainer(self) -> Trainer:
        return Trainer(
            self.translator,
            make_optimizer(self.config.optimizer, self.translator),
            self.config,
            self.progress,
            seed=1,
            width=64,
            device=torch.device("cpu"),
        )

    def moved(self) -> Tensor:
        """All weights' way from where they began, end to end."""
        pairs = zip(self.translator.parameters(), model().parameters(), strict=True)
        return torch.cat([(now.detach() - then.detach()).flatten() for now, then in pairs])
