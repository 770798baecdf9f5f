"""Output text against reference text: BLEU, chrF and TER by sacrebleu, and exact match.

The settings are sacrebleu's defaults, so that `sacrebleu ref -i hyp` prints the same digits and signature. Intervals
are sacrebleu's own bootstrap (Koehn 2004): 1,000 resamples of the sentences, seed 12345, mean ± half the width of the
central 95 %, as `sacrebleu --confidence` prints them.
"""

import math
from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from saccade.errors import UsageError
from saccade.metrics.interval import wilson
from saccade.metrics.score import Score

_RESAMPLES = 1000


class _Chrf(CHRF):
    def _compute_score_from_stats(self, stats: Sequence[float]) -> Any:
        return super()._compute_score_from_stats(_plain(stats))


class _Ter(TER):
    def _compute_score_from_stats(self, stats: Sequence[float]) -> Any:
        return super()._compute_score_from_stats(_plain(stats))


def _plain(stats: Sequence[float]) -> list[Any]:
    """Resampled counts come as numpy's float32, but a resample without a match scores a plain 0.0.

    The two together are more than sacrebleu's own mean can take (2.6.0 with numpy 2), as with a model that has hardly
    learnt anything.
    """
    return [float(each) for each in stats]


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, confidence: bool = True) -> Score:
    """Corpus BLEU (Papineni et al. 2002), 0 to 100, on raw text with sacrebleu's tokenizer (Post 2018)."""
    # force silences a warning about text that looks tokenized; it does not change the score.
    return _by_sacrebleu(BLEU(force=True), "BLEU", hypotheses, references, confidence, highest=100.0)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, confidence: bool = True) -> Score:
    """Corpus chrF (Popović 2015), 0 to 100: the F2 score of character n-grams up to 6."""
    return _by_sacrebleu(_Chrf(), "chrF2", hypotheses, references, confidence, highest=100.0)


def ter(hypotheses: Sequence[str], references: Sequence[str], *, confidence: bool = True) -> Score:
    """Corpus TER (Snover et al. 2006), from 0 up, less is better: edits and shifts per 100 reference words."""
    return _by_sacrebleu(_Ter(), "TER", hypotheses, references, confidence, highest=math.inf)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The percentage of outputs equal to their reference character for character, with Wilson's interval."""
    _check("exact_match", hypotheses, references)
    count = len(hypotheses)
    equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    low, high = wilson(equal, count)
    return Score("exact match", 100 * equal / count, 100 * low, 100 * high, None, count)


def _by_sacrebleu(
    metric: BLEU | CHRF | TER,
    name: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    confidence: bool,
    *,
    highest: float,
) -> Score:
    _check(name, hypotheses, references)
    resample = confidence and len(hypotheses) > 1  # resampling one sentence says nothing about another
    measured = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=_RESAMPLES if resample else 1)
    low = high = math.nan
    if resample:
        mean, half = float(measured._mean), float(measured._ci)  # sacrebleu offers them by no other name
        low, high = max(0.0, mean - half), min(highest, mean + half)
    return Score(name, float(measured.score), low, high, str(metric.get_signature()), len(hypotheses))


def _check(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise UsageError(f"{name}: hypotheses and references must each be a list of lines, not one string.")
    if len(hypotheses) != len(references):
        raise UsageError(
            f"{name}: hypotheses and references must pair up line by line; got {len(hypotheses):,} hypotheses "
            f"and {len(references):,} references."
        )
    if not hypotheses:
        raise UsageError(f"{name}: there is nothing to score: hypotheses and references are empty.")
