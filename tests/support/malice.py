"""Run folders made to harm whoever loads them: one file is not what it seems, and the checksums are made to fit."""

import hashlib
import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load, save

from saccade.disk import MANIFEST, sealed, sealed_json, to_json

Use = Literal["load", "resume"]
Outcome = Literal["refused", "harmless"]
STEP = "checkpoints/step-4"


@dataclass(frozen=True)
class Malice:
    """One harmful folder: what is done to a good one, who then reads it, and how that must end."""

    spoil: Callable[[Path], None]
    use: Use = "load"
    ends: Outcome = "refused"
    named: str = ""
    """What an error must name."""


class _Payload:
    """Run as soon as it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pwned",)


PICKLE = pickle.dumps(_Payload())
GLOBAL = b"cos\nsystem\n(S'touch pwned'\ntR."


def _torch_file() -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.zeros(2), "x": _Payload()}, buffer)
    return buffer.getvalue()


def _zip_bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(64 << 20))
    return buffer.getvalue()


# Checksums that fit


def sign(folder: Path) -> None:
    """A manifest for every file in the folder."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name in _SIGNED]
    sums = {path.name: [hashlib.sha256(path.read_bytes()).hexdigest()] for path in files}
    (folder / MANIFEST).write_text(to_json(sums), encoding="utf-8")


_SIGNED = {
    "config.json", "model.safetensors", "tokenizer.json", "tokenizer_target.json", "optimizer.safetensors",
    "state.json", "store.json", "labels.json",
}  # fmt: skip


def written(name: str, content: bytes | str) -> Callable[[Path], None]:
    """The file holds this, and the manifest beside it says so."""

    def spoil(run: Path) -> None:
        path = run / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if path.name in _SIGNED:
            sign(path.parent)

    return spoil


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """The JSON in the file, changed."""

    def spoil(run: Path) -> None:
        value = change(json.loads((run / name).read_text(encoding="utf-8")))
        written(name, to_json(value))(run)

    return spoil


