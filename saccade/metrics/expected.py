"""How good an output is by others: sentence chrF or BLEU of every pair of texts, and its mean over samples.

Each pair has the digits of `sacrebleu.sentence_chrf` and `sacrebleu.sentence_bleu` with their default settings. There,
each pair costs the n-grams of both texts; here those of each text are counted once, and all pairs are matched by one
product of matrices: two texts share min(a, b) copies of an n-gram that one has a times and the other b times, which
are the copies (n-gram, 1), (n-gram, 2), … that both have.
Shapes: C candidates, R references, U unlike texts, G copies of n-grams.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU, MAX_NGRAM_ORDER
from sacrebleu.metrics.chrf import CHRF

from saccade.errors import UsageError

Utility = Literal["chrf", "bleu"]
Matrix = NDArray[np.float64]
Grams = list[list[Hashable]]
"""Of a text its n-grams, for each order all of them, as often as they occur."""
AT_ONCE = 8192
"""Copies of n-grams that are compared by one product: with many long samples there are millions of them."""


def expected_utility(
    candidates: Sequence[str], samples: Sequence[str], utility: Utility, *, weights: Sequence[float] | None = None
) -> list[float]:
    """Of each candidate the mean utility over the samples: Σ_s w_s · u(candidate, sample s) / Σ_s w_s.

    What was sampled twice counts twice. Without `weights` all w are 1; with probabilities for weights and all outputs
    there are for samples, it is the expectation itself.
    """
    if not samples:
        raise UsageError("samples: there are none; an expected utility needs at least one.")
    own = [1.0] * len(samples) if weights is None else list(weights)
    if len(own) != len(samples):
        raise UsageError(f"weights: there are {len(own)} of them and {len(samples)} samples; give as many of each.")
    if min(own) < 0 or not sum(own) > 0:
        raise UsageError("weights: they must not be negative, and not all 0.")
    of_text: dict[str, float] = {}
    for text, weight in zip(samples, own, strict=True):
        of_text[text] = of_text.get(text, 0.0) + weight
    weight_R = np.array(list(of_text.values()))
    means: list[float] = (utilities(candidates, list(of_text), utility) @ weight_R / weight_R.sum()).tolist()
    return means


def best_first(candidates: Sequence[str], samples: Sequence[str], utility: Utility) -> list[tuple[int, float]]:
    """The places of the candidates, each with its expected utility, best first; of equal texts the first alone.

    Of equal utilities, to nine digits behind the point, the first is the better one.
    """
    place: dict[str, int] = {}
    for n, text in enumerate(candidates):
        place.setdefault(text, n)
    values = expected_utility(list(place), samples, utility)
    return sorted(zip(place.values(), values, strict=True), key=lambda each: -round(each[1], 9))


def utilities(candidates: Sequence[str], references: Sequence[str], utility: Utility) -> Matrix:
    """(C, R): the sentence-level score of each candidate against each reference, 0 to 100."""
    place = {text: n for n, text in enumerate(dict.fromkeys((*candidates, *references)))}
    row_C, row_R = (np.array([place[text] for text in some], dtype=np.int64) for some in (candidates, references))
    match utility:
        case "chrf":
            return _chrf([_characters(text) for text in place], row_C, row_R)
        case "bleu":
            tokenize = BLEU(effective_order=True, force=True).tokenizer
            return _bleu([_words(tokenize(text.rstrip()).split()) for text in place], row_C, row_R)


def _characters(text: str) -> Grams:
    line = "".join(text.split())
    return [[line[i : i + n] for i in range(len(line) - n + 1)] for n in range(1, CHRF.CHAR_ORDER + 1)]


def _words(words: list[str]) -> Grams:
    return [[tuple(words[i : i + n]) for i in range(len(words) - n + 1)] for n in range(1, MAX_NGRAM_ORDER + 1)]


def _chrf(texts: list[Grams], row_C: NDArray[Any], row_R: NDArray[Any]) -> Matrix:
    """chrF2 (Popović 2015): F of the means of precision and recall over the orders that both texts have."""
    shape = len(row_C), len(row_R)
    precision_CR, recall_CR, orders_CR = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for n in range(CHRF.CHAR_ORDER):
        count_U, match_CR = _counted([text[n] for text in texts], row_C, row_R)
        has_C1, has_1R = count_U[row_C][:, None], count_U[row_R][None]
        both_CR = (has_C1 > 0) & (has_1R > 0)
        precision_CR += np.where(both_CR, match_CR / np.maximum(has_C1, 1), 0.0)
        recall_CR += np.where(both_CR, match_CR / np.maximum(has_1R, 1), 0.0)
        orders_CR += both_CR
    precision_CR /= np.maximum(orders_CR, 1)
    recall_CR /= np.maximum(orders_CR, 1)
    factor = CHRF.BETA**2
    below_CR = factor * precision_CR + recall_CR
    return 100 * ((1 + factor) * precision_CR * recall_CR / np.where(below_CR > 0, below_CR, 1.0))


def _bleu(texts: list[Grams], row_C: NDArray[Any], row_R: NDArray[Any]) -> Matrix:
    """BLEU (Papineni et al. 2002) of one sentence: orders the candidate has, no match smoothed to ½, ¼, … of one."""
    shape = len(row_C), len(row_R)
    logs_CR, halves_CR, orders_CR = np.zeros(shape), np.ones(shape), np.zeros(shape)
    matched_CR = np.zeros(shape, dtype=bool)
    length_U = np.array([len(text[0]) for text in texts], dtype=np.float64)
    for n in range(MAX_NGRAM_ORDER):
        count_U, match_CR = _counted([text[n] for text in texts], row_C, row_R)
        total_C1 = count_U[row_C][:, None]
        has_CR = np.broadcast_to(total_C1 > 0, shape)
        halves_CR = np.where(has_CR & (match_CR == 0), 2 * halves_CR, halves_CR)
        shown_CR = np.where(match_CR > 0, match_CR, 1 / halves_CR)
        logs_CR += np.where(has_CR, np.log(100 * shown_CR / np.maximum(total_C1, 1)), 0.0)
        orders_CR += has_CR
        matched_CR |= match_CR > 0
    written_C1, wanted_1R = length_U[row_C][:, None], length_U[row_R][None]
    brevity_CR = np.exp(np.minimum(0.0, 1 - wanted_1R / np.maximum(written_C1, 1)))
    return np.where(matched_CR, brevity_CR * np.exp(logs_CR / np.maximum(orders_CR, 1)), 0.0)


def _counted(grams: list[list[Hashable]], row_C: NDArray[Any], row_R: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """(U) n-grams of each text, and (C, R) how many of them a candidate shares with a reference."""
    ids: dict[tuple[Hashable, int], int] = {}
    rows, copies = list[int](), list[int]()
    for row, some in enumerate(grams):
        seen: dict[Hashable, int] = {}
        for gram in some:
            nth = seen[gram] = seen.get(gram, 0) + 1
            copies.append(ids.setdefault((gram, nth), len(ids)))
        rows += [row] * len(some)
    row_I, copy_I = np.array(rows, dtype=np.int64), np.array(copies, dtype=np.int64)
    match_CR = np.zeros((len(row_C), len(row_R)))
    order_I = copy_I.argsort(kind="stable")
    row_I, copy_I = row_I[order_I], copy_I[order_I]
    for begin in range(0, len(ids), AT_ONCE):
        some_I = slice(*copy_I.searchsorted([begin, begin + AT_ONCE]))
        has_UG = np.zeros((len(grams), min(AT_ONCE, len(ids) - begin)), dtype=np.float32)  # exact up to 2²⁴
        has_UG[row_I[some_I], copy_I[some_I] - begin] = 1.0
        match_CR += has_UG[row_C] @ has_UG[row_R].T
    return np.array([len(some) for some in grams], dtype=np.float64), match_CR
