"""A model and data → what its searches miss: beams of many widths beside the exact mode, under each length rule."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, TypedDict, get_args

import torch

from saccade import config
from saccade.decode.exact import Exact, ExactRule, exact_search
from saccade.decode.scores import LengthRule, normalised
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.lines import Output, Source
from saccade.metrics.lines import References, paired
from saccade.metrics.measure import measure
from saccade.metrics.names import LESS_IS_BETTER, TextMetric
from saccade.translate import Engine
from saccade.types import Hypothesis

BEAMS = (1, 2, 5, 10, 30, 100)
LENGTHS = ("none", "average", "gnmt")
EXPANSIONS = 2000
TOLERANCE = 1e-4
"""An output whose score is no more than this below the mode's is no search error: it is equal but for rounding."""
SIDE_BY_SIDE = 128
"""Sentences that are encoded together for exact search."""
_PLAIN = frozenset({"beam", "n_best", "length", "alpha", "max_length", "ratio", "extra", "stop"})
"""Settings of the search that leave open which outputs there are, and rank them by log-probability and length alone."""


class SearchOptions(TypedDict, total=False):
    """What may be asked of a report: see `search_report`."""

    decode: DecodeConfig
    beams: Sequence[int]
    lengths: Sequence[str]
    metrics: Sequence[TextMetric]
    expansions: int
    seconds: float | None
    batch_tokens: int
    progress: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one way to search has found, over all lines."""

    log_probability: float
    """The mean over lines of the summed log-probability of an output."""
    score: float
    """The mean of what was ranked by."""
    unfinished: int
    """Outputs that were cut off at the limit. They have no place among those that END closes."""
    empty: int
    length_ratio: float
    """Tokens of all outputs ÷ tokens of the references, without END; of several references the nearest in length."""
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class BeamOutcome(Outcome):
    beam: int
    errors: int
    """Of the lines whose mode is proved those whose output is not the mode nor equal to it: see `TOLERANCE`.

    An unfinished output is one of them.
    """


@dataclass(frozen=True, kw_only=True)
class ExactOutcome(Outcome):
    """Modes, and where the budget ran out the best that was found: at least as good as every beam's."""

    proved: int
    """Lines whose mode is proved."""
    empty_modes: int
    """Lines whose mode is proved to be the empty output."""
    expansions: int
    """Prefixes stepped, over all lines."""


@dataclass(frozen=True)
class Mode:
    """What exact search says of one line."""

    source: str
    text: str
    """The mode's, or that of the best that was found."""
    log_probability: float
    score: float
    proved: bool
    bound: float
    """No output scores more."""
    empty_log_probability: float
    expansions: int


@dataclass(frozen=True)
class RuleReport:
    """All searches that rank by one score."""

    length: LengthRule
    alpha: float
    exact: ExactOutcome
    beams: tuple[BeamOutcome, ...]
    modes: tuple[Mode, ...]

    @property
    def name(self) -> str:
        return rule_name(self.length, self.alpha)

    @property
    def verdict(self) -> str:
        """What width does here, in a sentence."""
        metric = next(iter(self.exact.metrics))
        sign = -1.0 if metric in LESS_IS_BETTER else 1.0
        best = max(self.beams, key=lambda each: sign * round(each.metrics[metric], 1))
        first, last = self.beams[0], self.beams[-1]
        lines = len(self.modes)
        told = f"{metric} {best.metrics[metric]:.1f} at beam {best.beam}, {last.metrics[metric]:.1f} at {last.beam}"
        widest = f"{metric} is best at the widest beam, {last.beam}" if best is last else f"at best {told}"
        ratio = f"length ratio {first.length_ratio:.2f} → {last.length_ratio:.2f} from beam {first.beam} to {last.beam}"
        proved = self.exact.proved
        empty = self.exact.empty_modes
        found = f"of {proved} proved modes {empty} are empty and {last.errors} missed at beam {last.beam}"
        missed = found if proved else "no mode proved"
        unproved = "" if proved == lines else f" ({lines - proved} of {lines} lines ran out of budget)"
        return f"{self.name}: {widest}; {ratio}; {missed}{unproved}."


@dataclass(frozen=True)
class SearchReport:
    rules: tuple[RuleReport, ...]
    lines: int
    empty_sources: int
    """Lines that were left out: nothing is searched for an empty one."""
    cut_sources: int
    """Lines that were longer than the model reads: the rest of each was not read."""
    signatures: dict[str, str | None]
    expansions: int
    seconds: float | None
    decode: dict[str, Any]
    """Limits and stop rule of all searches."""
    device: str
    tolerance: float = TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, every line's mode included."""
        return asdict(self) | {"verdicts": [each.verdict for each in self.rules]}


def rule_name(length: str, alpha: float) -> str:
    """`none`, `average`, `gnmt=0.6`: as `parse_rule` reads it."""
    return length if length == "none" or alpha == 1.0 else f"{length}={alpha:g}"


