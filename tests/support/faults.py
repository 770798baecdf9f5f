"""Disks that fill up and machines that stop, at any chosen write, flush, rename or removal of a file."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

REMOVING = ("unlink", "rmdir")
CHANGING = ("rename", "replace", "mkdir")


class Crash(BaseException):
    """The machine stops: nobody gets to clean up."""


class _Counted:
    """Calls the failure at the chosen step."""

    def __init__(self, at: int | None, failure: Callable[[], BaseException], *, lasting: bool) -> None:
        self.at, self.failure, self.lasting, self.steps = at, failure, lasting, 0

    def due(self) -> bool:
        self.steps += 1
        return self.at is not None and (self.steps == self.at or (self.lasting and self.steps > self.at))

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any, **options: Any) -> Any:
            if self.due():
                raise self.failure()
            return function(*args, **options)

        return failing

    def wrap_fsync(self, fsync: Callable[[int], None]) -> Callable[[int], None]:
        def failing(handle: int) -> None:
            if self.due():
                _lose_half(handle)  # what was not flushed may be gone
                raise self.failure()
            fsync(handle)

        return failing

    def wrap_open(self, open_file: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            opened = open_file(file, mode, *args, **options)
            return _Failing(opened, self) if mode in ("wb", "ab") else opened

        return opening


class _Failing:
    """A file of which only half of a write may arrive."""

    def __init__(self, file: Any, counted: _Counted) -> None:
        self.file, self.counted = file, counted

    def __enter__(self) -> "_Failing":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, content: bytes) -> int:
        if self.counted.due():
            self.file.write(content[: len(content) // 2])
            raise self.counted.failure()
        written: int = self.file.write(content)
        return written


def _lose_half(handle: int) -> None:
    try:
        os.ftruncate(handle, os.fstat(handle).st_size // 2)
    except OSError:  # a folder, or a file open to be read
        return


@contextmanager
def crash_at(step: int | None) -> Iterator[_Counted]:
    """Stop before the step-th change to the disk (halfway through it, where it is a write); None only counts."""
    counted = _Counted(step, Crash, lasting=False)
    with (
        _patched(counted, (*CHANGING, *REMOVING)),
        mock.patch("os.fsync", counted.wrap_fsync(os.fsync)),
    ):
        yield counted


@contextmanager
def full_disk_from(step: int | None) -> Iterator[_Counted]:
    """From the step-th change on nothing more can be written; removing still works."""
    full = _Counted(step, lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), lasting=True)
    with _patched(full, (*CHANGING, "fsync")):
        yield full


@contextmanager
def _patched(counted: _Counted, names: tuple[str, ...]) -> Iterator[None]:
    with ExitStack() as patches:
        patches.enter_context(mock.patch("io.open", counted.wrap_open(io.open)))
        for name in names:
            patches.enter_context(mock.patch(f"os.{name}", counted.wrap(getattr(os, name))))
        yield
