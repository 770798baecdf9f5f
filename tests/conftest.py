"""One thread, the shared data where it lies beside the checkout, and no GPU laws without a GPU."""

import os
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # tests run side by side; and sums must not depend on how many cores there are

_shared_data = Path(__file__).resolve().parents[2] / "shared" / "data"
if _shared_data.is_dir():
    os.environ.setdefault("SACCADE_DATA", str(_shared_data))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
