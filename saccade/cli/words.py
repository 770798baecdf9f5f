"""Numbers as people read them."""


def duration(seconds: float) -> str:
    """3m12s, 1h05m, 42s."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def amount(number: float) -> str:
    """0.4M, 12.3k, 950."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e5, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / (1e6 if letter == 'M' else size):.1f}{letter}"
    return f"{number:.0f}"


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
