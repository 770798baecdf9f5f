"""Numbers and metrics as people read them."""

from saccade.view.amounts import amount as amount
from saccade.view.amounts import duration as duration


def megabytes(count: float) -> str:
    return f"{count / 2**20:,.1f} MiB"


_METRICS = {
    "bleu": "BLEU", "chrf++": "chrF++", "bleu_code": "BLEU of code", "chrf": "chrF", "ter": "TER",
    "wer": "WER", "cer": "CER", "per": "PER", "g2p_wer": "WER of words",
    "rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L",
    "answer_em": "answer EM", "answer_f1": "answer F1", "bracket_f1": "bracket F1", "slot_f1": "slot F1",
    "distinct_1": "distinct-1", "distinct_2": "distinct-2", "macro_f1": "macro-F1",
}  # fmt: skip
"""Those that are not written as they are said."""
_SHARES = ("exact_match", "intent_accuracy", "answer_em", "accuracy")


def metric_name(key: str) -> str:
    metric, _, view = key.partition(":")
    name = _METRICS.get(metric, metric.replace("_", " "))
    return f"{name} ({', '.join(view.split(':'))})" if view else name


def metric(key: str, value: float) -> str:
    """`exact match 99.4 %`, `BLEU 31.2`, `loss 0.012`."""
    match key:
        case _ if key in _SHARES:
            shown = f"{value:.1f} %"
        case _ if key.partition(":")[0] in _METRICS:
            shown = f"{value:.1f}"
        case "perplexity":
            shown = f"{value:.2f}" if value < 1e4 else f"{value:.1e}"
        case _:
            shown = f"{value:.3f}"
    return f"{metric_name(key)} {shown}"
