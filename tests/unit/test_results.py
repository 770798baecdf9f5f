"""The runner of the results table: what it trains, in which order it chooses, what it keeps."""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench import results
from bench.ledger import Job, JointJob, Ledger
from bench.results import Runner
from bench.row import read_row, row_names
from saccade import presets
from tests.support.rows import GRID, make_row, run, told_page


def trained(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def test_every_point_is_tried_with_one_seed_and_the_best_on_validation_gets_the_others(tmp_path: Path) -> None:
    row = make_row(tmp_path, set=[f"log={tmp_path / 'log'}"])
    ledger, runner = run(row, tmp_path)
    assert not runner.failed
    assert len(trained(tmp_path / "log")) == 2 * (3 + 2)
    for setting in row.settings:
        assert ledger.chosen(setting) == ("score=3",)
        assert [each["seed"] for each in ledger.runs(setting)] == [1, 2, 3]
        content = json.loads(ledger.path(setting.name).read_text(encoding="utf-8"))
        assert content["grid"] == GRID
        assert content["chosen"] == ["score=3"]
        assert len(content["trials"]) == 5


def test_what_is_recorded_is_not_trained_again_and_what_is_missing_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    row = make_row(tmp_path, set=[f"log={log}"])
    run(row, tmp_path, only=["B"])
    assert len(trained(log)) == 5
    ledger, _ = run(row, tmp_path)
    assert len(trained(log)) == 10
    run(row, tmp_path)
    assert len(trained(log)) == 10
    other, _ = run(row, tmp_path, set=["updates=1"])  # other changes are another training
    assert len(trained(log)) == 20
    assert all(each["settings"][-1] == "updates=1" for each in other.runs(row.settings[0]))
    assert ledger.runs(row.settings[0])


@pytest.mark.parametrize(("ahead", "further"), [(2, 0), (3, 2)])
def test_seeds_ahead_of_the_choice_count_if_their_point_is_chosen(tmp_path: Path, ahead: int, further: int) -> None:
    row = make_row(tmp_path, settings=[{"name": "A"}], set=[f"log={tmp_path / 'log'}"])
    ledger, runner = run(row, tmp_path, ahead=ahead, jobs=5)
    assert not runner.failed
    assert len(trained(tmp_path / "log")) == 3 + 2 + further  # those of a point that lost are trained and kept
    assert ledger.chosen(row.settings[0]) == ("score=3",)
    assert [each["seed"] for each in ledger.runs(row.settings[0])] == [1, 2, 3]


def test_seeds_ahead_wait_for_no_place(tmp_path: Path) -> None:
    """One of two places is another's: what is due takes turns on the other, and nothing stands before it."""
    row = make_row(tmp_path, settings=[{"name": "A"}], set=[f"log={tmp_path / 'log'}"], tune=[["score=3"], ["score=2"]])
    (tmp_path / "share").mkdir()
    with (tmp_path / "share" / "place-0").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ledger, _ = run(row, tmp_path, ahead=2, share=tmp_path / "share")
    done = {(trial["settings"][-1], trial["seed"]) for trial in ledger._trials["A"]}
    assert done == {("score=3", 1), ("score=2", 1), ("score=3", 2), ("score=3", 3)}


def test_seeds_ahead_take_a_place_that_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "LOOK_AHEAD_EVERY", 0.2)
    row = make_row(tmp_path, settings=[{"name": "A", "set": ["waits=3"]}], tune=[["score=3"], ["score=2"]])
    ledger, _ = run(row, tmp_path, ahead=2, jobs=4, share=tmp_path / "share")
    assert len(ledger._trials["A"]) == 6
    assert [each["seed"] for each in ledger.runs(row.settings[0])] == [1, 2, 3]


