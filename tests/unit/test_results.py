"""The runner of the results table: what it trains, in which order it chooses, what it keeps, what the page tells."""

import argparse
import fcntl
import json
import os
import subprocess
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from bench import results, trial
from bench.index import front_page
from bench.ledger import Job, JointJob, Ledger
from bench.lineage import draw, rungs
from bench.results import Runner
from bench.results_page import page
from bench.row import Row, read_row
from saccade import presets

GRID = [["score=1"], ["score=3"], ["score=2"]]


def make_row(folder: Path, **fields: Any) -> Row:
    settings = fields.pop("settings", [{"name": "A × 1"}, {"name": "B"}])
    settings = [{"program": "tests.support.fake_trial", "seeds": [1, 2, 3], "year": 2014} | each for each in settings]
    content = {"title": "A row", "settings": settings, "tune": GRID} | fields
    (folder / "made.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return read_row("made", folder)


def run(row: Row, folder: Path, **given: Any) -> tuple[Ledger, Runner]:
    options: dict[str, Any] = {
        "set": [],
        "jobs": 2,
        "device": "cpu",
        "minutes": None,
        "only": [],
        "share": None,
    } | given
    ledger = Ledger(row, folder / "out", tuple(options["set"]))
    runner = Runner(row, ledger, argparse.Namespace(**options), folder / "keep")
    runner.work()
    return ledger, runner


def told_page(ledger: Ledger) -> str:
    text = page(ledger)
    assert text is not None
    return text


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


def test_a_point_that_diverged_is_never_chosen_and_stands_on_the_page(tmp_path: Path) -> None:
    row = make_row(tmp_path, settings=[{"name": "A"}], tune=[["diverges=1"], ["score=1"]])
    ledger, _ = run(row, tmp_path)
    assert ledger.chosen(row.settings[0]) == ("score=1",)
    assert "diverged" in told_page(ledger)


def test_the_page_tells_means_spreads_the_grid_and_how_it_was_made(tmp_path: Path) -> None:
    row = make_row(tmp_path, anchor="others have 7", findings="it was the rate")
    ledger, _ = run(row, tmp_path)
    text = told_page(ledger)
    assert "3.20 ± 0.10" in text
    assert "3.10 [2.10, 4.10]" in text
    assert "**3.100**" in text
    assert "BLEU, elsewhere" in text
    for said in ("others have 7", "it was the rate", "`python -m bench.results made --jobs 2`", "abc", "a processor"):
        assert said in text
    assert page(Ledger(row, tmp_path / "empty")) is None


def test_metrics_that_differ_in_a_count_alone_stand_in_one_column(tmp_path: Path) -> None:
    names = {"A": "accuracy, 3,847 unseen words", "B": "accuracy, 12 unseen words"}
    settings = [{"name": name, "seeds": [1], "set": [f"metric={metric}"]} for name, metric in names.items()]
    summary, rest = told_page(run(make_row(tmp_path, settings=settings), tmp_path)[0]).split("## Every seed")
    assert "| accuracy, unseen words |" in summary
    assert not any(name in summary for name in names.values())
    assert all(name in rest for name in names.values())
    alike = [each | {"set": [f"metric={names['A']}"]} for each in settings]
    assert names["A"] in told_page(run(make_row(tmp_path, settings=alike), tmp_path)[0]).split("## Every seed")[0]


def test_the_page_tells_what_is_not_trained_to_its_end(tmp_path: Path) -> None:
    ensembles = [{"name": "both", "seeds": [1], "members": ["A × 1", "B"]}]
    row = make_row(tmp_path, ensembles=ensembles)
    ledger, _ = run(row, tmp_path, only=["B"])
    assert "Not trained to the end yet: A × 1 (0 of 3 points), both (0 of 1 seeds).\n" in told_page(ledger)
    path = ledger.path("B")
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"trials": content["trials"][:4]}), encoding="utf-8")
    assert "B (2 of 3 seeds)" in told_page(Ledger(row, ledger.folder))
    ledger, _ = run(make_row(tmp_path), tmp_path)
    assert "Not trained" not in told_page(ledger)


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


