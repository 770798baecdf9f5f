"""Files that are whole or not there: flushed, read back and renamed into place, and checked before they are used."""

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.run_paths import TEMPORARY as TEMPORARY

MANIFEST = "manifest.json"
ATTEMPTS = 3
"""How often a folder is looked at anew that somebody else is just writing to."""
LARGEST_JSON = 1 << 26
"""Bytes. What a run notes in JSON takes kilobytes; a file that would fill the memory is not read."""
SEAL = "# sha256 of the lines above: "
SEAL_KEY = "sha256"


# Writing


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_flushed(path: Path, content: bytes) -> str:
    """Write, flush to the disk, read back; the checksum."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    expected = hashlib.sha256(content).hexdigest()
    if checksum(path) != expected:
        raise SaccadeError(f"{path}: reads back other than it was written; the disk cannot be trusted.")
    return expected


def write_file(path: Path, content: str | bytes) -> str:
    """Put a whole file in the place of an older one, or leave the older one as it was; the checksum."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        temporary.unlink(missing_ok=True)  # a link left there would lead the writing elsewhere
        written = write_flushed(temporary, content.encode("utf-8", "replace") if isinstance(content, str) else content)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # a folder that may not be written to may not be tidied either
            temporary.unlink(missing_ok=True)
        raise SaccadeError(
            f"{path}: cannot be written: {error.strerror or error}. What was there before is intact."
        ) from None
    return written


def to_json(value: Any) -> str:
    """Of a file's name that is no text, what is none becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace").decode() + "\n"


# Reading


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flushed_checksum(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return checksum(path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:  # KeyError: a type torch lacks
        raise SaccadeError(f"{path}: cannot be read: {error}.") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file."""
    return parse_json(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """The content of a file of JSON, at once: somebody may put another in its place meanwhile."""
    try:
        size = path.stat().st_size
        if size > LARGEST_JSON:
            raise SaccadeError(f"{path}: has {size:,} bytes; more than {LARGEST_JSON:,} are not read.")
        return path.read_bytes()
    except OSError as error:
        raise SaccadeError(f"{path}: cannot be read: {error}.") from None


def parse_json(content: bytes, path: Path) -> dict[str, Any]:
    """The object; a name given twice is refused, since readers differ in which one they take."""
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise SaccadeError(f"{path}: cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise SaccadeError(f"{path}: holds no JSON object.")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


# Files that vouch for others


def read_manifest(folder: Path) -> dict[str, list[str]]:
    """File name → the checksums it may have. A manifest in other bytes than it was written in is refused."""
    path = folder / MANIFEST
    content = read_bytes(path)
    manifest = parse_json(content, path)
    if not _is_written_so(manifest, content) or not all(isinstance(each, list) for each in manifest.values()):
        raise SaccadeError(f"{path}: is not the file that was saved. Take the folder from a copy.")
    return manifest


def _is_written_so(value: Mapping[str, Any], content: bytes) -> bool:
    try:
        return to_json(value).encode() == content
    except UnicodeEncodeError:  # half a character, which JSON can name and no file can hold
        return False


def verify(folder: Path, needed: Collection[str]) -> None:
    """Every file the manifest names is there, bit for bit, and it names those needed; else an error that says which.

    A training may publish meanwhile: as long as the manifest changes under our eyes, we look again.
    """
    for attempts_left in reversed(range(ATTEMPTS)):
        before = read_bytes(folder / MANIFEST)
        try:
            return verify_against(folder, read_manifest(folder), needed)
        except SaccadeError:
            if not attempts_left or read_bytes(folder / MANIFEST) == before:
                raise


def verify_against(folder: Path, manifest: Mapping[str, list[str]], needed: Collection[str]) -> None:
    check_named(folder, manifest, needed)
    for name, checksums in manifest.items():
        verify_file(folder, name, checksums)


def check_named(folder: Path, manifest: Collection[str], needed: Collection[str]) -> None:
    for name in needed:
        if name not in manifest:
            raise SaccadeError(f"{folder / name}: is not in {MANIFEST}, so nobody can say whether it is whole.")


def verify_file(folder: Path, name: str, checksums: Collection[str]) -> None:
    path = folder / name
    if Path(name).name != name:
        raise SaccadeError(f"{folder / MANIFEST}: names {name!r}, which is no file of this folder.")
    if not is_inside(folder, name):
        raise Missing(f"{path}: is missing, though {MANIFEST} names it.")
    try:
        found = checksum(path)
    except OSError as error:
        raise SaccadeError(f"{path}: cannot be read: {error.strerror or error}.") from None
    if found not in checksums:
        raise SaccadeError(f"{path}: is not the file that was saved (its checksum differs).")


class Missing(SaccadeError):
    """A file that must be there is not."""


def is_inside(folder: Path, name: str) -> bool:
    """Whether the name is that of a file in this very folder."""
    try:
        return Path(name).name == name and (folder / name).is_file()
    except ValueError:  # a NUL in the name
        return False


# Files that vouch for themselves


def sealed(text: str) -> str:
    """YAML text with a last line, a comment, that holds its checksum."""
    return f"{text}{SEAL}{hashlib.sha256(text.encode()).hexdigest()}\n"


def verify_sealed(path: Path) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SaccadeError(f"{path}: cannot be read: {error.strerror or error}.") from None
    body, seal, _ = content.rpartition(SEAL.encode())
    if not seal or content != body + seal + hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise SaccadeError(
            f"{path}: is not the file that was saved (its last line, a checksum of the others, does not fit). It tells "
            "how the run was made and is not to be edited: what may change is given by --set when the run goes on."
        )


def sealed_json(value: Mapping[str, Any]) -> str:
    """A JSON object with its checksum as the last entry."""
    return to_json({**value, SEAL_KEY: hashlib.sha256(to_json(value).encode()).hexdigest()})


def read_sealed_json(path: Path) -> dict[str, Any]:
    content = read_bytes(path)
    value = parse_json(content, path)
    seal = value.pop(SEAL_KEY, None)
    if not _is_written_so({**value, SEAL_KEY: seal}, content) or sealed_json(value).encode() != content:
        raise SaccadeError(f"{path}: is not the file that was saved (its {SEAL_KEY} does not fit).")
    return value
