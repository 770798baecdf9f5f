"""Labelled text in: TSV, JSON lines or labelled trees; nothing is lost without being counted."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, StrictInt, StrictStr, model_validator

from saccade.config import Section
from saccade.data.counts import Counts, Kind, many
from saccade.data.files import File, OnBad, OnLong, Paths, _Reader, locate, raw_lines
from saccade.data.json_rows import read_row
from saccade.data.labelled_trees import phrases
from saccade.errors import UsageError

Where = Annotated[StrictInt, Field(ge=1)] | Annotated[StrictStr, Field(min_length=1)]
"""A column's number, from 1, or its name; or the name of a field."""
_AT: dict[str, tuple[int, str]] = {"label": (1, "label"), "text": (2, "text")}
"""Where a label and a text stand if nothing is said: the column, and the field."""

SHOWN = 8
"""Labels that an error names."""


def _as_names(value: Any) -> Any:
    """YAML reads a label 0 as a number."""
    if not isinstance(value, dict):
        return value
    return {_as_name(key): _as_name(name) for key, name in value.items()}


def _as_name(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Renamed = Annotated[
    dict[str, str],
    Field(min_length=1),
    BeforeValidator(_as_names, json_schema_input_type=dict[str | int, str | int]),
]


class Labelled(Section):
    """One split of the data: `tsv`, `jsonl` or `trees`, each a path or a list of paths."""

    tsv: Paths | None = None
    """A file of tab-separated columns without quoting; or a list of files."""
    jsonl: Paths | None = None
    """A file with one JSON object a line; or a list of files."""
    trees: Paths | None = None
    """A file with one tree a line, a label at every node, as in the Stanford Sentiment Treebank; or a list of files."""
    phrases: bool = False
    """Of `trees`: every phrase with its own label, each different one once; else sentences with the label of all."""
    label: Where | None = None
    """Which column of `tsv`, from 1, or field of `jsonl` holds the label: column 1, field `label`."""
    text: Where | None = None
    """Which column or field holds the text: column 2, field `text`."""
    second: Where | None = None
    """Which column or field holds the second text, where there are two."""
    header: bool = False
    """The first line of each `tsv` file names its columns, which may then be given by name."""
    labels: Renamed | None = None
    """Labels as they are written → as they are learnt; texts with any other label are left out, and counted."""

    @model_validator(mode="after")
    def _one_layout(self) -> Self:
        given = [name for name in ("tsv", "jsonl", "trees") if getattr(self, name) is not None]
        if len(given) != 1:
            told = f"{' and '.join(f'`{name}`' for name in given)} are" if given else "none is"
            raise ValueError(f"give one of `tsv`, `jsonl` and `trees`; {told} given.")
        if self.header and self.tsv is None:
            raise ValueError("`header` describes `tsv`, which is not given. Remove `header`.")
        if self.phrases and self.trees is None:
            raise ValueError("`phrases` describes `trees`, which is not given. Remove `phrases`.")
        for name in ("label", "text", "second"):
            where = getattr(self, name)
            if self.trees is not None and where is not None:
                raise ValueError(f"`{name}` is {where!r}, but `trees` have their labels and words in themselves.")
            if self.jsonl is not None and isinstance(where, int):
                raise ValueError(f"`{name}` is {where}; of `jsonl` it is the name of a field.")
            if self.tsv is not None and isinstance(where, str) and not self.header:
                raise ValueError(
                    f"`{name}` is {where!r}; of `tsv` it is the number of a column, or its name where `header` is true."
                )
        return self

    @property
    def texts(self) -> int:
        return 1 if self.second is None else 2

    @property
    def files(self) -> tuple[str, ...]:
        """All that it names."""
        return self.tsv or self.jsonl or self.trees or ()

    def places(self) -> list[Where]:
        """Where the label and the texts stand."""
        of = 0 if self.tsv is not None else 1
        found: list[Where] = [getattr(self, name) or default[of] for name, default in _AT.items()]
        return found if self.second is None else [*found, self.second]


class LabelledData(Section):
    """Labelled text in your own files."""

    kind: Literal["files"] = "files"
    """Text in files."""
    train: Labelled
    """What the model learns from."""
    valid: Labelled | None = None
    """What the best checkpoint is chosen by; where it is not given, a share of `train` is held out."""
    test: Labelled | None = None
    """What the finished model is scored on."""
    hold_out: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """The share of `train` that is validated on instead, where `valid` is not given: equal texts stay together."""
    max_length: Annotated[int, Field(ge=1)] = 512
    """The most tokens a text, or a sentence of a document, may have."""
    max_sentences: Annotated[int, Field(ge=1)] = 100
    """The most sentences a document may have, for models that read sentence by sentence."""
    on_long: OnLong = "cut"
    """What happens to a longer training text: `cut` it, `drop` it, or `refuse` to train."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8 and to rows that cannot be read: `refuse`, or `repair`
    (bad bytes become U+FFFD, unreadable rows are left out)."""

    @model_validator(mode="after")
    def _as_many_texts(self) -> Self:
        for name in ("valid", "test"):
            split = getattr(self, name)
            if split is not None and split.texts != self.train.texts:
                raise ValueError(
                    f"`train` has {many(self.train.texts, 'text')} a row and `{name}` {split.texts}: set `second` in "
                    "both, or in none"
                )
        return self

    @model_validator(mode="after")
    def _phrases_held_out(self) -> Self:
        # A phrase is part of others of its tree: a share of them would be validated on words that were learnt.
        if self.train.phrases and self.valid is None:
            raise ValueError(
                "`train.phrases` is true and `valid` is not given: phrases of one tree would be learnt and validated "
                "on. Name other trees in `valid`, or set `train.phrases` to false"
            )
        return self

    @property
    def texts(self) -> int:
        return self.train.texts


class Example(NamedTuple):
    """A label and what it was given to, and where they stand."""

    label: str
    texts: tuple[str, ...]
    place: str


class _Rows:
    """One pass over one split's files."""

    def __init__(self, split: Labelled, reader: _Reader) -> None:
        self.split, self.reader = split, reader

    def __iter__(self) -> Iterator[Iterator[Example]]:
        for name in self.split.files:
            file = locate(name, self.reader.base)
            if self.split.tsv is not None:
                yield self._tsv(file)
            else:
                yield self._trees(file) if self.split.jsonl is None else self._jsonl(file)

    def _tsv(self, file: File) -> Iterator[Example]:
        columns: list[int] | None = None
        with closing(raw_lines(file)) as rows:
            for number, raw in enumerate(rows, start=1):
                place, cells = f"{file.name}:{number}", self.reader.text(raw, number, file).split("\t")
                if columns is None:
                    columns = self._columns(cells, place)
                    if self.split.header:
                        continue
                if len(cells) <= max(columns):
                    missing = max(columns)
                    what = ("label", "text", "second text")[columns.index(missing)]
                    told = f"the row has {many(len(cells), 'column')}; the {what} stands in column {missing + 1}"
                    self.reader.bad_row(place, told)
                    continue
                yield from self._example([cells[column] for column in columns], place)

    def _columns(self, first: list[str], place: str) -> list[int]:
        """The columns' places, from 0; by their names in the first line where they have any."""
        found = []
        for where in self.split.places():
            if isinstance(where, int):
                found.append(where - 1)
            elif first.count(where) == 1:
                found.append(first.index(where))
            else:
                wrong = "no column" if where not in first else "more than one column"
                raise UsageError(f"{place}: the header has {wrong} {where!r}; it has {', '.join(map(repr, first))}.")
        return found

    def _jsonl(self, file: File) -> Iterator[Example]:
        fields = [str(each) for each in self.split.places()]
        with closing(raw_lines(file)) as rows:
            for number, raw in enumerate(rows, start=1):
                place = f"{file.name}:{number}"
                try:
                    row = read_row(self.reader.text(raw, number, file))
                    values = [_label_of(row, fields[0]), *(_text_of(row, field) for field in fields[1:])]
                except ValueError as error:
                    self.reader.bad_row(place, str(error))
                    continue
                yield from self._example([self.reader.encodable(value, place) for value in values], place)

    def _trees(self, file: File) -> Iterator[Example]:
        with closing(raw_lines(file)) as rows:
            for number, raw in enumerate(rows, start=1):
                place = f"{file.name}:{number}"
                try:
                    nodes = phrases(self.reader.text(raw, number, file))
                except ValueError as error:
                    self.reader.bad_row(place, f"no tree with a label at every node: {error}")
                    continue
                for label, text in nodes if self.split.phrases else nodes[-1:]:
                    yield Example(label, (text,), place)

    def _example(self, values: Sequence[str], place: str) -> Iterator[Example]:
        label = values[0].strip()
        if label:
            yield Example(label, tuple(values[1:]), place)
        else:
            self.reader.bad_row(place, "the label is empty")


def _label_of(row: dict[str, Any], field: str) -> str:
    """A label may be a word, a whole number, or true or false."""
    value = _held(row, field)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)):
        return str(value)
    raise ValueError(f"the field {field!r} holds {type(value).__name__}; a label is a string or a whole number")


