"""The metrics of sequence to sequence by name. Imports nothing: a command's --help need not wait for it."""

from typing import Literal

TextMetric = Literal[
    "bleu", "bleu_code", "chrf", "ter", "exact_match",
    "wer", "cer", "per", "g2p_wer",
    "rouge_1", "rouge_2", "rouge_l",
    "answer_em", "answer_f1",
    "bracket_f1", "slot_f1", "intent_accuracy",
    "distinct_1", "distinct_2",
]  # fmt: skip
"""What is measured on written text alone."""
TEXT_METRICS: tuple[TextMetric, ...] = (
    "bleu", "bleu_code", "chrf", "ter", "exact_match",
    "wer", "cer", "per", "g2p_wer",
    "rouge_1", "rouge_2", "rouge_l",
    "answer_em", "answer_f1",
    "bracket_f1", "slot_f1", "intent_accuracy",
    "distinct_1", "distinct_2",
)  # fmt: skip
MetricName = TextMetric | Literal["perplexity"]
METRICS: tuple[MetricName, ...] = (*TEXT_METRICS, "perplexity")
USUAL: tuple[MetricName, ...] = ("bleu", "chrf", "exact_match")
"""What is measured where a recipe does not say."""
WITHOUT_REFERENCE: frozenset[str] = frozenset({"distinct_1", "distinct_2"})
"""These tell nothing of right and wrong: no model is chosen by them."""
LESS_IS_BETTER: frozenset[str] = frozenset({
    "ter", "wer", "cer", "per", "g2p_wer",
    "perplexity", "perplexity_per_word", "perplexity_per_byte", "bits_per_character", "nats_per_frame",
})  # fmt: skip
