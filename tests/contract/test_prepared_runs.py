"""Runs on tokens that were made once: killed, resumed, planned; and preparations that are ended."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade import disk
from saccade.checkpoint import ENVIRONMENT, MADE_FROM, RECIPE
from saccade.cli.plan import tell_plan
from saccade.errors import SaccadeError, UsageError
from saccade.train.prepared import PreparedTokens
from tests.support import blanks, language, tagging, tiny
from tests.support.cli import saccade_command, write_corpus
from tests.support.folders import same, weights


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tiny.write_corpus(tmp_path / "corpus")


# ---- a run that was killed before it had begun


@pytest.mark.parametrize("at", ["before", "behind"])
def test_a_run_that_was_killed_goes_on_with_what_it_was_given(
    at: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens made with another seed, so that its own would be others; killed before it had them, or behind that."""
    monkeypatch.chdir(tmp_path)
    sampled = ("text={kind: bpe, size: 270, sample: 20}", "seed=7")
    saccade.prepare(tiny.recipe(corpus, "lstm", *sampled), "made")
    recipe = tiny.recipe(corpus, "lstm", *sampled[:1])
    give = PreparedTokens.give

    def killed(self: PreparedTokens, *given: Any) -> None:
        if at == "behind":
            give(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PreparedTokens, "give", killed)
        with pytest.raises(KeyboardInterrupt):
            saccade.train(recipe, "run", prepared="made", device="cpu")
    assert not Path("run", "config.json").exists()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = saccade.train(recipe, tmp_path / "run", resume=True, device="cpu").path
    monkeypatch.chdir(tmp_path)
    whole = saccade.train(recipe, "whole", prepared="made", device="cpu").path
    own = saccade.train(recipe, "own", device="cpu").path
    assert same(weights(resumed), weights(whole))
    assert (resumed / "tokenizer.json").read_bytes() != (own / "tokenizer.json").read_bytes()


def killed_before_it_had_them(recipe: saccade.Recipe, made: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PreparedTokens, "give", killed)
        with pytest.raises(KeyboardInterrupt):
            saccade.train(recipe, run, prepared=made, device="cpu")


