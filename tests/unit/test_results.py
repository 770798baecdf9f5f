"""The runner of the results table: what it trains, in which order it chooses, what it keeps, what the page tells."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.ledger import Job, JointJob, Ledger
from bench.lineage import draw, rungs
from bench.results import Runner
from bench.results_page import page
from bench.row import Row, read_row

GRID = [["score=1"], ["score=3"], ["score=2"]]


def make_row(folder: Path, **fields: Any) -> Row:
    settings = fields.pop("settings", [{"name": "A × 1"}, {"name": "B"}])
    settings = [{"program": "tests.support.fake_trial", "seeds": [1, 2, 3], "year": 2014} | each for each in settings]
    content = {"title": "A row", "settings": settings, "tune": GRID} | fields
    (folder / "made.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return read_row("made", folder)


def run(row: Row, folder: Path, **given: Any) -> tuple[Ledger, Runner]:
    options: dict[str, Any] = {"set": [], "jobs": 2, "device": "cpu", "minutes": None, "only": []} | given
    ledger = Ledger(row, folder / "out", tuple(options["set"]))
    runner = Runner(row, ledger, argparse.Namespace(**options), folder / "keep")
    runner.work()
    return ledger, runner


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
    row = make_row(tmp_path, settings=[{"name": "A", "set": ["fails=1"]}, {"name": "B"}], tune=[[]])
    ledger, runner = run(row, tmp_path)
    assert runner.failed == {"a-1-1"}
    assert "a-1-1: failed with status 1" in capfd.readouterr().err
    assert len(ledger.runs(row.setting("B"))) == 3
    assert "| B" in page(ledger, "make it")
    assert "| A" not in page(ledger, "make it")


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
    assert "diverged" in page(ledger, "make it")


def test_the_page_tells_means_spreads_the_grid_and_how_it_was_made(tmp_path: Path) -> None:
    row = make_row(tmp_path, anchor="others have 7", findings="it was the rate")
    ledger, _ = run(row, tmp_path)
    text = page(ledger, "python -m bench.results made --jobs 2")
    assert "3.20 ± 0.10" in text
    assert "3.10 [2.10, 4.10]" in text
    assert "**3.100**" in text
    assert "BLEU, elsewhere" in text
    for said in ("others have 7", "it was the rate", "`python -m bench.results made --jobs 2`", "abc", "a processor"):
        assert said in text
    assert "Nothing of it" in page(Ledger(row, tmp_path / "empty"), "make it")


def test_an_ensemble_waits_for_its_members_and_asks_for_lost_ones_again(tmp_path: Path) -> None:
    ensembles = [{"name": "both", "seeds": [2], "members": ["A × 1", "B"]}]
    row = make_row(tmp_path, ensembles=ensembles)
    assert not any(isinstance(job, JointJob) for job in Ledger(row, tmp_path / "none").due(set()))
    ledger, _ = run(make_row(tmp_path), tmp_path)
    ledger = Ledger(row, ledger.folder)
    members = [Job(setting, ("score=3",), 2) for setting in row.settings]
    assert list(ledger.due(set())) == members
    assert list(ledger.due({members[0].name})) == members[1:]
    names = {member.name for member in members}
    (joint,) = ledger.due(names)
    assert joint == JointJob(row.ensembles[0], 2, tuple(members))
    told = ledger.trial(members[0])
    assert told is not None
    ledger.record(joint, told)
    assert not list(ledger.due(names))
    assert "| both" in page(ledger, "make it")


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
    assert "minutes alone" in page(ledger, "make it")
