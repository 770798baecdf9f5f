"""Runs that begin with the encoder of another: what they take, what they keep, and what they refuse."""

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import saccade
from saccade import config
from saccade.checkpoint import RunFolder, model_tensors
from saccade.disk import read_tensors
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import RECIPES, Recipe, load_recipe, parse_recipe
from saccade.train.events import Prepared
from saccade.train.ready import made_ready
from tests.support.blanks import COLOURS, recipe, write_text
from tests.support.killing import logged, trace

SHORT = {
    "updates": 4, "batch_tokens": 128, "validate_every": 2, "log_every": 1, "workers": 0, "fingerprint": True,
    "optimizer": {"kind": "adamw", "rate": 1e-2}, "schedule": {"kind": "constant"},
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_text(tmp_path_factory.mktemp("text"))
    for split in ("train", "valid"):
        things = [f"the {thing} is very {colour}" for thing, colour in COLOURS.items()] * 3
        (folder / f"{split}.src").write_text("".join(f"{line}\n" for line in things))
        (folder / f"{split}.tgt").write_text("".join(f"{line.split()[-1]}\n" for line in things))
    return folder


@pytest.fixture(scope="module")
def first(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to begin with."""
    run = tmp_path_factory.mktemp("runs") / "first"
    saccade.train(recipe(corpus, "bert"), run, device="cpu")
    return run


@pytest.fixture(scope="module")
def recurrent(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "recurrent"
    saccade.train(recipe(corpus, "lstm"), run, device="cpu")
    return run


def tree_on(corpus: Path, run: Path, task: str = "masked-language-model", **more: Any) -> dict[str, Any]:
    """As short as a recipe that begins with a run may be: neither text nor encoder."""
    if task == "translate":
        files = {
            s: {"source": str(corpus / f"{s}.src"), "target": str(corpus / f"{s}.tgt")} for s in ("train", "valid")
        }
        decoder = {"kind": "lstm", "width": 8, "attention": {"score": "general"}, "bridge": "mean"}
        tree = {"task": task, "data": {"kind": "files", **files}, "model": {"decoder": decoder}}
    else:
        tree = {"task": task, "data": {"kind": "text", **{s: str(corpus / f"{s}.txt") for s in ("train", "valid")}}}
    return {**tree, "init_from": str(run), "train": SHORT} | more


def first_weights(chosen: Recipe, out: Path) -> tuple[dict[str, Tensor], Prepared]:
    """What a run has before its first update."""
    events = saccade.training(chosen, out, device="cpu")
    prepared = next(events)
    assert isinstance(prepared, Prepared)
    events.close()  # type: ignore[attr-defined]
    _, built, _ = made_ready(chosen.job(Path.cwd()), RunFolder(out))
    return {name: each.clone() for name, each in model_tensors(built).items()}, prepared


@pytest.mark.parametrize("task", ["masked-language-model", "translate"])
@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_text_encoder_and_weights_are_those_of_the_run(
    task: str, kind: str, corpus: Path, first: Path, recurrent: Path, tmp_path: Path
) -> None:
    run = first if kind == "transformer" else recurrent
    chosen = parse_recipe(tree_on(corpus, run, task))
    there = config.read(run / "train.yaml")
    assert config.plain(chosen.text) == there["text"]
    assert config.plain(chosen.model.encoder) == there["model"]["encoder"]
    weights, prepared = first_weights(chosen, tmp_path / "run")
    published = read_tensors(run / "model.safetensors")
    encoder = {name for name in weights if name.startswith("encoder.")}
    assert encoder
    for name in encoder:
        assert torch.equal(weights[name], published[name]), name
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    (told,) = [remark for remark in prepared.remarks if "weights of the encoder were taken" in remark]
    assert str(run) in told
    noted = json.loads((tmp_path / "run" / "config.json").read_text())["init_from"]
    assert noted["run"] == str(run)


LABELLED: dict[str, dict[str, Any]] = {
    "tag": {"data": {"kind": "notices", "train": 12, "valid": 6, "test": 6}},
    "classify": {"data": {"kind": "reviews", "train": 12, "valid": 6, "test": 6}, "model": {"kind": "sequence"}},
}
"""As short as their recipes may be."""


@pytest.mark.parametrize("task", LABELLED)
def test_taggers_and_classifiers_begin_with_what_was_read(task: str, corpus: Path, tmp_path: Path) -> None:
    """Frozen, tuned, and tuned layer by layer; what is loaded afterwards has the encoder that was trained."""
    if task not in {name for each in RECIPES for name in get_args(each.model_fields["task"].annotation)}:
        pytest.skip(f"the task {task} is not there yet")
    read = tmp_path / "read"
    saccade.train(recipe(corpus, "bert", "text={kind: char}"), read, device="cpu")
    published = read_tensors(read / "model.safetensors")
    for name, decay in (("frozen", 1.0), ("tuned", 1.0), ("by layer", 0.5)):
        tree = {"task": task, "init_from": str(read), "freeze": name == "frozen", **LABELLED[task]}
        tree["train"] = {**SHORT, "layer_decay": decay}
        saccade.train(parse_recipe(tree), tmp_path / name, device="cpu")
        after = read_tensors(tmp_path / name / "model.safetensors")
        encoder = [each for each in published if each.startswith("encoder.")]
        assert (tmp_path / name / "tokenizer.json").read_bytes() == (read / "tokenizer.json").read_bytes()
        moved = [each for each in encoder if not torch.equal(after[each], published[each])]
        assert bool(moved) == (name != "frozen")
        assert saccade.load(tmp_path / name, "cpu").parameters > 0


def test_a_frozen_encoder_stays_and_all_else_learns(corpus: Path, first: Path, tmp_path: Path) -> None:
    published = read_tensors(first / "model.safetensors")
    for freeze in (True, False):
        out = tmp_path / f"{freeze}"
        saccade.train(parse_recipe(tree_on(corpus, first, "translate", freeze=freeze)), out, device="cpu")
        after = read_tensors(out / "model.safetensors")
        moved = {
            name for name in published if name.startswith("encoder.") and not torch.equal(after[name], published[name])
        }
        assert bool(moved) != freeze
        memory = read_tensors(out / "checkpoints" / "step-4" / "optimizer.safetensors")
        assert any(name.startswith("encoder.") for name in memory) != freeze
        assert any(name.startswith("decoder.") for name in memory)
    assert saccade.load(tmp_path / "True", "cpu").translate("the sky is very blue").text is not None


def test_layers_learn_at_rates_of_their_own(corpus: Path, first: Path, tmp_path: Path) -> None:
    """A first step of Adam is as long as the rate, so how far a weight moved tells its rate."""
    tree = tree_on(corpus, first, "translate")
    tree["train"] = {**SHORT, "updates": 1, "validate_every": 1, "layer_decay": 0.5, "clip": None}
    saccade.train(parse_recipe(tree), tmp_path / "run", device="cpu")
    before, after = (read_tensors(run / "model.safetensors") for run in (first, tmp_path / "run"))

    def longest(prefix: str) -> float:
        return max(float((after[n] - before[n]).abs().max()) for n in before if n.startswith(prefix) and n in after)

    assert longest("encoder.stack.blocks.1.") == pytest.approx(0.5e-2, rel=1e-3)
    assert longest("encoder.stack.blocks.0.") == pytest.approx(0.25e-2, rel=1e-3)
    assert longest("encoder.embed.") == pytest.approx(0.125e-2, rel=1e-3)


def test_dropout_may_be_another_and_what_changes_no_tokenizer(corpus: Path, first: Path, tmp_path: Path) -> None:
    text = config.read(first / "train.yaml")["text"] | {"least": 3}
    chosen = parse_recipe(tree_on(corpus, first, model={"encoder": {"dropout": 0.4}}, text=text))
    assert chosen.model.encoder.dropout == 0.4
    assert chosen.model.encoder.layers == 2
    saccade.train(chosen, tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"model": {"encoder": {"layers": 3}}}, "layers is 2 there and 3 here"),
        ({"model": {"encoder": {"kind": "lstm", "width": 8}}}, "kind is transformer there and lstm here"),
        ({"text": {"kind": "char"}}, "kind is word there and char here.*Leave `text` out"),
        ({"text": {"kind": "word", "size": 40, "lowercase": True}}, "lowercase is False there and True here"),
    ],
)
def test_another_text_or_encoder_is_refused(
    more: dict[str, Any], told: str, corpus: Path, first: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=told):
        saccade.train(parse_recipe(tree_on(corpus, first, **more)), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_is_refused(corpus: Path, first: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"init_from: .*is no run folder"):
        parse_recipe(tree_on(corpus, tmp_path))
    whole = config.plain(parse_recipe(tree_on(corpus, first)))
    with pytest.raises(UsageError, match=r"init_from: .*is no run folder"):
        saccade.train(parse_recipe({**whole, "init_from": str(tmp_path)}), tmp_path / "run", device="cpu")
    damaged = tmp_path / "damaged"
    shutil.copytree(first, damaged)
    (damaged / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(SaccadeError, match=r"init_from: .*model\.safetensors"):
        saccade.train(parse_recipe({**whole, "init_from": str(damaged)}), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    (damaged / "train.yaml").write_text("task: masked-language-model\n")
    with pytest.raises(SaccadeError, match=r"init_from: .*train\.yaml"):
        parse_recipe(tree_on(corpus, damaged))


def test_the_run_is_seen_from_the_recipe_s_folder(corpus: Path, first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "runs" / "mine")
    tree = tree_on(corpus, Path("runs/mine"))
    (tmp_path / "tuned.yaml").write_text(config.to_yaml(tree))
    chosen, base = load_recipe(str(tmp_path / "tuned.yaml"))
    assert base == tmp_path
    run = saccade.train(tmp_path / "tuned.yaml", tmp_path / "tuned", device="cpu")
    assert run.finished.update == 4
    assert chosen.init_from == "runs/mine"


def test_a_run_goes_on_without_the_one_it_began_with(corpus: Path, first: Path, tmp_path: Path) -> None:
    """Once there is a checkpoint; before that, the other run must still be what it was."""
    origin = tmp_path / "origin"
    shutil.copytree(first, origin)
    chosen = parse_recipe(tree_on(corpus, origin, "translate", freeze=True))
    saccade.train(chosen, tmp_path / "whole", device="cpu")
    for stretch in (1, 5):  # dropped when it has begun, and when something is saved
        out = tmp_path / f"dropped-{stretch}"
        events = saccade.training(chosen, out, device="cpu")
        for event, _ in zip(events, range(stretch), strict=False):
            assert event is not None
        events.close()  # type: ignore[attr-defined]
    early, late = tmp_path / "dropped-1", tmp_path / "dropped-5"
    assert not list((early / "checkpoints").glob("step-*"))
    assert list((late / "checkpoints").glob("step-*"))
    saved = parse_recipe(config.read(late / "train.yaml"))
    other = tmp_path / "other"
    saccade.train(recipe(corpus, "bert", "seed=2"), other, device="cpu")
    shutil.rmtree(origin)
    saccade.train(saved, late, resume=True, device="cpu")
    assert trace(late) == trace(tmp_path / "whole")
    assert logged(late) == logged(tmp_path / "whole")
    shutil.copytree(other, origin)
    with pytest.raises(UsageError, match="is another than this run began with"):
        saccade.train(saved, early, resume=True, device="cpu")
    shutil.rmtree(origin)
    with pytest.raises(UsageError, match="init_from"):
        saccade.train(saved, early, resume=True, device="cpu")
    shutil.copytree(first, origin)
    saccade.train(saved, early, resume=True, device="cpu")
    assert trace(early) == trace(tmp_path / "whole")


def test_rates_by_layer_are_for_models_with_an_encoder(corpus: Path, first: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.layer_decay is 1\.5"):
        parse_recipe(tree_on(corpus, first, train={**SHORT, "layer_decay": 1.5}))
    with pytest.raises(UsageError, match=r"train\.layer_decay is 0"):
        parse_recipe(tree_on(corpus, first, train={**SHORT, "layer_decay": 0}))
