"""Nothing in a run folder can run: a corpus of harmful ones, loaded and resumed under an audit hook."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import saccade
from tests.support.cli import ROOT
from tests.support.malice import HEADS, PICKLE, STEP, Malice, corpus, head
from tests.support.tiny import recipe, write_corpus

CORPUS = corpus()
MEMORY = 64 << 20
"""Bytes that a refusal may take beside twice the size of the folder."""


def folder_of(number: int, case: Malice) -> str:
    return f"{case.use}-{number:03}"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    data = write_corpus(folder / "corpus", train=40, valid=6)
    model = {side: {"kind": "gru", "width": 2} for side in ("encoder", "decoder")}
    return saccade.train(recipe(data, model, "train.updates=4"), folder / "run", device="cpu").path


@pytest.fixture(scope="module")
def folders(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("folders")
    for number, case in enumerate(CORPUS.values()):
        case.spoil(Path(shutil.copytree(good, made / folder_of(number, case))))
    shutil.copytree(good, made / "load-good")
    shutil.copytree(good, made / "resume-good")
    return made


@pytest.fixture(scope="module")
def heard(good: Path, folders: Path) -> dict[str, dict[str, Any]]:
    """What the child process said of each folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.audited", str(good), str(folders)],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {told["folder"]: told for told in map(json.loads, done.stdout.splitlines())}


def test_the_corpus_is_as_large_as_it_should_be_and_its_pickles_bite(tmp_path: Path) -> None:
    assert len(CORPUS) >= 40
    assert {case.use for case in CORPUS.values()} == {"load", "resume"}
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        pickle.loads(PICKLE)  # noqa: S301 it is our own
    finally:
        os.chdir(before)
    assert (tmp_path / "pwned").exists()
    assert head("{}") == b"\x02\0\0\0\0\0\0\0{}"
    assert len(HEADS) >= 20


def faults(case: Malice, folder: Path, told: dict[str, Any]) -> list[str]:
    """What was not as it must be."""
    found = [f"made Python do: {event}" for event in told["noted"]]
    if told["ends"] != case.ends:
        found.append(f"ended {told['ends']}, not {case.ends}")
    if case.ends == "refused" and not (str(folder) in told["error"] and case.named in told["error"]):
        found.append("was refused without its name")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if told["grew"] >= 2 * size + MEMORY:
        found.append(f"took {told['grew']:,} bytes")
    return [f"{fault}: {told.get('error')}" for fault in found]


def test_harmful_folders_run_nothing_and_good_ones_are_used(heard: dict[str, dict[str, Any]], folders: Path) -> None:
    for name in ("load-good", "resume-good"):
        assert (heard[name]["ends"], heard[name]["noted"]) == ("harmless", [])
    wrong = {}
    for number, (name, case) in enumerate(CORPUS.items()):
        folder = folders / folder_of(number, case)
        wrong[name] = faults(case, folder, heard[folder.name])
    assert {name: found for name, found in wrong.items() if found} == {}
    assert heard["work"]["left"] == []


def test_the_ear_hears_what_it_is_for(good: Path, tmp_path: Path) -> None:
    """A loader that unpickles would be caught."""
    code = (
        "import pickle, sys, pathlib\n"
        "from tests.support.audited import Ear\n"
        "ear = Ear()\n"
        "with ear.listening(None):\n"
        "    pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "    exec('1')\n"
        "    open(sys.argv[1], 'ab').close()\n"
        "    import antigravity_that_is_not_there\n"
    ).replace(
        "    import antigravity",
        "    sys.stdout.write('\\n'.join(ear.noted)); sys.stdout.flush()\n    import antigravity",
    )
    path = tmp_path / "evil"
    path.write_bytes(PICKLE)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    events = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"pickle.find_class", "os.system", "compile", "exec", "open"} <= events
    assert STEP in next(iter(path.relative_to(good).as_posix() for path in good.rglob("state.json")))
