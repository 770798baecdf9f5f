"""Whether a difference between two systems is more than the luck of the test set.

Both systems are scored on the same lines, and what could have been is made of these lines alone: other samples of them
(paired bootstrap, Koehn 2004), or outputs that change sides (paired approximate randomisation, Riezler and Maxwell
2005). Neither knows of other trainings of the same model: what a seed does is not in here.

Draws and formulas are those of sacrebleu's `--paired-bs` and `--paired-ar`, with one exception: a difference as large
as the one seen counts as reached, and systems that are equal on every line have p = 1. Without that, p would be too
small where few differences are possible: of two systems that differ on a single line every draw makes the same
difference or none, and sacrebleu, which counts larger ones alone, tells the smallest p that can be. Its own digit
stands beside ours as `p_sacrebleu`.

Shapes: N lines, K counts of a line, S resamples.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.lines import Counts
from saccade.metrics.statistics import LineStatistics

Test = Literal["bootstrap", "randomisation"]
TESTS: tuple[Test, ...] = get_args(Test)
RESAMPLES: dict[Test, int] = {"bootstrap": 1000, "randomisation": 10000}
SEED = 12345
FEWEST = 100
_AT_ONCE = 2**22  # draws held in memory together
_CLOSE = 1e-9  # differences that are equal but for rounding


@dataclass(frozen=True)
class _Chance:
    """How often chance does as much, and how often sacrebleu says it does."""

    p: float
    p_sacrebleu: float | None


@dataclass(frozen=True)
class Paired:
    """One system against the baseline, by one metric."""

    difference: float
    """System − baseline, in the metric's own units."""
    low: float
    """Ends of the central 95 % of the difference in bootstrap resamples; NaN of a single line."""
    high: float
    better: float
    """The share of bootstrap resamples in which the system is better than the baseline (Koehn's own number)."""
    p: float
    """How often chance alone makes such a difference or a larger one; NaN of a single line."""
    test: Test
    resamples: int
    seed: int
    p_sacrebleu: float | None = None
    """What sacrebleu prints: how often chance makes a larger difference. None of metrics that are not its own."""


def check_test(test: str, resamples: int | None, seed: int) -> int:
    """How many resamples there will be."""
    if test not in RESAMPLES:
        raise UsageError(f"test is {test!r}; it must be one of {', '.join(TESTS)}.")
    if resamples is not None and resamples < FEWEST:
        raise UsageError(f"resamples is {resamples}; it must be at least {FEWEST}: fewer have no tails.")
    if seed < 0:
        raise UsageError(f"seed is {seed}; it must be 0 or more.")
    return RESAMPLES["bootstrap" if test == "bootstrap" else "randomisation"] if resamples is None else resamples


def bootstrapped(systems: Sequence[LineStatistics], *, resamples: int = 1000, seed: int = SEED) -> list[Counts]:
    """Of each system its scores on resamples of the lines, the same ones for all."""
    lines = _same_lines(systems)
    tables_NK = np.concatenate([each.counts_NK for each in systems], axis=1)
    sums_SK = np.concatenate([drawn_SN @ tables_NK for drawn_SN in _resamples(lines, resamples, seed)])
    return _scored(systems, sums_SK)


def paired_bootstrap(
    baseline: LineStatistics, system: LineStatistics, *, resamples: int = 1000, seed: int = SEED
) -> float:
    """p: (1 + how often |d*| − mean |d*| ≥ |d|) / (1 + resamples), d the difference and d* those of resamples.

    As Moses' script and sacrebleu have it, but for ties. Where differences are large, |d*| has one side only, and p
    is that of a one-sided test: half of what randomisation tells.
    """
    _check_metric(baseline, system)
    ours_S, theirs_S = bootstrapped([baseline, system], resamples=resamples, seed=seed)
    return _bootstrap_p(baseline, system, theirs_S - ours_S).p


def paired_randomisation(
    baseline: LineStatistics, system: LineStatistics, *, resamples: int = 10000, seed: int = SEED
) -> float:
    """p: (1 + how often |d*| ≥ |d|) / (1 + resamples), d* where each line's two outputs change sides by a coin."""
    _check_metric(baseline, system)
    return _randomisation_p(baseline, [system], resamples, seed)[0].p


def against_first(
    systems: Sequence[LineStatistics], *, test: Test = "randomisation", resamples: int | None = None, seed: int = SEED
) -> tuple[list[Counts], list[Paired | None]]:
    """Of each system its scores on bootstrap resamples, and how it stands to the first."""
    count = check_test(test, resamples, seed)
    for each in systems[1:]:
        _check_metric(systems[0], each)
    drawn = bootstrapped(systems, resamples=count if test == "bootstrap" else RESAMPLES["bootstrap"], seed=seed)
    differences = [values_S - drawn[0] for values_S in drawn[1:]]
    if test == "bootstrap":
        found = [_bootstrap_p(systems[0], each, d_S) for each, d_S in zip(systems[1:], differences, strict=True)]
    else:
        found = _randomisation_p(systems[0], systems[1:], count, seed)
    told = [
        _paired(systems[0], each, d_S, chance, test, count, seed)
        for each, d_S, chance in zip(systems[1:], differences, found, strict=True)
    ]
    return drawn, [None, *told]