def parse_rule(text: str) -> tuple[LengthRule, float]:
    """`gnmt=0.6` → the rule and its α, which is 1 where it is not said."""
    name, equals, value = text.strip().partition("=")
    known = {str(each): each for each in get_args(LengthRule)}
    try:
        alpha = float(value) if equals else 1.0
    except ValueError:
        alpha = -1.0
    if name not in known or not 0.0 <= alpha < float("inf") or (name == "none" and equals):
        raise UsageError(
            f"lengths: {text!r} must be one of {', '.join(known)}, where it has an exponent with it, as gnmt=0.6."
        )
    return known[name], alpha


@dataclass(frozen=True)
class _Data:
    """Lines to search, and what is right of them."""

    sources: list[Source]
    texts: list[str]
    """As they were given, with their parses."""
    references: list[tuple[str, ...]]
    lengths: list[list[int]] = field(repr=False)
    """Tokens of each reference."""


def search_report(
    engine: Engine,
    sources: Sequence[str],
    references: References,
    *,
    decode: DecodeConfig,
    beams: Sequence[int] = BEAMS,
    lengths: Sequence[str] = LENGTHS,
    metrics: Sequence[TextMetric] = ("bleu", "chrf"),
    expansions: int = EXPANSIONS,
    seconds: float | None = None,
    batch_tokens: int = 4096,
    progress: Callable[[str], None] = lambda _: None,
) -> SearchReport:
    """Search all lines with every beam and exactly, ranked by every length rule.

    `decode` gives the limits and the stop rule; its beam and length rule are not heard. `expansions` and `seconds` are
    what exact search may spend on one line under one rule: see `decode.exact.ExactRule`. It begins with the best that
    any of the beams has found.
    """
    if engine.judge is not None:
        raise UsageError("a model that ranks whole outputs anew leaves no search to report of; leave it out.")
    rules = [parse_rule(text) for text in lengths]
    _check(beams, rules, metrics, decode)
    data, empty = _read(engine, sources, references)
    configs = {
        (rule, beam): _config(decode, beam, *rule)  # before anything is searched: a wrong one is refused at once
        for rule in rules
        for beam in beams
    }
    found: dict[tuple[tuple[LengthRule, float], int], tuple[list[Output], float]] = {}
    for (rule, beam), searched in configs.items():
        began = time.perf_counter()
        translations = engine.translate(data.texts, searched, batch_tokens)
        outputs = [each.hypotheses[0] for each in translations]
        found[rule, beam] = outputs, time.perf_counter() - began
        progress(f"{rule_name(*rule)}: beam {beam}, {found[rule, beam][1]:.1f} s")
    reports = []
    for rule in rules:
        exact_rule = ExactRule(*rule, expansions=expansions, seconds=seconds)
        best = [_best(row, exact_rule) for row in zip(*(outputs for outputs, _ in found.values()), strict=True)]
        began = time.perf_counter()
        exact = modes(engine, data.sources, decode, exact_rule, best, progress=progress)
        spent = time.perf_counter() - began
        beamed = {beam: found[rule, beam] for beam in beams}
        reports.append(_report(engine, data, rule, metrics, beamed, exact, spent))
    texts = [each.text for each in outputs]
    signatures: dict[str, str | None] = {
        str(name): measure(name, texts, data.references, confidence=False).signature for name in metrics
    }
    heard = _PLAIN - {"beam", "n_best", "length", "alpha"}
    limits = {name: value for name, value in decode.model_dump().items() if name in heard}
    return SearchReport(
        tuple(reports),
        len(data.sources),
        empty,
        sum(source.cut for source in data.sources),
        signatures,
        expansions,
        seconds,
        limits,
        str(engine.device),
    )


def _check(
    beams: Sequence[int], rules: Sequence[tuple[str, float]], metrics: Sequence[str], decode: DecodeConfig
) -> None:
    for name, given in (("beams", beams), ("lengths", rules), ("metrics", metrics)):
        if not given or len(set(given)) < len(given):
            raise UsageError(f"{name}: must be at least one, each once; got {list(given)}.")
    if "perplexity" in metrics:
        raise UsageError("metrics: perplexity is not of outputs; no search changes it. Leave it out.")
    if sorted(beams) != list(beams):
        raise UsageError(f"beams: must be in ascending order; got {list(beams)}.")
    other = [
        f"{name}={getattr(decode, name)}"
        for name, setting in type(decode).model_fields.items()
        if name not in _PLAIN and getattr(decode, name) != setting.get_default(call_default_factory=True)
    ]
    if other:
        raise UsageError(
            f"decode: {', '.join(other)} changes which output is the best, which exact search knows nothing of: leave "
            "it out, or set it back to its default by --decode."
        )


def _config(decode: DecodeConfig, beam: int, length: LengthRule, alpha: float) -> DecodeConfig:
    chosen = {"beam": beam, "n_best": 1, "length": length, "alpha": alpha}
    return config.parse(DecodeConfig, config.plain(decode) | chosen, f"beam {beam}", whole="decode")


