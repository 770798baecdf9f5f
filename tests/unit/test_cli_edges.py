"""Places, names, streams and signals that are not as one would wish: told in a line, with nothing lost."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import saccade
from saccade.cli import entry, look
from saccade.cli.main import told
from saccade.errors import UsageError
from tests.support import language
from tests.support.cli import saccade_command, saccade_process, write_corpus

LONG_NAME = "n" * 300
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    done = saccade_command("train", write_corpus(folder), "-q", "--out", folder / "run")
    assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


# ---- places


def test_the_folder_at_hand_may_be_a_run(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "run")
    assert saccade_command("translate", ".", "ab").exit_code == 0
    assert saccade_command("verify", ".").exit_code == 0
    assert saccade_command("train", ".", "--resume").exit_code == 0
    assert saccade.load(".", "cpu").task == "translate"
    recipe = write_corpus(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    begun = saccade_command("train", recipe, "--out", ".")
    assert begun.exit_code == 0, begun.stderr
    assert "# here\n" in Path("README.md").read_text(encoding="utf-8")
    again = saccade_command("train", recipe, "--out", ".", "--overwrite")
    assert again.exit_code == 2
    assert ".: cannot be made" in again.stderr
    assert Path("model.safetensors").exists()
    assert "/: is not empty" in saccade_command("train", recipe, "--out", "/").stderr


@pytest.mark.parametrize("name", ["one/a.png", "one/a.html", "sub"])
def test_where_a_picture_cannot_be_is_told_before_anything_is_made(name: str, tmp_path: Path) -> None:
    (tmp_path / "one").write_text("a file")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub.png").mkdir()
    place = tmp_path / (name if "." in name else f"{name}.png")
    explained = saccade_command("explain", "run", "ab", "-o", place)
    assert explained.exit_code == 2
    assert "is a folder" in explained.stderr or "is no folder" in explained.stderr
    if place.suffix == ".png":
        searched = saccade_command("search-report", "run", "--lines", "1", "--beams", "1", "-o", place)
        assert searched.exit_code == 2
        assert searched.stdout == ""


def test_scores_are_not_computed_for_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    done = saccade_command("evaluate", "run", "-o", tmp_path / "missing" / "outputs.txt")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr
    assert done.stdout == ""
    assert saccade_command("evaluate", "run", "-o", tmp_path / "outputs.txt").exit_code == 0
    assert (tmp_path / "outputs.txt").read_text(encoding="utf-8").count("\n") == 16


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "aim.txt").write_text("old")
    (tmp_path / "aim.png").write_text("old")
    for name in ("aim.txt", "aim.png"):
        (tmp_path / f"link-{name}").symlink_to(tmp_path / name)
    assert saccade_command("translate", "run", "ab", "-o", tmp_path / "link-aim.txt").exit_code == 0
    assert saccade_command("explain", "run", "ab", "-o", tmp_path / "link-aim.png").exit_code == 0
    for name in ("aim.txt", "aim.png"):
        assert (tmp_path / f"link-{name}").is_symlink()
        assert (tmp_path / name).read_bytes() != b"old"
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    for command in (("translate", "run", "ab"), ("explain", "run", "ab")):
        done = saccade_command(*command, "-o", tmp_path / "loop.png")
        assert done.exit_code in (1, 2)
        assert "loop.png: cannot be written" in done.stderr
        assert (tmp_path / "loop.png").is_symlink()


def test_outputs_and_alignments_want_two_files_however_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    there = tmp_path / "both.txt"
    for other in (tmp_path / "sub" / ".." / "both.txt", there):
        done = saccade_command("translate", "run", "ab", "--alignments", other, "-o", there)
        assert done.exit_code == 2
        assert "the translations go there, too" in done.stderr
        assert not there.exists()
    done = saccade_command("translate", "run", "ab", "--alignments", "/dev/null", "-o", "/dev/null")
    assert done.exit_code == 0, done.stderr


# ---- names


def test_names_that_are_too_long_are_told() -> None:
    for command in (
        ("translate", LONG_NAME, "a"),
        ("translate", "run", "a", "-o", LONG_NAME),
        ("train", LONG_NAME),
        ("train", "dates", "--out", LONG_NAME),
        ("explain", "run", "a", "-o", f"{LONG_NAME}.png"),
    ):
        done = saccade_command(*command)
        assert done.exit_code == 2
        assert "File name too long" in done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="names there are always text")
def test_names_need_be_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_corpus(tmp_path)
    odd = tmp_path / os.fsdecode(b"b\xff")
    odd.mkdir()
    for place in (odd, tmp_path):
        monkeypatch.chdir(place)
        done = saccade_command("train", recipe, "--out", os.fsdecode(b"run\xfe"))
        assert done.exit_code == 0, done.stderr
        run = place / os.fsdecode(b"run\xfe")
        assert "# run?\n" in (run / "README.md").read_text(encoding="utf-8")
        assert saccade_command("verify", run).exit_code == 0
        assert saccade_command("train", run, "--resume", "--set", "train.updates=8").exit_code == 0


# ---- what is full


@full
def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    for arguments in (("train", recipe, "--out", tmp_path / "run"), ("translate", "run", "ab")):
        command = [sys.executable, "-m", "saccade.cli", *map(str, arguments)]
        with Path("/dev/full").open("wb") as log:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, check=False)
        assert done.returncode == 0
        assert done.stdout
    assert (tmp_path / "run" / "model.safetensors").exists()


@full
def test_a_training_is_stopped_and_saved_where_that_cannot_be_told(tmp_path: Path) -> None:
    never = ("updates=100000", "validate_every=100000", "log_every=1")
    settings = [part for each in never for part in ("--set", f"train.{each}")]
    command = ["train", write_corpus(tmp_path), "-q", "--out", tmp_path / "run", *settings]
    log = tmp_path / "run" / "metrics.jsonl"
    with Path("/dev/full").open("wb") as nowhere:
        process = subprocess.Popen([sys.executable, "-m", "saccade.cli", *map(str, command)], stderr=nowhere)
    try:
        deadline = time.monotonic() + 60
        while not (log.is_file() and log.read_bytes().count(b"\n") > 3) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    finally:
        process.kill()
        process.wait()
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


@full
def test_help_that_cannot_be_written_is_told() -> None:
    with Path("/dev/full").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "saccade.cli", "--help"], stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"the output cannot be written: the disk is full." in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_a_memory_that_is_full_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("saccade.api.load", no_room)
    done = saccade_command("translate", "run", "ab")
    assert done.exit_code == 1
    assert done.stderr.startswith("the memory is full")
    assert "Lower --batch-tokens" in done.stderr


def test_a_mistake_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr("saccade.api.load", wrong)
    done = saccade_command("translate", "run", "ab")
    assert isinstance(done.exception, RuntimeError)
    assert told(ValueError("x")) is None
    assert told(OSError("no file in particular")) is None


# ---- signals


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_translation_that_is_ended_leaves_nothing_half_done(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("dead beef\n" * 200_000)
    out = tmp_path / "out.txt"
    with saccade_process("translate", "run", "-i", tmp_path / "in.txt", "-o", out) as process:
        try:
            deadline = time.monotonic() + 60
            while not any(each.stat().st_size for each in tmp_path.glob(".out.txt.*")) and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == status
    assert b"Traceback" not in stderr
    assert {each.name for each in tmp_path.iterdir()} == {"in.txt"}


@pytest.fixture
def handlers() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_while_the_program_is_still_read_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Slow(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "saccade.cli.main", Slow("saccade.cli.main"))
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # a second time meets Python's own way out


# ---- what was not read


def test_sources_that_are_not_read_to_their_end_are_told_everywhere(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("ab" * 2000 + "\n" + "ab\n")
    (tmp_path / "right").write_text("ab\nab\n")
    pair = (str(tmp_path / "long"), str(tmp_path / "right"))
    cut = "1 line longer than 1,024 tokens: the rest of each was not read."
    scored = saccade_command("score", "run", *pair)
    assert cut in scored.stderr
    rows = saccade_command("score", "run", *pair, "-f", "jsonl").stdout
    assert rows.count('"cut": true') == rows.count('"cut": false') == 1
    assert cut in saccade_command("evaluate", "run", *pair).stderr
    explained = saccade_command("explain", "run", "ab" * 2000, "-o", tmp_path / "a.npz")
    assert "longer than the model reads" in explained.stderr
    assert saccade_command("explain", "run", "ab", "-o", tmp_path / "a.npz").stderr == ""
    searched = saccade_command("search-report", "run", *pair, "--beams", "1", "--expansions", "3")
    assert "1 line longer than the model reads: the rest of each was not read" in searched.stdout
    compared = saccade_command("compare", "run", "run", "--names", "x,y", "--source", pair[0], "--reference", pair[1])
    assert "x: 1 line longer than it reads; the rest of each was not read." in compared.stdout + compared.stderr


# ---- what is refused, and in which words


def test_a_text_cannot_be_endless(tmp_path: Path) -> None:
    run = saccade.train(language.recipe("lstm", "char"), tmp_path / "text", device="cpu").path
    for beam in ((), ("--beam", "2")):
        done = saccade_command("generate", run, "a", "--max-tokens", "99999999999999999999", *beam)
        assert done.exit_code == 2
        assert "max_tokens is" in done.stderr
    others = {"explain": ("a", "-o", "a.html"), "align": ("test.src", "test.tgt")}
    for verb, more in others.items():
        done = saccade_command(verb, run, *more)
        assert done.exit_code == 2
        assert f"to {verb}" in done.stderr


def test_null_where_a_section_must_be_is_not_advised() -> None:
    done = saccade_command("train", "dates", "--set", "model=null", "--dry-run")
    assert done.exit_code == 2
    assert "it must be a section" in done.stderr
    assert "write null" not in done.stderr
    assert "write null" in saccade_command("train", "dates", "--set", "model.decoder.attention='no'").stderr


def test_a_training_that_goes_astray_at_once_has_no_good_state(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    done = saccade_command("train", recipe, "--out", tmp_path / "run", "--set", "train.optimizer.rate=1e308")
    assert done.exit_code == 1
    assert "nothing was saved yet" in done.stderr


def test_a_log_with_a_bad_byte_is_told_without_all_of_it(home: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    subprocess.run(["cp", "-r", home / "run", run], check=True)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff")
    with pytest.raises(UsageError) as caught:
        look.summary(run)
    assert "UnicodeDecodeError" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_numbers_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    done = saccade_command("translate", "run", "ab", "--n-best", "0")
    assert done.exit_code == 2
    assert "--n-best" in done.stderr
    done = saccade_command("demo", "--seconds", "1e400", "--out", tmp_path / "demo")
    assert done.exit_code == 2
    assert "--seconds is inf; it must be a finite number." in done.stderr
    assert not (tmp_path / "demo").exists()


def test_what_to_do_next_is_short(tmp_path: Path) -> None:
    recipe = write_corpus(tmp_path)
    for side in ("src", "tgt"):
        (tmp_path / f"valid.{side}").write_text("abcdef" * 100 + "\n")
    done = saccade_command("train", recipe, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()[-1]) < 300
