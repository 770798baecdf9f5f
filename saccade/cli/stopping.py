"""Ctrl-C, SIGTERM and a terminal that closes while a model trains: the update at hand is finished and saved.

A second Ctrl-C does not wait.
"""

import os
import signal
import time
from contextlib import suppress
from types import FrameType
from typing import Any

_NOTICE = b"\nstopping after this update; Ctrl-C once more stops without saving\n"
_HANGUP = getattr(signal, "SIGHUP", None)  # Windows has none
_AT_ONCE = 2.0
"""Seconds in which further signals are the same wish, and must not disturb what clears up."""


class Stopping:
    """While entered, the first signal is remembered, and the loop asks for it by `asked`.

    Before `armed` is set there is nothing to finish and save: a signal then stops at once. The terminal's end is one,
    too, unless nohup has it ignored.
    """

    def __init__(self) -> None:
        self.armed = False
        self.signal: int | None = None
        self._numbers = [signal.SIGINT, signal.SIGTERM]
        if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:
            self._numbers.append(_HANGUP)
        self._at_terminal = [handle for handle in (1, 2) if os.isatty(handle)]
        self._before: dict[int, Any] = {}
        self._stopped = -_AT_ONCE

    def __enter__(self) -> "Stopping":
        self._before = {each: signal.signal(each, self._came) for each in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before if self._is_another_wish() else self._on_the_way_out)

    def asked(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return 128 + (self.signal or signal.SIGINT)

    def _came(self, number: int, _: FrameType | None) -> None:
        again = self.signal is not None
        self.signal = number
        if number == _HANGUP:
            self._leave_terminal()
        if self.armed and not again:
            with suppress(OSError):  # a log that is full does not end the training
                os.write(2, _NOTICE)  # not through sys.stderr: the signal may have come in the midst of a write to it
        elif not self.armed or number == signal.SIGINT:
            self._stop_at_once()

    def _leave_terminal(self) -> None:
        """What is still written would fail there, and with it what is still to be done."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for handle in self._at_terminal:
            os.dup2(nowhere, handle)
        os.close(nowhere)

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
