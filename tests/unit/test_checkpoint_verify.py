"""`saccade verify`: every file with a checksum is looked at, and what is wrong is told by name."""

import json
import shutil
from pathlib import Path

import pytest

from saccade import disk
from saccade.api import verify
from saccade.checkpoint import RunFolder
from saccade.disk import to_json
from saccade.errors import SaccadeError, UsageError
from saccade.integrity import verify_run
from tests.support.cli import saccade_command
from tests.support.folders import shifted, weights

STEPS = [
    f"checkpoints/step-{n}/{name}"
    for n in (4, 8)
    for name in ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")
]
STORES = [
    f"data/{split}/{name}"
    for split, text in (("train", ()), ("valid", ("text.bin", "text.idx")))
    for name in ("manifest.json", "store.json", "source.bin", "source.idx", "target.bin", "target.idx", *text)
]
FOR_USE = ["manifest.json", "config.json", "tokenizer.json", "tokenizer_target.json", "model.safetensors"]
EVERY = [*FOR_USE, "train.yaml", "environment.json", "metrics.jsonl", "data/made-from.json", *STORES, *STEPS]


def states(run: Path) -> dict[str, str]:
    return {file.name: file.state for file in verify(run).files}


def test_every_file_of_a_whole_run_is_looked_at_but_the_card(run: Path) -> None:
    found = verify(run)
    assert found.ok
    assert sorted(file.name for file in found.files) == sorted(EVERY)
    on_disk = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert on_disk - {file.name for file in found.files} == {"README.md"}


@pytest.mark.parametrize("name", EVERY)
def test_a_damaged_file_is_told_and_no_other(name: str, run: Path) -> None:
    content = (run / name).read_bytes()
    changed = content[:-1] + b"}" if name == "metrics.jsonl" else bytes([content[0] ^ 1]) + content[1:]
    (run / name).write_bytes(changed)
    found = states(run)
    assert {each for each, state in found.items() if state != "ok"} == {name}
    assert found[name] == "damaged"
    (run / name).write_bytes(content)
    assert verify(run).ok


def test_a_missing_file_is_told(run: Path) -> None:
    for name in (*FOR_USE[1:4], *STORES, *STEPS):
        content = (run / name).read_bytes()
        (run / name).unlink()
        found = states(run)
        assert found[name] == "missing", name
        assert [state for each, state in found.items() if each != name and state != "ok"] == []
        (run / name).write_bytes(content)


def test_what_is_needed_to_use_a_model_elsewhere_is_whole_by_itself(run: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    for name in FOR_USE:
        shutil.copy(run / name, tmp_path / "copy")
    assert states(tmp_path / "copy") == dict.fromkeys(FOR_USE, "ok")


def test_a_run_is_whole_at_each_stage_of_its_beginning(run: Path) -> None:
    """Killed between announcing its first model and writing it, and before it began at all."""
    (run / "model.safetensors").unlink()
    assert "model.safetensors" not in states(run)
    assert verify(run).ok
    for name in ("config.json", "manifest.json"):
        (run / name).unlink()
    assert verify(run).ok


@pytest.mark.parametrize("name", ["../outside.json", "/etc/hostname", "", "..", "a/b", "a\0b"])
def test_a_manifest_that_points_elsewhere_is_damaged_or_its_file_missing(name: str, run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(to_json({**manifest, name: ["0" * 64]}))
    assert not verify(run).ok


def test_a_model_published_meanwhile_is_no_damage(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = shifted(weights(run))
    honest = disk.checksum
    published: list[Path] = []

    def publishing(path: Path) -> str:
        if path == run / "model.safetensors" and not published:
            published.append(path)
            RunFolder(run).publish(new)
        return honest(path)

    monkeypatch.setattr(disk, "checksum", publishing)
    assert verify_run(run).ok
    assert published


def test_the_command_tells_each_file_and_ends_with_one_where_something_is_wrong(run: Path) -> None:
    done = saccade_command("verify", run)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "ok      manifest.json"
    assert len(done.stdout.splitlines()) == len(EVERY)
    assert "31 files as they were saved" in done.stderr
    (run / "model.safetensors").write_bytes(b"")
    (run / "checkpoints" / "step-4" / "state.json").unlink()
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"kind": "tra')
    done = saccade_command("verify", run)
    assert done.exit_code == 1
    wrong = [line.split() for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert [line[:2] for line in wrong] == [
        ["damaged", "model.safetensors"],
        ["damaged", "metrics.jsonl"],
        ["missing", "checkpoints/step-4/state.json"],
    ]
    assert " ".join(wrong[1][2:]) == "its last line is torn; resuming cuts it off"
    assert "run: 3 of 31 files damaged or missing." in done.stderr
    told = saccade_command("verify", run, "-f", "json")
    assert told.exit_code == 1
    found = json.loads(told.stdout)
    assert not found["ok"]
    assert {file["name"]: file["state"] for file in found["files"]}["model.safetensors"] == "damaged"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no run folder"):
        verify(tmp_path)
    assert saccade_command("verify", tmp_path).exit_code == 2


@pytest.mark.parametrize("name", ["manifest.json", "environment.json"])
def test_half_a_character_is_refused_by_name(name: str, run: Path) -> None:
    """JSON can name a surrogate by itself; no file in UTF-8 can hold it."""
    (run / name).write_text(to_json({"\\ud800": ["x"], "checksum": "x"}).replace("\\\\ud800", "\\ud800"))
    assert states(run)[name] == "damaged"
    with pytest.raises(SaccadeError, match=name):
        disk.read_manifest(run) if name == "manifest.json" else disk.read_sealed_json(run / name)


def test_a_manifest_that_is_replaced_while_it_is_read_is_looked_at_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, moved = disk.verify_against, shifted(weights(run))
    calls: list[dict[str, list[str]]] = []

    def replaced(folder: Path, manifest: dict[str, list[str]], needed: tuple[str, ...]) -> None:
        calls.append(manifest)
        if len(calls) == 1:
            RunFolder(run).publish(moved)
            raise SaccadeError("model.safetensors: is not the file that was saved.")
        honest(folder, manifest, needed)

    monkeypatch.setattr(disk, "verify_against", replaced)
    disk.verify(run, ("config.json",))
    assert len(calls) == 2
    assert calls[0] != calls[1]
