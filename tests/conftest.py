"""One thread, the shared data where it lies beside the checkout, and no GPU laws without a GPU."""

import gc
import os
from pathlib import Path

import hypothesis
import pytest
import torch

if not torch.cuda.is_available():  # GPU kernels then run step by step on the CPU; triton asks when it is first imported
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # torch's own notes three stack traces, for devices that are not there
    torch.manual_seed = torch.default_generator.manual_seed

# Machines are as busy as they are; and each run draws other examples.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=60)
hypothesis.settings.load_profile("untimed")
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


def pytest_collection() -> None:
    gc.disable()  # what is collected stays


def pytest_collection_finish() -> None:
    """Some million objects stay to the end: no search for garbage has to walk through them again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries that count what is left at the end would call it leaked
