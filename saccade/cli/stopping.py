"""Ctrl-C and SIGTERM while a model trains: the update at hand is finished and saved; a second Ctrl-C does not wait."""

import os
import signal
import time
from types import FrameType
from typing import Any

_NOTICE = b"\nstopping after this update; Ctrl-C once more stops without saving\n"
_AT_ONCE = 2.0
"""Seconds in which further signals are the same wish, and must not disturb what clears up."""


class Stopping:
    """While entered, the first signal is remembered, and the loop asks for it by `asked`.

    Before `armed` is set there is nothing to finish and save: a signal then stops at once. `hangup`: the terminal's end
    is one, too, unless nohup has it ignored.
    """

    def __init__(self, *, hangup: bool = False) -> None:
        self.armed = False
        self.signal: int | None = None
        self._numbers = [signal.SIGINT, signal.SIGTERM]
        ended = getattr(signal, "SIGHUP", None)  # Windows has none
        if hangup and ended is not None and signal.getsignal(ended) is not signal.SIG_IGN:
            self._numbers.append(ended)
        self._before: dict[int, Any] = {}
        self._stopped = -_AT_ONCE

    def __enter__(self) -> "Stopping":
        self._before = {each: signal.signal(each, self._came) for each in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before if self.signal is None else self._on_the_way_out)

    def asked(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return 128 + (self.signal or signal.SIGINT)

    def _came(self, number: int, _: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = number
        if self.armed and not again:
            os.write(2, _NOTICE)  # not through sys.stderr: the signal may have come in the midst of a write to it
        elif not self.armed or number == signal.SIGINT:
            self._stop_at_once()

    def _stop_at_once(self) -> None:
        if self._is_another_wish():
            self._stopped = time.monotonic()
            raise KeyboardInterrupt

    def _is_another_wish(self) -> bool:
        return time.monotonic() - self._stopped >= _AT_ONCE

    def _on_the_way_out(self, number: int, _: FrameType | None) -> None:
        """A key that is pressed three times must not end in a traceback of what Python does last."""
        if self._is_another_wish():
            signal.signal(number, self._before[number])
            signal.raise_signal(number)