def test_a_place_is_free_that_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it takes it between two looks."""
    row = make_row(tmp_path, settings=[{"name": "A"}], tune=[[]])
    _, runner = run(row, tmp_path, share=tmp_path / "share")
    for seen, idle in (([2, 0], 0), ([2, 1], 1), ([0, 2], 0)):
        looks = iter(seen)
        monkeypatch.setattr(results, "_free_places", lambda *_, looks=looks: next(looks))
        assert runner._idle_places(0) == idle


def test_what_ends_as_time_is_over_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [{"name": "A", "seeds": [1]}, {"name": "B", "seeds": [1], "set": ["waits=1"]}]
    row = make_row(tmp_path, settings=settings, tune=[[]])

    calls = count()

    def left(self: Runner) -> float | None:
        if next(calls) == 0:
            return None
        while not all(future.done() for future in futures):  # A has been recorded by now
            time.sleep(0.1)
        return 0.0

    futures: list[Future[Any]] = []
    submit = ThreadPoolExecutor.submit

    def noted(self: ThreadPoolExecutor, *given: Any) -> Future[Any]:
        futures.append(submit(self, *given))
        return futures[-1]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", noted)
    monkeypatch.setattr(Runner, "_left", left)
    ledger, _ = run(row, tmp_path)
    assert [len(ledger.runs(setting)) for setting in row.settings] == [1, 1]


def test_every_training_is_told_where_tokens_are_kept(tmp_path: Path) -> None:
    ensembles = [{"name": "both", "seeds": [1], "members": ["A × 1", "B"]}]
    row = make_row(tmp_path, ensembles=ensembles, tune=[[]])
    ledger, _ = run(row, tmp_path, prepared=tmp_path / "tokens")
    trials = [trial for setting in row.settings for trial in ledger.runs(setting)]
    assert [trial["prepared"] for trial in trials] == [str(tmp_path / "tokens")] * 6


def test_a_failure_is_told_and_stops_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = [{"name": "A", "set": ["fails=1"]}, {"name": "B"}, {"name": "C", "set": ["mumbles=1"]}]
    row = make_row(tmp_path, settings=settings, tune=[[]])
    ledger, runner = run(row, tmp_path)
    assert runner.failed == {"a-1-1", "c-1-1"}
    said = capfd.readouterr().err
    assert "a-1-1: failed with status 1" in said
    assert "c-1-1: its last line is no JSON: 'well\\n'" in said
    assert len(ledger.runs(row.setting("B"))) == 3
    assert "| B" in told_page(ledger)
    assert "| A" not in told_page(ledger)


def test_the_clock_ends_what_is_under_way_and_keeps_what_was_done(tmp_path: Path) -> None:
    row = make_row(tmp_path, settings=[{"name": "A", "seeds": [1]}, {"name": "B", "set": ["waits=60"]}], tune=[[]])
    run(row, tmp_path, only=["A"])
    ledger, runner = run(row, tmp_path, minutes=0.01)
    assert len(ledger.runs(row.setting("A"))) == 1
    assert not ledger.runs(row.setting("B"))
    assert not runner.failed


def test_a_member_that_leaves_no_run_is_not_trained_for_ever(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    row = make_row(tmp_path, ensembles=[{"name": "both", "seeds": [1], "members": ["A × 1", "B"]}])
    ledger, runner = run(row, tmp_path)
    assert {"a-x-1-2-1", "b-2-1"} <= runner.failed
    assert "b-2-1: left no run to take together" in capfd.readouterr().err
    assert not ledger.joint_runs(row.ensembles[0])


def test_a_training_that_is_repeated_moves_no_choice(tmp_path: Path) -> None:
    row = make_row(tmp_path, settings=[{"name": "A"}])
    ledger, _ = run(row, tmp_path)
    setting = row.settings[0]
    lost, chosen = (Job(setting, (f"score={score}",), 1) for score in (2, 3))
    again = ledger.trial(lost)
    assert again is not None
    ledger.record(lost, again | {"valid": {"bleu": 99.0}})
    assert ledger.chosen(setting) == chosen.point
    assert "**3.100**" in told_page(ledger)


def test_an_ensemble_waits_for_its_members_and_asks_for_lost_ones_again(tmp_path: Path) -> None:
    ensembles = [{"name": "both", "seeds": [2], "members": ["A × 1", "B"]}]
    row = make_row(tmp_path, ensembles=ensembles)
    assert not any(isinstance(job, JointJob) for job in Ledger(row, tmp_path / "none").due(set()))
    ledger, _ = run(make_row(tmp_path), tmp_path)
    ledger = Ledger(row, ledger.folder)
    members = [Job(setting, ("score=3",), 2) for setting in row.settings]
    assert list(ledger.due(set())) == members
    assert list(ledger.due({ledger.folder_name(members[0])})) == members[1:]
    names = {ledger.folder_name(member) for member in members}
    (joint,) = ledger.due(names)
    assert joint == JointJob(row.ensembles[0], 2, tuple(members))
    told = ledger.trial(members[0])
    assert told is not None
    ledger.record(joint, told)
    assert not list(ledger.due(names))
    others = Ledger(row, ledger.folder, ("updates=1",))
    assert others.joint(row.ensembles[0], 2) is None  # of other members
    assert "| both" in told_page(ledger)


def test_a_row_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="tunes is no part of a row"):
        make_row(tmp_path, tunes=[])
    with pytest.raises(SystemExit, match="seed is no part of a row"):
        make_row(tmp_path, settings=[{"name": "A", "seed": 1}])
    with pytest.raises(SystemExit, match="ROW is 'unmade'; bench/rows has made"):
        read_row("unmade", tmp_path)


def test_two_that_record_at_once_keep_each_others_trials(tmp_path: Path) -> None:
    row = make_row(tmp_path)
    one, other = Ledger(row, tmp_path / "out"), Ledger(row, tmp_path / "out")
    job = Job(row.settings[0], ("score=1",), 1)
    told = {"seed": 1, "settings": job.settings, "scores": [], "valid": {}, "metric": "bleu"}
    one.record(job, told)
    other.record(Job(row.settings[0], ("score=3",), 1), told | {"settings": ["score=3"]})
    other.record_alone(
        row.settings[0], {"target_tokens_per_second": 1.0, "updates": 1, "environment": {}, "commit": "a"}
    )
    found = Ledger(row, tmp_path / "out")
    assert [found.trial(Job(row.settings[0], (point[0],), 1)) is None for point in GRID] == [False, False, True]
    alone = found.alone(row.settings[0])
    assert alone
    assert alone["updates"] == 1


def test_a_trial_of_another_program_or_recipe_is_not_taken_for_this_one(tmp_path: Path) -> None:
    ledger, _ = run(make_row(tmp_path), tmp_path)
    assert ledger.runs(ledger.row.settings[0])
    settings = [{"name": "A × 1", "program": None, "recipe": "dates"}, {"name": "B"}]
    changed = Ledger(make_row(tmp_path, settings=settings), ledger.folder)
    assert not changed.runs(changed.row.settings[0])
    assert changed.runs(changed.row.settings[1])


def test_a_peer_beside_a_recipe_that_changed_is_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = make_row(tmp_path, settings=[{"name": "A", "set": ["recipe=dates"]}])
    ledger, _ = run(row, tmp_path)
    assert not list(ledger.due(set()))
    monkeypatch.setattr("bench.ledger._recipe_text", lambda name: "task: translate")
    assert len(list(Ledger(row, ledger.folder).due(set()))) == len(GRID)


@pytest.mark.parametrize(
    "changes",
    [[], ["preset=zaremba-small"], ["preset=zaremba-large", "preset=zaremba-small"]],
    ids=["of the recipe", "of a change", "of the last change"],
)
def test_what_a_changed_preset_was_trained_with_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str]
) -> None:
    row = make_row(tmp_path, settings=[{"name": "A", "recipe": "ptb-lstm", "set": changes}, {"name": "B"}])
    ledger, _ = run(row, tmp_path)
    name, text_of = "zaremba-small" if changes else "zaremba-medium", presets.text_of
    changed = {name: text_of(name).replace("uniform: 0.", "uniform: 0.00")}
    monkeypatch.setattr(presets, "text_of", lambda name: changed.get(name) or text_of(name))
    after = Ledger(row, ledger.folder)
    assert not after.runs(row.setting("A"))
    assert after.runs(row.setting("B"))


def test_rows_that_share_a_folder_share_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "WAIT", 0.01)
    running, most, lock = [0], [0], threading.Lock()
    real = Runner._run

    def counted(self: Runner, name: str, command: list[str], lock_of_place: int | None) -> tuple[int, str]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        try:
            return real(self, name, command, lock_of_place)
        finally:
            with lock:
                running[0] -= 1

    monkeypatch.setattr(Runner, "_run", counted)
    found = list[Ledger]()
    threads = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        row = make_row(tmp_path / place)
        work = partial(run, row, tmp_path / place, jobs=2, share=tmp_path / "share")
        threads.append(threading.Thread(target=lambda work=work: found.append(work()[0])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [2]
    assert [len(ledger.runs(setting)) for ledger in found for setting in ledger.row.settings] == [3] * 4


def test_a_row_that_gets_no_place_ends_in_time(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    with (tmp_path / "share" / "place-0").open("w") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        ledger, runner = run(make_row(tmp_path), tmp_path, jobs=1, share=tmp_path / "share", minutes=0.01)
    assert not ledger.runs(ledger.row.settings[0])
    assert not runner.failed


def test_an_interrupted_runner_begins_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "share").mkdir()
    monkeypatch.setattr(results, "wait", mock.Mock(side_effect=KeyboardInterrupt))
    log = tmp_path / "log"
    row = make_row(tmp_path, settings=[{"name": "A", "set": [f"log={log}"]}])
    with (tmp_path / "share" / "place-0").open("w") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        with pytest.raises(KeyboardInterrupt):
            run(row, tmp_path, jobs=1, share=tmp_path / "share")
    assert trained(log) == []


def test_a_training_holds_its_place_as_long_as_it_runs(tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    lock = results._free_place(tmp_path / "share", 1)
    assert lock is not None
    with subprocess.Popen(["sleep", "60"], pass_fds=(lock,)) as training:  # as `_run` starts it
        os.close(lock)
        assert results._free_place(tmp_path / "share", 1) is None
        training.kill()
    assert results._free_place(tmp_path / "share", 1) is not None


@pytest.mark.parametrize("given", [["europarl-500k"], ["quick", "--alone"]])
def test_what_needs_the_machine_to_itself_shares_nothing(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["results", *given, "--share", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="--share: what needs the machine to itself"):
        results.main()


def test_rates_alone_are_recorded_and_keep_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensembles = [{"name": "both", "seeds": [1], "members": ["A", "B"]}]
    settings = [{"name": name, "program": None, "recipe": "dates"} for name in ("A", "B")]
    row = make_row(tmp_path, settings=settings, ensembles=ensembles)
    options = argparse.Namespace(
        set=[], jobs=1, device="cpu", minutes=None, only=["A"], share=None, ahead=None, prepared=None
    )
    runner = Runner(row, Ledger(row, tmp_path / "out"), options, tmp_path / "keep")
    commands: list[list[str]] = []

    class Answer:
        returncode = 0

        def __init__(self, command: list[str], **_: Any) -> None:
            commands.append(command)

        def __enter__(self) -> "Answer":
            return self

        def __exit__(self, *_: object) -> None: ...

        def communicate(self) -> tuple[str, None]:
            told = {"target_tokens_per_second": 7.0, "updates": 100, "environment": {}, "commit": "a"}
            return json.dumps(told), None

    monkeypatch.setattr("subprocess.Popen", Answer)
    runner.time_each_alone()
    assert len(commands) == 1
    assert commands[0][-2:] == ["--speed", "600"]
    assert "--folder" not in commands[0]
    ledger = Ledger(row, tmp_path / "out")
    alone = ledger.alone(row.settings[0])
    assert alone
    assert alone["target_tokens_per_second"] == 7.0
    assert ledger.alone(replace(row.settings[0], changes=("score=9",))) is None  # another training, of another speed


def test_nothing_begins_behind_the_deadline(tmp_path: Path) -> None:
    log = tmp_path / "log"
    row = make_row(tmp_path, set=[f"log={log}"])
    run(row, tmp_path, minutes=1e-9)
    assert not trained(log)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["quick", "--only", "nonsense"], "--only is nonsense; quick has LSTM without attention"),
        (["quick", "--jobs", "0"], "invalid int above 0 value: '0'"),
        (["quick", "--ahead", "3"], "--ahead is 3; quick has 2 points to choose from. Name one"),
        (["quick", "--minutes", "0"], "invalid float above 0 value: '0'"),
        (["quick", "--page", "--out", "empty"], "empty has nothing that was trained to its end with no --set"),
        (["quick", "--page", "--out", "empty", "--set", "a=1"], "trained to its end with --set a=1"),
        (["quick", "--out", "/dev/null/x"], "which cannot be written to: Not a directory"),
    ],
)
def test_what_cannot_be_done_is_told(
    given: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["bench.results", *given])
    with pytest.raises(SystemExit) as error:
        results.main()
    assert told in f"{error.value} {capsys.readouterr().err}"
    assert not (tmp_path / "empty").exists()


ROOT = Path(__file__).parents[2]
WAITS = """
import sys
from pathlib import Path
from bench import results
from tests.support.rows import make_row