def test_the_picture_has_a_line_for_each_setting_and_the_cost_of_an_ensemble_is_that_of_its_members(
    tmp_path: Path,
) -> None:
    ensembles = [{"name": "both", "year": 2018, "seeds": [2], "members": ["A × 1", "B"]}]
    run(make_row(tmp_path), tmp_path)
    row = make_row(tmp_path, ensembles=ensembles)
    ledger = Ledger(row, tmp_path / "out")
    members = tuple(Job(setting, ("score=3",), 2) for setting in row.settings)
    told = ledger.trial(members[0])
    assert told is not None
    ledger.record(JointJob(row.ensembles[0], 2, members), told)
    for setting in row.settings:
        ledger.record_alone(setting, told | {"target_tokens_per_second": 500.0})
    metric, found = rungs(Ledger(row, tmp_path / "out"))
    assert metric == "BLEU"
    assert [(rung.name, rung.year, rung.minutes) for rung in found] == [
        ("A × 1", 2014, 2.0), ("B", 2014, 2.0), ("both", 2018, 4.0),
    ]  # fmt: skip
    ladder, costs = draw(found, metric=metric, title=row.title).axes
    assert [label.get_text().split("   ")[0] for label in ladder.get_yticklabels()] == ["A × 1", "B", "both"]
    assert [text.get_text() for text in costs.texts] == ["1", "2", "3"]
    long = [replace(found[0], name="a name " * 12), *found[1:]]
    names = draw(long, metric=metric, title=row.title).axes[0].get_yticklabels()
    assert all(label.get_window_extent().x0 > 0 for label in names)  # none is cut off
    free = [replace(rung, minutes=None) for rung in found]
    assert len(draw(free, metric=metric, title=row.title).axes) == 1
    assert "minutes alone" in told_page(ledger)


# ---- one training


TINY = [
    "data={kind: dates, train: 60, valid: 4, test: 4}", "train.updates=2", "train.validate_every=1",
    "decode.max_length=6",
    "model.encoder={kind: gru, width: 8}", "model.decoder={kind: gru, width: 8, attention: {score: dot}}",
]  # fmt: skip


def told_by(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *given: str) -> dict[str, Any]:
    monkeypatch.setattr("sys.argv", ["bench.trial", "--row", "quick", "--device", "cpu", *given])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    trial.main()
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def changes(*given: str) -> list[str]:
    return [word for change in given for word in ("--set", change)]


def test_a_trial_tells_what_it_reached_and_what_it_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    first = told_by(monkeypatch, capsys, "--recipe", "dates", *changes(*TINY), "--folder", str(one), "--seed", "3")
    assert first["seed"] == 3
    assert first["settings"] == TINY
    assert first["updates"] == 2
    assert first["tokens"] > 0
    assert first["metric"] == "exact_match"
    assert set(first["valid"]) >= {"loss", "exact_match"}
    assert [score["name"] for score in first["scores"]] == ["exact match", "chrF2"]
    assert first["commit"]
    more = changes(*TINY, "model.decoder.kind=lstm", "model.encoder.kind=lstm")
    second = told_by(monkeypatch, capsys, "--recipe", "dates", *more, "--folder", str(other))
    given = ["--recipe", "dates", *changes(*TINY), "--members", str(one), str(other)]
    both = told_by(monkeypatch, capsys, *given)
    assert both["parameters"] == first["parameters"] + second["parameters"]
    assert both["scores"][0]["count"] == 4


