"""Rows of the results table that are trained side by side."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import together
from bench.row import Row
from tests.support.rows import make_row, run


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(together, "TELL_EVERY", 0.1)


@pytest.fixture(autouse=True)
def _heeds_the_keyboard() -> Iterator[None]:
    """Where a shell has started the tests in the background they would not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_rows_run_at_once_have_logs_of_their_own_and_their_statuses_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each waits for what the other writes, so that one after the other would never end."""
    write_and_wait = "import pathlib, time; pathlib.Path({!r}).touch(); other = pathlib.Path({!r})\n"
    write_and_wait += "while not other.exists(): time.sleep(0.01)\ntime.sleep(0.3); print('done'); raise SystemExit({})"
    one, two = str(tmp_path / "1"), str(tmp_path / "2")
    commands = {"a": python(write_and_wait.format(one, two, 0)), "b": python(write_and_wait.format(two, one, 3))}
    assert together.side_by_side(commands, tmp_path / "logs", lambda: 1.0, lambda: "so far") == {"a": 0, "b": 3}
    assert {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()} == {
        "a.log": "done\n",
        "b.log": "done\n",
    }
    assert "so far" in capsys.readouterr().err


def test_a_row_begins_when_the_one_before_it_has_asked_for_its_places(tmp_path: Path) -> None:
    """The first asks late: when the second begins, it has."""
    share, seen = tmp_path / "share", tmp_path / "seen"
    share.mkdir()
    first = f"import pathlib, time; time.sleep(0.5); pathlib.Path({str(share / 'place-0')!r}).touch()"
    second = f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text(str(os.listdir({str(share)!r})))"
    commands = {"a": python(first), "b": python(second), "c": python("import time; time.sleep(0.1)")}
    together.side_by_side(commands, tmp_path / "logs", lambda: len(list(share.iterdir())) / 9, str)
    assert seen.read_text() == "['place-0']"


POLITE = """\
import pathlib, signal, time
from bench.results import end_as_by_the_keyboard
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell's background has it
end_as_by_the_keyboard()
try:
    {ready}
    time.sleep(60)
except KeyboardInterrupt:
    print("recorded")