def _tensors(name: str, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        written(name, save(change(load((run / name).read_bytes()))))(run)

    return spoil


def _recipe(text: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / "train.yaml").write_text(sealed(text), encoding="utf-8")

    return spoil


def _linked(name: str, to: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        (run / name).unlink()
        (run / name).symlink_to(to)

    return spoil


def _names(name: str) -> Callable[[Path], None]:
    """The manifest vouches for one more file, which lies elsewhere."""

    def spoil(run: Path) -> None:
        manifest = json.loads((run / MANIFEST).read_text())
        known = hashlib.sha256(Path("/etc/hostname").read_bytes()).hexdigest() if Path("/etc/hostname").exists() else ""
        (run / MANIFEST).write_text(to_json({**manifest, name: [known]}))

    return spoil


def _beside(run: Path) -> None:
    """Files that other loaders would run."""
    for name in ("__init__.py", "sitecustomize.py", "modeling.py", "conftest.py", "torch.py", "saccade.py"):
        (run / name).write_text("import os\nos.system('touch pwned')\n")
    for name in ("pytorch_model.bin", ".metadata", "training_args.bin", "rng_state.pth", "scheduler.pt"):
        (run / name).write_bytes(PICKLE)


# Heads of tensor files


def head(text: str | bytes, length: int | None = None, data: bytes = b"") -> bytes:
    """A file as safetensors lays it out: the head's length, the head, the numbers."""
    content = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(content) if length is None else length) + content + data


def _one(dtype: str = '"F32"', shape: str = "[1]", offsets: str = "[0,4]", data: int = 4) -> bytes:
    return head(f'{{"w":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}', data=bytes(data))


HEADS = {
    "a head of 2^63 bytes": head("{}", 1 << 63),
    "a head of 2^64-1 bytes": head("{}", (1 << 64) - 1),
    "a head longer than the file": head("{}", 1000),
    "a head of half a JSON": head('{"w":{"dtype":"F32"'),
    "a head of 10^5 brackets": head("[" * 100_000),
    "a head of 10^5 nested objects": head('{"a":' * 100_000 + "1" + "}" * 100_000),
    "a head that is no UTF-8": head(b'{"\xff":1}'),
    "offsets behind the end": _one(shape="[4]", offsets="[0,16]"),
    "negative offsets": _one(offsets="[-4,0]"),
    "offsets that run backwards": _one(offsets="[4,0]"),
    "offsets of 2^64": _one(offsets="[0,18446744073709551616]"),
    "an infinite size": _one(shape="[Infinity]"),
    "a size that is no number": _one(shape="[NaN]"),
    "half an element": _one(shape="[0.5]"),
    "a shape that does not fit": _one(shape="[9]"),
    "a shape beyond all memory": _one(shape="[4611686018427387904,8]"),
    "a hundred thousand dimensions": _one(shape=f"[{','.join(['1'] * 100_000)}]"),
    "a type nobody knows": _one(dtype='"F99"'),
    "a type that is code": _one(dtype="\"__import__('os')\""),
    "overlapping tensors": head(
        '{"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}',
        data=bytes(6),
    ),
    "a gap between tensors": head(
        '{"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}',
        data=bytes(12),
    ),
    "a tensor named twice": head(
        '{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        data=bytes(4),
    ),
}
FILES = {
    "a pickle": PICKLE,
    "a pickle by global": GLOBAL,
    "what torch.save writes": _torch_file(),
    "a zip bomb": _zip_bomb(),
    "nothing": b"",
}
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


def _width(value: int) -> Callable[[Any], Any]:
    return lambda config: config | {"model": {**config["model"], "encoder": {"kind": "gru", "width": value}}}


def corpus() -> dict[str, Malice]:
    """Name → folder. More than forty."""
    weights = {f"weights: {name}": Malice(written("model.safetensors", content), named="model.safetensors")
               for name, content in (FILES | HEADS).items()}  # fmt: skip
    saved = {f"checkpoint: {name}": Malice(written(f"{STEP}/{file}", content), "resume", named=file)
             for name, content, file in (
                 ("a pickle as optimiser", PICKLE, "optimizer.safetensors"),
                 ("a head of 2^63 bytes", HEADS["a head of 2^63 bytes"], "optimizer.safetensors"),
                 ("a pickle as state", PICKLE, "state.json"),
                 ("a state of 10^5 brackets", DEEP, "state.json"),
                 ("a state with a name twice", '{"progress": 1, "progress": 2}', "state.json"),
                 ("a number of 10^5 digits", '{"progress": ' + "9" * 100_000 + "}", "state.json"),
             )}  # fmt: skip
    return weights | saved | _settings() | _texts() | _states() | _paths()


def _settings() -> dict[str, Malice]:
    config = {
        "a pickle": written("config.json", PICKLE),
        "10^5 brackets": written("config.json", DEEP),
        "a name twice": written("config.json", '{"format": 1, "format": 1}'),
        "a number of 10^5 digits": written("config.json", '{"format": ' + "1" * 100_000 + "}"),
        "a width of 10^30": changed("config.json", _width(10**30)),
        "10^9 layers": changed(
            "config.json",
            lambda c: c | {"model": {**c["model"], "encoder": {"kind": "gru", "width": 2, "layers": 10**9}}},
        ),
        "a kind that is a module": changed(
            "config.json", lambda c: c | {"model": {**c["model"], "encoder": {"kind": "os.system"}}}
        ),
        "a target to call": changed(
            "config.json", lambda c: c | {"model": {**c["model"], "_target_": "os.system", "auto_map": "modeling.Evil"}}
        ),
        "no way to decode": changed("config.json", lambda c: {k: v for k, v in c.items() if k != "decode"}),
        "a list for a section": changed("config.json", lambda c: c | {"model": [1]}),
    }
    found = {f"settings: {name}": Malice(spoil, named="config.json") for name, spoil in config.items()}
    found["settings: a width of 10^9"] = Malice(
        changed("config.json", _width(10**9)), named="the model (268, 1000000000)"
    )
    recipes = {
        "an object to make": "task: !!python/object/apply:os.system ['touch pwned']\n",
        "an object, by new": "task: !!python/object/new:os.system ['touch pwned']\n",
        "a name to import": "task: !!python/name:os.system\n",
        "a module to import": "task: !!python/module:antigravity\n",
        "a tag nobody knows": "task: !evil x\n",
        "10^4 brackets": "task: " + "[" * 10_000 + "\n",
    }
    return found | {
        f"recipe: {name}": Malice(_recipe(text), "resume", named="train.yaml") for name, text in recipes.items()
    }


def _texts() -> dict[str, Malice]:
    """Tokenizers, which the tokenizer library would read."""

    def longer(value: Any) -> Any:
        vocabulary = value["model"]["vocab"]
        last = max(vocabulary, key=vocabulary.__getitem__)
        return value | {
            "model": {
                **value["model"],
                "vocab": {("x" * 100_000 if k == last else k): v for k, v in vocabulary.items()},
            }
        }

    wrong: dict[str, Callable[[Path], None]] = {
        "a pickle": written("tokenizer.json", PICKLE),
        "10^5 brackets": written("tokenizer.json", DEEP),
        "an id of 2^62": changed(
            "tokenizer.json", lambda t: t | {"model": {**t["model"], "vocab": {**t["model"]["vocab"], "x": 1 << 62}}}
        ),
        "a regular expression that never ends": changed(
            "tokenizer.json",
            lambda t: t | {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated",
                                             "invert": False}},
        ),
        "a normalizer of its own": changed(
            "tokenizer.json", lambda t: t | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}
        ),
    }  # fmt: skip
    found = {f"tokenizer: {name}": Malice(spoil, named="tokenizer.json") for name, spoil in wrong.items()}
    return found | {"tokenizer: a piece of 100 KB": Malice(changed("tokenizer.json", longer), ends="harmless")}


