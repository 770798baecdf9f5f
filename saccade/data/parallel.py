"""The settings of parallel text in files: where each split lies, and what is done to odd rows."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from saccade.config import Names, Section
from saccade.data.counts import many

OnBad = Literal["refuse", "repair"]
OnLong = Literal["cut", "drop", "refuse"]


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...]),
    Names.FILE,
]
Column = Annotated[int, Field(ge=1)]
Columns = Column | Annotated[tuple[Column, ...], Field(min_length=2)]
Fields = str | Annotated[tuple[str, ...], Field(min_length=2)]


_DESCRIBES = {  # setting → what must be given for it to say anything
    "columns": "tsv",
    "fields": "jsonl",
    "heads": "source/target",
    "heads_column": "tsv",
    "heads_field": "jsonl",
}


class Parallel(Section):
    """One split of the data: `source` and `target`, or `tsv`, or `jsonl`; each a path or a list of paths."""

    source: Paths | None = None
    """The file with the source sentences, one a line; or a list of files."""
    target: Paths | None = None
    """The file with their translations, line by line; or a list of as many files."""
    tsv: Paths | None = None
    """A file of tab-separated columns without a header and without quoting; or a list of files."""
    columns: tuple[Columns, Columns] = (1, 2)
    """Which columns of `tsv` are source and target, counted from 1; a list of columns is joined by single spaces."""
    jsonl: Paths | None = None
    """A file with one JSON object a line; or a list of files."""
    fields: tuple[Fields, Fields] = ("source", "target")
    """Which fields of the `jsonl` objects are source and target; of `a|b` the first that holds something is taken, and
    a list of fields is joined by single spaces."""
    heads: Paths | None = None
    """Beside `source`: a file with its dependency parse, a head for each word as in CoNLL-U; or a list of files."""
    heads_column: Annotated[int, Field(ge=1)] | None = None
    """Which column of `tsv` holds the heads of the source's words, where there are any."""
    heads_field: str | None = None
    """Which field of the `jsonl` objects holds the heads of the source's words, where there are any."""
    first: Annotated[int, Field(ge=1)] | None = None
    """Only so many lines are read, from the beginning of the first file on; none: all of them."""

    @model_validator(mode="after")
    def _one_layout(self) -> Self:
        given = [name for name in ("source/target", "tsv", "jsonl") if self._has(name)]
        if len(given) != 1:
            what = f"{' and '.join(given)} are" if given else "none is"
            raise ValueError(f"give either `source` and `target`, or `tsv`, or `jsonl`; {what} given.")
        if given == ["source/target"]:
            self._check_two_files()
        for name, needs in _DESCRIBES.items():
            if needs not in given and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"`{name}` describes `{needs}`, which is not given. Remove `{name}`.")
        return self

    @property
    def has_heads(self) -> bool:
        """Whether the source comes with a dependency parse."""
        return any(each is not None for each in (self.heads, self.heads_column, self.heads_field))

    @property
    def files(self) -> tuple[str, ...]:
        """All that it names."""
        every = (self.source, self.target, self.heads, self.tsv, self.jsonl)
        return tuple(name for names in every for name in names or ())

    def _has(self, layout: str) -> bool:
        return any(getattr(self, name) is not None for name in layout.split("/"))

    def _check_two_files(self) -> None:
        if self.source is None or self.target is None:
            there, missing = ("target", "source") if self.source is None else ("source", "target")
            raise ValueError(f"`{there}` is given without `{missing}`; a split in two files needs both.")
        if len(self.source) != len(self.target):
            raise ValueError(
                f"`source` names {many(len(self.source), 'file')} and `target` {many(len(self.target), 'file')}; "
                "they are read in pairs, so give as many of each."
            )
        if self.heads is not None and len(self.heads) != len(self.source):
            raise ValueError(
                f"`heads` names {many(len(self.heads), 'file')} and `source` {many(len(self.source), 'file')}; "
                "each file of heads belongs to one of sources, so give as many of each."
            )


class FilesData(Section):
    """Parallel text in your own files."""

    kind: Literal["files"] = "files"
    """Text in files."""
    train: Parallel
    """What the model learns from."""
    valid: Parallel | None = None
    """What the best checkpoint is chosen by; or `hold_out`."""
    test: Parallel | None = None
    """What the finished model is scored on."""
    hold_out: Annotated[float, Field(gt=0, lt=1)] | None = None
    """In place of `valid`: this share of `train` is not trained on but validated on. What a source says decides which
    of the two it belongs to, so none stands in both."""
    group: bool = False
    """Whether, when scored, pairs with the same source are one example with several right outputs."""
    max_length: Annotated[int, Field(ge=1)] = 512
    """The most tokens a side may have, the end mark not counted."""
    on_long: OnLong = "drop"
    """What happens to a longer training pair: `cut` it, `drop` it, or `refuse` to train."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8 and to rows that cannot be read: `refuse`, or `repair`
    (bad bytes become U+FFFD, unreadable rows are left out)."""
    trim: bool = False
    """Whether two files of unequal line counts are read up to the end of the shorter one, instead of refused."""

    @model_validator(mode="after")
    def _validated_by_something(self) -> Self:
        if (self.valid is None) == (self.hold_out is None):
            what = "none is" if self.valid is None else "both are"
            raise ValueError(f"give either `valid`, or the share of `train` to `hold_out` for it; {what} given.")
        return self
