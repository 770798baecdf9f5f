"""Even draws from a key alone: what is generated is a pure function of its seed, split and index."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Even draws from a key alone. `random.Random` costs more to seed than a whole example here costs to write."""

    __slots__ = ("_block", "_key", "_pool")

    def __init__(self, key: str) -> None:
        self._key, self._block, self._pool = key, 0, 0

    def below(self, bound: int) -> int:
        if self._pool < 1 << 64:  # what is left must be far wider than any bound, or small results would be favoured
            digest = blake2b(f"{self._key}/{self._block}".encode()).digest()
            self._pool = int.from_bytes(digest, "little")
            self._block += 1
        self._pool, drawn = divmod(self._pool, bound)
        return drawn

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]
