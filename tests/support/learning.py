"""Small tasks and short training: whether a model comes to do what a mechanism is for."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from saccade.decode.greedy import greedy
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.types import END, Batch, Tokens

FIRST = 4  # the first id that is no special token
Example = tuple[list[int], list[int]]
Task = Callable[[random.Random], Example]
"""Draws a source and its target, ids from 0 on, without END."""
TESTED = 200


@dataclass(frozen=True)
class Lesson:
    """A task, and how long it is trained on."""

    task: Task
    words: int
    """Ids that source and target are made of."""
    updates: int
    rows: int = 48
    rate: float = 1e-2
    warmup: int = 1


def batch_of(examples: list[Example]) -> Batch:
    sides = [[[*(FIRST + each for each in ids), END] for ids in side] for side in zip(*examples, strict=True)]
    return Batch(Tokens.of(sides[0]), Tokens.of(sides[1]))


def taught(model: dict[str, Any], lesson: Lesson, seed: int = 0) -> Translator:
    """Trained with Adam, its rate rising at first and falling to 0 in the second half, gradients clipped to norm 1."""
    torch.manual_seed(seed)
    vocabulary = FIRST + lesson.words
    learner = build_translator(TranslatorConfig.model_validate(model), vocabulary, vocabulary).train()
    optimizer = torch.optim.Adam(learner.parameters(), lr=lesson.rate, betas=(0.9, 0.98))
    draw = random.Random(seed)
    for update in range(1, lesson.updates + 1):
        for group in optimizer.param_groups:
            left = 2 * (1 - update / (lesson.updates + 1))
            group["lr"] = lesson.rate * min(1.0, left, update / lesson.warmup)
        learner.at_update(update)
        loss = learner.loss(batch_of([lesson.task(draw) for _ in range(lesson.rows)]).packed())
        optimizer.zero_grad()
        (loss.total / loss.tokens).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
    return learner.eval()


def share_right(learner: Translator, task: Task, *, tested: int = TESTED, seed: int = 1_000_003) -> float:
    """How many of the targets it writes without a fault, greedily."""
    draw = random.Random(seed)
    examples = [task(draw) for _ in range(tested)]
    batch, longest = batch_of(examples), max(len(target) for _, target in examples) + 2
    with torch.no_grad():
        state = learner.start(learner.encode(batch.source), longest)
        found = greedy(learner.step, state, limits=[longest] * tested)
    written = [[token - FIRST for token in hypotheses[0].tokens] for hypotheses in found]
    return sum(mine == target for mine, (_, target) in zip(written, examples, strict=True)) / tested


def learnt(model: dict[str, Any], lesson: Lesson, seed: int = 0) -> float:
    return share_right(taught(model, lesson, seed), lesson.task)
