"""A model and data → numbers: metrics of its outputs, and the probabilities it gives to outputs of others."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.metrics.score import Score
from saccade.metrics.text import bleu, chrf, exact_match
from saccade.models.translator import Translator
from saccade.text import TextPair
from saccade.translate import Engine, Source, Translation, as_tokens
from saccade.types import END, Batch, Tokens

MetricName = Literal["bleu", "chrf", "exact_match"]
METRICS: tuple[MetricName, ...] = ("bleu", "chrf", "exact_match")
SCORED_AT_ONCE = 256
"""Target tokens that go through the model together when given outputs are scored."""


@dataclass(frozen=True)
class Evaluation:
    metrics: tuple[MetricName, ...]
    scores: tuple[Score, ...]
    translations: tuple[Translation, ...]

    def __getitem__(self, metric: MetricName) -> Score:
        if metric not in self.metrics:
            raise UsageError(f"{metric} was not computed; there are {', '.join(self.metrics)}.")
        return self.scores[self.metrics.index(metric)]


def measure(name: MetricName, outputs: Sequence[str], references: Sequence[str], *, confidence: bool = True) -> Score:
    match name:
        case "bleu":
            return bleu(outputs, references, confidence=confidence)
        case "chrf":
            return chrf(outputs, references, confidence=confidence)
        case "exact_match":
            return exact_match(outputs, references)


def evaluate(
    engine: Engine,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName] = METRICS,
    decode: DecodeConfig,
    batch_tokens: int = 4096,
) -> Evaluation:
    """Translate the sources and score the raw text against the references."""
    translations = engine.translate(sources, decode, batch_tokens)
    outputs = [each.text for each in translations]
    scores = tuple(measure(name, outputs, references) for name in metrics)
    return Evaluation(tuple(metrics), scores, tuple(translations))


def decoded_metrics(
    model: Translator, text: TextPair, sources: list[str], references: list[str], *, device: torch.device
) -> dict[str, float]:
    """What validation reports of greedily decoded outputs."""
    translations = Engine(model, text, device).translate(sources, DecodeConfig(beam=1), batch_tokens=8192)
    outputs = [each.text for each in translations]
    return {name: measure(name, outputs, references, confidence=False).value for name in METRICS}


@dataclass(frozen=True)
class Scored:
    """How probable a given output is: the natural logarithm, token by token, END last."""

    log_probability: float
    token_log_probabilities: tuple[float, ...]
    tokens: tuple[str, ...]

    @property
    def perplexity(self) -> float:
        return float(torch.tensor(-self.log_probability / len(self.token_log_probabilities)).exp())


Encoded = tuple[Source, list[int]]


@torch.inference_mode()
def score(engine: Engine, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096) -> Iterator[Scored]:
    """The probability of each target given its source, in order. Sources are read as far as `translate` reads them."""
    for rows in _batches(_encoded(engine, sources, targets), batch_tokens):
        gold = [target for _, target in rows]
        batch = Batch(as_tokens([source for source, _ in rows]), Tokens.of(gold)).to(engine.device)
        for ids, values in zip(gold, _log_probabilities(engine, batch).tolist(), strict=True):
            own = tuple(values[: len(ids)])
            yield Scored(sum(own), own, tuple(engine.text.target.pieces(ids)))


def _log_probabilities(engine: Engine, batch: Batch) -> Tensor:
    """(B, T) of the target's tokens. A long target goes through in pieces: no step may hold all of its logits."""
    state = engine.model.start(engine.model.encode(batch.source), batch.target.layout.longest)
    picked = []
    for begin in range(0, batch.target.layout.longest, SCORED_AT_ONCE):
        some = slice(begin, begin + SCORED_AT_ONCE)
        given_BT, gold_BT = batch.decoder_input.ids[:, some], batch.target.ids[:, some]
        logits_BTV, state = engine.model.prefill(given_BT, state)
        log_p_BTV = logits_BTV.float().log_softmax(-1)
        picked.append(log_p_BTV.gather(-1, gold_BT[:, :, None]).squeeze(-1).cpu())
    return torch.cat(picked, dim=1)


def _encoded(engine: Engine, sources: Sequence[str], targets: Sequence[str], chunk: int = 256) -> Iterator[Encoded]:
    for begin in range(0, len(sources), chunk):
        some = slice(begin, begin + chunk)
        read = engine.read(sources[some], first=begin + 1)
        gold = engine.text.target.encode_batch(list(targets[some]))
        for source, target in zip(read, gold, strict=True):
            yield source, [*target, END]


def _batches(pairs: Iterable[Encoded], batch_tokens: int) -> Iterator[list[Encoded]]:
    """Neighbours together, so that the order stays, while rows × the longest side fit."""
    batch: list[Encoded] = []
    longest = 0
    for source, target in pairs:
        length = max(longest, len(source.ids), len(target))
        if batch and (len(batch) + 1) * length > batch_tokens:
            yield batch
            batch, length = [], max(len(source.ids), len(target))
        batch.append((source, target))
        longest = length
    if batch:
        yield batch