def _read(engine: Engine, sources: Sequence[str], references: References) -> tuple[_Data, int]:
    pairs = paired("search_report", sources, references)
    read = engine.read(sources)
    kept = [i for i, source in enumerate(read) if source.text]
    if not kept:
        raise UsageError("there is nothing to search: no line holds anything.")
    right = [tuple(pairs[i][1]) for i in kept]
    tokens = iter(engine.text.target.encode_batch([each for row in right for each in row]))
    lengths = [[len(next(tokens)) for _ in row] for row in right]
    return _Data([read[i] for i in kept], [sources[i] for i in kept], right, lengths), len(read) - len(kept)


def _best(outputs: Sequence[Output], rule: ExactRule) -> Hypothesis | None:
    """Of what the beams have found for a line the best by the rule, of those that ended."""
    ended = [
        Hypothesis(
            each.tokens,
            normalised(each.log_probability, len(each.token_log_probabilities), rule.length, rule.alpha),
            each.log_probability,
            each.token_log_probabilities,
            each.ended,
        )
        for each in outputs
        if each.ended
    ]
    return max(ended, key=lambda each: each.score, default=None)


@torch.inference_mode()
def modes(
    engine: Engine,
    sources: Sequence[Source],
    decode: DecodeConfig,
    rule: ExactRule,
    found: Sequence[Hypothesis | None] | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Exact]:
    """The exact search of each source, within the limits of `decode`; those of like length side by side."""
    if engine.device.type == "cuda":  # half of what is free: the rest is for a round's own copies and logits
        rule = replace(rule, memory=torch.cuda.mem_get_info(engine.device)[0] // 2)
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i].ids))
    known = [None] * len(sources) if found is None else found
    results: dict[int, Exact] = {}
    for begin in range(0, len(order), SIDE_BY_SIDE):
        rows = order[begin : begin + SIDE_BY_SIDE]
        limits = [decode.limit(len(sources[i].ids)) for i in rows]
        step, state = engine.begin([sources[i] for i in rows], max(limits))
        exact = exact_search(step, state, limits=limits, rule=rule, found=[known[i] for i in rows])
        results |= zip(rows, exact, strict=True)
        proved = sum(each.proved for each in results.values())
        progress(f"{rule_name(rule.length, rule.alpha)}: exact, {len(results)}/{len(sources)} lines, {proved} proved")
    return [results[i] for i in range(len(sources))]


def _report(
    engine: Engine,
    data: _Data,
    rule: tuple[LengthRule, float],
    metrics: Sequence[TextMetric],
    beamed: dict[int, tuple[list[Output], float]],
    exact: list[Exact],
    seconds: float,
) -> RuleReport:
    found = [each.best for each in exact]
    texts = ["" if each is None else engine.as_text(each.tokens) for each in found]
    beams = tuple(
        BeamOutcome(
            beam=beam,
            errors=sum(map(_missed, outputs, exact)),
            **_outcome(outputs, [each.text for each in outputs], data, metrics, spent),
        )
        for beam, (outputs, spent) in beamed.items()
    )
    outcome = ExactOutcome(
        proved=sum(each.proved for each in exact),
        empty_modes=sum(each.is_empty for each in exact),
        expansions=sum(each.expansions for each in exact),
        **_outcome(found, texts, data, metrics, seconds),
    )
    told = tuple(
        Mode(
            source.text,
            text,
            float("-inf") if each.best is None else each.best.log_probability,
            float("-inf") if each.best is None else each.best.score,
            each.proved,
            each.bound,
            each.empty,
            each.expansions,
        )
        for source, text, each in zip(data.sources, texts, exact, strict=True)
    )
    return RuleReport(*rule, outcome, beams, told)


def _missed(output: Output, exact: Exact) -> bool:
    if not exact.proved or exact.best is None or (output.ended and output.tokens == exact.best.tokens):
        return False
    return not output.ended or output.score < exact.best.score - TOLERANCE


def _outcome(
    found: Sequence[Output | Hypothesis | None],
    texts: list[str],
    data: _Data,
    metrics: Sequence[TextMetric],
    seconds: float,
) -> dict[str, Any]:
    there = [each for each in found if each is not None]
    lengths = [0 if each is None else len(each.tokens) for each in found]
    nearest = [
        min(right, key=lambda length, mine=mine: (abs(length - mine), length))  # type: ignore[misc]
        for mine, right in zip(lengths, data.lengths, strict=True)
    ]
    return {
        "log_probability": fmean(each.log_probability for each in there) if there else float("nan"),
        "score": fmean(each.score for each in there) if there else float("nan"),
        "unfinished": len(found) - sum(each.ended for each in there),
        "empty": sum(each.ended and not each.tokens for each in there),
        "length_ratio": sum(lengths) / sum(nearest) if sum(nearest) else float("nan"),
        "metrics": {name: measure(name, texts, data.references, confidence=False).value for name in metrics},
        "seconds": seconds,
    }
