"""The metrics of sequence to sequence by name. Imports nothing: a command's --help need not wait for it.

Behind a colon stands the view of the text that is scored: `bleu:none:lc` is BLEU of words that white space separates
(the tokenizer `none` of sacrebleu), in small letters (its `lc`). Without one, it is sacrebleu's default.
"""

from typing import Literal

TextMetric = Literal[
    "bleu", "bleu:lc", "bleu:none", "bleu:none:lc", "bleu:intl", "bleu:intl:lc", "bleu:char", "bleu:char:lc",
    "bleu:zh", "bleu:zh:lc", "bleu_code", "chrf", "chrf:lc", "chrf++", "chrf++:lc", "ter", "ter:cased",
    "exact_match",
    "wer", "cer", "per", "g2p_wer",
    "rouge_1", "rouge_2", "rouge_l",
    "answer_em", "answer_f1",
    "bracket_f1", "slot_f1", "intent_accuracy",
    "distinct_1", "distinct_2",
]  # fmt: skip
"""What is measured on written text alone."""
TEXT_METRICS: tuple[TextMetric, ...] = (
    "bleu", "bleu:lc", "bleu:none", "bleu:none:lc", "bleu:intl", "bleu:intl:lc", "bleu:char", "bleu:char:lc",
    "bleu:zh", "bleu:zh:lc", "bleu_code", "chrf", "chrf:lc", "chrf++", "chrf++:lc", "ter", "ter:cased",
    "exact_match",
    "wer", "cer", "per", "g2p_wer",
    "rouge_1", "rouge_2", "rouge_l",
    "answer_em", "answer_f1",
    "bracket_f1", "slot_f1", "intent_accuracy",
    "distinct_1", "distinct_2",
)  # fmt: skip
MetricName = TextMetric | Literal["perplexity"]
METRICS: tuple[MetricName, ...] = (*TEXT_METRICS, "perplexity")
TEXT_USUAL: tuple[TextMetric, ...] = ("bleu", "chrf", "exact_match")
USUAL: tuple[MetricName, ...] = TEXT_USUAL
"""What is measured where a recipe does not say."""
WITHOUT_REFERENCE: frozenset[str] = frozenset({"distinct_1", "distinct_2"})
"""These tell nothing of right and wrong: no model is chosen by them."""
LESS_IS_BETTER: frozenset[str] = frozenset({
    "ter", "ter:cased", "wer", "cer", "per", "g2p_wer",
    "perplexity", "perplexity_per_word", "perplexity_per_byte", "bits_per_character", "nats_per_frame",
})  # fmt: skip
