"""Any metric of written text by its name."""

from collections.abc import Sequence
from typing import cast

from saccade.errors import UsageError
from saccade.metrics.brackets import bracket_f1
from saccade.metrics.distinct import distinct_1, distinct_2
from saccade.metrics.edits import cer, g2p_wer, per, wer
from saccade.metrics.interval import Confidence
from saccade.metrics.lines import References
from saccade.metrics.names import TEXT_METRICS, TextMetric
from saccade.metrics.overlap import answer_em, answer_f1, rouge_1, rouge_2, rouge_l
from saccade.metrics.score import Score
from saccade.metrics.slots import intent_accuracy, slot_f1
from saccade.metrics.text import Tokenizer, bleu, bleu_code, chrf, chrf_with_words, exact_match, ter


def measure(  # noqa: C901 one line for each metric
    name: TextMetric, outputs: Sequence[str], references: References, *, confidence: Confidence = True
) -> Score:
    """`name`: the metric, and behind colons the view of the text, see names.py."""
    if name not in TEXT_METRICS:
        raise UsageError(f"{name} is no metric of text; there are {', '.join(TEXT_METRICS)}.")
    metric, *view = name.split(":")
    small = "lc" in view
    match metric:
        case "bleu":
            tokenize = cast("Tokenizer", next((each for each in view if each != "lc"), "13a"))
            return bleu(outputs, references, tokenize=tokenize, lowercase=small, confidence=confidence)
        case "bleu_code":
            return bleu_code(outputs, references, confidence=confidence)
        case "chrf":
            return chrf(outputs, references, lowercase=small, confidence=confidence)
        case "chrf++":
            return chrf_with_words(outputs, references, lowercase=small, confidence=confidence)
        case "ter":
            return ter(outputs, references, cased="cased" in view, confidence=confidence)
        case "exact_match":
            return exact_match(outputs, references)
        case "wer":
            return wer(outputs, references, confidence=confidence)
        case "cer":
            return cer(outputs, references, confidence=confidence)
        case "per":
            return per(outputs, references, confidence=confidence)
        case "g2p_wer":
            return g2p_wer(outputs, references)
        case "rouge_1":
            return rouge_1(outputs, references, confidence=confidence)
        case "rouge_2":
            return rouge_2(outputs, references, confidence=confidence)
        case "rouge_l":
            return rouge_l(outputs, references, confidence=confidence)
        case "answer_em":
            return answer_em(outputs, references)
        case "answer_f1":
            return answer_f1(outputs, references, confidence=confidence)
        case "bracket_f1":
            return bracket_f1(outputs, references, confidence=confidence)
        case "slot_f1":
            return slot_f1(outputs, references, confidence=confidence)
        case "intent_accuracy":
            return intent_accuracy(outputs, references)
        case "distinct_1":
            return distinct_1(outputs)
        case "distinct_2":
            return distinct_2(outputs)
    raise AssertionError(name)  # every name has its line
