"""What each line adds to a score: the counts that are summed over the lines, and how their sums become the score.

Scores that are made this way can be measured on any part of the lines, and on thousands of resamples of them, without
reading a text again. BLEU, chrF and TER are counted by sacrebleu; their formulas stand here once more for many sums at
a time. Shapes: N lines, K counts of a line, S sums at a time, C labels.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from saccade.errors import UsageError
from saccade.metrics.brackets import bracket_counts
from saccade.metrics.edits import CHARACTERS, PHONEMES, WORDS, edit_counts
from saccade.metrics.interval import wilson_of_lines
from saccade.metrics.lines import Counts, References, f1, paired, ratio
from saccade.metrics.measure import measure
from saccade.metrics.names import LESS_IS_BETTER, TextMetric
from saccade.metrics.score import Score
from saccade.metrics.slots import slot_counts
from saccade.metrics.spans import SpanLike
from saccade.metrics.text import code_tokens

Interval = Literal["sacrebleu", "share", "percentile"]
ValueOf = Callable[[Counts], Counts]
ORDER, BETA = 4, 2
"""Of BLEU the longest n-grams; of chrF how much more recall weighs than precision."""


@dataclass(frozen=True)
class LineStatistics:
    """A metric of one system's outputs, line by line."""

    metric: str
    """Its key, as `bleu`."""
    label: str
    """How it is written, as `BLEU`."""
    counts_NK: Counts
    value_of: ValueOf
    """Sums (S, K) → the score of each, in the units that it is told in."""
    signature: str | None = None
    interval: Interval = "percentile"
    """sacrebleu: mean ± half the width of the central 95 % of resamples; share: Wilson's, by lines; percentile: that of
    resamples."""
    places: int = 1
    highest: float = 100.0

    @property
    def less_is_better(self) -> bool:
        return self.metric.partition(":")[0] in LESS_IS_BETTER

    @property
    def lines(self) -> int:
        return len(self.counts_NK)

    def value(self, rows: Sequence[int] | Counts | None = None) -> float:
        """The score of all lines, or of some."""
        some = self.counts_NK if rows is None else self.counts_NK[np.asarray(rows, dtype=np.int64)]
        return float(self.value_of(some.sum(0, keepdims=True))[0])

    def each(self) -> Counts:
        """The score of every line by itself; of BLEU with the n-grams that the line is long enough for."""
        if self.metric.partition(":")[0] in ("bleu", "bleu_code"):
            return bleu_of(self.counts_NK, smooth=True, effective=True)
        return self.value_of(self.counts_NK)

    def score(self, values_S: Counts | None = None) -> Score:
        """With its 95 % interval, where there are values of resamples."""
        low, high = (math.nan, math.nan) if values_S is None or self.lines < 2 else self._ends(values_S)
        return Score(self.label, self.value(), low, high, self.signature, self.lines, self.places)

    def _ends(self, values_S: Counts) -> tuple[float, float]:
        match self.interval:
            case "share":
                low, high = wilson_of_lines(self.counts_NK[:, :2])
                return 100 * low, 100 * high
            case "sacrebleu":
                mean, half = mean_and_half(values_S)
                return max(0.0, mean - half), min(self.highest, mean + half)
            case "percentile":
                low, high = np.quantile(values_S, [0.025, 0.975])
                return float(low), float(high)


def mean_and_half(values_S: Counts) -> tuple[float, float]:
    """What sacrebleu prints as μ ± …: of the sorted resamples a fortieth is left out at each end."""
    ordered = np.sort(values_S)
    out = len(ordered) // 40
    return float(ordered.mean()), float(0.5 * (ordered[-out - 1] - ordered[out]))


# ---- written text


def text_statistics(name: TextMetric, outputs: Sequence[str], references: References) -> LineStatistics:
    """Any metric of written text that is made of its lines."""
    [found] = text_tables(name, [outputs], references)
    return found


def text_tables(name: TextMetric, systems: Sequence[Sequence[str]], references: References) -> list[LineStatistics]:
    """The same of several systems; what sacrebleu needs to know of the references is found out once for all."""
    metric, *view = name.split(":")  # behind a colon: sacrebleu's tokenizer, or what it does to capitals
    small, told = "lc" in view, f" ({', '.join(view)})" if view else ""
    match metric:
        case "bleu":
            tokenize = next((each for each in view if each != "lc"), "13a")
            by = BLEU(tokenize=tokenize, lowercase=small, force=True)
            return _of_sacrebleu(name, f"BLEU{told}", by, systems, references, bleu_of)
        case "bleu_code":
            return _of_code(systems, references)
        case "chrf" | "chrf++":
            words = 2 if metric == "chrf++" else 0
            label = f"chrF2{'++' if words else ''}{told}"
            return _of_sacrebleu(name, label, CHRF(word_order=words, lowercase=small), systems, references, chrf_of)
        case "ter":
            cased = TER(case_sensitive="cased" in view)
            return _of_sacrebleu(name, f"TER{told}", cased, systems, references, ter_of, highest=math.inf)
        case "distinct_1" | "distinct_2":
            raise UsageError(
                f"{name} is no sum over lines: it counts what occurs anywhere in all of them, and has neither interval "
                "nor test. `saccade evaluate` tells it."
            )
        case _:
            return [_of_lines(name, outputs, references) for outputs in systems]


