"""Output text against reference text: BLEU, chrF, chrF++ and TER by sacrebleu, and exact match.

Where nothing else is said, the settings are sacrebleu's defaults: `sacrebleu ref -i hyp` prints the same digits and
signature. Intervals are those of its bootstrap (Koehn 2004): 1,000 resamples of the sentences, seed 12345, mean ± half
the width of the central 95 %, as `sacrebleu --confidence` prints them. Each output may have several references, and
not all as many.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import estimate_ci

from saccade.metrics.interval import Confidence, Resampling, resampling
from saccade.metrics.lines import References, paired, score_of_shares
from saccade.metrics.score import Score

Tokenizer = Literal["13a", "none", "intl", "char", "zh"]
"""How BLEU cuts text into words, by sacrebleu's names; `none`: at white space, for text that was cut before."""


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    tokenize: Tokenizer = "13a",
    lowercase: bool = False,
    confidence: Confidence = True,
) -> Score:
    """Corpus BLEU (Papineni et al. 2002), 0 to 100, on raw text with sacrebleu's tokenizer (Post 2018)."""
    view = [*([tokenize] if tokenize != "13a" else []), *(["lc"] if lowercase else [])]
    name = f"BLEU ({', '.join(view)})" if view else "BLEU"
    # force silences a warning about text that looks tokenized; it does not change the score.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    return _by_sacrebleu(metric, name, hypotheses, references, confidence, highest=100.0)


def bleu_code(hypotheses: Sequence[str], references: References, *, confidence: Confidence = True) -> Score:
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


def chrf(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False, confidence: Confidence = True
) -> Score:
    """Corpus chrF (Popović 2015), 0 to 100: the F2 score of character n-grams up to 6, white space left out."""
    metric, name = CHRF(lowercase=lowercase), "chrF2 (lc)" if lowercase else "chrF2"
    return _by_sacrebleu(metric, name, hypotheses, references, confidence, highest=100.0)


def chrf_with_words(
    hypotheses: Sequence[str], references: References, *, lowercase: bool = False, confidence: Confidence = True
) -> Score:
    """Corpus chrF++ (Popović 2017), 0 to 100: as chrF, of characters up to 6 and of words up to 2."""
    metric, name = CHRF(word_order=2, lowercase=lowercase), "chrF2++ (lc)" if lowercase else "chrF2++"
    return _by_sacrebleu(metric, name, hypotheses, references, confidence, highest=100.0)


def ter(
    hypotheses: Sequence[str], references: References, *, cased: bool = False, confidence: Confidence = True
) -> Score:
    """Corpus TER (Snover et al. 2006), from 0 up, less is better: edits and shifts per 100 reference words.

    As in sacrebleu and tercom, capitals count as small letters unless it is `cased`.
    """
    metric, name = TER(case_sensitive=cased), "TER (cased)" if cased else "TER"
    return _by_sacrebleu(metric, name, hypotheses, references, confidence, highest=math.inf)


def exact_match(hypotheses: Sequence[str], references: References) -> Score:
    """The percentage of outputs equal to a reference character for character, with Wilson's interval."""
    pairs = paired("exact_match", hypotheses, references)
    return score_of_shares("exact match", sum(output in right for output, right in pairs), len(pairs), None)


def _by_sacrebleu(
    metric: BLEU | CHRF | TER,
    name: str,
    hypotheses: Sequence[str],
    references: References,
    confidence: Confidence,
    *,
    highest: float,
) -> Score:
    pairs = paired(name, hypotheses, references)
    # sacrebleu wants the first reference of every line, then the second of every line, …; None where there is none.
    streams = [list(each) for each in zip_longest(*(right for _, right in pairs))]
    counts = metric._extract_corpus_statistics(list(hypotheses), streams)  # offered by no other name
    value = float(metric._aggregate_and_compute(counts).score)
    low = high = math.nan
    if how := resampling(confidence, len(pairs)):
        mean, half = _resampled(metric, counts, how)
        low, high = max(0.0, mean - half), min(highest, mean + half)
        metric.n_bootstrap, metric.seed = how.samples, str(how.seed)  # what its signature tells
    return Score(name, value, low, high, str(metric.get_signature()), len(hypotheses))


def _resampled(metric: BLEU | CHRF | TER, counts: list[list[float]], how: Resampling) -> tuple[float, float]:
    """Mean and half the width of the interval: the draws, sums and scores of sacrebleu, one resample at a time.

    sacrebleu holds all resamples at once: gigabytes where the test data have 10,000 lines.
    """
    draw, counts_NK = np.random.default_rng(how.seed), np.array(counts, dtype=np.float32)
    lines = len(counts_NK)
    sums_K = (counts_NK[draw.choice(lines, size=lines)].sum(0) for _ in range(how.samples))
    mean, half = estimate_ci(np.array([metric._compute_score_from_stats(sums).score for sums in sums_K]))
    return float(mean), float(half)
