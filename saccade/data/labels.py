"""The labels that a classifier tells apart, by number. 0 stands for a label that was never seen in training."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from saccade.errors import UsageError
from saccade.types import PAD


@dataclass(frozen=True)
class Labels:
    names: tuple[str, ...]
    """The one at place i has the id i + 1."""

    @staticmethod
    def of(seen: Iterable[str]) -> "Labels":
        """All labels that were seen, numbers in their order, then words in theirs."""
        return Labels(tuple(sorted(set(seen), key=_in_order)))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names, start=1)}

    def id(self, name: str) -> int:
        """PAD where the label is none of these: no loss counts it."""
        return self._ids.get(name, PAD)

    def name(self, number: int) -> str:
        return self.names[number - 1]

    def to_json(self) -> str:
        return json.dumps(list(self.names), ensure_ascii=False, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, origin: str) -> "Labels":
        try:
            names: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{origin}: is not a list of labels ({error}).") from None
        whole = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
        if not whole or not names or len(set(names)) < len(names):
            raise UsageError(f"{origin}: is not a list of labels: it must hold strings, each once.")
        return Labels(tuple(names))


def _in_order(name: str) -> tuple[int, int, str]:
    number = name.removeprefix("-")
    if number.isdecimal() and number.isascii() and len(number) < 20:
        return 0, int(name), name
    return 1, 0, name
