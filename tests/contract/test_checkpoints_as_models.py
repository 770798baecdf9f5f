"""A checkpoint, RUN/checkpoints/step-N, is used as a run is: its weights are those that a validation judged there."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

import saccade
from saccade.config import plain
from saccade.disk import read_tensors, to_json
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import parse_recipe
from saccade.run_paths import located, run_of
from saccade.tasks.language_model import tokenizer_of_run
from saccade.text import RunText
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


@pytest.mark.parametrize("average", ["train.ema=null", "train.ema=0.5"])
def test_it_is_the_model_of_a_training_that_ended_there(corpus: Path, tmp_path: Path, average: str) -> None:
    """At a rate that does not know of the end. With a moving average, which is what is validated, it is that."""
    often = (*OFTEN, average)
    long = saccade.train(recipe(corpus, "lstm", "train.updates=6", *often), tmp_path / "long", device="cpu").path
    for update in (2, 4, 6):
        short = saccade.train(
            recipe(corpus, "lstm", f"train.updates={update}", *often), tmp_path / f"{update}", device="cpu"
        )
        assert short.finished.best_update == update
        assert same(weights(step(long, update)), weights(short.path))
    assert not same(weights(step(long, 2)), weights(step(long, 4)))


def test_of_an_optimiser_with_a_mean_it_is_that(corpus: Path, tmp_path: Path) -> None:
    settings = ("train.optimizer={kind: nt-asgd, rate: 3.0, patience: 1}", "train.updates=30", "train.keep=99")
    trained = saccade.train(recipe(corpus, "lstm", *OFTEN, *settings), tmp_path / "run", device="cpu")
    best = step(trained.path, trained.finished.best_update)
    assert any(name.endswith("/mean") for name in read_tensors(best / "optimizer.safetensors"))
    assert same(weights(best), weights(trained.path))
    assert not same(weights(best), read_tensors(best / "model.safetensors"))


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
        ("translate", step(run, 2), "abc", "--with", step(run, 4)),
        ("translate", run, "abc", "--channel", step(run, 4)),
    ):
        told = saccade_command(*command)
        assert told.exit_code == 0, (command, told.stderr)
    outputs = saccade.load(step(run, 2), device="cpu").translate(["abc", "hgf"])
    told = saccade_command("translate", step(run, 2), "abc", "hgf", "--device", "cpu")
    assert told.stdout.splitlines() == [each.text for each in outputs]


def test_checkpoints_are_compared_with_each_other_and_with_the_run(run: Path) -> None:
    compared = saccade.compare([step(run, 2), step(run, 6), run], device="cpu")
    assert [system.name for system in compared.systems] == ["one/step-2", "one/step-6", "one"]
    assert [system.updates for system in compared.systems] == [2, 6, 6]
    assert not compared.seeds  # they are no seeds of each other


def test_it_is_named_from_within(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(step(run, 2))
    assert located(Path("../step-4")) == (run, 4)
    assert located(Path()) == (run, 2)
    assert same(weights(Path()), weights(step(run, 2)))
    assert [each.name for each in saccade.compare([".", run], device="cpu").systems] == ["one/step-2", "one"]
    monkeypatch.chdir(run / "checkpoints")
    assert same(weights(Path("step-4")), weights(step(run, 4)))


@pytest.mark.parametrize("name", ["step-x", "step-", "step-04", "step-4/model.safetensors", "of-4"])
def test_what_is_no_checkpoint_is_no_run(run: Path, name: str) -> None:
    path = run / "checkpoints" / name
    assert run_of(path) == path
    with pytest.raises(UsageError, match="is no run folder"):
        saccade.load(path)


def test_one_that_is_gone_is_told_with_those_that_are_there(run: Path) -> None:
    ask: list[Callable[[Path], object]] = [saccade.load, lambda path: saccade.compare([path, run])]
    for each in ask:
        with pytest.raises(UsageError, match=r"step-3: is not there\. Checkpoints of .*one: step-2, step-4, step-6"):
            each(step(run, 3))


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


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_it_does_not_need_the_model_of_its_run(run: Path, damage: str) -> None:
    """A run that is killed as it publishes its first model has announced it, and no more."""
    path, whole = run / "model.safetensors", (run / "model.safetensors").read_bytes()
    before = weights(step(run, 4))
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1])) if damage == "flipped" else path.unlink()
    try:
        assert same(weights(step(run, 4)), before)
        with pytest.raises(SaccadeError):
            saccade.load(run)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("command", [("train", "--resume"), ("verify",), ("info",)])
def test_what_needs_the_whole_run_names_it(run: Path, command: tuple[str, ...]) -> None:
    verb, *more = command
    told = saccade_command(verb, step(run, 2), *more)
    assert told.exit_code == 2
    assert f"{step(run, 2)}: is a checkpoint; what is asked for needs its run, {run}." in told.stderr


def test_a_training_begins_with_a_run_alone(run: Path, corpus: Path, tmp_path: Path) -> None:
    own = plain(recipe(corpus, "lstm")) | {"init_from": str(step(run, 2))}
    for tree in (own, {name: each for name, each in own.items() if name != "text"}):
        with pytest.raises(UsageError, match=r"init_from: .*step-2: is a checkpoint"):
            saccade.train(parse_recipe(tree), tmp_path / "new", device="cpu")


def test_a_tokenizer_is_that_of_a_run(run: Path) -> None:
    text = RunText.model_validate({"kind": "run", "run": str(step(run, 2))})
    with pytest.raises(UsageError, match=r"text\.run: .*step-2: is a checkpoint"):
        tokenizer_of_run(text, Path())


def test_messages_name_the_checkpoint(run: Path) -> None:
    with pytest.raises(UsageError, match="step-2: is a run of the task translate"):
        saccade.load(step(run, 2), device="cpu").tag("abc")


def test_a_tensor_that_does_not_fit_is_told_with_its_file(run: Path) -> None:
    path = step(run, 2)
    kept = {each: each.read_bytes() for each in (path / "model.safetensors", path / "manifest.json")}
    tensors = read_tensors(path / "model.safetensors")
    name = next(iter(tensors))
    content = save({**tensors, name: tensors[name][:1].contiguous()})
    (path / "model.safetensors").write_bytes(content)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["model.safetensors"] = [hashlib.sha256(content).hexdigest()]
    (path / "manifest.json").write_text(to_json(manifest))
    try:
        with pytest.raises(SaccadeError, match=r"step-2/model\.safetensors: "):
            saccade.load(path)
    finally:
        for each, whole in kept.items():
            each.write_bytes(whole)
