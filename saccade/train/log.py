"""The log of a run, metrics.jsonl: one JSON object a line, and what becomes of it when a run goes on."""

import json
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from saccade.errors import SaccadeError


class Log:
    """Lines are added at its end; a resumed run cuts off what stands behind its checkpoint, and writes that again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if self.path.is_symlink():  # what it leads to is not ours to write on
            raise SaccadeError(f"{self.path}: is a link. Put the file itself there, or remove it.")
        try:
            with self.path.open("ab") as file:
                yield file
        except OSError as error:
            raise SaccadeError(
                f"{self.path}: cannot be written: {error.strerror or error}. Earlier checkpoints are intact; free some "
                "space and continue with --resume."
            ) from None

    def note(self, **values: Any) -> None:
        with self._opened() as file:
            file.write((json.dumps(values) + "\n").encode())

    def size(self) -> int:
        """Bytes so far."""
        with self._opened() as file:
            return file.tell()

    def flush(self) -> None:
        """All that was noted so far is on the disk."""
        with self._opened() as file:
            os.fsync(file.fileno())

    def cut(self, size: int) -> list[str]:
        """Keep the whole lines among the first `size` bytes; what was found amiss, in words."""
        remarks = []
        with self._opened() as file:
            there = file.tell()
            if there and self._whole_lines(there) < there:
                remarks.append(
                    f"{self.path}: its last line was torn, as by a kill while it was written; it is cut off."
                )
            if there < size:
                remarks.append(f"{self.path}: has {there:,} bytes; {size:,} were there when the checkpoint was saved.")
            file.truncate(self._whole_lines(min(size, there)))
        return remarks

    def _whole_lines(self, size: int) -> int:
        """Up to where the first `size` bytes are whole lines."""
        if size == 0:
            return 0
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.rfind(b"\n", 0, size) + 1
