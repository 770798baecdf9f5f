"""Train a row of the results table, choose on validation data, score, and write what came out as JSON and as a page.

    python -m bench.results ROW [--out runs/results] [--jobs 2] [--device auto] [--minutes 9] [--set NAME=VALUE]…

Every setting is trained at every point of the row's grid with its first seed; the point that is best on the validation
data is trained with the other seeds. Each training is a process of its own and is recorded in --out when it ends: the
same command, given again, does what is missing. --minutes ends what is under way then. Rows that are given the same
folder to --share have --jobs trainings at a time together. --ahead N, where places are free, trains the other seeds of
the grid's point N before validation has chosen; they count if it chooses that one. --prepared keeps tokenizers and
tokens for all trainings on the same data (`bench.prepared`). --alone times each setting with the machine to itself.
--page writes the page of what is there.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.ledger import Job, JointJob, Ledger
from bench.results_page import page
from bench.row import Row, read_row

SPEED_UPDATES = 600
WAIT = 0.2
"""Seconds between two looks at whether a place is free."""
LOOK_AHEAD_EVERY = 5.0
"""Seconds between two looks at whether a place is free that nobody waits for."""


def main() -> None:
    options = _options()
    end_as_by_the_keyboard()
    try:
        _main(options)
    except KeyboardInterrupt:
        sys.exit(f"{options.row}: ended. What was recorded stays; the same command goes on from there.")


def _main(options: argparse.Namespace) -> None:
    row = read_row(options.row)
    _check_against(row, options)
    if row.alone:
        options.jobs = 1
    if not options.page:
        _check_folder(options.out)
    ledger = Ledger(row, options.out, tuple(options.set))
    runner = Runner(row, ledger, options, options.keep)
    if options.alone:
        runner.time_each_alone()
    elif not options.page:
        runner.work()
    if (text := page(ledger)) is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{options.row}.md").write_text(text, encoding="utf-8")
        print(text)
    elif options.page:
        how = f"--set {' --set '.join(options.set)}" if options.set else "no --set"
        sys.exit(
            f"{options.row}: {options.out} has nothing that was trained to its end with {how}; no page is written."
        )
    if runner.failed:
        sys.exit(f"{len(runner.failed)} failed: {', '.join(sorted(runner.failed))}")


def _check_against(row: Row, options: argparse.Namespace) -> None:
    if unknown := set(options.only) - {setting.name for setting in row.settings}:
        sys.exit(f"--only is {', '.join(unknown)}; {options.row} has {', '.join(each.name for each in row.settings)}.")
    if options.ahead and options.ahead > (most := max(len(setting.points) for setting in row.settings)):
        sys.exit(f"--ahead is {options.ahead}; {options.row} has {most} points to choose from. Name one of them.")
    if options.share and (row.alone or options.alone):
        sys.exit("--share: what needs the machine to itself has no others beside it. Leave --share out.")


def end_as_by_the_keyboard() -> None:
    """What asks us to end raises KeyboardInterrupt, so that trainings end, too; what nohup ignores stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _check_folder(out: Path) -> None:
    """Before anything is trained: what cannot be recorded would be lost."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        sys.exit(f"--out is {out}, which cannot be written to: {error.strerror or error}. Name another folder.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.results")
    parser.add_argument("row", help="a name in bench/rows")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--jobs", type=positive(int), default=2, help="trainings at a time")
    parser.add_argument("--share", type=Path, metavar="FOLDER", help="with all rows that are given the same one")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=positive(float), help="end after so long, whatever is under way")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for every training")
    parser.add_argument("--only", action="append", default=[], metavar="SETTING", help="leave the others out")
    parser.add_argument("--prepared", type=Path, metavar="FOLDER", help="where tokens are kept for all that read them")
    parser.add_argument("--ahead", type=positive(int), metavar="POINT", help="its other seeds, before it is chosen")
    parser.add_argument("--keep", type=Path, default=Path("runs/kept"), help="where runs stay that ensembles need")
    parser.add_argument("--alone", action="store_true", help="the training rate of each setting, one after the other")
    parser.add_argument("--page", action="store_true", help="train nothing: write the page")
    return parser.parse_args()


def positive(kind: type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        if not kind(text) > 0:
            raise ValueError
        return kind(text)

    number.__name__ = f"{kind.__name__} above 0"  # argparse tells it
    return number


class Runner:
    """Does what the ledger says is due, so many at a time."""

    def __init__(self, row: Row, ledger: Ledger, options: argparse.Namespace, folder: Path) -> None:
        self.row, self.ledger, self.options, self.folder = row, ledger, options, folder
        self.failed: set[str] = set()
        self._deadline = time.monotonic() + 60 * options.minutes if options.minutes else None
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.Lock()
        self._ended = False
        self._members = {member for ensemble in row.ensembles for member in ensemble.members}

    def work(self) -> None:
        with ThreadPoolExecutor(self.options.jobs) as pool:
            try:
                self._work(pool)
            except BaseException:  # the pool waits for its threads, and those for a place or for a training
                self._end_all()
                raise

    def _work(self, pool: ThreadPoolExecutor) -> None:
        running: dict[Future[dict[str, Any]], Job | JointJob] = {}
        while (left := self._left()) != 0.0:
            busy = {job.name for job in running.values()}
            for job in self._due(busy)[: self.options.jobs - len(running)]:
                running[pool.submit(self._spawn, job)] = job
            if not running:
                return
            ahead = self._ahead(busy | {job.name for job in running.values()})[: self.options.jobs - len(running)]
            for job in ahead[: self._idle_places(len(running))] if ahead else ():
                running[pool.submit(self._spawn, job)] = job
            look = LOOK_AHEAD_EVERY if ahead else None
            patience = min((each for each in (left, look) if each is not None), default=None)
            ended, _ = wait(running, timeout=patience, return_when=FIRST_COMPLETED)
            for future in ended:
                self._record(running.pop(future), future)
        for future in wait(running, timeout=0).done:
            self._record(running.pop(future), future)
        self._end_all()

    def _left(self) -> float | None:
        """Seconds until what is under way is to end."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _due(self, busy: set[str]) -> list[Job | JointJob]:
        kept = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
        return self._wanted(self.ledger.due(kept), busy)

    def _ahead(self, busy: set[str]) -> list[Job | JointJob]:
        return self._wanted(self.ledger.ahead(self.options.ahead), busy) if self.options.ahead else []

    def _wanted(self, jobs: Iterable[Job | JointJob], busy: set[str]) -> list[Job | JointJob]:
        wanted = self.options.only
        found = {job.name: job for job in jobs if job.name not in busy | self.failed}
        return [job for job in found.values() if not wanted or (isinstance(job, Job) and job.setting.name in wanted)]

    def _idle_places(self, running: int) -> int:
        """How many stay free when those that wait, of other rows, too, have had the time to take them.

        None while one of our own that are running waits for its place or has just left it: it may decide the choice.
        """
        if self.options.share is None:
            return int(self.options.jobs)
        least = int(self.options.jobs)
        for wait_before in (0.0, 4 * WAIT):  # a training that ended leaves its place first, then says so
            time.sleep(wait_before)
            least = min(least, _free_places(self.options.share, self.options.jobs))
            if least == 0 or len(self._processes) < running:
                return 0
        return least

    def _record(self, job: Job | JointJob, future: Future[dict[str, Any]]) -> None:
        try:
            told = future.result()
        except TrialFailed as failure:
            self.failed.add(job.name)
            print(f"{job.name}: {failure}", file=sys.stderr, flush=True)
            return
        self.ledger.record(job, told | {"jobs": self.options.jobs})
        best = ", ".join(f"{score['name']} {score['value']:.2f}" for score in told["scores"])
        print(f"{job.name}: {best or 'nothing'} after {told.get('seconds', 0):.0f} s", file=sys.stderr, flush=True)
        if best and self._lost(job):  # it would be due again, and again
            self.failed.add(job.name)
            print(f"{job.name}: left no run to take together with others", file=sys.stderr, flush=True)

    def _lost(self, job: Job | JointJob) -> bool:
        """A member of an ensemble whose run is not where it was to be kept."""
        if isinstance(job, JointJob) or job.setting.name not in self._members:
            return False
        return not (self.folder / self.ledger.folder_name(job)).exists()

    def _end_all(self) -> None:
        with self._lock:
            self._ended = True
            for name, process in self._processes.items():
                print(f"{name}: ended, to be trained again", file=sys.stderr, flush=True)
                process.terminate()

    def time_each_alone(self) -> None:
        for setting in self.row.settings:
            if setting.recipe and not (self.options.only and setting.name not in self.options.only):
                job = Job(setting, self.ledger.chosen(setting) or setting.points[0], setting.seeds[0])
                try:
                    told = self._spawn(job, "--speed", str(SPEED_UPDATES))
                except TrialFailed as failure:
                    self.failed.add(job.name)
                    print(f"{job.name}: {failure}", file=sys.stderr, flush=True)
                    continue
                self.ledger.record_alone(setting, told)
                rate = told["target_tokens_per_second"]
                print(f"{setting.name}: {rate:,.0f} tokens/s alone", file=sys.stderr, flush=True)

    def _spawn(self, job: Job | JointJob, *more: str) -> dict[str, Any]:
        command = [
            sys.executable,
            "-m",
            *self._module(job, keep=not more),
            "--seed",
            str(job.seed),
            "--device",
            self.options.device,
        ]
        settings = job.settings if isinstance(job, Job) else job.members[0].settings
        for change in (*settings, *self.options.set):
            command += ["--set", change]
        if self.options.prepared and isinstance(job, Job):
            command += ["--prepared", str(self.options.prepared)]
        with self._place() as lock:
            print(f"{job.name}: begins", file=sys.stderr, flush=True)
            status, output = self._run(job.name, [*command, *more], lock)
        if status:
            raise TrialFailed(f"failed with status {status}")
        try:
            told: dict[str, Any] = json.loads(output.splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            raise TrialFailed(f"its last line is no JSON: {output[-80:]!r}") from None
        return told

    def _run(self, name: str, command: list[str], lock: int | None) -> tuple[int, str]:
        """The training holds the lock as well, so that its place is taken for as long as it runs, whatever ends us."""
        held = () if lock is None else (lock,)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=held) as process:
            with self._lock:
                self._processes[name] = process
                if self._ended:
                    process.terminate()
            try:
                output, _ = process.communicate()
            except BaseException:
                process.terminate()
                raise
        with self._lock:
            del self._processes[name]
        return process.returncode, output

    @contextmanager
    def _place(self) -> Iterator[int | None]:
        """One of as many places as --jobs says, which rows that share a folder have together."""
        folder = self.options.share
        if folder is None:
            yield None
            return
        folder.mkdir(parents=True, exist_ok=True)
        while not self._ended:
            if (lock := _free_place(folder, self.options.jobs)) is not None:
                try:
                    yield lock
                finally:
                    os.close(lock)
                    time.sleep(2 * WAIT)  # whoever waits comes first
                return
            time.sleep(WAIT)
        raise TrialFailed("not begun before --minutes were over")

    def _module(self, job: Job | JointJob, *, keep: bool) -> list[str]:
        if isinstance(job, JointJob):
            folders = [str(self.folder / self.ledger.folder_name(member)) for member in job.members]
            recipe = job.members[0].setting.recipe or ""
            return ["bench.trial", "--row", self.row.name, "--recipe", recipe, "--members", *folders]
        if job.setting.program:
            return [job.setting.program]
        command = ["bench.trial", "--row", self.row.name, "--recipe", job.setting.recipe or ""]
        if keep and job.setting.name in self._members:
            command += ["--folder", str(self.folder / self.ledger.folder_name(job))]
        if first := job.setting.first:
            command += ["--first", first.recipe]
            for change in (*first.changes, *self.options.set):
                command += ["--first-set", change]
        return command


def _free_place(folder: Path, places: int) -> int | None:
    """A file that nobody else has locked, locked."""
    for place in range(places):
        lock = os.open(folder / f"place-{place}", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock
    return None


def _free_places(folder: Path, places: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    free = []
    while (lock := _free_place(folder, places)) is not None:
        free.append(lock)
    for lock in free:
        os.close(lock)
    return len(free)


class TrialFailed(Exception):
    """A training ended with an error; its own words are on stderr."""


if __name__ == "__main__":
    main()