def _states() -> dict[str, Malice]:
    """Files that only going on with a training reads."""

    def progress(**values: Any) -> Callable[[Path], None]:
        return changed(f"{STEP}/state.json", lambda s: s | {"progress": s["progress"] | values})

    def renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {f"__class__.{name}": tensor for name, tensor in tensors.items()}

    def store(**values: Any) -> Callable[[Path], None]:
        return changed("data/train/store.json", lambda s: s | values)

    optimizer = f"{STEP}/optimizer.safetensors"
    state = {
        "a cursor of text": progress(cursor={"epoch": "os", "batch": 0}),
        "a count of 10^40": progress(update=10**40),
        "a name nobody knows": progress(__class__="os"),
        "a cursor beyond the end": progress(cursor={"epoch": 1 << 70, "batch": 0}),
        "no length of the log": changed(f"{STEP}/state.json", lambda s: {k: s[k] for k in s if k != "metrics_bytes"}),
    }
    tokens = {
        "10^5 brackets": written("data/train/store.json", DEEP),
        "numbers that are objects": store(dtype={"source": "O", "target": "O"}),
        "a count nobody knows": store(counts={"__class__": 1}),
        "a file elsewhere": store(files={"../../../../etc/passwd": {"bytes": 1, "sha256": ""}}),
    }
    return {
        **{f"state: {name}": Malice(spoil, "resume", named="state.json") for name, spoil in state.items()},
        **{f"tokens: {name}": Malice(spoil, "resume", named="data") for name, spoil in tokens.items()},
        "optimiser: names of others": Malice(_tensors(optimizer, renamed), "resume", named="optimizer.safetensors"),
        "optimiser: other shapes": Malice(
            _tensors(optimizer, lambda t: {name: torch.zeros(3, 5, 7) for name in t}),
            "resume",
            named="optimizer.safetensors",
        ),
        "environment: a base that is no text": Malice(
            lambda run: _ignore((run / "environment.json").write_text(sealed_json({"base": ["/etc"]}))),
            "resume",
            ends="harmless",
        ),
    }


def _ignore(value: object) -> None:
    pass


def _paths() -> dict[str, Malice]:
    """Names and links that lead out of the folder."""
    names = ("../../../etc/hostname", "/etc/hostname", "..", "checkpoints", "a/../config.json", "nul\0byte")
    return {
        **{f"manifest: names {name!r}": Malice(_names(name), named="manifest.json") for name in names},
        "manifest: a pickle": Malice(written(MANIFEST, PICKLE), named="manifest.json"),
        "manifest: 10^5 brackets": Malice(written(MANIFEST, DEEP), named="manifest.json"),
        "manifest: checksums that are no list": Malice(
            written(MANIFEST, to_json({"config.json": {}})), named="manifest"
        ),
        "link: the weights lead to a device": Malice(_linked("model.safetensors", "/dev/zero"), named="model"),
        "link: the tokenizer leads to a device": Malice(_linked("tokenizer.json", "/dev/zero"), named="tokenizer.json"),
        "link: the weights lead to passwords": Malice(_linked("model.safetensors", "/etc/passwd"), named="model"),
        "link: the log leads to passwords": Malice(_linked("metrics.jsonl", "/etc/passwd"), "resume", named="metrics"),
        "beside: code and pickles nobody asked for": Malice(_beside, ends="harmless"),
        "beside: the same, resumed": Malice(_beside, "resume", ends="harmless"),
    }