def _of_lines(name: TextMetric, outputs: Sequence[str], references: References) -> LineStatistics:
    match name:
        case "wer" | "cer" | "per":
            unit = {"wer": WORDS, "cer": CHARACTERS, "per": PHONEMES}[name]
            counts, signature = edit_counts(name.upper(), unit, outputs, references)
            return LineStatistics(name, name.upper(), _table(counts), _percent(ratio), signature, highest=math.inf)
        case "bracket_f1":
            trees, signature = bracket_counts(outputs, references)
            return LineStatistics(name, "bracket F1", _table(trees), _percent(f1), signature)
        case "slot_f1":
            slots, signature = slot_counts(outputs, references)
            return LineStatistics(name, "slot F1", _table(slots), _percent(f1), signature)
        case "exact_match" | "g2p_wer" | "rouge_1" | "rouge_2" | "rouge_l" | "answer_em" | "answer_f1":
            return _of_means(name, outputs, references)
        case "intent_accuracy":
            return _of_means(name, outputs, references)
        case _:
            raise UsageError(f"{name} is no metric of text that is made of its lines.")


def _of_means(name: TextMetric, outputs: Sequence[str], references: References) -> LineStatistics:
    """A mean over the lines: each line's own score, and one for the line itself."""
    pairs = paired(name, outputs, references)
    whole = measure(name, outputs, references, confidence=False)
    values = [measure(name, [output], [right], confidence=False).value / 100 for output, right in pairs]
    kind: Interval = "share" if set(values) <= {0.0, 1.0} and not math.isnan(whole.low) else "percentile"
    counts_N2 = np.stack([np.array(values, dtype=np.float64), np.ones(len(values))], axis=1)
    return LineStatistics(name, whole.name, counts_N2, _percent(ratio), whole.signature, kind)


def _of_code(systems: Sequence[Sequence[str]], references: References) -> list[LineStatistics]:
    pairs = paired("BLEU of code", systems[0], references)
    written = [[" ".join(code_tokens(output)) for output in outputs] for outputs in systems]
    right = [[" ".join(code_tokens(each)) for each in several] for _, several in pairs]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    tables = _of_sacrebleu("bleu_code", "BLEU of code", metric, written, right, partial(bleu_of, smooth=False))
    return [replace(each, signature=str(each.signature).replace("tok:none", "tok:code")) for each in tables]


def _of_sacrebleu(
    name: str,
    label: str,
    metric: BLEU | CHRF | TER,
    systems: Sequence[Sequence[str]],
    references: References,
    value_of: ValueOf,
    highest: float = 100.0,
) -> list[LineStatistics]:
    right = [several for _, several in paired(label, systems[0], references)]
    streams = [list(each) for each in zip_longest(*right)]
    # These are what its own paired tests begin with; it offers them by no other name.
    metric._ref_cache = metric._cache_references(streams)
    found = []
    for outputs in systems:
        paired(label, outputs, references)
        counts = _table(metric._extract_corpus_statistics(list(outputs), None))
        signature = str(metric.get_signature())
        found.append(LineStatistics(name, label, counts, value_of, signature, "sacrebleu", highest=highest))
    return found


def bleu_of(sums_SK: Counts, *, smooth: bool = True, effective: bool = False) -> Counts:
    """BLEU of sums: lengths of outputs and references, n-grams found, n-grams written.

    exp(mean log p_n) · min(1, exp(1 − r/c)); a p_n of 0 becomes half, a quarter, … of one found (`smooth`, NIST's).
    `effective`: n-grams longer than any line are left out of the mean, for the score of single lines.
    """
    ours_S, theirs_S = np.trunc(sums_SK[:, 0]), np.trunc(sums_SK[:, 1])
    found_SN, all_SN = sums_SK[:, 2 : 2 + ORDER], sums_SK[:, 2 + ORDER : 2 + 2 * ORDER]
    logs_S, halves_S, orders_S = np.zeros(len(sums_SK)), np.ones(len(sums_SK)), np.zeros(len(sums_SK))
    for n in range(ORDER):
        there_S, none_S = all_SN[:, n] > 0, (found_SN[:, n] == 0) & (all_SN[:, n] > 0)
        halves_S = np.where(none_S, 2 * halves_S, halves_S)
        least_S = 1 / halves_S if smooth else np.zeros(len(sums_SK))
        p_S = 100.0 * np.where(none_S, least_S, found_SN[:, n]) / np.where(there_S, all_SN[:, n], 1)
        counted_S = there_S if effective else np.ones(len(sums_SK), dtype=bool)
        with np.errstate(divide="ignore"):
            logs_S = np.where(counted_S, logs_S + np.log(p_S), logs_S)
        orders_S += counted_S
    short_S = np.where(ours_S < theirs_S, np.exp(1 - theirs_S / np.where(ours_S > 0, ours_S, 1)), 1.0)
    short_S = np.where(ours_S > 0, short_S, 0.0)
    scored: Counts = np.where(found_SN.any(1), short_S * np.exp(logs_S / np.maximum(1, orders_S)), 0.0)
    return scored


