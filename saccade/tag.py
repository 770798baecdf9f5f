"""Sentences in, tags out: cut into words, tag, put spans together. One sentence in is one out, whatever it holds."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from saccade.checkpoint import Loaded
from saccade.data.lengths import alike
from saccade.disk import read_bytes
from saccade.errors import SaccadeError, UsageError
from saccade.models.tagger import Tagger
from saccade.text.cut import Piece, cut_words, split_words
from saccade.text.tags import TagSet, read_spans
from saccade.text.tokenizer import Tokenizer
from saccade.text.words import PiecesOfWords, WordList

WORDS_FILE, TAGS_FILE = "tokenizer.json", "labels.json"

MAX_WORDS = 256
"""Words that are read together: a longer sentence is tagged in stretches of so many, each for itself."""
Cut = Literal["raw", "spaces"]


@dataclass(frozen=True)
class Word:
    """A word of the text, with the tag that was found for it."""

    text: str
    begin: int
    """The place of its first character in the text, from 0."""
    end: int
    """The place behind its last."""
    tag: str
    score: float
    """The tag's probability given the sentence."""


@dataclass(frozen=True)
class SpanFound:
    """Words that belong together."""

    type: str
    text: str
    begin: int
    """The place of its first character in the text, from 0."""
    end: int
    first: int
    """Its first word, from 0."""
    last: int
    """Behind its last word."""
    score: float
    """The mean of its words' scores."""


@dataclass(frozen=True)
class Tagging:
    """All that came of one sentence."""

    text: str
    words: tuple[Word, ...]
    spans: tuple[SpanFound, ...]
    log_probability: float
    """Of all its tags together."""

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(word.tag for word in self.words)


