"""What is compared: runs, which are asked for their outputs on the spot, and outputs that are there already."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade import checkpoint, config
from saccade.compare.testset import BETWEEN, Lines, read_file, reads_parse
from saccade.device import pick_device
from saccade.errors import UsageError
from saccade.model import Model
from saccade.text.tags import Scheme

WARM_UP = 64
"""Lines that a model is asked for before its speed is measured."""
SHORT, PASSES = 1.0, 3
"""A pass over all lines of fewer seconds than SHORT is made so often; the median is told."""


@dataclass(frozen=True)
class Asked:
    """How runs decode; None: each as its own recipe says."""

    beam: int | None = None
    length_penalty: float | None = None
    max_length: int | None = None
    settings: tuple[str, ...] = ()
    batch_tokens: int = 4096
    device: str = "auto"

    @property
    def changes(self) -> bool:
        return self.settings != () or any(v is not None for v in (self.beam, self.length_penalty, self.max_length))


@dataclass(frozen=True)
class Produced:
    """What a run made of the test set, and what that took."""

    outputs: list[str]
    """A line each; of a language model none."""
    surprise: dict[str, NDArray[np.float64]]
    """Of a language model, line by line: nats, words, bytes."""
    parameters: int
    seconds: float
    tokens: int
    """Written by a translator, read by others."""
    decode: dict[str, Any] | None
    device: str
    scheme: Scheme = "none"
    """How a tagger writes spans."""
    cut: int = 0
    """Lines that were longer than it reads: the rest of each was not read."""


def produce(run: Path, lines: Lines, asked: Asked) -> Produced:
    """Ask a run for all lines: some to warm up, then all of them, timed."""
    model = Model(checkpoint.load(run, pick_device(asked.device)))
    if asked.changes and model.task != "translate":
        raise UsageError(f"{run}: is a run of the task {model.task}, which does not search: leave out how to decode.")
    match model.task:
        case "translate":
            return _translated(model, lines, asked)
        case "tag":
            return _tagged(model, lines, asked)
        case "classify":
            return _classified(model, lines, asked)
        case _:
            return _read(model, lines, asked)


def _translated(model: Model, lines: Lines, asked: Asked) -> Produced:
    decode = model.decoding(
        beam=asked.beam,
        n_best=1,
        length_penalty=asked.length_penalty,
        max_length=asked.max_length,
        settings=asked.settings,
    )
    inputs = lines.inputs if reads_parse(model.loaded) else lines.sources

    def translate(some: Sequence[str]) -> Any:
        return model.engine.translate(some, decode, asked.batch_tokens)

    made, seconds = _timed(translate, inputs, model.loaded.device)
    outputs = [each.text for each in made]
    tokens = sum(len(each.hypotheses[0].token_log_probabilities) for each in made)
    where, cut = str(model.loaded.device), sum(each.cut for each in made)
    return Produced(outputs, {}, model.parameters, seconds, tokens, config.plain(decode), where, cut=cut)


def _tagged(model: Model, lines: Lines, asked: Asked) -> Produced:
    sentences = [line.split(BETWEEN) for line in lines.inputs]

    def tag(some: Sequence[Sequence[str]]) -> Any:
        return model.tagger.best_tags(some, batch_words=asked.batch_tokens)

    made, seconds = _timed(tag, sentences, model.loaded.device)
    outputs = [" ".join(tags) for tags in made]
    words, scheme = sum(map(len, sentences)), model.tagger.tags.scheme
    return Produced(outputs, {}, model.parameters, seconds, words, None, str(model.loaded.device), scheme)


def _classified(model: Model, lines: Lines, asked: Asked) -> Produced:
    engine = model.classifier

    def classify(some: Sequence[str]) -> Any:
        return engine.classify(some, batch_tokens=asked.batch_tokens)

    made, seconds = _timed(classify, lines.inputs, model.loaded.device)
    tokens = sum(len(line.split()) for line in lines.inputs)
    outputs, cut = [each.label for each in made], sum(each.cut for each in made)
    return Produced(outputs, {}, model.parameters, seconds, tokens, None, str(model.loaded.device), cut=cut)


def _read(model: Model, lines: Lines, asked: Asked) -> Produced:
    def read(some: Sequence[str]) -> Any:
        return list(model.writer.score(some, asked.batch_tokens))

    made, seconds = _timed(read, lines.inputs, model.loaded.device)
    counted = {
        "nats": np.array([each.perplexity.nll for each in made]),
        "words": np.array([each.perplexity.counts.words for each in made], dtype=np.float64),
        "bytes": np.array([each.perplexity.counts.bytes for each in made], dtype=np.float64),
    }
    tokens = sum(len(each.tokens) for each in made)
    return Produced([], counted, model.parameters, seconds, tokens, None, str(model.loaded.device))


def _timed(ask: Callable[[Any], Any], inputs: Sequence[Any], device: torch.device) -> tuple[Any, float]:
    """What is made of the inputs, and the seconds of a pass.

    Rubbish of what ran before is collected first, and none meanwhile: or else whoever comes first pays for all that
    was imported and read until then.
    """
    ask(inputs[:WARM_UP])
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        made, seconds = _pass(ask, inputs, device)
        passes = [seconds]
        while seconds < SHORT and len(passes) < PASSES:
            passes.append(_pass(ask, inputs, device)[1])
    finally:
        if collects:
            gc.enable()
    return made, median(passes)


def _pass(ask: Callable[[Any], Any], inputs: Sequence[Any], device: torch.device) -> tuple[Any, float]:
    _wait(device)
    begin = time.perf_counter()
    made = ask(inputs)
    _wait(device)
    return made, time.perf_counter() - begin


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def outputs_of(given: Path | Sequence[str], name: str, lines: Lines) -> list[str]:
    """Outputs that are there already: as many as the test set has lines."""
    outputs = read_file(given) if isinstance(given, Path) else [str(line) for line in given]
    if len(outputs) != len(lines.sources):
        raise UsageError(
            f"{name} has {len(outputs):,} lines and the test set ({lines.origin}) {len(lines.sources):,}; a system "
            "needs one output for every line, in the same order."
        )
    return outputs
