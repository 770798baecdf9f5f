"""The metrics of written text by name. Imports nothing: a command's --help need not wait for it."""

from typing import Literal

MetricName = Literal[
    "bleu", "bleu_code", "chrf", "ter", "exact_match",
    "wer", "cer", "per", "g2p_wer",
    "rouge_1", "rouge_2", "rouge_l",
    "answer_em", "answer_f1",
    "bracket_f1", "slot_f1", "intent_accuracy",
    "distinct_1", "distinct_2",
]  # fmt: skip
METRICS: tuple[MetricName, ...] = (
    "bleu", "bleu_code", "chrf", "ter", "exact_match",
    "wer", "cer", "per", "g2p_wer",
    "rouge_1", "rouge_2", "rouge_l",
    "answer_em", "answer_f1",
    "bracket_f1", "slot_f1", "intent_accuracy",
    "distinct_1", "distinct_2",
)  # fmt: skip
ERRORS: frozenset[str] = frozenset({"ter", "wer", "cer", "per", "g2p_wer"})
"""Less of these is better."""
