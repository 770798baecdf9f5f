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
from contextlib import contextmanager
from pathlib import Path

from bench.ledger import Ledger
from bench.results import positive
from bench.row import Row, read_row
from saccade.view.table import render

SERVICE = "nvidia-cuda-mps-control"
APART = 3.0
"""Seconds between the starts of two rows: as long as one takes to ask for its places."""
LOOK_EVERY = 1.0
TELL_EVERY = 30.0
PATIENCE = 60.0
"""Seconds that rows have to end their trainings in, when they are told to."""


def main() -> None:
    options = _options()
    rows = [read_row(name) for name in dict.fromkeys(options.rows)]
    if alone := [row.name for row in rows if row.alone]:
        sys.exit(f"{', '.join(alone)}: needs the machine to itself. Use python -m bench.results {alone[0]}.")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as share, multi_process_service(options.device):
        commands = {row.name: _command(row.name, options, share) for row in rows}
        statuses = side_by_side(commands, options.out / "logs", lambda: _progress(rows, options.out))
    print(told(rows, options.out, statuses, tuple(options.set)))
    if any(statuses.values()):
        sys.exit(f"Not all is well: see the logs in {options.out / 'logs'}.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.together")
    parser.add_argument("rows", nargs="+", metavar="ROW", help="names in bench/rows")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--jobs", type=positive(int), default=2, help="trainings at a time, of all rows together")
    parser.add_argument("--minutes", type=positive(float), help="end after so long, whatever is under way")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for every training")
    return parser.parse_args()


def _command(name: str, options: argparse.Namespace, share: str) -> list[str]:
    command = [sys.executable, "-m", "bench.results", name, "--out", str(options.out), "--share", share]
    command += ["--jobs", str(options.jobs), "--device", options.device]
    for change in options.set:
        command += ["--set", change]
    return command + (["--minutes", str(options.minutes)] if options.minutes else [])


@contextmanager
def multi_process_service(device: str) -> Iterator[None]:
    """NVIDIA's, for what is started inside; nothing where it is not installed or runs already."""
    if device == "cpu" or shutil.which(SERVICE) is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for place in places.values():
            Path(place).mkdir()
        os.environ |= places
        try:
            subprocess.run([SERVICE, "-d"], check=True)
            yield
        finally:
            subprocess.run([SERVICE], input="quit\n", text=True, check=False)
            for name in places:
                del os.environ[name]


def side_by_side(commands: Mapping[str, list[str]], logs: Path, progress: Callable[[], str]) -> dict[str, int]:
    """Run them all until they end; their exit statuses. An interrupt ends them, and waits for what they record."""
    logs.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            time.sleep(APART if running else 0.0)
            with (logs / f"{name}.log").open("wb") as log:
                # In a session of its own: a Ctrl-C at the terminal reaches it through us, once.
                running[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        _watch(running, progress)
    except KeyboardInterrupt:
        _end(running)
    finally:
        signal.signal(signal.SIGTERM, before)
    return {name: process.wait() for name, process in running.items()}


def _watch(running: Mapping[str, "subprocess.Popen[bytes]"], progress: Callable[[], str]) -> None:
    last = time.monotonic()
    while any(process.poll() is None for process in running.values()):
        time.sleep(LOOK_EVERY)
        if time.monotonic() - last >= TELL_EVERY:
            last = time.monotonic()
            print(progress(), file=sys.stderr, flush=True)


def _end(running: Mapping[str, "subprocess.Popen[bytes]"]) -> None:
    for process in running.values():
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    for process in running.values():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _progress(rows: Sequence[Row], out: Path) -> str:
    return "trainings recorded: " + ", ".join(f"{row.name} {Ledger(row, out).recorded}" for row in rows)


def told(rows: Sequence[Row], out: Path, statuses: Mapping[str, int], extra: tuple[str, ...] = ()) -> str:
    """A line for each row: how many of its settings are whole, and whether it failed; then what is missing."""
    lines, missing = [], []
    for row in rows:
        left, settings = Ledger(row, out, extra).missing(), len(row.settings) + len(row.ensembles)
        lines.append(
            {"row": row.name, "whole": f"{settings - len(left)} of {settings}", "status": str(statuses[row.name])}
        )
        missing += [f"{row.name}: {each}" for each in left]
    table = render(lines, ["row", "whole", "status"])
    return "\n".join([table, *(["", "missing:", *missing] if missing else [])])


if __name__ == "__main__":
    main()
