"""Texts as a classifier reads them: one sequence, two, or a document of sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from saccade.text.sentences import sentences
from saccade.types import END, START, UNKNOWN, Tokens

Encode = Callable[[list[str]], list[list[int]]]
Row = list[list[int]]
"""The token ids of each sequence of an example: one; two texts that are read apart; the sentences of a document."""


@dataclass(frozen=True)
class Reading:
    """How texts become rows of token ids."""

    layout: Literal["sequence", "apart", "document"]
    starts: bool
    """A sequence begins with START."""
    ends: bool
    """A sequence ends in END; joined texts have it between them, too."""
    max_length: int
    """The most tokens of a text, or of a sentence, START and END not counted."""
    max_sentences: int
    max_characters: int | None = None
    """How much of a text is looked at."""

    @property
    def told(self) -> str:
        """The most that is read, in words."""
        if self.layout == "document":
            return f"{self.max_sentences:,} sentences of {self.max_length:,} tokens"
        return f"{self.max_length:,} tokens"

    @property
    def nests(self) -> bool:
        return self.layout != "sequence"

    def rows(self, examples: Sequence[tuple[str, ...]], encode: Encode) -> tuple[list[Row], list[bool]]:
        """Each example's sequences, and whether something of it was left out. A text is encoded with all others."""
        parts = [self.parts(texts) for texts in examples]
        ids = iter(encode([part for row, _ in parts for part in row]))
        rows, cut = [], []
        for row, shortened in parts:
            own = [next(ids) for _ in row]
            cut.append(shortened or any(len(each) > self.max_length for each in own))
            rows.append(self._marked([each[: self.max_length] for each in own]))
        return rows, cut

    def parts(self, texts: tuple[str, ...]) -> tuple[list[str], bool]:
        """What is encoded by itself; whether the rest was left out."""
        most = self.max_characters
        read = texts if most is None else tuple(text[:most] for text in texts)
        shortened = read != texts
        if self.layout != "document":
            return list(read), shortened
        found = [sentence for text in read for sentence in sentences(text)]
        return found[: self.max_sentences], shortened or len(found) > self.max_sentences

    def _marked(self, sequences: Row) -> Row:
        begin, end = [START] * self.starts, [END] * self.ends
        if self.layout == "sequence":
            return [[*begin, *(each for ids in sequences for each in (*ids, *end))]]
        marked = [[*begin, *ids, *end] for ids in sequences]
        return marked if self.layout == "apart" else [ids for ids in marked if ids]

    def tokens(self, rows: Sequence[Row]) -> Tokens:
        """Padded; texts that are read apart and the sentences of documents lie inside."""
        if not self.nests:
            return Tokens.of([row[0] for row in rows])
        outer = Tokens.of([[UNKNOWN] * len(row) for row in rows])
        inside = Tokens.of([sequence for row in rows for sequence in row])
        return Tokens(outer.ids, outer.layout, None, inside)
