"""What a checkpoint says of a training, believed only where it is as a training writes it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from saccade.errors import SaccadeError
from saccade.train.loop import Progress

LARGEST = 1 << 62
"""No count of updates, tokens or bytes is larger."""


@dataclass(frozen=True)
class SavedState:
    """The content of state.json."""

    progress: Progress
    metrics_bytes: int
    data: dict[str, str]
    """Split → the fingerprint of its tokens."""


_SAVED = TypeAdapter(SavedState)


def read_progress(path: Path, state: Mapping[str, Any]) -> SavedState:
    """The state in the file at `path`, its names and types checked."""
    try:
        saved = _SAVED.validate_json(json.dumps(state), strict=True)
        if asdict(saved) != state:
            raise ValueError("it has names that are not known")
        _check_counts(state)
    except ValueError as error:
        told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SaccadeError(f"{path}: is not as a training writes it: {told}.") from None
    return saved


def _check_counts(value: Any) -> None:
    """Whole numbers are counts, or -1 for `never`."""
    match value:
        case dict():
            for each in value.values():
                _check_counts(each)
        case int() if not -1 <= value <= LARGEST:
            raise ValueError(f"{value} is no count")


def check_optimizer(model: nn.Module, saved: Mapping[str, Tensor], origin: str) -> None:
    """The optimiser's memory is of this model: `parameter/entry`, as large as the parameter or one number."""
    parameters = dict(model.named_parameters())
    for key, value in saved.items():
        parameter = parameters.get(key.rpartition("/")[0])
        if parameter is None or (value.shape != parameter.shape and value.numel() != 1):
            raise SaccadeError(f"{origin}: {key} of shape {tuple(value.shape)} is not of this model's optimiser.")
