"""What a training may be asked for beside its numbers: a moving average, pieces that fit, a profile; bad numbers."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import saccade
from saccade.checkpoint import RunFolder
from saccade.disk import read_tensors
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import Recipe
from saccade.train.events import Profiled, Shrunk
from saccade.train.gradient import Gradient
from saccade.train.profile import PARTS
from tests.support.cli import saccade_command
from tests.support.tiny import notes, recipe, write_corpus
from tests.unit.test_gradient import scarce, spoiled


def small(folder: Path, *settings: str, model: str = "lstm") -> Recipe:
    return recipe(write_corpus(folder / "corpus"), model, "train.updates=12", "train.fingerprint=true", *settings)


def fingerprints(run: Path) -> list[Any]:
    return [note["fingerprint"] for note in notes(run, "update")]


@pytest.mark.parametrize("optimizer", ["{kind: adamw, rate: 0.01}", "{kind: muon}"])
def test_the_moving_average_is_what_is_validated_and_published(tmp_path: Path, optimizer: str) -> None:
    given = (f"train.optimizer={optimizer}", "train.validate_every=4", "train.keep=9")
    averaged = saccade.train(small(tmp_path, *given, "train.ema=0.9"), tmp_path / "averaged")
    plain = saccade.train(small(tmp_path, *given), tmp_path / "plain")
    assert fingerprints(tmp_path / "averaged") == fingerprints(tmp_path / "plain")  # training itself is untouched
    assert averaged.best != plain.best
    published = read_tensors(tmp_path / "averaged" / "model.safetensors")
    step = tmp_path / "averaged" / "checkpoints" / f"step-{averaged.finished.best_update}"
    memory, trained = read_tensors(step / "optimizer.safetensors"), read_tensors(step / "model.safetensors")
    assert published.keys() == trained.keys()
    for name, weight in published.items():
        assert torch.equal(weight, memory[f"{name}/average"])
        assert not torch.equal(weight, trained[name])


def test_the_moving_average_goes_on_after_a_resume(tmp_path: Path) -> None:
    def chosen(updates: int) -> Recipe:
        return small(
            tmp_path, "train.ema=0.9", "train.save_every=5", f"train.updates={updates}", "train.validate_every=4"
        )

    saccade.train(chosen(12), tmp_path / "whole")
    saccade.train(chosen(5), tmp_path / "halved")
    saccade.train(chosen(12), tmp_path / "halved", resume=True)
    newest = ("checkpoints", "step-12", "optimizer.safetensors")
    assert tmp_path.joinpath("halved", *newest).read_bytes() == tmp_path.joinpath("whole", *newest).read_bytes()
    assert fingerprints(tmp_path / "halved") == fingerprints(tmp_path / "whole")


@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_auto_works_off_an_update_in_pieces_that_fit_and_remembers_them(tmp_path: Path, model: str) -> None:
    given = ("train.validate_every=12", "model.encoder.dropout=0", "model.decoder.dropout=0")
    auto = small(tmp_path, *given, "train.batch_tokens=auto", "train.update_tokens=400", model=model)
    told: list[object] = []
    with scarce(150, "backward"):
        saccade.train(auto, tmp_path / "auto", on_event=told.append)
    (shrunk,) = [event for event in told if isinstance(event, Shrunk)]
    assert shrunk.fits <= 150
    assert notes(tmp_path / "auto", "shrunk") == [{"kind": "shrunk", "update": 1, "fits": shrunk.fits}]
    state = json.loads((tmp_path / "auto" / "checkpoints" / "step-12" / "state.json").read_text())
    assert state["progress"]["fits"] == shrunk.fits
    whole = small(tmp_path, *given, "train.batch_tokens=400", model=model)
    saccade.train(whole, tmp_path / "whole")
    one, other = (notes(tmp_path / name, "update") for name in ("auto", "whole"))
    assert [note["loss"] for note in one] == pytest.approx([note["loss"] for note in other], rel=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        ("train.batch_tokens=auto",),
        ("train.update_tokens=100",),
        ("train.batch_tokens=auto", "train.update_tokens=100", "train.accumulate=2"),
        ("train.ema=0.9", "train.average=2"),
        ("train.batch_tokens=automatic",),
        ("train.skip_limit=0",),
        ("train.ema=1",),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train"):
        small(tmp_path, *settings)


def test_a_union_of_values_is_explained_without_its_types(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        small(tmp_path, "train.batch_tokens=0")
    assert "constrained" not in str(caught.value)
    assert "train.batch_tokens is 0: input should be greater than or equal to 1" in str(caught.value)


def test_updates_that_are_not_finite_are_skipped_shown_and_noted(tmp_path: Path) -> None:
    chosen = small(tmp_path, "train.log_every=3", "train.validate_every=6")
    with mock.patch.object(Gradient, "accumulate", spoiled({4, 5, 6, 8}, float("nan"))):
        saccade.train(chosen, tmp_path / "run")
    lines = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert "NaN" not in lines
    assert "Infinity" not in lines
    trained = notes(tmp_path / "run", "trained")
    assert [note["skipped"] for note in trained] == [0, 3, 1, 0]
    assert trained[1]["loss"] is None
    assert trained[2]["loss"] > 0
    marks = fingerprints(tmp_path / "run")
    assert marks[2] == marks[3] == marks[4] == marks[5] != marks[6]
    assert marks[6] == marks[7] != marks[8]
    state = json.loads((tmp_path / "run" / "checkpoints" / "step-12" / "state.json").read_text())
    assert state["progress"]["skipped"] == 4


def test_too_many_in_a_row_end_the_run_with_the_last_good_state_saved(tmp_path: Path) -> None:
    chosen = small(tmp_path, "train.skip_limit=3", "train.log_every=1", "train.validate_every=100")
    with (
        mock.patch.object(Gradient, "accumulate", spoiled(set(range(5, 99)), float("inf"))),
        pytest.raises(SaccadeError, match=r"by update 7: loss or gradient of the last 3 updates were not finite"),
    ):
        saccade.train(chosen, tmp_path / "run")
    (step,) = RunFolder(tmp_path / "run").steps()
    assert step.name == "step-7"
    good = small(tmp_path, "train.updates=4", "train.validate_every=100")
    saccade.train(good, tmp_path / "good")
    weights = tmp_path / "good" / "checkpoints" / "step-4" / "model.safetensors"
    assert (step / "model.safetensors").read_bytes() == weights.read_bytes()


def test_a_profile_accounts_for_all_of_the_time(tmp_path: Path) -> None:
    told: list[object] = []
    saccade.train(small(tmp_path), tmp_path / "run", profile=True, on_event=told.append)
    (found,) = [event for event in told if isinstance(event, Profiled)]
    assert tuple(found.parts) == PARTS
    assert found.updates == 12
    assert found.tokens > 0
    assert all(found.parts[name] > 0 for name in ("data", "forward", "backward", "optimizer"))
    assert sum(seconds for name, seconds in found.parts.items() if name != "waiting") <= found.seconds
    assert found.utilisation > 0


def test_the_profile_is_printed_as_a_table(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data")
    from saccade.config import plain, to_yaml

    (tmp_path / "tiny.yaml").write_text(to_yaml(plain(small(tmp_path))))
    done = saccade_command("train", tmp_path / "tiny.yaml", "--out", tmp_path / "run", "--profile", "-q")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:6]] == ["part", *PARTS]
    assert "tokens/s" in lines[6]
    assert "of a large matrix product here" in lines[6]
