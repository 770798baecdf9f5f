"""Attention of models that have learnt a task lies where the words come from."""

import random
from dataclasses import replace

import torch

from saccade.align import AlignConfig, Aligner
from saccade.data.dates import DateExample, examples
from saccade.inspect.attention import cross_attention
from saccade.inspect.links import argmax, links_of
from saccade.lab.bottleneck import date_links
from saccade.metrics.links import Gold, alignment_scores
from saccade.models.translator import Translator
from saccade.text import CharText, TextPair, train_tokenizers
from saccade.translate import Engine
from tests.support.learning import FIRST, Example, Lesson, batch_of, taught
from tests.support.tasks import reversing


def test_who_reverses_looks_from_the_end_to_the_beginning() -> None:
    """Target j comes from source n − 1 − j, surely and alone."""
    side = {"kind": "gru", "width": 32, "embedding": 16}
    lesson = Lesson(reversing(8, 8, 10), words=8, updates=180)
    learner = taught({"encoder": side, "decoder": side | {"attention": {"score": "additive"}}}, lesson)
    draw = random.Random(7)
    tested = [lesson.task(draw) for _ in range(100)]
    assert aer(learner, tested, "output") <= 15
    assert aer(learner, tested, "intersection") <= 15
    assert aer(learner, tested, "input") >= 60  # the step that reads a letter writes the next one


def aer(learner: Translator, tested: list[Example], how: str) -> float:
    (weights_BHTS,) = cross_attention(learner, batch_of(tested))
    found, gold = [], []
    for weights_HTS, (source, target) in zip(weights_BHTS.numpy(), tested, strict=True):
        later = how == "input"
        weights_TS = weights_HTS[0, later : len(target) + later, : len(source)]
        found.append(links_of(weights_TS, "intersection", 1.0) if how == "intersection" else argmax(weights_TS))
        gold.append(Gold.of((len(source) - 1 - j, j) for j in range(len(target))))
    return alignment_scores(found, gold)["aer"].value


def test_who_reads_dates_looks_at_what_decides() -> None:
    """Dates in numbers alone, as 14.09.57, which are learnt in seconds; an untaught model has one link of ten right."""
    train, test = (
        [each for each in examples(1, split, count) if _in_numbers(each)]
        for split, count in (("train", 8000), ("test", 1500))
    )
    text = train_tokenizers(
        CharText(size=400), (each.source for each in train), (each.target for each in train), seed=1
    )

    def task(draw: random.Random) -> Example:
        return _ids(draw.choice(train), text)

    side = {"kind": "gru", "width": 64, "embedding": 32}
    model = {"encoder": side, "decoder": side | {"attention": {"score": "additive"}}}
    lesson = Lesson(task, words=text.source.size - FIRST, updates=250)
    before = date_links(_aligner(taught(model, replace(lesson, updates=1)), text), test)
    after = date_links(_aligner(taught(model, lesson), text), test)
    assert before["aer"].value >= 70
    assert after["aer"].value <= 20
    assert after["precision"].value >= 80


def _in_numbers(each: DateExample) -> bool:
    return len(each.source) <= 10 and not any(character.isalpha() for character in each.source)


def _ids(each: DateExample, text: TextPair) -> Example:
    return tuple([token - FIRST for token in text.source.encode(side)] for side in (each.source, each.target))  # type: ignore[return-value]


def _aligner(learner: Translator, text: TextPair) -> Aligner:
    return Aligner(Engine(learner, text, torch.device("cpu")), AlignConfig(unit="token"))
