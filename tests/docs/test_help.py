"""Every command's help begins with two examples, and they run as they stand; every option is explained and tested."""

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from saccade.cli import doctor
from saccade.cli.main import app
from tests.support.cli import saccade_command, write_corpus

SMALL = (
    "data.train=60",
    "data.valid=5",
    "data.test=5",
    "train.updates=1",
    "model.encoder.width=8",
    "train.metric=loss",
)
TESTED_IN = [
    path
    for pattern in (
        "unit/test_cli*.py",
        "unit/test_fetch.py",
        "contract/test_training_options.py",
        "contract/test_prepared.py",
        "contract/test_s*.py",
        "learn/*.py",
    )
    for path in Path(__file__).parents[1].glob(pattern)
]
LONG = {"demo"}
"""Commands that train for minutes; their own tests run them."""


def commands(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, group
    for below, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {below}".strip())


COMMANDS = dict(commands(get_command(app)))


def examples(command: Any) -> list[str]:
    first = command.help.removeprefix("\b\n").partition("\n\n")[0]
    return [line.strip() for line in first.splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_two_examples(name: str) -> None:
    shown = examples(COMMANDS[name])
    assert len(shown) == 2
    assert all(line.startswith(f"saccade {name}".rstrip()) for line in shown)
    done = saccade_command(*name.split(), "--help")
    assert done.exit_code == 0
    assert done.stdout.split("\n\n")[1].splitlines() == [f"  {line}" for line in shown]
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_explained(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if parameter.name != "help":
            assert parameter.help, f"{name}: {parameter.name}"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LONG])
def test_every_option_is_tested(name: str) -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in TESTED_IN)
    for parameter in COMMANDS[name].params:
        options = [each for each in parameter.opts if each.startswith("-") and each != "--help"]
        assert not options or any(f'"{each}"' in tests for each in options), f"{name}: {options}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples speak of: runs of every task, `train.yaml` and files of lines."""
    folder = tmp_path_factory.mktemp("examples")
    write_corpus(folder)
    (folder / "pairs.tsv").write_text("3 mars 1999\t1999-03-03\t0-0 1?0 2-0\n", encoding="utf-8")
    (folder / "dates.txt").write_text("3 mars 1999\n\n1/31/2020\n", encoding="utf-8")
    done = saccade_command("train", "dates", "-q", "--out", folder / "runs" / "dates", *_small())
    assert done.exit_code == 0, done.stderr
    (folder / "blanks.txt").write_text("The queen [MASK] herself.\n\nno blank\n", encoding="utf-8")
    done = saccade_command("train", "blanks", "-q", "--out", folder / "runs" / "blanks", *_small())
    assert done.exit_code == 0, done.stderr
    (folder / "reviews.txt").write_text("The cast is far from bad.\n\n", encoding="utf-8")
    done = saccade_command("train", "reviews", "-q", "--out", folder / "runs" / "reviews", *_small())
    assert done.exit_code == 0, done.stderr
    little = ("data.train=60", "data.valid=5", "train.updates=1", "model.decoder.width=8", "decode.max_tokens=9")
    chosen = [part for each in little for part in ("--set", each)]
    done = saccade_command("train", "char-lm", "-q", "--out", folder / "runs" / "char-lm", *chosen)
    assert done.exit_code == 0, done.stderr
    (folder / "text.txt").write_text("Ada Dunmor came.\n\nIt rained in Port Balwin.\n", encoding="utf-8")
    done = saccade_command("train", "ner-notices", "-q", "--out", folder / "runs" / "ner-notices", *_small())
    assert done.exit_code == 0, done.stderr
    return folder


def _small() -> list[str]:
    return [part for each in SMALL for part in ("--set", each)]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LONG])
def test_the_examples_run(name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PAIRS", {"train": 300, "valid": 10})
    monkeypatch.chdir(tmp_path)
    if name != "init":
        shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    for line in examples(COMMANDS[name]):
        words = shlex.split(line)[1:]
        if words[0] == "train":  # at its full size it takes minutes
            words += [*_small(), "--overwrite"] if words[1] == "dates" else []
        if words[:2] == ["data", "get"] and not os.environ.get("SACCADE_DATA"):
            pytest.skip("SACCADE_DATA names no mirror; a test does not download")
        done = saccade_command(*words)
        assert done.exit_code == 0, f"{line}\n{done.output}"