def _text_of(row: dict[str, Any], field: str) -> str:
    value = _held(row, field)
    if not isinstance(value, str):
        raise ValueError(f"the field {field!r} holds {type(value).__name__}, not a string")
    return value


def _held(row: dict[str, Any], field: str) -> Any:
    if field not in row:
        there = ", ".join(repr(name) for name in list(row)[:8]) or "no field"
        raise ValueError(f"the object has no field {field!r}; it has {there}")
    return row[field]


def labelled(
    split: Labelled,
    *,
    base: Path,
    on_bad: OnBad = "refuse",
    counts: Counts,
    keep_empty: bool = False,
    problems: list[str] | None = None,
    chosen: "Chosen | None" = None,
) -> Iterator[Example]:
    """The split's examples, streaming. What is left out or mended is counted; what is refused raises a UsageError.

    `keep_empty` hands on examples without any text too, for evaluation, where each counts. With `problems`, what would
    be refused is told there and read on past. `chosen`: only these, the others being no part of the split; what cannot
    be read is none that was held out, so that of two sides of the same files one alone tells of it.
    """
    aside = chosen is not None and chosen.held_out
    noted = _Noted() if chosen is not None else counts
    reader = _Reader(base, on_bad, False, noted, [] if aside and problems is not None else problems)
    sieve = _Sieve(split, counts, keep_empty=keep_empty)
    for rows in _Rows(split, reader):
        try:
            for example in rows:
                if chosen is not None and isinstance(noted, _Noted):
                    belongs = chosen.has(example)
                    noted.tell(counts, others=not aside, place=example.place, own=belongs)
                    if not belongs:
                        continue
                kept = sieve.kept(example)
                if kept is not None:
                    yield kept
            if isinstance(noted, _Noted):
                noted.tell(counts, others=not aside)
        except UsageError as error:
            if problems is None:
                raise
            problems.append(str(error))
    wrong = sieve.all_others()
    if wrong is not None:
        reader.refuse(wrong)


