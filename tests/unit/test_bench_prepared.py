"""Tokens that rows keep for all trainings that read them."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import saccade
from bench import prepared as program
from bench.prepared import made_by, prepared
from saccade.checkpoint import MADE_FROM
from saccade.errors import SaccadeError
from saccade.train import prepared as taking
from saccade.train.prepared import PreparedTokens
from saccade.train.ready import made_of
from tests.support import blanks, tiny


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


def test_of_two_that_only_names_could_tell_apart_neither_is_taken(tmp_path: Path) -> None:
    at, folder = tiny.write_corpus(tmp_path / "data"), tmp_path / "kept"
    recipe = tiny.recipe(at)
    first = prepared(recipe, at, folder)
    lines = {name: (at / name).read_text() for name in ("train.src", "train.tgt")}
    for name, text in lines.items():
        (at / name).write_text("".join(reversed(text.splitlines(keepends=True))))
    second = prepared(recipe, at, folder)
    assert first != second
    at.rename(tmp_path / "moved")
    with pytest.raises(SaccadeError, match=rf"{first.name}.*of the same names, which are not here to be compared"):
        prepared(recipe, at, folder)
    (tmp_path / "moved").rename(at)
    assert prepared(recipe, at, folder) == second
    for name, text in lines.items():
        (at / name).write_text(text)
    assert prepared(recipe, at, folder) == first


def test_what_other_code_made_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at, folder = tiny.write_corpus(tmp_path / "data"), tmp_path / "kept"
    recipe = tiny.recipe(at)
    first = prepared(recipe, at, folder)
    for module in (program, taking):
        monkeypatch.setattr(module, "makers", lambda: {"code": "0a1b2c3d4e5f"})
    second = prepared(recipe, at, folder)
    assert second != first
    assert made_by(second)["tokens_made"] == {"seed": 1, "by": {"code": "0a1b2c3d4e5f"}}


def test_what_does_not_tell_is_named(tmp_path: Path) -> None:
    at, folder = tiny.write_corpus(tmp_path / "data"), tmp_path / "kept"
    made = prepared(tiny.recipe(at), at, folder)
    (made / MADE_FROM).write_text("{}")
    with pytest.raises(SaccadeError, match=rf"{made}: does not tell what it was made of\. Remove it"):
        prepared(tiny.recipe(at), at, folder)


def test_runs_that_are_begun_with_may_lie_anywhere(tmp_path: Path) -> None:
    """As those that trials train first, each in a folder of its own."""
    at, folder = blanks.write_text(tmp_path / "data"), tmp_path / "kept"
    saccade.train(blanks.recipe(at), tmp_path / "one", device="cpu")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    begun = [blanks.recipe(at, "transformer", f"init_from={tmp_path / name}") for name in ("one", "other")]
    with ThreadPoolExecutor(2) as pool:
        (made,) = set(pool.map(lambda recipe: prepared(recipe, at, folder), begun))
    assert [path for path in folder.iterdir() if path.is_dir()] == [made]


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
    PreparedTokens(made).check(made_of(job))
    monkeypatch.setattr(sys, "argv", ["bench.prepared", "quick", "--out", str(tmp_path), "--set", "text.kidn=word"])
    with pytest.raises(SystemExit, match="Did you mean `kind`"):
        program.main()
