"""A model and data → numbers: metrics of its outputs, and the probabilities it gives to outputs of others."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.lines import Source, Translation
from saccade.metrics.interval import Confidence, bootstrap_sums, resampling
from saccade.metrics.lines import References, how_many, paired, ratio
from saccade.metrics.measure import measure
from saccade.metrics.names import USUAL, MetricName
from saccade.metrics.score import Score
from saccade.translate import Engine
from saccade.types import END, Batch, Tokens

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


def evaluate(
    engine: Engine,
    sources: Sequence[str],
    references: References,
    *,
    metrics: Sequence[MetricName] = USUAL,
    decode: DecodeConfig,
    batch_tokens: int = 4096,
    confidence: Confidence = True,
) -> Evaluation:
    """Translate the sources and score the raw text against the references, of which a source may have several."""
    if "perplexity" in metrics:
        _check_probabilities(engine)
    if len(sources) != len(references):
        raise UsageError(f"there are {len(sources)} sources and {len(references)} references; give as many of each.")
    translations = engine.translate(sources, decode, batch_tokens)
    outputs = [each.text for each in translations]
    scores = tuple(
        perplexity(engine, sources, references, batch_tokens, confidence=confidence)
        if name == "perplexity"
        else measure(name, outputs, references, confidence=confidence)
        for name in metrics
    )
    return Evaluation(tuple(metrics), scores, tuple(translations))


def perplexity(
    engine: Engine,
    sources: Sequence[str],
    references: References,
    batch_tokens: int = 4096,
    *,
    confidence: Confidence = True,
) -> Score:
    """Of a token of the references, END included; where there are several for a source, of all of them.

    The interval is that of resampled sources, each with all of its references.
    """
    _check_probabilities(engine)
    rows = paired("perplexity", sources, references)
    pairs = [(source, each) for source, right in rows for each in right]
    scored = score(engine, [source for source, _ in pairs], [target for _, target in pairs], batch_tokens)
    costs = ((-each.log_probability, len(each.tokens)) for each in scored)
    counts = np.array([np.sum(list(islice(costs, len(right))), axis=0) for _, right in rows])
    value = float(np.exp(ratio(counts.sum(0, keepdims=True)))[0])
    low = high = math.nan
    if how := resampling(confidence, len(counts)):
        low, high = bootstrap_sums(counts, lambda sums: np.exp(ratio(sums)), samples=how.samples, seed=how.seed)
    return Score("perplexity", value, low, high, f"{how_many(rows)}|per:token|end:yes", len(sources))


def _check_probabilities(engine: Engine) -> None:
    if engine.partners is not None and not engine.partners.normalised:
        raise UsageError(
            "perplexity: scores of a model that is fused with a language model are no log-probabilities, so they have "
            "no perplexity. Leave it out of the metrics, or leave out the language model."
        )


def decoded_metrics(
    engine: Engine,
    sources: Sequence[str],
    references: References,
    *,
    metrics: Sequence[MetricName],
    decode: DecodeConfig,
) -> dict[str, float]:
    """What validation reports of outputs decoded greedily, within the limits of `decode`; perplexity is not decoded."""
    translations = engine.translate(sources, decode.greedily(), batch_tokens=8192)
    engine.forget()  # training needs all the memory there is
    outputs = [each.text for each in translations]
    wanted = [name for name in dict.fromkeys(metrics) if name != "perplexity"]
    return {name: measure(name, outputs, references, confidence=False).value for name in wanted}


@dataclass(frozen=True)
class Scored:
    """How probable a given output is: the natural logarithm, token by token, END last."""

    log_probability: float
    token_log_probabilities: tuple[float, ...]
    tokens: tuple[str, ...]
    cut: bool = False
    """Whether the source was longer than the model reads: the rest of it was not read."""

    @property
    def perplexity(self) -> float:
        return float(torch.tensor(-self.log_probability / len(self.token_log_probabilities)).exp())


Encoded = tuple[Source, list[int]]


@torch.inference_mode()
def score(engine: Engine, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096) -> Iterator[Scored]:
    """The probability of each target given its source, in order. Sources are read as far as `translate` reads them."""
    for rows in _batches(_encoded(engine, sources, targets), batch_tokens):
        gold = [target for _, target in rows]
        values_BT = _log_probabilities(engine, [source for source, _ in rows], Tokens.of(gold))
        for (source, ids), values in zip(rows, values_BT.tolist(), strict=True):
            own = tuple(values[: len(ids)])
            yield Scored(sum(own), own, tuple(engine.text.target.pieces(ids)), source.cut)


def _log_probabilities(engine: Engine, sources: Sequence[Source], target: Tokens) -> Tensor:
    """(B, T) of the target's tokens. A long target goes through in pieces: no step may hold all of its logits."""
    read, state = engine.begin(sources, target.layout.longest, forced=True)
    before_BT, gold_BT = Batch(target, target).decoder_input.ids.to(engine.device), target.ids.to(engine.device)
    picked = []
    for begin in range(0, target.layout.longest, SCORED_AT_ONCE):
        some = slice(begin, begin + SCORED_AT_ONCE)
        logits_BTV, state = read(before_BT[:, some], state)
        log_p_BTV = logits_BTV.float().log_softmax(-1)
        picked.append(log_p_BTV.gather(-1, gold_BT[:, some, None]).squeeze(-1).cpu())
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