folder, setting = Path(sys.argv.pop()), {"name": "A", "recipe": "dates", "set": ["waits=60"]}
row = make_row(folder, settings=[setting])
results.read_row = lambda name: row
results.main()
"""


def told_to_end(folder: Path, number: signal.Signals, *given: str, hangup: str = "SIG_DFL") -> tuple[int, str]:
    """A command that has begun a training gets the signal, alone: the training's number, and what it still says.

    `hangup`: what it finds SIGHUP set to, as a shell or nohup sets it; that of the tests themselves is not handed on.
    """
    before = f"import signal\nsignal.signal(signal.SIGHUP, signal.{hangup})\n"
    command = [sys.executable, "-c", before + WAITS, "made", "--jobs", "1", "--out", str(folder / "out"), *given]
    with subprocess.Popen([*command, str(folder)], stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr
        begun = int(next(line for line in process.stderr if line.startswith("pid ")).split()[1])
        process.send_signal(number)
        if hangup == "SIG_IGN":  # it does not hear
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.send_signal(signal.SIGTERM)
        return begun, process.stderr.read()


@pytest.mark.parametrize("given", [[], ["--alone"]])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_the_command_ends_its_trainings(number: signal.Signals, given: list[str], tmp_path: Path) -> None:
    begun, told = told_to_end(tmp_path, number, *given)
    assert "the same command goes on from there" in told
    assert "Traceback" not in told
    with pytest.raises(ProcessLookupError):
        os.kill(begun, 0)


def test_nohup_is_heeded(tmp_path: Path) -> None:
    _, told = told_to_end(tmp_path, signal.SIGHUP, hangup="SIG_IGN")
    assert "the same command goes on from there" in told


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    row = make_row(tmp_path)
    ledger, _ = run(row, tmp_path)
    path = ledger.path("B")
    path.write_text(path.read_text(encoding="utf-8")[:100], encoding="utf-8")
    with pytest.raises(SystemExit, match=f"{path}: is no JSON"):
        Ledger(row, ledger.folder)


def test_make_says_which_rows_there_are_before_it_installs_anything() -> None:
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ROW")  # tests are begun by make themselves
    around = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "results", "VENV=/nowhere/at/all"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=around)
    assert asked.returncode == 2
    assert asked.stdout == ""
    told, rest = asked.stderr.split("There are: ")
    assert told.startswith("make results: ROW names what to train")
    assert set(rest.splitlines()[0].split()) == set(row_names())
