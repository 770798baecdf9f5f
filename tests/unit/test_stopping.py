"""Ctrl-C that is pressed more than once, while a command ends and behind that; and terminals that close."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from saccade.cli.stopping import Stopping
from tests.support.cli import ROOT, write_corpus


@pytest.fixture
def came() -> Iterator[list[int]]:
    """What the handler that was there before has heard."""
    heard: list[int] = []

    def before(number: int, _: FrameType | None) -> None:
        heard.append(number)

    earlier = {number: signal.signal(number, before) for number in (signal.SIGINT, signal.SIGTERM)}
    yield heard
    for number, handler in earlier.items():
        signal.signal(number, handler)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("saccade.cli.stopping.time.monotonic", lambda: now[0])
    return now


def end_at_once(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), Stopping():
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_again_while_a_command_ends_is_the_same_wish(
    number: int, came: list[int], clock: list[float]
) -> None:
    end_at_once(number)
    for moment in (100.0, 101.9):
        clock[0] = moment
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert came == []


def test_later_it_is_another(came: list[int], clock: list[float]) -> None:
    end_at_once(signal.SIGINT)
    clock[0] = 102.1
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGINT, signal.SIGINT, signal.SIGTERM]


def test_after_a_graceful_stop_it_is_another_at_once(came: list[int], clock: list[float]) -> None:
    with Stopping() as waiting:
        waiting.armed = True
        signal.raise_signal(signal.SIGINT)
    assert waiting.asked()
    signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT]


def test_where_nothing_came_all_is_as_it_was(came: list[int]) -> None:
    with Stopping():
        pass
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]


# ---- terminals that close

AT_A_TERMINAL = """
import fcntl, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have it ignored, for the tests
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from saccade.cli.entry import main
main()
"""


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_a_training_whose_terminal_closes_saves_first(
    terminal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would still tell cannot be written there any more."""
    monkeypatch.chdir(tmp_path)
    recipe = write_corpus(tmp_path)
    never = ("updates=100000", "validate_every=100000", "log_every=1")
    settings = [part for each in never for part in ("--set", f"train.{each}")]
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, "train", recipe, *settings],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TERM": terminal},
    )
    os.close(slave)
    try:
        _read_until(master, Path("runs/train/metrics.jsonl"), lines=5)
        os.close(master)
        assert process.wait(timeout=60) == 129
    finally:
        process.kill()
        process.wait()
    (saved,) = Path("runs/train/checkpoints").glob("step-*")
    assert 3 <= int(saved.name.removeprefix("step-")) < 100000


def _read_until(terminal: int, file: Path, *, lines: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 1 << 16)
        if file.is_file() and file.read_bytes().count(b"\n") >= lines:
            return
    raise AssertionError(f"{file} has not {lines} lines after a minute")
