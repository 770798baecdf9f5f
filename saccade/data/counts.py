"""What was read of the data, and what was done to it: counted by kind, with the first places of each."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

PLACES_PER_KIND = 5
Kind = Literal[
    "bom", "carriage_returns", "nul", "invalid_utf8", "empty", "too_long_cut", "too_long_dropped",
    "bad_rows", "trimmed", "other_split", "other_label", "repeated", "not_there",
]  # fmt: skip

_IN_WORDS: dict[Kind, str] = {
    "bom": "files that began with a byte-order mark, which was removed",
    "carriage_returns": "lines that ended in a carriage return, which was removed",
    "nul": "pairs that hold a NUL character, which was kept",
    "invalid_utf8": "lines that were not valid UTF-8, whose bad bytes became U+FFFD",
    "empty": "pairs left out because a side is empty",
    "too_long_cut": "pairs cut because a side is longer than max_length",
    "too_long_dropped": "pairs left out because a side is longer than max_length",
    "bad_rows": "rows left out because they could not be read",
    "trimmed": "lines left out at the end of the longer file, where the shorter one has no partner for them",
    "other_split": "pairs left out because they belong to another split of the same files",
    "other_label": "pairs left out because their label is none of those asked for",
    "repeated": "phrases left out because they occurred before",
    "not_there": "lines that `first` asks for beyond the end of the files, which have no more",
}


@dataclass
class Counts:
    """What was read and what was done to it.

    Always: lines = kept + empty + too_long_dropped + bad_rows + trimmed + other_split + other_label
    + repeated.
    """

    lines: int = 0
    """Rows read; a row of two files that belong together is one."""
    kept: int = 0
    bom: int = 0
    carriage_returns: int = 0
    nul: int = 0
    invalid_utf8: int = 0
    empty: int = 0
    too_long_cut: int = 0
    too_long_dropped: int = 0
    bad_rows: int = 0
    trimmed: int = 0
    other_split: int = 0
    """Nothing is wrong with these, so no places are noted."""
    other_label: int = 0
    """Nor of these."""
    repeated: int = 0
    """Nor of these: phrases of trees that were read before, whatever their label was."""
    not_there: int = 0
    """Lines that were asked for but could not be read, since the files end before."""
    places: list[str] = field(default_factory=list)
    """The first few places of each kind, as `kind file:line`."""

    def note(self, kind: Kind, place: str, *, times: int = 1) -> None:
        before: int = getattr(self, kind)
        setattr(self, kind, before + times)
        if before < PLACES_PER_KIND:
            self.places.append(f"{kind} {place}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def mended(self, unit: str = "pair") -> list[str]:
        """The same as `sentences`, where anything was left out or mended; else nothing."""
        told = self.sentences(unit)
        return told if len(told) > 1 else []

    def sentences(self, unit: str = "pair") -> list[str]:
        """What was done, in words: one sentence for each kind of thing that occurred. `unit`: what a row holds."""
        told = [f"{many(self.lines, 'row')} read, {many(self.kept, unit)} kept."]
        for kind, words in _IN_WORDS.items():
            count: int = getattr(self, kind)
            if unit != "pair":
                words = words.replace("pairs", f"{unit}s").replace("a side is", "they are")
            if count:
                where = [place.partition(" ")[2] for place in self.places if place.startswith(f"{kind} ")]
                more = ", …" if count > len(where) and kind != "trimmed" else ""
                places = f" ({', '.join(where)}{more})" if where else ""
                words = words.replace("pairs", f"{unit}s")
                told.append(f"{words[0].upper()}{words[1:]}: {count:,}{places}.")
        return told


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
