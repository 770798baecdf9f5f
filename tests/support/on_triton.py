"""Tests of Triton's kernels: on a GPU where there is one, else interpreted; skipped where neither can be."""

import os

import numpy as np
import pytest
import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
MARKS = [
    pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0:DeprecationWarning"),  # the interpreter's
    *([pytest.mark.gpu] if ON_GPU else []),
]
on_gpu_only = pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")

if not ON_GPU:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported
triton = pytest.importorskip("triton", reason="triton is not installed: its kernels have no twin to be compared with")


def needs_to_run(kernel: object) -> None:
    """Leave the module out where its kernels can neither be launched nor interpreted."""
    if ON_GPU:
        return
    if type(kernel).__name__ != "InterpretedFunction":
        pytest.skip("no GPU, and triton was imported before TRITON_INTERPRET=1 was set", allow_module_level=True)
    try:
        int(np.ones(1))  # what loops do in the interpreter of triton before 3.7
    except TypeError:
        if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
            pytest.skip("this triton's interpreter does not run on this numpy", allow_module_level=True)
    except DeprecationWarning:
        pass
