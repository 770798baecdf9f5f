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
    "loss": "loss",
    "perplexity": "perplexity",
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match",
    "macro_f1": "macro-F1",
}


def metric_name(key: str) -> str:
    return _METRICS.get(key, key.replace("_", " "))


def metric(key: str, value: float) -> str:
    """`exact match 99.4 %`, `BLEU 31.2`, `loss 0.012`."""
    match key:
        case "exact_match" | "accuracy":
            shown = f"{value:.1f} %"
        case "bleu" | "chrf" | "macro_f1":
            shown = f"{value:.1f}"
        case "perplexity":
            shown = f"{value:.2f}" if value < 1e4 else f"{value:.1e}"
        case _:
            shown = f"{value:.3f}"
    return f"{metric_name(key)} {shown}"