def test_a_rate_is_that_of_the_later_half_and_nothing_is_translated_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates: list[float] = []

    def noted(given: list[float]) -> float:
        rates.extend(given)
        return sorted(given)[len(given) // 2]

    monkeypatch.setattr("statistics.median", noted)
    speed = told_by(monkeypatch, capsys, "--recipe", "dates", *changes(*TINY), "--speed", "5")
    assert speed["updates"] == 5
    assert len(rates) == 3  # of five
    assert speed["target_tokens_per_second"] == sorted(rates)[1] > 0
    assert set(speed["valid"]) == {"loss", "perplexity"}
    assert not speed["scores"]


def test_a_trial_may_begin_with_a_run_of_another_recipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "model.decoder={kind: gru, width: 8}"
    data = "data={kind: grammar, train: 40, valid: 4, test: 4}"
    begun = ["text={kind: run, run: {first}, side: target}", data, model, "train.updates=2", "train.validate_every=1"]
    given = ["--recipe", "char-lm", *changes(*begun), "--first", "dates"]
    for change in TINY:
        given += ["--first-set", change]
    told = told_by(monkeypatch, capsys, *given)
    assert told["settings"] == begun
    assert told["first"]["recipe"] == "dates"
    assert told["first"]["settings"] == TINY
    assert told["first"]["updates"] == 2
    assert told["scores"][0]["name"] == "perplexity"


# ---- what others do meanwhile, and what was trained before


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
    assert found.alone[row.settings[0].name]["updates"] == 1


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


def test_a_setting_that_always_diverges_does_not_keep_the_others_from_the_page(tmp_path: Path) -> None:
    row = make_row(tmp_path, settings=[{"name": "A", "set": ["diverges=1"]}, {"name": "B"}])
    ledger, _ = run(row, tmp_path)
    assert not ledger.runs(row.setting("A"))
    assert ledger.diverged(row.setting("A")) == 3
    assert "3.20 ± 0.10" in told_page(ledger)
    assert [rung.name for rung in rungs(ledger)[1]] == ["B"]
    assert "1 of 2" in front_page([row], ledger.folder)
    assert "B: BLEU 3.20" in front_page([row], ledger.folder)


def test_the_front_page_tells_the_best_of_whole_rows_alone(tmp_path: Path) -> None:
    row = make_row(tmp_path)
    ledger, _ = run(row, tmp_path, only=["B"])
    assert "1 of 2" in front_page([row], ledger.folder)
    assert "BLEU" not in front_page([row], ledger.folder)
    run(row, tmp_path)
    assert "BLEU 3.20" in front_page([row], ledger.folder)


def test_the_score_of_the_row_stands_first(tmp_path: Path) -> None:
    row = make_row(tmp_path, score="span F1", tune=[[]], settings=[{"name": "A", "seeds": [1]}])
    scores = [{"name": name, "value": value} for name, value in (("accuracy", 95.0), ("span F1", 80.0))]
    ledger = Ledger(row, tmp_path / "out")
    ledger.record(Job(row.settings[0], (), 1), {"seed": 1, "settings": [], "scores": scores, "valid": {}, "metric": ""})
    assert [score["name"] for score in ledger.runs(row.settings[0])[0]["scores"]] == ["span F1", "accuracy"]
    assert "A: span F1 80.00" in front_page([row], ledger.folder)
    assert rungs(ledger)[0] == "span F1"
    with pytest.raises(SystemExit, match="score is 'F1'; its trials have accuracy, span F1"):
        Ledger(replace(row, score="F1"), ledger.folder).runs(row.settings[0])


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


@pytest.mark.parametrize(("metric", "best"), [("BLEU", "B"), ("WER of words", "A"), ("perplexity", "A"), ("PER", "A")])
def test_the_front_page_knows_of_which_metrics_less_is_better(tmp_path: Path, metric: str, best: str) -> None:
    settings = [{"name": "A", "set": ["score=1"]}, {"name": "B", "set": ["score=2"]}]
    ledger, _ = run(make_row(tmp_path, settings=settings, tune=[[]]), tmp_path)
    for file in ledger.folder.glob("*.json"):
        file.write_text(file.read_text("utf-8").replace('"BLEU"', json.dumps(metric)), encoding="utf-8")
    assert f"{best}: {metric} " in front_page([ledger.row], ledger.folder)


def test_rates_alone_are_recorded_and_keep_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensembles = [{"name": "both", "seeds": [1], "members": ["A", "B"]}]
    settings = [{"name": name, "program": None, "recipe": "dates"} for name in ("A", "B")]
    row = make_row(tmp_path, settings=settings, ensembles=ensembles)
    options = argparse.Namespace(set=[], jobs=1, device="cpu", minutes=None, only=["A"], share=None)
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
    assert Ledger(row, tmp_path / "out").alone["A"]["target_tokens_per_second"] == 7.0


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
        (["quick", "--minutes", "0"], "invalid float above 0 value: '0'"),
        (["quick", "--page", "--out", "empty"], "nothing of it is trained to its end yet"),
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
