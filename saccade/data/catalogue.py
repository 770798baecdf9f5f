"""The data sets that `data get` knows: what is in them, their sums, and where they can be had."""

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import Field

from saccade.config import Section, parse, parse_yaml
from saccade.errors import UsageError


class CatalogueFile(Section):
    """One file of a data set."""

    bytes: int = Field(ge=0)
    """How long the text is, unpacked."""
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    """Of the text, unpacked: it does not matter how it was packed."""
    address: str | None = Field(None, pattern="^https?://")
    """Where it can be had; without one it comes from a mirror folder alone."""
    member: str | None = None
    """The address is of a zip archive: the file in it, by its last name."""
    form: Literal["text", "scan", "label-text"] = "text"
    """scan: lines `IN: a OUT: b` become a, tab, b; label-text: the first blank of a line becomes a tab."""


class DataSet(Section):
    """What belongs together, in a folder of its own."""

    about: str
    """In a line."""
    licence: str
    """As its makers state it."""
    home: str
    """Where to read more."""
    files: dict[str, CatalogueFile]
    """By the names that recipes have for them."""

    @property
    def public(self) -> bool:
        return all(file.address for file in self.files.values())


@cache
def catalogue() -> dict[str, DataSet]:
    text = (files("saccade.data") / "catalogue.yaml").read_text(encoding="utf-8")
    return {name: parse(DataSet, tree, name) for name, tree in parse_yaml(text, "catalogue").items()}


def find(name: str) -> DataSet:
    known = catalogue()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        raise UsageError(f"{name}: is not in the catalogue; {hint} `saccade data list` tells of all.")
    return known[name]
