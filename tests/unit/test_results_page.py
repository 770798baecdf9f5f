"""What the pages and the picture of the results table tell."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import lineage
from bench.index import front_page
from bench.ledger import Job, JointJob, Ledger
from bench.lineage import draw, rungs
from bench.results_page import page
from tests.support.rows import make_row, run, told_page


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
    assert "| accuracy, 12 or 3,847 unseen words |" in summary
    assert not any(name in summary for name in names.values())
    assert all(name in rest for name in names.values())
    alike = [each | {"set": [f"metric={names['A']}"]} for each in settings]
    assert names["A"] in told_page(run(make_row(tmp_path, settings=alike), tmp_path)[0]).split("## Every seed")[0]


def test_what_was_published_stands_beside_the_first_score(tmp_path: Path) -> None:
    settings = [{"name": "A", "seeds": [1], "published": "7.0, others"}, {"name": "B", "seeds": [1]}]
    heads, _, first, second = told_page(run(make_row(tmp_path, settings=settings), tmp_path)[0]).splitlines()[2:6]
    assert [head.strip() for head in heads.split("|")[1:4]] == ["setting", "BLEU", "published"]
    assert "| 7.0, others |" in first
    assert "7.0" not in second
    without = run(make_row(tmp_path), tmp_path / "other")[0]
    assert "published" not in told_page(without)


def test_the_first_table_has_one_score_where_there_are_many(tmp_path: Path) -> None:
    few = make_row(tmp_path, set=["also=chrF"])  # and the first on another set: three
    assert "Further scores" not in told_page(run(few, tmp_path)[0])
    many = make_row(tmp_path, set=["also=chrF and TER and WER"])
    summary, _, rest = told_page(run(many, tmp_path)[0]).partition("## Further scores")
    assert " BLEU |" in summary
    assert not any(name in summary for name in ("chrF", "TER", ", elsewhere"))
    heads = rest.strip().splitlines()[0]
    assert [head.strip() for head in heads.split("|")[1:-1]] == ["setting", "chrF", "TER", "WER", "BLEU, elsewhere"]
    wanted = make_row(tmp_path, set=["also=chrF and TER and WER"], beside=["TER", "not there"])
    summary = told_page(run(wanted, tmp_path)[0]).partition("## Further scores")[0]
    assert [head.strip() for head in summary.splitlines()[2].split("|")[2:4]] == ["BLEU", "TER"]


def test_what_diverged_with_every_seed_is_named_and_waited_for_no_more(tmp_path: Path) -> None:
    settings = [{"name": "A", "set": ["diverges=1"]}, {"name": "B"}]
    ensembles = [{"name": "both", "seeds": [1], "members": ["A", "B"]}]
    ledger, _ = run(make_row(tmp_path, settings=settings, tune=[[]], ensembles=ensembles), tmp_path)
    text = told_page(ledger)
    assert "Diverged before any validation, with every seed: A, both." in text
    assert ledger.missing() == []


@pytest.mark.parametrize("tune", [[], None])
def test_a_grid_without_a_point_is_refused(tune: list[list[str]] | None, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="tune has no point"):
        make_row(tmp_path, tune=tune)


def test_the_page_tells_what_is_not_trained_to_its_end(tmp_path: Path) -> None:
    ensembles = [{"name": "both", "seeds": [1], "members": ["A × 1", "B"]}]
    row = make_row(tmp_path, ensembles=ensembles)
    ledger, _ = run(row, tmp_path, only=["B"])
    assert "Not trained to the end yet: A × 1 (0 of 3 points), both (0 of 1 seeds).\n" in told_page(ledger)
    path = ledger.path("B")
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | {"trials": content["trials"][:4]}), encoding="utf-8")
    assert "B (2 of 3 seeds)" in told_page(Ledger(row, ledger.folder))
    assert "| 0 of 2   |" in front_page([row], ledger.folder)
    ledger, _ = run(make_row(tmp_path), tmp_path)
    assert "Not trained" not in told_page(ledger)


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


def test_a_setting_that_always_diverges_does_not_keep_the_others_from_the_page(tmp_path: Path) -> None:
    row = make_row(tmp_path, settings=[{"name": "A", "set": ["diverges=1"]}, {"name": "B"}])
    ledger, _ = run(row, tmp_path)
    assert not ledger.runs(row.setting("A"))
    assert ledger.diverged(row.setting("A")) == 3
    assert "3.20 ± 0.10" in told_page(ledger)
    assert [rung.name for rung in rungs(ledger)[1]] == ["B"]
    assert "2 of 2" in front_page([row], ledger.folder)
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


@pytest.mark.parametrize(("metric", "best"), [("BLEU", "B"), ("WER of words", "A"), ("perplexity", "A"), ("PER", "A")])
def test_the_front_page_knows_of_which_metrics_less_is_better(tmp_path: Path, metric: str, best: str) -> None:
    settings = [{"name": "A", "set": ["score=1"]}, {"name": "B", "set": ["score=2"]}]
    ledger, _ = run(make_row(tmp_path, settings=settings, tune=[[]]), tmp_path)
    for file in ledger.folder.glob("*.json"):
        file.write_text(file.read_text("utf-8").replace('"BLEU"', json.dumps(metric)), encoding="utf-8")
    assert f"{best}: {metric} " in front_page([ledger.row], ledger.folder)


def test_the_page_tells_the_way_of_those_that_recorded_it(tmp_path: Path) -> None:
    settings = [{"name": "A", "seeds": [1, 2], "set": ["way=2"]}, {"name": "B", "seeds": [1]}]
    ledger, _ = run(make_row(tmp_path, settings=settings, tune=[[]]), tmp_path)
    way = told_page(ledger).split("## On the way")[1].split("## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in way.splitlines() if line.startswith("|")]
    assert rows[0] == ["setting", "seed", "by", "25 %", "50 %", "75 %", "100 %", "best after", "training loss"]
    assert rows[2:] == [["A", "2", "bleu", "2.400", "2.400", "2.800", "", "50 %", "0.500"]]
    plain = make_row(tmp_path, settings=[{"name": "B", "seeds": [1]}], tune=[[]])
    assert "On the way" not in told_page(run(plain, tmp_path / "other")[0])


def test_numbers_stay_in_names_where_one_setting_has_both(tmp_path: Path) -> None:
    settings = [{"name": "A", "seeds": [1], "set": ["metric=BLEU, 2016 flickr", "also=BLEU, 2017 flickr"]}]
    summary = told_page(run(make_row(tmp_path, settings=settings, tune=[[]]), tmp_path)[0]).split("## ")[0]
    assert "BLEU, 2016 flickr" in summary
    assert "BLEU, 2017 flickr" in summary


def test_what_a_process_held_of_the_card_stands_beside_the_peak_of_its_tensors(tmp_path: Path) -> None:
    settings = [{"name": "A", "seeds": [1], "set": ["held=1"]}, {"name": "B", "seeds": [1]}]
    text = told_page(run(make_row(tmp_path, settings=settings), tmp_path)[0])
    seeds = text.split("## Every seed")[1].split("##")[0]
    first, second = (line for line in seeds.splitlines() if line.startswith(("| A ", "| B ")))
    assert [cell.strip() for cell in first.split("|")[-3:-1]] == ["1.00 GiB", "3.00 GiB"]
    assert [cell.strip() for cell in second.split("|")[-3:-1]] == ["1.00 GiB", ""]
    assert "Held:" in text
    assert "Held:" not in told_page(run(make_row(tmp_path), tmp_path / "other")[0])


def test_seeds_of_several_machines_name_theirs(tmp_path: Path) -> None:
    settings = [{"name": "A", "seeds": [1, 2]}]
    ledger, _ = run(make_row(tmp_path, settings=settings, tune=[[]]), tmp_path)
    assert "| machine" not in told_page(ledger)
    path = ledger.path("A")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["trials"][1]["environment"]["gpu"] = "a card"
    path.write_text(json.dumps(content), encoding="utf-8")
    seeds = told_page(Ledger(ledger.row, ledger.folder)).split("## Every seed")[1].splitlines()
    machines = [line.split("|")[-2].strip() for line in seeds if line.startswith("| A ")]
    assert machines == ["a processor", "a card"]


def test_the_front_page_counts_ensembles_and_tells_of_single_seeds(tmp_path: Path) -> None:
    row = make_row(tmp_path, settings=[{"name": "A", "seeds": [1]}, {"name": "B", "seeds": [1, 2]}])
    ledger, _ = run(row, tmp_path)
    best = front_page([row], ledger.folder).split("| 2 of 2   |")[1].split("|")[0]
    assert best.strip() == "B: BLEU 3.15"
    alone = make_row(tmp_path, settings=[{"name": "A", "seeds": [1]}])
    assert "A: BLEU 3.10 (one seed)" in front_page([alone], ledger.folder)
    joint = make_row(
        tmp_path,
        settings=[{"name": "A", "seeds": [1]}],
        ensembles=[{"name": "both", "year": 2020, "seeds": [1], "members": ["A"]}],
    )
    of_both = Ledger(joint, ledger.folder)
    member = Job(joint.settings[0], ("score=3",), 1)
    score = {"name": "BLEU", "value": 9.0}
    of_both.record(JointJob(joint.ensembles[0], 1, (member,)), {"seed": 1, "scores": [score], "tests": {}})
    assert "both: BLEU 9.00" in front_page([joint], ledger.folder)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["dates"], "no setting of it has a year"),
        (["quick", "--results", "nowhere"], "--results is nowhere, which is no folder"),
        (["quick", "--results", "."], "nothing of quick is trained to its end there. Train it: make results ROW=quick"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    given: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["bench.lineage", *given])
    with pytest.raises(SystemExit):
        lineage.main()
    assert told in capsys.readouterr().err