def chrf_of(sums_SK: Counts) -> Counts:
    """ChrF of sums: for each order the n-grams of outputs and references, and those found.

    F_β of the mean precision and the mean recall over the orders that both sides have.
    """
    written_SO, right_SO, found_SO = (sums_SK[:, part::3] for part in range(3))
    there_SO = (written_SO > 0) & (right_SO > 0)
    orders_S = np.maximum(1, there_SO.sum(1))
    precision_S = np.where(there_SO, found_SO / np.where(there_SO, written_SO, 1), 0.0).sum(1) / orders_S
    recall_S = np.where(there_SO, found_SO / np.where(there_SO, right_SO, 1), 0.0).sum(1) / orders_S
    both_S = BETA**2 * precision_S + recall_S
    scored: Counts = 100 * (1 + BETA**2) * precision_S * recall_S / np.where(both_S > 0, both_S, 1)
    return scored


def ter_of(sums_SK: Counts) -> Counts:
    """TER of sums: edits, and reference words; edits of nothing are 100."""
    edits_S, words_S = sums_SK[:, 0], sums_SK[:, 1]
    scored: Counts = 100 * np.where(words_S > 0, edits_S / np.where(words_S > 0, words_S, 1), edits_S > 0)
    return scored


# ---- labels, tags, probabilities


def label_statistics(
    true: Sequence[str], given: Sequence[str], labels: Sequence[str] = ()
) -> tuple[LineStatistics, LineStatistics]:
    """Accuracy and macro-F1 of one label a line (metrics/classification.py says how they are counted).

    `labels`: further labels that have a column each, so that systems with unlike answers have like tables.
    """
    names = {label: place for place, label in enumerate(sorted({*true, *given, *labels}))}
    accuracy = label_accuracy(true, given)
    right_N = accuracy.counts_NK[:, 0]
    counts_N3C = np.zeros((len(true), 3, len(names)))
    rows = np.arange(len(true))
    truth, answer = ([names[label] for label in labels] for labels in (true, given))
    counts_N3C[rows, 0, truth] = right_N
    counts_N3C[rows, 1, truth] = 1
    counts_N3C[rows, 2, answer] = 1
    return accuracy, LineStatistics("macro_f1", "macro-F1", counts_N3C.reshape(len(true), -1), _macro_f1, None)


def label_accuracy(true: Sequence[str], given: Sequence[str]) -> LineStatistics:
    right_N = np.array([one == other for one, other in zip(true, given, strict=True)], dtype=np.float64)
    counts_N2 = np.stack([right_N, np.ones(len(right_N))], axis=1)
    return LineStatistics("accuracy", "accuracy", counts_N2, _percent(ratio), None, "share")


def _macro_f1(sums_SK: Counts) -> Counts:
    right_SC, true_SC, given_SC = np.moveaxis(sums_SK.reshape(len(sums_SK), 3, -1), 1, 0)
    both_SC = true_SC + given_SC
    occurs_SC = both_SC > 0
    mean: Counts = (2 * right_SC / np.where(occurs_SC, both_SC, 1)).sum(1) / np.maximum(1, occurs_SC.sum(1))
    return 100 * mean


def tag_statistics(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> LineStatistics:
    """Accuracy of tags, over all words."""
    for number, (right, given) in enumerate(zip(gold, found, strict=True), start=1):
        if len(right) != len(given):
            raise UsageError(f"sentence {number} has {len(right)} words, but {len(given)} tags are given.")
    counts = [
        (sum(one == other for one, other in zip(right, given, strict=True)), len(right))
        for right, given in zip(gold, found, strict=True)
    ]
    return LineStatistics("accuracy", "accuracy", _table(counts), _percent(ratio), None, "share")


def span_statistics(gold: Sequence[Sequence[SpanLike]], found: Sequence[Sequence[SpanLike]]) -> LineStatistics:
    """F1 of spans: a type and both ends must be right."""
    pairs = [(set(right), set(given)) for right, given in zip(gold, found, strict=True)]
    counts = [(len(right & given), len(right), len(given)) for right, given in pairs]
    return LineStatistics("f1", "span F1", _table(counts), _percent(f1), None)


def surprise_statistics(metric: str, nll_N: Counts, units_N: Counts, signature: str, places: int = 2) -> LineStatistics:
    """Perplexity: exp of nats a unit (a word, a byte), over all lines."""
    counts_N2 = np.stack([np.asarray(nll_N, dtype=np.float64), np.asarray(units_N, dtype=np.float64)], axis=1)
    label = metric.replace("_", " ")
    return LineStatistics(
        metric, label, counts_N2, lambda sums: np.exp(np.minimum(ratio(sums), 700.0)), signature, "percentile",
        places, math.inf,
    )  # fmt: skip


def _percent(share: ValueOf) -> ValueOf:
    return lambda sums: 100 * share(sums)


def _table(counts: Sequence[Sequence[Any]]) -> Counts:
    return np.array(counts, dtype=np.float64)
