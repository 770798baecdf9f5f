"""The process of the `saccade` command: what comes before the command, and how it ends."""

import signal
import sys
from types import FrameType

_STOPPED = (129, 130, 143)


def main() -> None:
    try:
        _end_orderly()
        from saccade.cli.main import app, told  # takes a moment, in which Ctrl-C may come

        try:
            app(prog_name="saccade")
        except Exception as error:  # of the command line itself, as when its help cannot be written
            if (status := told(error)) is None:
                raise
            sys.exit(status)
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        _leave(130)
    except SystemExit as ended:
        _leave(ended.code)


def _end_orderly() -> None:
    """SIGTERM and a terminal that closes undo what is half done, as Ctrl-C does; but nohup is heeded."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def _leave(status: str | int | None) -> None:
    if status in _STOPPED:  # perhaps told so more than once: what is left is Python's own way out
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    sys.exit(status)
