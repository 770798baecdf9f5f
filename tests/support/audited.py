"""Loads and resumes run folders under an audit hook, and says what each of them made the interpreter do.

    python -m tests.support.audited GOOD FOLDERS

GOOD is a run that nothing is wrong with; FOLDERS holds folders called `load-N` and `resume-N`. One line of JSON each.
"""

import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

import saccade
from saccade.errors import SaccadeError
from saccade.train.events import Prepared

RUNS = ("exec", "compile", "import", "pickle.", "marshal.", "ctypes.", "code.__new__", "cpython.run_")
REACHES_OUT = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.spawn",
    "urllib.",
    "pty.",
)
CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.chmod",
    "os.truncate",
    "shutil.",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _writes(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & WRITING)


class Ear:
    """Hears everything; notes what nobody who only reads does. An audit hook cannot be taken off: it can be deaf."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self.may_change: str | None = None
        """Where files may be written: the folder of a run that goes on."""
        self.listens = False
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.listens:
            return
        if event.startswith((*RUNS, *REACHES_OUT)):
            self.noted.append(f"{event} {str(arguments)[:200]}")
        elif event.startswith(CHANGES) or (event == "open" and _writes(arguments[2])):
            self.changed(event, arguments[0])

    def changed(self, event: str, path: object) -> None:
        where = os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
        if self.may_change is None or not where.startswith(self.may_change + os.sep):
            self.noted.append(f"{event} {path!r}")

    @contextmanager
    def listening(self, may_change: Path | None) -> Iterator[None]:
        self.noted, self.may_change = [], os.path.realpath(may_change) if may_change else None
        self.listens = True
        try:
            yield
        finally:
            self.listens = False


def load(run: Path) -> None:
    saccade.load(run, "cpu")


def resume(run: Path) -> None:
    """As the command does: the recipe and where the data lie are read from the folder."""
    from saccade.checkpoint import recorded_base

    recipe = saccade.recipe(run / "train.yaml")
    training = saccade.training(recipe, run, resume=True, device="cpu", base=recorded_base(run))
    assert isinstance(next(training), Prepared)
    training.close()  # type: ignore[attr-defined]


def peak() -> int:
    """The most memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def warm_up(good: Path, beside: Path) -> None:
    """Everything that a good folder, and one with each file empty, makes Python import."""
    load(good)
    resume(Path(shutil.copytree(good, beside / "warm")))
    for path in sorted(good.rglob("*.*")):
        spoilt = Path(shutil.copytree(good, beside / "spoilt"))
        (spoilt / path.relative_to(good)).write_bytes(b"{")
        with suppress(SaccadeError):
            load(spoilt) if path.parent == good and path.suffix != ".yaml" else resume(spoilt)
        shutil.rmtree(spoilt)


def main() -> None:
    torch.set_num_threads(1)
    good, folders = Path(sys.argv[1]), Path(sys.argv[2])
    work = folders / "work"
    work.mkdir()
    os.chdir(work)  # where `touch pwned` would leave its mark
    warm_up(good, work)
    ear = Ear()
    for run in sorted(path for path in folders.iterdir() if path != work):
        goes_on = run.name.startswith("resume")
        before = peak()
        told: dict[str, Any] = {"folder": run.name}
        with ear.listening(run if goes_on else None):
            try:
                (resume if goes_on else load)(run)
                ends = "harmless"
            except SaccadeError as error:
                ends, told["error"] = "refused", str(error)
            except Exception as error:
                ends, told["error"] = "crashed", repr(error)[:500]
        told |= {"ends": ends, "noted": ear.noted, "grew": peak() - before}
        sys.stdout.write(json.dumps(told) + "\n")
    left = sorted(path.name for path in work.rglob("pwned*"))
    sys.stdout.write(json.dumps({"folder": "work", "left": left}) + "\n")


if __name__ == "__main__":
    main()