def _paired(
    baseline: LineStatistics,
    system: LineStatistics,
    d_S: Counts,
    chance: _Chance,
    test: Test,
    resamples: int,
    seed: int,
) -> Paired:
    low = high = better = math.nan
    if system.lines > 1:
        low, high = np.quantile(d_S, [0.025, 0.975]).tolist()
        better = float((d_S < 0 if system.less_is_better else d_S > 0).mean())
    apart = system.value() - baseline.value()
    return Paired(apart, low, high, better, chance.p, test, resamples, seed, chance.p_sacrebleu)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, so raised that all of them together err as rarely as one (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    raised, highest = [math.nan] * len(p_values), 0.0
    told = [i for i in order if not math.isnan(p_values[i])]
    for rank, i in enumerate(told):
        highest = max(highest, min(1.0, (len(told) - rank) * p_values[i]))
        raised[i] = highest
    return raised


# ---- draws


def _resamples(lines: int, resamples: int, seed: int) -> Iterator[Counts]:
    """(S, N): how often each line is drawn."""
    generator = np.random.default_rng(seed)
    at_once = max(1, _AT_ONCE // lines)
    for begin in range(0, resamples, at_once):
        rows = min(at_once, resamples - begin)
        drawn = generator.integers(lines, size=(rows, lines)) + lines * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * lines).reshape(rows, lines).astype(np.float64)


def _coins(lines: int, resamples: int, seed: int) -> Iterator[Counts]:
    """(S, N): 1 where a line's outputs stay on their sides."""
    generator = np.random.default_rng(seed)
    # Bits are drawn 32 at a time: whole multiples of 32 rows leave none behind between two calls.
    at_once = max(32, _AT_ONCE // lines // 32 * 32)
    for begin in range(0, resamples, at_once):
        size = (min(at_once, resamples - begin), lines)
        yield generator.integers(2, size=size, dtype=bool).astype(np.float64)


# ---- tests


def _randomisation_p(
    baseline: LineStatistics, systems: Sequence[LineStatistics], resamples: int, seed: int
) -> list[_Chance]:
    if not systems:
        return []
    apart_NK = np.concatenate([baseline.counts_NK - each.counts_NK for each in systems], axis=1)
    moved_SK = np.concatenate([stay_SN @ apart_NK for stay_SN in _coins(baseline.lines, resamples, seed)])
    found, begin, whole_K = [], 0, baseline.counts_NK.sum(0)
    for each in systems:
        end = begin + each.counts_NK.shape[1]
        own_K = each.counts_NK.sum(0)
        one_SK = own_K + moved_SK[:, begin:end]
        other_SK = own_K + whole_K - one_SK
        found.append(_chance(baseline, each, np.abs(each.value_of(one_SK) - each.value_of(other_SK))))
        begin = end
    return found


def _bootstrap_p(baseline: LineStatistics, system: LineStatistics, d_S: Counts) -> _Chance:
    sizes_S = np.abs(d_S)
    return _chance(baseline, system, sizes_S - sizes_S.mean())


def _chance(baseline: LineStatistics, system: LineStatistics, by_chance_S: Counts) -> _Chance:
    """See the head of this file."""
    theirs = system.interval == "sacrebleu"
    if system.lines < 2:
        return _Chance(math.nan, math.nan if theirs else None)
    seen, draws = abs(system.value() - baseline.value()), len(by_chance_S)
    same = np.array_equal(baseline.counts_NK, system.counts_NK)
    reached, passed = int((by_chance_S >= seen - _CLOSE).sum()), int((by_chance_S > seen + _CLOSE).sum())
    return _Chance(1.0 if same else (reached + 1) / (draws + 1), (passed + 1) / (draws + 1) if theirs else None)


def _scored(systems: Sequence[LineStatistics], sums_SK: Counts) -> list[Counts]:
    found, begin = [], 0
    for each in systems:
        end = begin + each.counts_NK.shape[1]
        found.append(each.value_of(sums_SK[:, begin:end]))
        begin = end
    return found


def _same_lines(systems: Sequence[LineStatistics]) -> int:
    if not systems:
        raise UsageError("systems: there is none to compare.")
    counts = [each.lines for each in systems]
    if len(set(counts)) > 1:
        raise UsageError(f"systems: all must be scored on the same lines; they have {', '.join(map(str, counts))}.")
    return counts[0]


def _check_metric(baseline: LineStatistics, system: LineStatistics) -> None:
    if baseline.metric != system.metric or baseline.counts_NK.shape[1] != system.counts_NK.shape[1]:
        raise UsageError(
            f"{baseline.label} and {system.label} are not the same metric; compare what is measured alike."
        )
    _same_lines([baseline, system])
