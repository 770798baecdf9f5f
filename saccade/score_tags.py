"""Tags that are right against tags that are found: accuracy, that of words never seen, and F1 of spans."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence
from saccade.metrics.score import Score
from saccade.metrics.spans import SpanReport, accuracy, share, span_report
from saccade.tag import Engine
from saccade.text.tags import TagSet, converted, fault, read_spans, read_strictly
from saccade.text.words import WordList

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class TagEvaluation:
    scores: dict[str, Score]
    """accuracy, unseen_accuracy (where words are known), known_tags; where tags write spans also f1, f1_strict,
    precision, recall, and f1 of each type as f1_TYPE."""
    spans: SpanReport | None
    """All counts, by type; None where tags write no spans."""
    found: list[list[str]]
    """The tags that were found, as the model writes them."""

    def __getitem__(self, name: str) -> Score:
        if name not in self.scores:
            raise UsageError(f"{name} was not computed; there are {', '.join(self.scores)}.")
        return self.scores[name]


def evaluate_tags(
    engine: Engine, sentences: Rows, gold: Rows, *, batch_words: int = 4096, confidence: Confidence = True
) -> TagEvaluation:
    """Tag sentences whose words are given, and score the tags; spans may be written in any scheme."""
    if len(sentences) != len(gold):
        raise UsageError(f"there are {len(sentences)} sentences and {len(gold)} rows of tags; give as many of each.")
    for number, (words, tags) in enumerate(zip(sentences, gold, strict=True), start=1):
        if len(words) != len(tags):
            raise UsageError(f"sentence {number} has {len(words)} words and {len(tags)} tags; each word has one.")
    if not any(map(len, sentences)):
        raise UsageError("there is nothing to score: no sentence has a word.")
    found = engine.best_tags(sentences, batch_words=batch_words)
    return score_tags(engine.tags, engine.text, sentences, gold, found, confidence=confidence)


def score_tags(
    known: TagSet, text: object, sentences: Rows, gold: Rows, found: list[list[str]], *, confidence: Confidence = True
) -> TagEvaluation:
    """`text`: where it is a list of words, words that no training text had are scored by themselves, too."""
    right = _as_learnt(known, gold)
    scores = {"accuracy": accuracy(right, found)}
    if isinstance(text, WordList):
        scores["unseen_accuracy"] = _unseen(text, sentences, right, found)
    there = [(sum(tag in known.ids for tag in tags), len(tags)) for tags in right]
    scores["known_tags"] = share("tags known from training", there)
    report = None
    if known.scheme != "none":
        report = span_report([read_spans(tags) for tags in right], [read_spans(tags) for tags in found])
        scores |= _span_scores(known, right, found, report, confidence=confidence)
    # One line is one sentence, whatever is counted in it.
    scores = {name: _of_lines(score, len(sentences)) for name, score in scores.items()}
    return TagEvaluation(scores, report, found)


def _of_lines(score: Score, lines: int) -> Score:
    return Score(score.name, score.value, score.low, score.high, score.signature, lines)


def _as_learnt(known: TagSet, gold: Rows) -> list[list[str]]:
    """In the scheme of the model's tags."""
    if known.scheme == "none":
        return [list(tags) for tags in gold]
    for number, tags in enumerate(gold, start=1):
        wrong = next(filter(None, (fault(tag, "bioes") for tag in tags)), "")
        if wrong:
            raise UsageError(f"sentence {number}: {wrong}. The model's tags write spans.")
    return [converted(tags, known.scheme) for tags in gold]


def _unseen(text: WordList, sentences: Rows, right: Rows, found: Rows) -> Score:
    counts = []
    for words, tags, guessed in zip(sentences, right, found, strict=True):
        hits = [tag == guess for word, tag, guess in zip(words, tags, guessed, strict=True) if not text.saw(word)]
        counts.append((sum(hits), len(hits)))
    return share(f"accuracy, {sum(total for _, total in counts):,} unseen words", counts)


def _span_scores(
    known: TagSet, right: Rows, found: Rows, report: SpanReport, *, confidence: Confidence
) -> dict[str, Score]:
    scheme: Literal["iob2", "bioes"] = "bioes" if known.scheme == "bioes" else "iob2"
    strictly = [[read_strictly(tags, scheme) for tags in side] for side in (right, found)]
    strict = span_report(*strictly).score(name="span F1, strict", confidence=confidence)
    scores = report.scores(confidence=confidence)
    return {"f1": scores["f1"], "f1_strict": strict} | scores
