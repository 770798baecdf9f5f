"""A file that is there whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from saccade.errors import SaccadeError


def write_atomically(path: Path, content: bytes) -> None:
    """Written beside its place and renamed into it: whoever looks at `path` never sees half of it."""
    # No mkstemp: it makes files only their owner may read, and a picture is made to be shown.
    try:
        place = path.resolve()  # a link stays, and what it leads to is written
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        try:
            with beside.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(place)
        finally:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise SaccadeError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}.") from None
