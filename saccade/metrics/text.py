"""Output text against reference text: BLEU, chrF and TER by sacrebleu, and exact match.

The settings are sacrebleu's defaults, so that `sacrebleu ref -i hyp` prints the same digits and signature. Intervals
are sacrebleu's own bootstrap (Koehn 2004): 1,000 resamples of the sentences, seed 12345, mean ± half the width of the
central 95 %, as `sacrebleu --confidence` prints them. Each output may have several references, and not all as many.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from saccade.metrics.lines import References, paired, score_of_shares
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


def bleu(hypotheses: Sequence[str], references: References, *, confidence: bool = True) -> Score:
    """Corpus BLEU (Papineni et al. 2002), 0 to 100, on raw text with sacrebleu's tokenizer (Post 2018)."""
    # force silences a warning about text that looks tokenized; it does not change the score.
    return _by_sacrebleu(BLEU(force=True), "BLEU", hypotheses, references, confidence, highest=100.0)


def bleu_code(hypotheses: Sequence[str], references: References, *, confidence: bool = True) -> Score:
    """Corpus BLEU of code, as for CoNaLa (Yin et al. 2018): names and single signs are tokens; without smoothing."""
    pairs = paired("BLEU of code", hypotheses, references)
    written = [" ".join(code_tokens(output)) for output, _ in pairs]
    right = [[" ".join(code_tokens(each)) for each in several] for _, several in pairs]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    score = _by_sacrebleu(metric, "BLEU of code", written, right, confidence, highest=100.0)
    return replace(score, signature=str(score.signature).replace("tok:none", "tok:code"))


def code_tokens(code: str) -> list[str]:
    """Every sign but letters, digits and _ is a token; names in camelCase come apart, and quotes are all alike."""
    apart = re.sub(r"([^A-Za-z0-9_])", r" \1 ", code)
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", apart)
    return apart.translate(str.maketrans("\"'", "``")).split()


def chrf(hypotheses: Sequence[str], references: References, *, confidence: bool = True) -> Score:
    """Corpus chrF (Popović 2015), 0 to 100: the F2 score of character n-grams up to 6."""
    return _by_sacrebleu(_Chrf(), "chrF2", hypotheses, references, confidence, highest=100.0)


def ter(hypotheses: Sequence[str], references: References, *, confidence: bool = True) -> Score:
    """Corpus TER (Snover et al. 2006), from 0 up, less is better: edits and shifts per 100 reference words."""
    return _by_sacrebleu(_Ter(), "TER", hypotheses, references, confidence, highest=math.inf)


def exact_match(hypotheses: Sequence[str], references: References) -> Score:
    """The percentage of outputs equal to a reference character for character, with Wilson's interval."""
    pairs = paired("exact_match", hypotheses, references)
    return score_of_shares("exact match", sum(output in right for output, right in pairs), len(pairs), None)


def _by_sacrebleu(
    metric: BLEU | CHRF | TER,
    name: str,
    hypotheses: Sequence[str],
    references: References,
    confidence: bool,
    *,
    highest: float,
) -> Score:
    pairs = paired(name, hypotheses, references)
    resample = confidence and len(pairs) > 1  # resampling one sentence says nothing about another
    # sacrebleu wants the first reference of every line, then the second of every line, …; None where there is none.
    streams = [list(each) for each in zip_longest(*(right for _, right in pairs))]
    measured = metric.corpus_score(list(hypotheses), streams, n_bootstrap=_RESAMPLES if resample else 1)
    low = high = math.nan
    if resample:
        mean, half = float(measured._mean), float(measured._ci)  # sacrebleu offers them by no other name
        low, high = max(0.0, mean - half), min(highest, mean + half)
    return Score(name, float(measured.score), low, high, str(metric.get_signature()), len(hypotheses))
