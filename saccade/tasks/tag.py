"""Tagging: sentences of words in, a tag for each word out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import ConfigDict, model_validator

from saccade.checkpoint import Loaded
from saccade.data.columns import Columns, ids_dtype, writing
from saccade.data.conll import TagCounts, Tagged
from saccade.data.splits import Split
from saccade.data.tagged import (
    TagData,
    checking,
    has_tagged,
    of_length,
    rewritten,
    split_tagged,
    tagged_like,
    written_scheme,
)
from saccade.data.tagged_store import append_lines, chunks, numbered, stretches
from saccade.data.vectors import vector_words
from saccade.disk import write_file
from saccade.errors import UsageError
from saccade.metrics.interval import Confidence
from saccade.metrics.score import Score
from saccade.models.tagger import CrfOutput, TaggerConfig
from saccade.score_tags import evaluate_tags
from saccade.tag import MAX_WORDS, TAGS_FILE, WORDS_FILE, Engine, read_tags, read_words
from saccade.tasks.base import Recipe, Scores, preset_gives
from saccade.tasks.tag_ready import CONTINUED, READ, SPLITS, TagReady
from saccade.tasks.vectors import check_vectors, open_run_vectors, vectors_of, write_run_vectors
from saccade.text import BpeText, train_tokenizers
from saccade.text.tags import Scheme, TagSet, converted
from saccade.text.words import GivenWords, PiecesOfWords, WordForm, WordList, WordTextConfig

SAMPLE = 2000
"""Sentences that vocabularies are estimated from."""
_SHORT = 48


class TagRecipe(Recipe):
    """From tagged sentences to a model that tags words."""

    model_config = ConfigDict(json_schema_extra=preset_gives)
    METRICS: ClassVar[tuple[str, ...]] = ("accuracy", "f1")

    task: Literal["tag"]
    """tag: learn to give each word of a sentence a tag: parts of speech, names, chunks."""
    data: TagData
    """The tagged sentences: generated notices, or your own files in columns (CoNLL) or CoNLL-U."""
    text: WordTextConfig = GivenWords()
    """What words are looked up as: words by themselves, or cut into pieces."""
    model: TaggerConfig
    """The encoder, what it reads beside words, and how tags are chosen."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "TagRecipe":
        in_words = isinstance(self.text, GivenWords)
        if self.model.characters is not None and not in_words:
            raise ValueError(
                f"model.characters is {self.model.characters.kind}, but text.kind is {self.text.kind}: words are cut "
                "into pieces, which are read in their place. Set model.characters to null, or text.kind to words"
            )
        check_vectors(self.model.vectors, self.text.kind, takes_more=in_words)
        if isinstance(self.text, BpeText) and self.text.dropout > 0:
            raise ValueError("text.dropout cuts a text otherwise each time, which is not done for tagging: set it to 0")
        if isinstance(self.model.output, CrfOutput) and self.train.smoothing > 0:
            raise ValueError(
                f"train.smoothing is {self.train.smoothing}: it spreads a tag's probability word by word, but "
                "model.output is crf, which gives probabilities to whole paths: set it to 0, or use softmax"
            )
        return self

    def make_task(self, base: Path) -> "TagTask":
        return TagTask(self, base)

    def sentences(self, split: Split, base: Path, counts: TagCounts) -> Iterator[Tagged]:
        return split_tagged(self.data, split, base=base, counts=counts)

    def beginnings(self, base: Path) -> Iterator[tuple[Split, str]]:
        for split in ("train", "valid", "test"):
            if has_tagged(self.data, split):
                first = next(self.sentences(split, base, TagCounts()), None)
                some = [] if first is None else list(zip(first.words, first.tags, strict=True))[:6]
                shown = " ".join(f"{word}/{tag}" for word, tag in some)
                yield split, f"begins {shown}" if some else "holds no sentence"

    def checked(self, base: Path) -> dict[str, list[str]]:
        """What is in each split; words and tags of other splits that the training data do not have."""
        problems: list[str] = []
        told: dict[str, list[str]] = {}
        known_words: set[str] = set()
        known_tags: set[str] = set()
        for split in ("train", "valid", "test"):
            if not has_tagged(self.data, split):
                continue
            counts, found = TagCounts(), list[str]()
            rows = list(split_tagged(self.data, split, base=base, counts=counts, problems=found))
            if not rows and not found:
                found.append("no usable sentence")
            problems += [f"{split}: {problem}" for problem in found]
            told[split] = counts.sentences_told()
            words, tags = [word for row in rows for word in row.words], {tag for row in rows for tag in row.tags}
            if split == "train":
                known_words, known_tags = set(words), tags
                told[split].append(f"{len(known_words):,} different words; {len(tags):,} tags: {_few(sorted(tags))}.")
            elif words:
                unseen = sum(word not in known_words for word in words) / len(words)
                told[split].append(f"{100 * unseen:.1f} % of its words do not stand in train.")
                if tags - known_tags:
                    told[split].append(f"Tags that train does not have: {_few(sorted(tags - known_tags))}.")
        if problems:
            raise UsageError("\n".join(problems))
        return told

    def vocabularies(self, base: Path) -> tuple[dict[str, int], bool]:
        some = list(islice(self.sentences("train", base, TagCounts()), SAMPLE))
        tags = {tag for row in some for tag in row.tags}
        sizes = {"tags": max(1, len(tags))}
        if not isinstance(self.text, GivenWords):
            return {"pieces": getattr(self.text, "size", 260)} | sizes, False
        words = WordList.of(
            (row.words for row in some), size=self.text.size, characters=self.text.letters if self.spells else 0
        )
        more = 0 if self.model.vectors is None else self.model.vectors.more_words
        characters = {"characters": words.letters} if words.letters else {}
        return {"words": min(self.text.size, words.size + more)} | characters | sizes, False

    @property
    def spells(self) -> bool:
        """Whether the characters of words are read."""
        return self.model.characters is not None

    def scores(
        self, loaded: Loaded, files: Sequence[Path], split: Split, base: Path, *, confidence: Confidence = True
    ) -> dict[str, Score]:
        engine, counts = Engine.of(loaded), TagCounts()
        rows = list(self.to_score(files, split, base, engine.tags.scheme, counts))
        if not rows:
            raise UsageError(f"{' '.join(map(str, files)) or f'data.{split}'}: holds no sentence to score.")
        found = evaluate_tags(engine, [row.words for row in rows], [row.tags for row in rows], confidence=confidence)
        return Scores(found.scores, remarks=tuple(counts.mended_told()))

    def to_score(
        self, files: Sequence[Path], split: Split, base: Path, scheme: Scheme, counts: TagCounts
    ) -> Iterator[Tagged]:
        """Sentences of files as the recipe's own are, or else of its split; checked for tags of the scheme."""
        data = checking(self.data, scheme)
        if files:
            return split_tagged(tagged_like(self.data, files, scheme), "test", base=base, counts=counts)
        if not has_tagged(data, split):
            raise UsageError(f"the recipe names no data.{split}. Give files, or --split valid for the validation data.")
        return split_tagged(data, split, base=base, counts=counts)

    @staticmethod
    def next_command(run: Path) -> list[str]:
        store = Columns.open(run / "data" / "valid")
        some = [_line(store, row) for row in range(min(50, len(store["text"].offsets) - 1))]
        short = [line for line in some if len(line) <= _SHORT and line.isprintable()] or ["…"]
        return ["saccade", "tag", str(run), next((line for line in short if " " in line), short[0])]