"""
DEAF = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ready}; time.sleep(60)"


def waiting(marks: list[Path], *codes: str) -> dict[str, list[str]]:
    return {
        mark.name: python(code.format(ready=f"pathlib.Path({str(mark)!r}).touch()"))
        for mark, code in zip(marks, codes, strict=True)
    }


def when_ready(marks: list[Path], then: Callable[[], None]) -> None:
    def wait() -> None:
        while not all(mark.exists() for mark in marks):
            time.sleep(0.01)
        then()

    threading.Thread(target=wait, daemon=True).start()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_end_that_is_asked_for_reaches_every_row(tmp_path: Path, begun: list["subprocess.Popen[bytes]"]) -> None:
    marks = [tmp_path / "one", tmp_path / "two"]
    when_ready(marks, interrupt)
    statuses = together.side_by_side(waiting(marks, POLITE, POLITE), tmp_path / "logs", lambda: 1.0, str)
    assert statuses == {"one": 0, "two": 0}
    assert [process.returncode for process in begun] == [0, 0]
    assert [path.read_text() for path in (tmp_path / "logs").iterdir()] == ["recorded\n", "recorded\n"]


def test_those_that_do_not_hear_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list["subprocess.Popen[bytes]"]
) -> None:
    monkeypatch.setattr(together, "PATIENCE", 0.3)
    marks = [tmp_path / "deaf"]
    when_ready(marks, interrupt)
    together.side_by_side(waiting(marks, DEAF), tmp_path / "logs", lambda: 1.0, str)
    assert [process.returncode for process in begun] == [-signal.SIGKILL]


def test_asked_twice_nothing_is_waited_for(tmp_path: Path, begun: list["subprocess.Popen[bytes]"]) -> None:
    marks = [tmp_path / "deaf", tmp_path / "deafer"]

    def twice() -> None:
        interrupt()
        time.sleep(0.5)
        interrupt()

    when_ready(marks, twice)
    together.side_by_side(waiting(marks, DEAF, DEAF), tmp_path / "logs", lambda: 1.0, str)
    assert [process.returncode for process in begun] == [-signal.SIGKILL, -signal.SIGKILL]


def test_an_error_of_ours_leaves_nothing_running(tmp_path: Path, begun: list["subprocess.Popen[bytes]"]) -> None:
    marks = [tmp_path / "polite"]

    def progress() -> str:
        raise BrokenPipeError if marks[0].exists() else AssertionError

    with pytest.raises((BrokenPipeError, AssertionError)):
        together.side_by_side(waiting(marks, POLITE), tmp_path / "logs", lambda: 1.0, progress)
    assert [process.poll() is not None for process in begun] == [True]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[bytes]"]:
    """What was started meanwhile."""
    found: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def noted(command: list[str], **how: Any) -> "subprocess.Popen[bytes]":
        found.append(begin(command, **how))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    return found


def test_what_is_missing_is_told_row_by_row(tmp_path: Path) -> None:
    row = make_row(tmp_path)
    run(row, tmp_path, only=["B"])
    table = together.summary([row], tmp_path / "out", {"made": 0}, ())
    assert "made  1 of 2" in table
    assert "made: A × 1 (0 of 3 points)" in table


def test_the_service_lives_as_long_as_the_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, log, default = tmp_path / together.SERVICE, tmp_path / "log", tmp_path / "default"
    program.write_text(
        f'#!/bin/sh\necho "began $* $CUDA_MPS_PIPE_DIRECTORY" >> {log}\n[ $# = 1 ] && exit $FAILS\ncat >> {log}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAILS", "0")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setenv("CUDA_MPS_LOG_DIRECTORY", "somebody's")
    monkeypatch.setitem(together.SERVICE_FOLDERS, "CUDA_MPS_PIPE_DIRECTORY", str(default))
    with together.multi_process_service("cpu"):
        assert not log.exists()
    with together.multi_process_service("auto"):
        pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(pipe).is_dir()
        assert log.read_text() == f"began -d {pipe}\n"
    assert log.read_text() == f"began -d {pipe}\nbegan  {pipe}\nquit -t 10\n"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert os.environ["CUDA_MPS_LOG_DIRECTORY"] == "somebody's"
    monkeypatch.setenv("FAILS", "1")
    with together.multi_process_service("auto"):
        assert "take turns on the card" in capsys.readouterr().err
    default.mkdir()  # one runs there
    with together.multi_process_service("auto"):
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


MADE_ROW = """\
from dataclasses import replace
from pathlib import Path
from bench import results, row
results.read_row = lambda _: replace(row.read_row("made", Path({folder!r})), name={name!r})
results.main()
"""


def test_the_command_trains_rows_together_and_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {}
    for name, tune in (("one", [["score=3"], ["score=2"]]), ("two", [["waits=30"]])):
        (tmp_path / name).mkdir()
        row = make_row(tmp_path / name, settings=[{"name": "A", "seeds": [1]}], tune=tune)
        rows[name] = replace(row, name=name)
    monkeypatch.setattr(together, "read_row", rows.__getitem__)
    command = together._command

    def with_its_row(row: Row, options: argparse.Namespace, share: str) -> list[str]:
        """The very command, but that its row is read from where it was made."""
        program, _, _, *rest = command(row, options, share)
        return [program, "-c", MADE_ROW.format(folder=str(tmp_path / row.name), name=row.name), *rest]

    monkeypatch.setattr(together, "_command", with_its_row)
    out = tmp_path / "out"
    given = ["--out", str(out), "--device", "cpu", "--minutes", "0.13", "--prepared", str(tmp_path / "tokens")]
    monkeypatch.setattr(sys, "argv", ["together", "one", "two", *given])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        together.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    told = capsys.readouterr().out
    ones = [line.split() for line in told.splitlines()[2:4]]
    assert ones == [["one", "1", "of", "1", "0"], ["two", "0", "of", "1", "0"]]
    assert "two: A (0 of 1 points)" in told
    trials = json.loads((out / "one-a.json").read_text())["trials"]
    assert {trial["prepared"] for trial in trials} == {str(tmp_path / "tokens")}
    assert (out / "one.md").exists()
    assert "ended, to be trained again" in (out / "logs" / "two.log").read_text()


def test_a_row_trains_seeds_ahead_of_the_choice_where_it_has_the_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["together", "one", "two", "--ahead", "2"])
    options = together._options()
    told = {}
    for points in (1, 2):
        row = make_row(tmp_path, settings=[{"name": "A"}], tune=[[f"score={score}"] for score in range(points)])
        told[points] = together._command(row, options, "share")
    assert told[2] == [*told[1], "--ahead", "2"]


def test_a_row_that_needs_the_machine_to_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: dict[str, Row] = {"made": make_row(tmp_path, alone=True)}
    monkeypatch.setattr(together, "read_row", rows.__getitem__)
    monkeypatch.setattr(sys, "argv", ["together", "made", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"made: needs the machine to itself\. Use python -m bench\.results made"):
        together.main()
    monkeypatch.setattr(sys, "argv", ["together", "made", "--jobs", "0"])
    with pytest.raises(SystemExit):
        together.main()
    assert "int above 0" in capsys.readouterr().err
