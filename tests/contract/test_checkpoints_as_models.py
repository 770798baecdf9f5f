"""A checkpoint, RUN/checkpoints/step-N, is used as a run is: its weights are those of a training that ended there."""

import json
from pathlib import Path

import pytest
import torch

import saccade
from saccade.errors import SaccadeError, UsageError
from saccade.run_paths import run_of, step_of
from tests.support.cli import saccade_command
from tests.support.folders import same, weights
from tests.support.tiny import recipe, write_corpus

OFTEN = ("train.save_every=2", "train.validate_every=2", "train.keep=9")
GENERATED = {
    "tag": "ner-notices",
    "classify": "reviews",
    "language-model": "char-lm",
    "masked-language-model": "blanks",
}
SMALL = ("data.train=60", "data.valid=20", "data.test=20", "train.updates=4", "train.metric=loss")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def step(run: Path, update: int) -> Path:
    return run / "checkpoints" / f"step-{update}"


@pytest.mark.parametrize("average", ["null", "0.5"])
def test_it_is_the_model_of_a_training_that_ended_there(corpus: Path, tmp_path: Path, average: str) -> None:
    """With a moving average, which is what is validated and published, it is the average."""
    often = (*OFTEN, f"train.ema={average}")
    long = saccade.train(recipe(corpus, "lstm", "train.updates=6", *often), tmp_path / "long", device="cpu").path
    for update in (2, 4, 6):
        short = saccade.train(
            recipe(corpus, "lstm", f"train.updates={update}", *often), tmp_path / f"{update}", device="cpu"
        )
        assert short.finished.best_update == update
        assert same(weights(step(long, update)), weights(short.path))
    assert not same(weights(step(long, 2)), weights(step(long, 4)))


@pytest.mark.parametrize("task", GENERATED)
def test_of_every_task_the_best_one_scores_as_its_run(task: str, tmp_path: Path) -> None:
    trained = saccade.train(saccade.recipe(GENERATED[task], *SMALL, *OFTEN), tmp_path / "run", device="cpu")
    assert trained.finished.best_update == 4
    told = {}
    for path in (trained.path, step(trained.path, 4), step(trained.path, 2)):
        assert saccade.load(path, device="cpu").task == task
        result = saccade_command("evaluate", path, "--device", "cpu", "-f", "json")
        assert result.exit_code == 0, result.stderr
        told[path] = json.loads(result.stdout)
        assert told[path].pop("run") == str(path)
    whole, best, before = told.values()
    assert best == whole
    assert before.keys() == whole.keys()
    if task != "tag":  # which has learnt nothing yet that would show
        assert before != whole


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = recipe(
        corpus,
        "lstm",
        "train.updates=6",
        *OFTEN,
        f"data.test={{source: {corpus}/valid.src, target: {corpus}/valid.tgt}}",
    )
    return saccade.train(chosen, tmp_path_factory.mktemp("runs") / "one", device="cpu").path


def test_the_verbs_take_it(run: Path, corpus: Path, tmp_path: Path) -> None:
    for command in (
        ("translate", step(run, 2), "abc"),
        ("evaluate", step(run, 4)),
        ("score", step(run, 4), corpus / "valid.src", corpus / "valid.tgt"),
        ("search-report", step(run, 4), "--beams", "1,2"),
        ("explain", step(run, 2), "abc", "-o", tmp_path / "page.html"),
        ("align", step(run, 2), corpus / "valid.src", corpus / "valid.tgt"),
    ):
        told = saccade_command(*command)
        assert told.exit_code == 0, (command, told.stderr)


def test_checkpoints_are_compared_with_each_other_and_with_the_run(run: Path) -> None:
    compared = saccade.compare([step(run, 2), step(run, 6), run], device="cpu")
    assert [system.name for system in compared.systems] == ["one/step-2", "one/step-6", "one"]
    assert [system.updates for system in compared.systems] == [2, 6, 6]
    assert not compared.seeds  # they are no seeds of each other


def test_it_is_named_from_within(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(step(run, 2))
    assert step_of(Path("../step-4")) == 4
    monkeypatch.chdir(run / "checkpoints")
    assert run_of(Path("step-4")) == run
    assert saccade.load("step-4", device="cpu").translate("abc").text is not None


@pytest.mark.parametrize("name", ["step-x", "step-", "step-4/model.safetensors", "of-4"])
def test_what_is_no_checkpoint_is_no_run(run: Path, name: str) -> None:
    path = run / "checkpoints" / name
    assert run_of(path) == path
    with pytest.raises(UsageError, match="is no run folder"):
        saccade.load(path)


def test_one_that_is_gone_is_told_with_those_that_are_there(run: Path) -> None:
    with pytest.raises(UsageError, match=r"step-3: is not there\. Checkpoints of .*one: step-2, step-4, step-6"):
        saccade.load(step(run, 3))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_flipped_bit_is_refused_by_name(run: Path, name: str) -> None:
    path = step(run, 4) / name
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        with pytest.raises(SaccadeError, match=name):
            saccade.load(step(run, 4))
        assert torch.isfinite(next(iter(weights(run).values()))).all()  # the run itself does not need it
    finally:
        path.write_bytes(content)


def test_a_training_goes_on_in_its_run_alone(run: Path) -> None:
    told = saccade_command("train", step(run, 2), "--resume")
    assert told.exit_code == 2
    assert "is no run folder" in told.stderr