@dataclass(frozen=True)
class Engine:
    """A model and its vocabularies, ready to tag."""

    model: Tagger
    text: WordList | PiecesOfWords
    tags: TagSet
    device: torch.device

    @staticmethod
    def of(loaded: Loaded) -> "Engine":
        """From a run folder, whose files have been checked against its manifest."""
        assert isinstance(loaded.model, Tagger)
        text, tags = read_words(loaded.path, in_pieces=loaded.model.in_pieces), read_tags(loaded.path)
        if sizes_of(text, tags) != loaded.sizes:
            raise SaccadeError(
                f"{loaded.path}: its {WORDS_FILE} and {TAGS_FILE} have {sizes_of(text, tags)}, its model "
                f"{loaded.sizes}: they are not of one run."
            )
        return Engine(loaded.model, text, tags, loaded.device)

    def tag(self, lines: Sequence[str], *, cut: Cut = "raw", batch_words: int = 4096) -> list[Tagging]:
        """One tagging a line, in order. `cut`: by the rules of text/cut.py, or where white space is."""
        by = cut_words if cut == "raw" else split_words
        return self._tagged(list(lines), [by(line) for line in lines], batch_words)

    def tag_words(self, sentences: Sequence[Sequence[str]], *, batch_words: int = 4096) -> list[Tagging]:
        """Sentences whose words are given; their text is the words with a space between them."""
        for number, words in enumerate(sentences, start=1):
            if isinstance(words, str):
                raise UsageError(f"sentence {number} is a string; give a list of its words, or use `tag` for raw text.")
            if not all(words):
                raise UsageError(f"sentence {number} has an empty word. Leave it out.")
        placed = [list(_placed(words)) for words in sentences]
        return self._tagged([" ".join(words) for words in sentences], placed, batch_words)

    def best_tags(self, sentences: Sequence[Sequence[str]], *, batch_words: int = 4096) -> list[list[str]]:
        """The tags alone, sooner."""
        found = self._run(sentences, batch_words, probabilities=False)
        return [[self.tags.name(number) for number in numbers] for numbers, _, _ in found]

    def _tagged(self, texts: list[str], cut: list[list[Piece]], batch_words: int) -> list[Tagging]:
        found = self._run([[piece.text for piece in pieces] for pieces in cut], batch_words, probabilities=True)
        return [self._put_together(text, pieces, *one) for text, pieces, one in zip(texts, cut, found, strict=True)]

    def _put_together(
        self, text: str, pieces: list[Piece], numbers: list[int], scores: list[float], log_probability: float
    ) -> Tagging:
        names = [self.tags.name(number) for number in numbers]
        rows = zip(pieces, names, scores, strict=True)
        words = tuple(Word(*piece, tag, score) for piece, tag, score in rows)
        spans = []
        for type_, first, last in read_spans(names) if self.tags.scheme != "none" else ():
            begin, end = words[first].begin, words[last - 1].end
            score = sum(scores[first:last]) / (last - first)
            spans.append(SpanFound(type_, text[begin:end], begin, end, first, last, score))
        return Tagging(text, words, tuple(spans), log_probability)

    def _run(
        self, sentences: Sequence[Sequence[str]], batch_words: int, *, probabilities: bool
    ) -> list[tuple[list[int], list[float], float]]:
        """Of each sentence: numbers of tags, their probabilities, and the log of that of all of them together."""
        stretches = [
            (row, words[begin : begin + MAX_WORDS])
            for row, words in enumerate(sentences)
            for begin in range(0, len(words), MAX_WORDS)
        ]
        made: list[tuple[list[int], list[float], float]] = [([], [], 0.0)] * len(stretches)
        for some in alike(range(len(stretches)), [len(words) for _, words in stretches], batch_words):
            for place, one in zip(some, self._batch([stretches[i][1] for i in some], probabilities), strict=True):
                made[place] = one
        numbers: list[list[int]] = [[] for _ in sentences]
        shares: list[list[float]] = [[] for _ in sentences]
        paths = [0.0] * len(sentences)
        for (row, _), (tags, scores, log_probability) in zip(stretches, made, strict=True):
            numbers[row] += tags
            shares[row] += scores
            paths[row] += log_probability
        return list(zip(numbers, shares, paths, strict=True))

    @torch.inference_mode()
    def _batch(
        self, sentences: list[Sequence[str]], probabilities: bool
    ) -> Iterator[tuple[list[int], list[float], float]]:
        source = self.text.read(sentences).to(self.device)
        found = self.model.predict(source, probabilities=probabilities)
        tags = found.tags_N.tolist()
        scores = [0.0] * len(tags) if found.probability_N is None else found.probability_N.tolist()
        paths = [0.0] * len(sentences) if found.log_probability_B is None else found.log_probability_B.tolist()
        end = 0
        for words, path in zip(sentences, paths, strict=True):
            begin, end = end, end + len(words)
            yield tags[begin:end], scores[begin:end], path


def read_words(folder: Path, *, in_pieces: bool) -> WordList | PiecesOfWords:
    """What `tokenizer.json` of a run folder holds."""
    text = _text_of(folder / WORDS_FILE)
    if in_pieces:
        return PiecesOfWords(Tokenizer.from_json(text, str(folder / WORDS_FILE)))
    return WordList.from_json(text, str(folder / WORDS_FILE))


def read_tags(folder: Path) -> TagSet:
    return TagSet.from_json(_text_of(folder / TAGS_FILE), str(folder / TAGS_FILE))


def _text_of(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        raise SaccadeError(f"{path}: is not UTF-8 text, as training writes it.") from None


def sizes_of(text: WordList | PiecesOfWords, tags: TagSet) -> dict[str, int]:
    """By the names that `models.build.build_model` asks for."""
    sizes = {"pieces" if text.in_pieces else "words": text.size}
    return sizes | ({"characters": text.letters} if text.letters else {}) | {"tags": len(tags)}


def _placed(words: Iterable[str]) -> Iterator[Piece]:
    begin = 0
    for word in words:
        yield Piece(word, begin, begin + len(word))
        begin += len(word) + 1