def test_where_what_it_was_given_is_gone_it_says_so(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, made = tiny.recipe(corpus), saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    killed_before_it_had_them(recipe, made, tmp_path / "run", monkeypatch)
    shutil.rmtree(made)
    with pytest.raises(UsageError, match=r"run: was to begin with .*made, which is not there any more"):
        saccade.train(recipe, tmp_path / "run", resume=True, device="cpu")
    assert saccade.train(recipe, tmp_path / "run", overwrite=True, device="cpu").finished.update == 10


@pytest.mark.parametrize("made_before", [False, True])
@pytest.mark.parametrize("after", [ENVIRONMENT, RECIPE])
def test_a_run_that_was_killed_between_its_first_files_can_be_begun_anew(
    after: str, made_before: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, write = tiny.recipe(corpus), disk.write_file
    made = saccade.prepare(recipe, tmp_path / "made").path if made_before else None

    def killed(path: Path, content: Any) -> str:
        written = write(path, content)
        if path == tmp_path / "run" / after:
            raise KeyboardInterrupt
        return written

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_file", killed)
        with pytest.raises(KeyboardInterrupt):
            saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu")
    assert (tmp_path / "run" / after).exists()
    begun = saccade.train(recipe, tmp_path / "run", resume=after == RECIPE, device="cpu").path
    noted = disk.read_sealed_json(begun / ENVIRONMENT)
    assert ("prepared" in noted) == (made_before and after == RECIPE)  # begun anew it was given nothing


def test_what_such_a_run_cannot_be_given_any_more_is_told_as_it_was_asked_for(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By nobody with --prepared."""
    recipe, run = tiny.recipe(corpus), tmp_path / "run"
    made = saccade.prepare(recipe, tmp_path / "made").path
    killed_before_it_had_them(recipe, made, run, monkeypatch)

    def told() -> str:
        with pytest.raises(SaccadeError) as caught:
            saccade.train(recipe, run, resume=True, device="cpu")
        assert "--prepared" not in str(caught.value)
        assert f"Begin it anew: saccade train RECIPE --out {run} --overwrite" in str(caught.value)
        return str(caught.value)

    original = (corpus / "train.tgt").read_text()
    (corpus / "train.tgt").write_text(original.replace("a", "b"))
    assert told().startswith(
        f"{run}: was to begin with {made}, whose tokens were made of something else:\n  data.train"
    )
    (corpus / "train.tgt").write_text(original)
    (made / "data" / "train" / "source.bin").write_bytes(b"")
    assert "source.bin: has 0 bytes, not " in told()
    (made / MADE_FROM).unlink()
    assert "which does not tell what its tokens were made of" in told()


def test_the_card_tells_of_the_tokens_however_often_the_run_is_resumed(corpus: Path, tmp_path: Path) -> None:
    made = saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    run = saccade.train(tiny.recipe(corpus, "lstm", "seed=7"), tmp_path / "run", prepared=made, device="cpu").path
    told = f"tokenizers and tokens of {made}, learnt with seed 1"
    assert told in (run / "README.md").read_text()
    saccade.train(tiny.recipe(corpus, "lstm", "seed=7", "train.updates=12"), run, resume=True, device="cpu")
    assert told in (run / "README.md").read_text()


# ---- vectors, which are tokens' company


def with_vectors(corpus: Path) -> saccade.Recipe:
    tagging.write_tagged(corpus)
    (corpus / "vectors.txt").write_text("".join(f"{word} {'0.5 ' * 7}0.5\n" for word in ("the", "is", "red")))
    vectors = f"model.vectors={{path: {corpus / 'vectors.txt'}}}"
    return tagging.tag_recipe(corpus, "lstm", vectors, "model.encoder.embedding=8")


@pytest.mark.parametrize("name", ["store.json", "manifest.json", ""])
def test_vectors_are_as_whole_as_tokens(name: str, corpus: Path, tmp_path: Path) -> None:
    recipe = with_vectors(corpus)
    made = saccade.prepare(recipe, tmp_path / "made").path
    store = made / "data" / "vectors"
    (store / name).unlink() if name else shutil.rmtree(store)
    with pytest.raises(UsageError, match=rf"--prepared is .*made, which lacks data/vectors/{name}.* Prepare the data"):
        saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu")


def test_what_is_said_of_vectors_is_compared(corpus: Path, tmp_path: Path) -> None:
    recipe = with_vectors(corpus)
    made = saccade.prepare(recipe, tmp_path / "made").path
    store = made / "data" / "vectors" / "store.json"
    store.write_text(store.read_text().replace("vectors", "vectorz"))
    with pytest.raises(SaccadeError, match=r"vectors/store\.json: is not the file that was made"):
        saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu")


# ---- plans, and preparations that are ended


def test_a_plan_tells_what_a_training_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = write_corpus(tmp_path)
    assert saccade_command("data", "prepare", recipe, "--out", "made").exit_code == 0
    Path("train.src").unlink()
    planned = saccade_command("train", recipe, "--prepared", "made", "--dry-run", "--set", "seed=7")
    assert planned.exit_code == 0
    told = "tokenizers and tokens of made, learnt with seed 1; not here, and known by name alone: data.train.source[0]"
    assert told in planned.stderr
    into = saccade_command("train", recipe, "--prepared", "made", "--out", "./made", "--dry-run")
    assert into.exit_code == 2
    assert "--prepared and --out are both made: name another folder" in into.stderr


def test_a_link_is_no_folder_to_be_made(corpus: Path, tmp_path: Path) -> None:
    """It could not be put in its place in the end."""
    (tmp_path / "empty").mkdir()
    for name, aim in (("link", "empty"), ("dangling", "nowhere")):
        (tmp_path / name).symlink_to(tmp_path / aim)
        with pytest.raises(UsageError, match=rf"{name}: is there already"):
            saccade.prepare(tiny.recipe(corpus), tmp_path / name)


HANGS_UP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); from saccade.cli.entry import main; main()"


@pytest.mark.parametrize(
    ("numbers", "status"),
    [((signal.SIGTERM,), 143), ((signal.SIGINT,) * 3, 130), ((signal.SIGHUP,), 129)],
    ids=["TERM", "INT INT INT", "HUP"],
)
def test_a_preparation_that_is_ended_leaves_nothing(
    numbers: tuple[signal.Signals, ...], status: int, tmp_path: Path
) -> None:
    """Nor does one that is told so again while it clears up."""
    command = [sys.executable, "-c", HANGS_UP, "data", "prepare", "dates", "--out", str(tmp_path / "made")]
    command += ["--set", "data.train=2000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not any(tmp_path.glob(".tmp-made-*/*")) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert any(tmp_path.glob(".tmp-made-*/*"))
            for number in numbers:
                os.kill(process.pid, number)
                time.sleep(0.001)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == status
    assert told.splitlines()[-1] == "stopped; nothing is left"
    assert list(tmp_path.iterdir()) == []


def test_a_preparation_that_is_ended_when_it_is_whole_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, sync = write_corpus(tmp_path), disk.sync_folder

    def ended(folder: Path) -> None:
        sync(folder)
        if Path("made").is_dir():
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(disk, "sync_folder", ended)
    stopped = saccade_command("data", "prepare", recipe, "--out", "made")
    assert stopped.exit_code == 130
    assert stopped.stderr.splitlines()[-1] == "stopped; made is whole"
    assert saccade_command("train", recipe, "--prepared", "made", "--dry-run").exit_code == 0


# ---- what is somebody else's


@pytest.mark.parametrize("foreign", ["file", "folder", "beside checkpoints"])
def test_an_environment_of_somebody_elses_is_left_alone(foreign: str, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    theirs = out / "environment.json" / "inside" if foreign == "folder" else out / "environment.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"name": "my environment"}')
    if foreign == "beside checkpoints":
        (out / "checkpoints").mkdir()
    gone = tiny.recipe(corpus, "lstm", "data.train={source: nowhere, target: nothing}")
    for recipe in (tiny.recipe(corpus), gone):
        for overwrite in (False, True):
            with pytest.raises(UsageError, match="is not empty"):
                saccade.train(recipe, out, overwrite=overwrite, device="cpu")
    assert theirs.read_text() == '{"name": "my environment"}'


def test_by_command_a_run_that_was_killed_at_its_first_file_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, write = write_corpus(tmp_path), disk.write_file

    def killed(path: Path, content: Any) -> str:
        written = write(path, content)
        if path.name == ENVIRONMENT:
            raise KeyboardInterrupt
        return written

    for more in ([], ["--overwrite"]):
        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_file", killed)
            assert saccade_command("train", recipe, "--out", "run", "--device", "cpu", *more).exit_code == 130
        assert {path.name for path in Path("run").iterdir()} == {ENVIRONMENT, "checkpoints"}
        planned = saccade_command("train", recipe, "--out", "run", "--dry-run", *more)
        assert "would refuse" not in planned.stderr + planned.stdout
        assert "would remove" not in planned.stderr + planned.stdout
        trained = saccade_command("train", recipe, "--out", "run", "--device", "cpu", *more)
        assert trained.exit_code == 0, trained.stderr
        shutil.rmtree("run")


# ---- what is only told


def test_damage_to_what_is_only_told_stops_no_training(corpus: Path, tmp_path: Path) -> None:
    made = saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    run = saccade.train(tiny.recipe(corpus), tmp_path / "run", prepared=made, device="cpu").path
    noted = run / ENVIRONMENT
    noted.write_text(noted.read_text().replace("tokenizers and tokens", "tokenizers or tokens"))
    longer = tiny.recipe(corpus, "lstm", "train.updates=12")
    assert saccade.train(longer, run, resume=True, device="cpu").finished.update == 12
    assert "environment.json: is not the file that was saved" in (run / "README.md").read_text()


def test_tokens_that_were_made_again_are_not_told_as_taken(corpus: Path, tmp_path: Path) -> None:
    made = saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    run = saccade.train(tiny.recipe(corpus), tmp_path / "run", prepared=made, device="cpu").path
    shutil.rmtree(run / "data")
    saccade.train(tiny.recipe(corpus, "lstm", "train.updates=12"), run, resume=True, device="cpu")
    card = (run / "README.md").read_text()
    assert f"tokenizers of {made}; tokens made again" in card
    assert "tokenizers and tokens of" not in card


# ---- runs that begin with others


def test_an_encoder_that_does_not_fit_is_refused_with_tokens_that_do(tmp_path: Path) -> None:
    """As it is where tokens are made, and in the plan."""
    corpus = blanks.write_text(tmp_path / "corpus")
    first = saccade.train(blanks.recipe(corpus, "transformer"), tmp_path / "first", device="cpu").path
    begun = blanks.recipe(corpus, "transformer", f"init_from={first}")
    made = saccade.prepare(begun, tmp_path / "made").path
    encoder = begun.model.encoder.model_copy(update={"width": 16})
    wider = begun.model_copy(update={"model": begun.model.model_copy(update={"encoder": encoder})})
    with pytest.raises(UsageError) as without:
        saccade.train(wider, tmp_path / "run", device="cpu")
    with pytest.raises(UsageError) as given:
        saccade.train(wider, tmp_path / "run", prepared=made, device="cpu")
    with pytest.raises(UsageError) as planned:
        tell_plan(wider, corpus, tmp_path / "run", made, resume=False, overwrite=False)
    assert str(without.value) == str(given.value) == str(planned.value)


def test_of_a_run_whose_tokenizer_is_taken_that_alone_counts(tmp_path: Path) -> None:
    corpus = blanks.write_text(tmp_path / "corpus")
    first = saccade.train(blanks.recipe(corpus, "transformer"), tmp_path / "first", device="cpu").path
    text = f"text={{kind: run, run: {first}}}"
    made = saccade.prepare(language.recipe("lstm", "char", text), tmp_path / "made").path
    saccade.train(blanks.recipe(corpus, "transformer", "train.updates=12"), first, resume=True, device="cpu")
    assert saccade.train(language.recipe("lstm", "char", text), tmp_path / "run", prepared=made, device="cpu").finished
