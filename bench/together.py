"""Train several rows of the results table side by side on one machine, and tell how far each has come.

    python -m bench.together ROW… [--jobs 16] [--minutes 25] [--out runs/results] [--device auto] [--set NAME=VALUE]…

Each row is `python -m bench.results` with a log of its own in OUT/logs; all of them have --jobs trainings at a time
together, and rows that are named first begin first: name those with the longest trainings so. On a GPU they share it
through NVIDIA's multi-process service where that is installed, so that kernels of several processes run at once instead
of in turns. Ctrl-C, or --minutes, ends what is under way; what has been recorded stays, and the same command goes on
from there.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.ledger import Ledger
from bench.results import end_as_by_the_keyboard, positive
from bench.row import Row, read_row
from saccade.view.table import render

SERVICE = "nvidia-cuda-mps-control"
SERVICE_FOLDERS = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_LOG_DIRECTORY": "/var/log/nvidia-mps"}
"""Where it is talked to and where it writes, and where both are by default."""
LOOK_EVERY = 1.0
TELL_EVERY = 30.0
PATIENCE = 60.0
"""Seconds: for a row to ask for its first places, and for rows to end their trainings when they are told to."""
Rows = Mapping[str, subprocess.Popen[bytes]]
"""Those that were begun, by name."""


def main() -> None:
    options = _options()
    rows = [read_row(name) for name in dict.fromkeys(options.rows)]
    if alone := [row.name for row in rows if row.alone]:
        sys.exit(f"{', '.join(alone)}: needs the machine to itself. Use python -m bench.results {alone[0]}.")
    options.out.mkdir(parents=True, exist_ok=True)
    end_as_by_the_keyboard()
    with tempfile.TemporaryDirectory() as share, multi_process_service(options.device):
        commands = {row.name: _command(row, options, share) for row in rows}
        statuses = side_by_side(
            commands,
            options.out / "logs",
            lambda: len(list(Path(share).iterdir())) / options.jobs,
            lambda: _progress(rows, options.out, tuple(options.set)),
        )
    print(summary(rows, options.out, statuses, tuple(options.set)))
    if failed := [name for name, status in statuses.items() if status]:
        sys.exit(f"{', '.join(failed)}: did not end well; see the logs in {options.out / 'logs'}.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.together")
    parser.add_argument("rows", nargs="+", metavar="ROW", help="names in bench/rows")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--jobs", type=positive(int), default=2, help="trainings at a time, of all rows together")
    parser.add_argument("--minutes", type=positive(float), help="end after so long, whatever is under way")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--ahead", type=positive(int), metavar="POINT", help="its other seeds, where a row has it")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="where tokens are kept for all that read them")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for every training")
    return parser.parse_args()


def _command(row: Row, options: argparse.Namespace, share: str) -> list[str]:
    command = [sys.executable, "-m", "bench.results", row.name, "--out", str(options.out), "--share", share]
    command += ["--jobs", str(options.jobs), "--device", options.device]
    for change in options.set:
        command += ["--set", change]
    command += ["--prepared", str(options.prepared)] if options.prepared else []
    if options.ahead and any(len(setting.points) >= options.ahead for setting in row.settings):
        command += ["--ahead", str(options.ahead)]
    return command + (["--minutes", str(options.minutes)] if options.minutes else [])


@contextmanager
def multi_process_service(device: str) -> Iterator[None]:
    """NVIDIA's, for what is started inside; nothing where it is not installed, runs already or cannot be started."""
    running = "CUDA_MPS_PIPE_DIRECTORY" in os.environ or Path(SERVICE_FOLDERS["CUDA_MPS_PIPE_DIRECTORY"]).exists()
    if device == "cpu" or shutil.which(SERVICE) is None or running:
        yield
        return
    before = {name: os.environ.get(name) for name in SERVICE_FOLDERS}
    with tempfile.TemporaryDirectory() as folder:
        for name in SERVICE_FOLDERS:
            os.environ[name] = tempfile.mkdtemp(dir=folder)
        try:
            if subprocess.run([SERVICE, "-d"], check=False).returncode:
                print(f"{SERVICE} does not start: trainings take turns on the card.", file=sys.stderr, flush=True)
            yield
        finally:
            with suppress(subprocess.TimeoutExpired):
                subprocess.run([SERVICE], input="quit -t 10\n", text=True, check=False, timeout=PATIENCE)
            for name, value in before.items():
                os.environ.pop(name)
                os.environ |= {} if value is None else {name: value}


def side_by_side(
    commands: Mapping[str, list[str]], logs: Path, taken: Callable[[], float], progress: Callable[[], str]
) -> dict[str, int]:
    """Run them all until they end; their exit statuses. Whatever ends us ends them, and what they recorded stays.

    `taken`: which share of the places has been asked for; a row begins when the one before it has asked.
    """
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (logs / f"{name}.log").open("ab") as log:
                # In a session of its own: a Ctrl-C at the terminal reaches it through us, once.
                running[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            _wait_for_places(running[name], taken)
        _watch(running, progress)
    except KeyboardInterrupt:
        _end(running)
        return dict.fromkeys(running, 0)  # as it was asked for
    except BaseException:
        _end(running)
        raise
    return {name: process.wait() for name, process in running.items()}


def _wait_for_places(process: "subprocess.Popen[bytes]", taken: Callable[[], float]) -> None:
    before, deadline = taken(), time.monotonic() + PATIENCE
    while process.poll() is None and before == taken() < 1 and time.monotonic() < deadline:
        time.sleep(min(LOOK_EVERY, 0.1))


def _watch(running: Rows, progress: Callable[[], str]) -> None:
    last = time.monotonic()
    while any(process.poll() is None for process in running.values()):
        time.sleep(LOOK_EVERY)
        if time.monotonic() - last >= TELL_EVERY:
            last = time.monotonic()
            print(progress(), file=sys.stderr, flush=True)


def _end(running: Rows) -> None:
    """Ask them to, and wait; those that do not hear, and all of them if we are asked once more, are killed."""
    try:
        for process in running.values():
            process.terminate()  # not SIGINT: what a shell has in the background ignores that, and so do its children
        deadline = time.monotonic() + PATIENCE
        for process in running.values():
            process.wait(max(0.0, deadline - time.monotonic()))
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _progress(rows: Sequence[Row], out: Path, extra: tuple[str, ...]) -> str:
    return "whole: " + ", ".join(f"{row.name} {_whole(row, out, extra)}" for row in rows)


def _whole(row: Row, out: Path, extra: tuple[str, ...]) -> str:
    settings = len(row.settings) + len(row.ensembles)
    return f"{settings - len(Ledger(row, out, extra).missing())} of {settings}"


def summary(rows: Sequence[Row], out: Path, statuses: Mapping[str, int], extra: tuple[str, ...]) -> str:
    """A line for each row: how many of its settings are whole, and whether it ended well; then what is missing."""
    lines, missing = [], []
    for row in rows:
        lines.append({"row": row.name, "whole": _whole(row, out, extra), "status": str(statuses.get(row.name, ""))})
        missing += [f"{row.name}: {each}" for each in Ledger(row, out, extra).missing()]
    table = render(lines, ["row", "whole", "status"])
    return "\n".join([table, *(["", "missing:", *missing] if missing else [])])


if __name__ == "__main__":
    main()
