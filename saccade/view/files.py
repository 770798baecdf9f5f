"""A file that is there whole or not at all."""

import os
import secrets
from pathlib import Path

from saccade.errors import SaccadeError


def write_atomically(path: Path, content: bytes) -> None:
    """Written beside its place and renamed into it: whoever looks at `path` never sees half of it."""
    # No mkstemp: it makes files only their owner may read, and a picture is made to be shown.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SaccadeError(f"{path}: cannot be written: {error.strerror or error}.") from None
