"""One training of a row: what it tells."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bench import trial
from saccade.train.events import Logged, Validated

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


def test_what_a_user_can_mend_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="Did you mean `updates`"):
        told_by(monkeypatch, capsys, "--recipe", "dates", "--set", "train.udpates=20")


def test_a_training_that_is_ended_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(_: object, folder: Path, __: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
        raise SystemExit(143)  # as its handler of SIGTERM does

    monkeypatch.setattr(trial, "_trial", ended)
    with pytest.raises(SystemExit, match="143"):
        told_by(monkeypatch, capsys, "--recipe", "dates", "--folder", str(tmp_path / "kept" / "one"))
    assert list((tmp_path / "kept").iterdir()) == []


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
    assert first["tokens_made"]["seed"] == 3
    assert first["metric"] == "exact_match"
    assert set(first["valid"]) >= {"loss", "exact_match"}
    assert [score["name"] for score in first["scores"]] == ["exact match", "chrF2"]
    assert first["commit"]
    assert [step["update"] for step in first["course"]] == [1, 2]
    assert max(step["value"] for step in first["course"]) == first["valid"]["exact_match"]
    more = changes(*TINY, "model.decoder.kind=lstm", "model.encoder.kind=lstm")
    second = told_by(monkeypatch, capsys, "--recipe", "dates", *more, "--folder", str(other))
    given = ["--recipe", "dates", *changes(*TINY), "--members", str(one), str(other)]
    both = told_by(monkeypatch, capsys, *given)
    assert both["parameters"] == first["parameters"] + second["parameters"]
    assert both["scores"][0]["count"] == 4


def test_with_tokens_that_are_kept_a_trial_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--recipe", "dates", *changes(*TINY)]
    without = told_by(monkeypatch, capsys, *given)
    for _ in range(2):  # made, then found
        kept = told_by(monkeypatch, capsys, *given, "--prepared", str(tmp_path))
        assert {name: kept[name] for name in ("valid", "course", "scores")} == {
            name: without[name] for name in ("valid", "course", "scores")
        }
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1


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


def test_the_course_has_the_training_loss_between_validations_and_no_mean_of_checkpoints() -> None:
    course = trial.Course()

    def log(update: int, loss: float, skipped: int = 0) -> None:
        course.note(Logged(update, 0, loss, 1.0, rate=1.0, tokens_per_second=update, seconds=1.0, skipped=skipped))

    log(3, 4.0)
    log(4, 2.0)
    log(6, math.nan, skipped=2)
    log(8, 8.0, skipped=1)
    course.note(Validated(8, {"bleu": 7.0}, best=True))
    log(9, math.nan, skipped=1)
    course.note(Validated(9, {"bleu": math.nan}, best=False))
    course.note(Validated(9, {"bleu": 9.0}, best=True, averaged=2))
    assert course.told("bleu") == [
        {"update": 8, "value": 7.0, "loss": (3 * 4.0 + 2.0 + 8.0) / 5},
        {"update": 9, "value": None, "loss": None},
    ]
    assert course.rates == [3, 4, 6, 8, 9]
