"""What is shown while a model trains: a live block on a terminal, else one plain line an event. All on stderr."""

import os
import sys
from typing import TYPE_CHECKING, Protocol

from saccade.cli.streams import tell
from saccade.cli.words import amount, duration, metric

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from saccade.train.events import Event, Logged, Prepared, Shrunk, Validated


class Display(Protocol):
    def __enter__(self) -> "Display": ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, event: "Event") -> None: ...

    def note(self, text: str) -> None:
        """A line that stays."""


def display(name: str, *, quiet: bool, minutes: float | None) -> Display:
    if quiet:
        return _Quiet()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return _Block(name, minutes)
    return _Lines()


class _Quiet:
    def __enter__(self) -> "Display":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, event: "Event") -> None:
        pass

    def note(self, text: str) -> None:
        tell(text)


class _Lines(_Quiet):
    def __init__(self) -> None:
        self.updates = 0

    def show(self, event: "Event") -> None:
        from saccade.train.events import Logged, Prepared, Shrunk, Validated

        match event:
            case Shrunk():
                self.note(shrunk(event))
            case Prepared():
                self.updates = event.updates
                for line in opening(event):
                    self.note(line)
            case Logged():
                self.note(f"update {event.update}/{self.updates}  {logged(event)}  {duration(event.seconds)}")
            case Validated():
                self.note(f"update {event.update}/{self.updates}  valid {validated(event)}")

    def note(self, text: str) -> None:
        tell(text)


class _Block(_Quiet):
    def __init__(self, name: str, minutes: float | None) -> None:
        self.name, self.minutes = name, minutes
        self.prepared: Prepared | None = None
        self.logged: Logged | None = None
        self.first: Logged | None = None
        self.validated: Validated | None = None
        self.best: Validated | None = None
        self.console: Console | None = None
        self.live: Live | None = None

    def __enter__(self) -> "Display":
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.console.print("preparing the data …", style="dim")
        self.live = Live(console=self.console, auto_refresh=False, transient=True, redirect_stdout=False)
        self.live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.__exit__(None, None, None)

    def note(self, text: str) -> None:
        if self.console is not None:
            self.console.print(text, markup=False)

    def show(self, event: "Event") -> None:
        from saccade.train.events import Logged, Prepared, Shrunk, Validated

        match event:
            case Shrunk():
                self.note(shrunk(event))
            case Prepared():
                self.prepared = event
                self.logged = self.first = self.validated = self.best = None  # another training may have been shown
                for line in opening(event):
                    self.note(line)
            case Logged():
                self.logged = event
                self.first = self.first or event
            case Validated():
                self.validated = event
                self.best = event if event.best else self.best
        if self.prepared is not None and self.live is not None:
            self.live.update(self._block(self.prepared), refresh=True)

    def _block(self, prepared: "Prepared") -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        update = self.logged.update if self.logged else prepared.done
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=prepared.updates, completed=update, width=32)
        head.add_row(Text(self.name, style="bold"), bar, f"{update:,}/{prepared.updates:,}", self._left(prepared))
        parts = [logged(self.logged)] if self.logged else ["the first updates …"]
        if self.validated is not None:
            parts.append(f"valid {validated(self.validated)}")
        if self.best is not None and self.best is not self.validated:
            parts.append(f"best at {self.best.update:,}: {validated(self.best)}")
        return Group(head, *(Text(part) for part in parts))

    def _left(self, prepared: "Prepared") -> str:
        """Time left, by the pace since the first line; the limit in minutes counts, too."""
        if self.logged is None or self.first is None or self.logged.update == self.first.update:
            return ""
        pace = (self.logged.seconds - self.first.seconds) / (self.logged.update - self.first.update)
        left = pace * (prepared.updates - self.logged.update)
        if self.minutes is not None:
            left = min(left, 60 * self.minutes - self.logged.seconds)
        return f"{duration(left)} left"


def opening(event: "Prepared") -> list[str]:
    words = ", ".join(f"{size:,} {what}" for what, size in event.vocabularies.items())
    begun = f", goes on at update {event.done:,}" if event.done else ""
    whole = f"{event.examples:,} {event.unit}, {words}, {amount(event.parameters)} parameters, on {event.device}{begun}"
    return [*event.remarks, whole]


def logged(event: "Logged") -> str:
    speed = f"{amount(event.tokens_per_second)} tokens/s"
    skipped = f"  {event.skipped} skipped: not finite" if event.skipped else ""
    return f"loss {event.loss:.3f}  {speed}  gradient {event.gradient_norm:.2f}  rate {event.rate:.1e}{skipped}"


def shrunk(event: "Shrunk") -> str:
    return (
        f"memory ran out at update {event.update}: batches are worked off in pieces of at most {event.fits:,} "
        "rows × longest side from here on; the tokens of an update stay the same"
    )


def validated(event: "Validated") -> str:
    shown = "  ".join(metric(key, value) for key, value in event.values.items())
    mean = f"  (mean of {event.averaged} checkpoints)" if event.averaged else ""
    return f"{shown}{mean}{'  *best' if event.best else ''}"
