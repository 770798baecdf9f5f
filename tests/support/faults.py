"""Disks that fill up and machines that stop, at any chosen write, flush, rename or removal of a file."""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

REMOVING = ("unlink", "rmdir")
CHANGING = ("rename", "replace", "mkdir")


class Crash(BaseException):
    """The machine stops: nobody gets to clean up."""


class Faults:
    """Counts the changes to the disk, and lets the chosen one fail."""

    def __init__(self, at: int | None, failure: Callable[[], BaseException], *, lasting: bool) -> None:
        self.at, self.failure, self.lasting, self.steps = at, failure, lasting, 0
        self.lock = threading.Lock()  # a run writes from more than one thread
        self.handles: dict[int, int] = {}
        """Of each file that was written, its inode and a handle of our own."""
        self.flushed: dict[int, int] = {}
        """How many of its bytes are on the disk for certain."""

    def check(self) -> None:
        with self.lock:
            self.steps += 1
            step = self.steps
        if self.at is not None and (step == self.at or (self.lasting and step > self.at)):
            raise self.failure()

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any, **options: Any) -> Any:
            self.check()
            return function(*args, **options)

        return failing

    def wrap_fsync(self, fsync: Callable[[int], None]) -> Callable[[int], None]:
        def failing(handle: int) -> None:
            self.check()
            before = os.fstat(handle)
            fsync(handle)
            if before.st_ino in self.handles:
                self.flushed[before.st_ino] = before.st_size

        return failing

    def wrap_open(self, open_file: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            opened = open_file(file, mode, *args, **options)
            return _Failing(opened, self) if mode in ("wb", "ab") else opened

        return opening

    def writes(self, handle: int) -> None:
        """Something is about to be written: what was there before this began is taken to be on the disk."""
        found = os.fstat(handle)
        with self.lock:
            if found.st_ino not in self.handles:
                self.handles[found.st_ino], self.flushed[found.st_ino] = os.dup(handle), found.st_size

    def power_cut(self) -> None:
        """Of what was not flushed, half is gone."""
        for inode, handle in self.handles.items():
            size, sure = os.fstat(handle).st_size, self.flushed[inode]
            os.ftruncate(handle, sure + max(0, size - sure) // 2)

    def close(self) -> None:
        for handle in self.handles.values():
            os.close(handle)


class _Failing:
    """A file of which only half of a write may arrive."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self.file, self.faults = file, faults

    def __enter__(self) -> "_Failing":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, content: bytes) -> None:
        self.faults.writes(self.file.fileno())
        half = len(content) // 2
        self.file.write(content[:half])
        self.faults.check()
        self.file.write(content[half:])


@contextmanager
def crash_at(step: int | None) -> Iterator[Faults]:
    """Stop before the step-th change to the disk (halfway through it, where it is a write); None only counts.

    Nothing is written from then on, whichever thread would.
    """
    faults = Faults(step, Crash, lasting=True)
    with _patched(faults, (*CHANGING, *REMOVING)):
        try:
            yield faults
        finally:
            if step is not None:
                faults.power_cut()
            faults.close()


@contextmanager
def full_disk_from(step: int | None, code: int = errno.ENOSPC) -> Iterator[Faults]:
    """From the step-th change on nothing more can be written; removing still works, unless all is read-only."""
    faults = Faults(step, lambda: OSError(code, os.strerror(code)), lasting=True)
    with _patched(faults, (*CHANGING, *REMOVING) if code in (errno.EROFS, errno.EACCES) else CHANGING):
        try:
            yield faults
        finally:
            faults.close()


@contextmanager
def _patched(faults: Faults, names: tuple[str, ...]) -> Iterator[None]:
    with ExitStack() as patches:
        patches.enter_context(mock.patch("io.open", faults.wrap_open(io.open)))
        patches.enter_context(mock.patch("os.fsync", faults.wrap_fsync(os.fsync)))
        for name in names:
            patches.enter_context(mock.patch(f"os.{name}", faults.wrap(getattr(os, name))))
        yield