class _Sieve:
    """Which of a split's examples are handed on, by the names that their labels are learnt by; others are counted."""

    def __init__(self, split: Labelled, counts: Counts, *, keep_empty: bool) -> None:
        self.split, self.counts, self.keep_empty = split, counts, keep_empty
        self.read_before: set[str] = set()
        """Phrases of trees, whichever file they stood in."""
        self.others: set[str] = set()
        self.any_named = False

    def kept(self, example: Example) -> Example | None:
        counts, names = self.counts, self.split.labels
        counts.lines += 1
        if self.split.phrases:
            if example.texts[0] in self.read_before:
                counts.repeated += 1
                return None
            self.read_before.add(example.texts[0])
        if names is not None:
            if example.label not in names:
                counts.other_label += 1
                self.others.add(example.label)
                return None
            self.any_named = True
            example = example._replace(label=names[example.label])
        if any("\0" in text for text in example.texts):
            counts.note("nul", example.place)
        if not self.keep_empty and not any(text.strip() for text in example.texts):
            counts.note("empty", example.place)
            return None
        counts.kept += 1
        return example

    def all_others(self) -> str | None:
        """What is wrong where `labels` leaves nothing."""
        if self.any_named or not self.others or self.split.labels is None:
            return None
        asked, there = (", ".join(map(repr, sorted(names)[:SHOWN])) for names in (self.split.labels, self.others))
        return (
            f"{', '.join(self.split.files)}: `labels` leaves no text: it names {asked}; the texts have {there}. Name "
            "labels as they stand in the files, or leave `labels` out."
        )


class _Noted(Counts):
    """What was noted of rows of which it is not known yet whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[Kind, str]] = []

    def note(self, kind: Kind, place: str, *, times: int = 1) -> None:
        super().note(kind, place, times=times)
        self.notes += [(kind, place)] * times

    def tell(self, counts: Counts, *, others: bool, place: str = "", own: bool = False) -> None:
        """Hand on what was noted of this place, if it is the split's own, and of the others; then forget all of it."""
        for kind, at in self.notes:
            if own if at == place else others:
                counts.lines += kind == "bad_rows"
                counts.note(kind, at)
        self.notes.clear()


class Chosen(NamedTuple):
    """A share of the rows, or all others: by what they say, so that the same text is never on both sides."""

    share: float
    held_out: bool

    def has(self, example: Example) -> bool:
        key = "\t".join(example.texts).encode("utf-8", "replace")
        digest = blake2b(key, digest_size=8, key=b"saccade held out").digest()
        return (int.from_bytes(digest, "little") / 2**64 < self.share) == self.held_out
