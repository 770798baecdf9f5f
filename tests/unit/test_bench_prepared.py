"""Tokens that rows keep for all trainings that read them."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import saccade
from bench import prepared as program
from bench.prepared import prepared
from saccade.train.prepared import Prepared
from saccade.train.ready import made_of
from tests.support import tiny


def test_they_are_made_once_for_all_that_read_the_same(tmp_path: Path) -> None:
    at, folder = tiny.write_corpus(tmp_path / "data"), tmp_path / "kept"
    recipes = [tiny.recipe(at, "lstm", f"seed={seed}") for seed in (1, 2, 3)] + [tiny.recipe(at, "transformer")]
    with ThreadPoolExecutor(4) as pool:
        places = set(pool.map(lambda recipe: prepared(recipe, at, folder), recipes))
    assert len(places) == 1
    other = prepared(tiny.recipe(at, "lstm", "text.kind=byte"), at, folder)
    assert {other, *places} == {path for path in folder.iterdir() if path.is_dir()}
    assert len({other, *places}) == 2


def test_they_are_found_where_the_data_they_were_made_of_are_not(tmp_path: Path) -> None:
    """As on a machine to which tokens alone were taken."""
    at, folder = tiny.write_corpus(tmp_path / "data"), tmp_path / "kept"
    recipe = tiny.recipe(at)
    made = prepared(recipe, at, folder)
    at.rename(tmp_path / "moved")
    assert prepared(recipe, at, folder) == made


def test_the_command_makes_those_of_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "data={kind: dates, train: 60, valid: 4, test: 4}"
    monkeypatch.setattr(sys, "argv", ["bench.prepared", "quick", "dates", "--out", str(tmp_path), "--set", data])
    program.main()
    (made,) = (path for path in tmp_path.iterdir() if path.is_dir())
    told = capsys.readouterr().err.splitlines()
    assert {line.split(": ")[1] for line in told} == {str(made)}
    recipe = saccade.recipe("dates-transformer", data)
    job = recipe.job(tmp_path)
    Prepared(made).check(made_of(job))
    monkeypatch.setattr(sys, "argv", ["bench.prepared", "quick", "--out", str(tmp_path), "--set", "text.kidn=word"])
    with pytest.raises(SystemExit, match="Did you mean `kind`"):
        program.main()
