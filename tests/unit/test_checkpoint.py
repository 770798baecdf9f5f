"""The run folder: saved all or nothing, loaded only when whole, whatever happens in between."""

import hashlib
import json
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import saccade
from saccade import checkpoint, disk
from saccade.checkpoint import MODEL, RunFolder, model_tensors, read_json, read_tensors
from saccade.config import parse_yaml
from saccade.disk import MANIFEST, to_json
from saccade.errors import SaccadeError, UsageError
from saccade.models.build import build_translator
from saccade.types import END, Batch, Tokens
from tests.support.folders import CPU, same, shifted, weights
from tests.support.tiny import recipe, write_corpus

PUBLISHED = ("config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_target.json")
STEP = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")


def sign(folder: Path, *names: str) -> None:
    """A manifest that fits, as somebody who means harm would write it."""
    files = names or tuple(path.name for path in folder.iterdir() if path.is_file() and path.name != MANIFEST)
    sums = {name: [hashlib.sha256((folder / name).read_bytes()).hexdigest()] for name in files}
    (folder / MANIFEST).write_text(to_json(sums), encoding="utf-8")


# Broken files


def damages(content: bytes, draw: random.Random) -> Iterator[bytes]:
    """Sixteen single bits turned over, and six ends cut off: all of it, the last byte, and anything between."""
    for _ in range(16):
        at = draw.randrange(len(content))
        yield content[:at] + bytes([content[at] ^ (1 << draw.randrange(8))]) + content[at + 1 :]
    for length in (0, len(content) - 1, *(draw.randrange(len(content)) for _ in range(4))):
        yield content[:length]


def refused(path: Path, content: bytes, read: Callable[[], object]) -> str:
    """The error that a file with this content causes; the file is as before afterwards."""
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        with pytest.raises(SaccadeError) as caught:
            read()
    finally:
        path.write_bytes(before)
    return str(caught.value)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_damaged_file_of_the_model_is_refused_by_its_name(name: str, run: Path) -> None:
    path = run / name
    for content in damages(path.read_bytes(), random.Random(name)):
        told = refused(path, content, lambda: checkpoint.load(run, CPU))
        assert str(run) in told
        assert name in told or name == MANIFEST  # a checksum changed in the manifest blames the file it is of
        assert name in refused(path, content, RunFolder(run).verify) or name == MANIFEST
    checkpoint.load(run, CPU)


@pytest.mark.parametrize("name", STEP)
def test_a_damaged_file_of_a_checkpoint_is_refused_by_its_name(name: str, run: Path) -> None:
    folder = RunFolder(run)
    older, newest = folder.steps()
    for content in damages((newest / name).read_bytes(), random.Random(name)):
        told = refused(newest / name, content, lambda: folder.verify_checkpoint(newest))
        assert str(newest) in told
        assert name in told or name == MANIFEST
    (newest / name).write_bytes(content)
    found, remarks = folder.latest()
    assert found is not None
    assert (found.path, found.update) == (older, 4)
    assert len(remarks) == 1
    assert str(newest) in remarks[0]
    assert "older checkpoint is used" in remarks[0]


def test_no_bit_of_a_manifest_can_change(run: Path) -> None:
    folder = RunFolder(run)
    newest = folder.steps()[-1]
    content = (newest / MANIFEST).read_bytes()
    for at in range(len(content)):
        changed = content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]
        refused(newest / MANIFEST, changed, lambda: folder.verify_checkpoint(newest))


@pytest.mark.parametrize("name", [*STEP, "tokenizer.json", "tokenizer_target.json", "config.json", MODEL])
def test_a_missing_file_is_missed(name: str, run: Path) -> None:
    folder = RunFolder(run)
    for each in (run, *folder.steps()):
        (each / name).unlink(missing_ok=True)
    if name in STEP:
        with pytest.raises(SaccadeError, match=rf"no checkpoint is whole[\s\S]*step-8/{name}[\s\S]*step-4/{name}"):
            folder.latest()
    if (name in PUBLISHED) and name != MODEL:
        with pytest.raises(SaccadeError, match=f"run/{name}: (is missing|cannot be read)"):
            checkpoint.load(run, CPU)
    if name == MODEL:
        with pytest.raises(UsageError, match="holds no model yet"):
            checkpoint.load(run, CPU)


def test_a_file_that_the_manifest_does_not_know_is_not_read(run: Path) -> None:
    for name in ("tokenizer_target.json", "config.json", MODEL):
        sign(run, *(each for each in PUBLISHED if each not in (name, MANIFEST)))
        with pytest.raises(SaccadeError, match=f"{name}: is not in manifest.json"):
            checkpoint.load(run, CPU)
        with pytest.raises(SaccadeError, match=f"{name}: is not in manifest.json"):
            RunFolder(run).verify()
    newest = RunFolder(run).steps()[-1]
    sign(newest, MODEL, "state.json")
    with pytest.raises(SaccadeError, match=r"optimizer\.safetensors: is not in manifest\.json"):
        RunFolder.verify_checkpoint(newest)


