"""Rows of the results table that are trained side by side."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bench import together
from bench.row import Row
from tests.support.rows import make_row, run


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "APART", 0.1)
    monkeypatch.setattr(together, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(together, "TELL_EVERY", 0.1)


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
    assert together.side_by_side(commands, tmp_path / "logs", lambda: "so far") == {"a": 0, "b": 3}
    assert {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()} == {
        "a.log": "done\n",
        "b.log": "done\n",
    }
    assert "so far" in capsys.readouterr().err


def test_rows_that_are_named_first_begin_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the pause before the next one to ask for its places in."""
    done: list[str] = []
    begin, pause = subprocess.Popen, time.sleep

    def began(command: list[str], **how: Any) -> "subprocess.Popen[bytes]":
        done.append(command[-1])
        return begin(command, **how)

    def paused(seconds: float) -> None:
        done.extend(["pause"] if seconds == together.APART else [])
        pause(seconds)

    monkeypatch.setattr(subprocess, "Popen", began)
    monkeypatch.setattr(time, "sleep", paused)
    together.side_by_side({name: python(f"# {name}") for name in "abc"}, tmp_path / "logs", str)
    assert done == ["# a", "pause", "# b", "pause", "# c"]


def test_an_end_that_is_asked_for_reaches_every_row_and_the_deaf_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "PATIENCE", 1.0)
    ready = "pathlib.Path({!r}).touch()\n"
    records = "import pathlib, time\ntry:\n  " + ready + "  time.sleep(60)\nexcept KeyboardInterrupt: print('recorded')"
    deaf = "import pathlib, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); " + ready + "time.sleep(60)"
    marks = [tmp_path / "1", tmp_path / "2"]
    commands = {"polite": python(records.format(str(marks[0]))), "deaf": python(deaf.format(str(marks[1])))}

    def ask() -> None:
        while not all(mark.exists() for mark in marks):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask).start()
    assert together.side_by_side(commands, tmp_path / "logs", str) == {"polite": 0, "deaf": -signal.SIGKILL}
    assert (tmp_path / "logs" / "polite.log").read_text() == "recorded\n"


def test_what_is_missing_is_told_row_by_row(tmp_path: Path) -> None:
    row = make_row(tmp_path)
    run(row, tmp_path, only=["B"])
    table = together.told([row], tmp_path / "out", {"made": 0})
    assert "1 of 2" in table
    assert "A × 1 (0 of 3 points)" in table
    assert together._progress([row], tmp_path / "out") == "trainings recorded: made 5"


def test_the_service_lives_as_long_as_the_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, log = tmp_path / together.SERVICE, tmp_path / "log"
    program.write_text(f'#!/bin/sh\necho "began $* $CUDA_MPS_PIPE_DIRECTORY" >> {log}\n[ $# = 1 ] || cat >> {log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    with together.multi_process_service("cpu"):
        assert not log.exists()
    with together.multi_process_service("auto"):
        pipe = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(pipe).is_dir()
        assert log.read_text() == f"began -d {pipe}\n"
    assert log.read_text() == f"began -d {pipe}\nbegan  {pipe}\nquit\n"
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    monkeypatch.setenv("PATH", "")
    with together.multi_process_service("auto"):
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


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