def _few(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f", … ({len(names):,} in all)" if len(names) > most else "")


def _line(store: Columns, row: int) -> str:
    return store["text"][row].tobytes().decode("utf-8")


@dataclass(frozen=True)
class TagTask:
    recipe: TagRecipe
    base: Path

    name = "tag"
    files = (WORDS_FILE, TAGS_FILE)

    @property
    def tokens_depend_on(self) -> dict[str, Any]:
        model = self.recipe.model
        return {
            **vectors_of(model.vectors),
            "model.scheme": model.scheme,
            "model.characters are read": self.recipe.spells,
        }

    def learn(self, folder: Path) -> None:
        """One pass for the scheme where the recipe leaves it open, one for words, characters and tags."""
        recipe, text = self.recipe, self.recipe.text
        written = written_scheme(recipe.data, base=self.base)
        learnt: Scheme = "none" if written == "none" else recipe.model.scheme
        tags: list[tuple[str, ...]] = []

        def words() -> Iterator[tuple[str, ...]]:
            for row in recipe.sentences("train", self.base, TagCounts()):
                tags.append(rewritten(row, written=written, learnt=learnt, counts=TagCounts()).tags)
                yield row.words

        if isinstance(text, GivenWords):
            vectors = recipe.model.vectors
            more = () if vectors is None else vector_words(vectors.path, vectors.more_words, base=self.base)
            listed = WordList.of(
                words(),
                size=text.size,
                least=text.least,
                form=WordForm(text.lowercase, text.digits),
                characters=text.letters if recipe.spells else 0,
                given=more,
            ).to_json()
        else:
            lines = (" ".join(row) for row in words())
            listed = train_tokenizers(text, lines, [], recipe.seed).source.to_json()
        if not tags:
            raise UsageError("data.train holds no sentence. Check the files that it names.")
        write_file(folder / WORDS_FILE, listed)
        write_file(folder / TAGS_FILE, TagSet.of(tags, learnt).to_json())

    def write(self, folder: Path) -> None:
        text, tags = self._artefacts(folder)
        written = written_scheme(self.recipe.data, base=self.base) if tags.scheme != "none" else "none"
        for split in SPLITS:
            self._write_split(folder / "data" / split, split, text, tags, written)
        write_run_vectors(self.recipe.model.vectors, text.names(), folder, self.base)

    def _artefacts(self, folder: Path) -> tuple[WordList | PiecesOfWords, TagSet]:
        return read_words(folder, in_pieces=not isinstance(self.recipe.text, GivenWords)), read_tags(folder)

    def _write_split(
        self, folder: Path, split: Split, text: WordList | PiecesOfWords, tags: TagSet, written: Scheme
    ) -> None:
        counts, ids = TagCounts(), tags.ids
        dtypes: dict[str, Any] = {"source": ids_dtype(text.size), "target": ids_dtype(len(tags) + 1)}
        if text.in_pieces or text.letters:
            dtypes["inside"] = ids_dtype(text.size if text.in_pieces else text.letters)
        continued: list[int] = []
        with writing(folder, dtypes | ({"text": "uint8", "gold": "uint8"} if split == "valid" else {})) as writer:
            rows = 0
            kept = self._kept(split, tags.scheme, written, counts)
            for some in chunks(stretches(kept, MAX_WORDS, continued) if split == "valid" else kept):
                rows += len(some)
                if split == "valid":
                    append_lines(writer["text"], [" ".join(row.words) for row in some])
                    append_lines(writer["gold"], ["\n".join(row.tags) for row in some])
                    some = [row._replace(tags=tuple(converted(row.tags, tags.scheme))) for row in some]
                read = text.read([row.words for row in some])
                lengths = np.array([len(row.words) for row in some], dtype=np.int64)
                writer["source"].append(read.ids.numpy(), lengths)
                writer["target"].append(numbered(some, ids, counts), lengths)
                if read.inside is not None:
                    writer["inside"].append(read.inside.ids.numpy(), read.inside.layout.lengths_B.numpy())
            if not rows:
                told = " ".join(counts.sentences_told())
                raise UsageError(f"data.{split}: no usable sentence is left: {told} Check the files that it names.")
            writer.facts = {
                "rows": rows - len(continued),
                "unit": "sentences",
                CONTINUED: continued,
                "tokens": {"word": writer["source"].end},
                "counts": counts.by_sentence().to_dict(),
                READ: counts.to_dict(),
            }

    def _kept(self, split: Split, learnt: Scheme, written: Scheme, counts: TagCounts) -> Iterator[Tagged]:
        """Only training sentences may be too long: what is scored is scored whole."""
        data = checking(self.recipe.data, written)
        for row in split_tagged(data, split, base=self.base, counts=counts):
            fits = of_length(self.recipe.data, row, counts) if split == "train" else row
            if fits is not None:
                yield rewritten(fits, written=written, learnt=learnt, counts=counts)

    def open(self, folder: Path) -> "TagReady":
        stores: dict[str, Columns] = {split: Columns.open(folder / "data" / split) for split in SPLITS}
        vectors = open_run_vectors(self.recipe.model.vectors, folder)
        text, tags = self._artefacts(folder)
        if self.recipe.train.metric == "f1" and tags.scheme == "none":
            raise UsageError(
                "train.metric is f1, which counts spans, but the tags write none: choose accuracy, or say by "
                "data.scheme how spans are written."
            )
        return TagReady(self.recipe, text, tags, stores, vectors)
