"""Ctrl-C and SIGTERM while a model trains: the update at hand is finished and saved; a second Ctrl-C does not wait."""

import os
import signal
from types import FrameType
from typing import Any

_NOTICE = b"\nstopping after this update; Ctrl-C once more stops without saving\n"


class Stopping:
    """While entered, the first signal is remembered, and the loop asks for it by `asked`.

    Before `armed` is set there is nothing to finish and save: a signal then stops at once.
    """

    def __init__(self) -> None:
        self.armed = False
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Stopping":
        self._before = {each: signal.signal(each, self._came) for each in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)

    def asked(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return 128 + (self.signal or signal.SIGINT)

    def _came(self, number: int, _: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = number
        if not self.armed or (again and number == signal.SIGINT):
            raise KeyboardInterrupt
        if not again:
            os.write(2, _NOTICE)  # not through sys.stderr: the signal may have come in the midst of a write to it