def test_a_resumed_run_looks_at_what_it_published(run: Path) -> None:
    """A damaged tokenizer must not be blessed by the next model that is published."""
    chosen = saccade.recipe(run / "train.yaml", "train.updates=12")
    for name in ("tokenizer.json", "tokenizer_target.json", "config.json", MODEL):
        content = (run / name).read_bytes()
        told = refused(run / name, content + b" ", lambda: saccade.train(chosen, run, resume=True, device="cpu"))
        assert f"{name}: is not the file that was saved" in told
    (run / MODEL).unlink()
    with pytest.raises(SaccadeError, match=r"model\.safetensors: is missing: the best model so far"):
        saccade.train(chosen, run, resume=True, device="cpu")


def test_a_model_published_while_it_is_loaded_is_loaded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = shifted(weights(run))
    checksum = disk.checksum
    published: list[Path] = []

    def publishing(path: Path) -> str:
        if path.name == MODEL and not published:
            published.append(path)
            RunFolder(run).publish(new)
        return checksum(path)

    monkeypatch.setattr(disk, "checksum", publishing)
    assert same(weights(run), new)


# What is in the files


def test_every_file_of_a_run_is_tensors_or_text(run: Path) -> None:
    for path in run.rglob("*"):
        match path.suffix:
            case "" if path.is_dir():
                continue
            case ".safetensors":
                with safe_open(path, framework="pt") as file:
                    assert list(file.keys())
            case ".json":
                assert isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
            case ".md":
                assert path.read_text(encoding="utf-8").startswith("---\nlibrary_name: saccade\n")
            case ".jsonl":
                assert all(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
            case ".yaml":
                assert isinstance(parse_yaml(path.read_text(encoding="utf-8"), str(path)), dict)
            case ".bin" | ".idx":  # bare numbers: their types and sizes stand in store.json
                facts = read_json(path.parent / "store.json")["files"][path.name]
                assert facts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
            case other:
                raise AssertionError(f"what is {other}?")
    assert {path.name for path in run.iterdir() if path.is_file()} == {
        *PUBLISHED,
        "train.yaml",
        "metrics.jsonl",
        "environment.json",
        "README.md",
    }
    for step in RunFolder(run).steps():
        assert tuple(sorted(path.name for path in step.iterdir())) == STEP


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_tied_weights_are_saved_once_and_loaded_as_one(tie: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", train=40, valid=4)
    chosen = recipe(corpus, "transformer", f"model.tie={tie}", "train.updates=2")
    model = saccade.train(chosen, tmp_path / "run", device="cpu").load("cpu").engine.model
    names = set(read_tensors(tmp_path / "run" / MODEL))
    tables = {model.encoder.embed.table.weight, model.decoder.embed.table.weight, model.decoder.output.weight}
    assert len(tables) == {"none": 3, "output": 2, "all": 1}[tie]
    kept = [name for name in names if name.endswith(("embed.table.weight", "output.weight")) and "layers" not in name]
    assert len(kept) == len(tables)
    assert names == {name for name, _ in model.named_parameters()}
    best = RunFolder(tmp_path / "run").steps()[-1]  # both updates were made before the one validation
    assert same(model_tensors(model), read_tensors(best / MODEL))


def test_a_saved_model_is_the_same_function(run: Path) -> None:
    loaded = checkpoint.load(run, CPU)
    again = build_translator(saccade.recipe(run / "train.yaml").model, loaded.text.source.size, loaded.text.target.size)
    checkpoint.restore_model(again, read_tensors(run / MODEL), "here")
    batch = Batch(Tokens.of([[5, 7, END]]), Tokens.of([[9, END]]))
    assert torch.equal(loaded.model(batch), again.eval()(batch))


def test_the_mean_of_checkpoints_is_summed_in_double_precision(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", overwrite=False)
    values = (1e8, 1.0, -1e8)  # single precision would lose the 1
    for update, value in enumerate(values):
        folder.save_checkpoint(update, {"w": torch.full((2, 3), value)}, {}, {})
    mean = checkpoint.average(folder.steps())
    assert torch.equal(mean["w"], torch.full((2, 3), 1 / 3))
    assert mean["w"].dtype == torch.float32


# Folders that are no run, or not this version's


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no run folder \(it has no config.json\)"):
        checkpoint.load(tmp_path, CPU)


def test_a_format_of_another_version_is_refused(run: Path) -> None:
    config = read_json(run / "config.json")
    for change, told in (
        ({"format": 2}, r"config\.json: format 2 is not one this version reads \(1\)"),
        ({"format": None}, r"format None is not one"),
        ({"model": config["model"] | {"decoder": {"kind": "mamba"}}}, r"config\.json: model: decoder\.kind is 'mamba'"),
        ({"model": None}, r"config\.json: model: encoder is missing"),
    ):
        (run / "config.json").write_text(to_json(config | change))
        sign(run)
        with pytest.raises(UsageError, match=told):
            checkpoint.load(run, CPU)


def test_weights_of_another_model_are_refused(run: Path) -> None:
    tensors = read_tensors(run / MODEL)
    name = "decoder.embed.table.weight"
    for changed, told in (
        ({**tensors, name: tensors[name][:-1]}, rf"{name} has shape \(267, 8\), the model \(268, 8\)"),
        ({**tensors, "encoder.more": torch.zeros(1)}, r"missing \[\], unknown \['encoder.more'\]"),
        ({key: value for key, value in tensors.items() if key != name}, rf"missing \['{name}'\], unknown \[\]"),
    ):
        RunFolder(run).publish(changed)
        with pytest.raises(SaccadeError, match=r"run/model\.safetensors: .*" + told):
            checkpoint.load(run, CPU)


def header(text: str | bytes, length: int | None = None, data: bytes = b"") -> bytes:
    """A file as safetensors lays it out: the header's length, the header, the numbers."""
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content) if length is None else length) + content + data


TENSOR_FILES = {
    "empty": b"",
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.",
    "a zip, as torch.save writes": b"PK\x03\x04" + bytes(64),
    "a header of 2^63 bytes": header("{}", 1 << 63),
    "a header longer than the file": header("{}", 1000),
    "no JSON": header("{" * 50),
    "deep JSON": header("[" * 100_000),
    "not UTF-8": header(b'{"\xff":1}'),
    "offsets behind the end": header('{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', data=bytes(8)),
    "negative offsets": header('{"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}', data=bytes(4)),
    "a shape that does not fit": header('{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}', data=bytes(4)),
    "a shape beyond all memory": header(
        '{"w":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,4]}}', data=bytes(4)
    ),
    "overlapping tensors": header(
        '{"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}',
        data=bytes(6),
    ),
    "a type nobody knows": header('{"w":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}', data=bytes(4)),
}


@pytest.mark.parametrize("kind", TENSOR_FILES)
def test_tensor_files_made_to_harm_are_refused(kind: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the manifest vouches for them."""
    monkeypatch.chdir(run)
    (run / MODEL).write_bytes(TENSOR_FILES[kind])
    sign(run)
    with pytest.raises(SaccadeError, match=r"run/model\.safetensors: cannot be read"):
        checkpoint.load(run, CPU)
    assert not (run / "pwned").exists()


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{", "[" * 100_000, '{"a": ' * 100_000, "\ufeff{}", '{"a": 1}', '{"a": NaN}', "9" * 5000],
    ids=lambda text: str(text)[:9],
)
def test_manifests_made_to_harm_are_refused(content: str, run: Path) -> None:
    (run / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(SaccadeError, match=r"run/manifest\.json: "):
        checkpoint.load(run, CPU)


@pytest.mark.parametrize("name", ["../outside.json", "/etc/hostname", "", "..", "checkpoints", "a/b"])
def test_a_manifest_cannot_point_elsewhere(name: str, run: Path) -> None:
    (run.parent / "outside.json").write_text("{}")
    manifest = {name: [hashlib.sha256(b"{}").hexdigest()], **read_json(run / MANIFEST)}
    (run / MANIFEST).write_text(to_json(manifest))
    told = r"is missing, though manifest\.json names it|manifest\.json: names .* which is no file of this folder"
    with pytest.raises(SaccadeError, match=told):
        checkpoint.load(run, CPU)


# Where a run may begin


def test_a_run_begins_in_a_new_folder_or_in_one_that_holds_nothing(tmp_path: Path) -> None:
    for name in ("new", "empty", "killed"):
        folder = tmp_path / name / "run"
        if name != "new":
            folder.mkdir(parents=True)
        if name == "killed":  # a run that was killed before its recipe was written
            (folder / "checkpoints").mkdir()
            (folder / ".tmp-train.yaml").write_text("ta")
        assert RunFolder.create(folder, overwrite=False).checkpoints.is_dir()


def test_what_is_there_is_not_replaced_unasked(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not empty\. Continue that run with --resume"):
        RunFolder.create(run, overwrite=False)
    checkpoint.load(run, CPU)
    RunFolder.create(run, overwrite=True)
    assert [path.name for path in run.iterdir()] == ["checkpoints"]

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("all of it")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match="is not empty"):
            RunFolder.create(tmp_path / "notes", overwrite=overwrite)
        with pytest.raises(UsageError, match="is a file, not a folder"):
            RunFolder.create(tmp_path / "notes" / "thesis.txt", overwrite=overwrite)
        with pytest.raises(UsageError, match="cannot be made: Not a directory"):
            RunFolder.create(tmp_path / "notes" / "thesis.txt" / "run", overwrite=overwrite)
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "all of it"
