"""Memory is kept while a CPU trains, and given back after it; where there is no glibc, nothing happens."""

import ctypes
import platform
import subprocess
import sys
from unittest import mock

import pytest
import torch

from saccade.train.allocator import memory_kept

CPU = torch.device("cpu")
FRESH_PAGES = """
import resource, torch
from saccade.train.allocator import memory_kept

def fresh_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.ones(16 << 20)  # 64 MiB: beyond what glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

fresh_pages()
with memory_kept(torch.device("cpu")):
    fresh_pages()
    kept = fresh_pages()
print(kept, fresh_pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_large_tensor_made_again_takes_the_pages_it_had() -> None:
    """In a process of its own, whose memory nothing else has shaped."""
    done = subprocess.run([sys.executable, "-c", FRESH_PAGES], check=True, capture_output=True, text=True)
    kept, usual = map(int, done.stdout.split())
    assert usual > 100
    assert kept < usual / 4


def test_nothing_is_asked_of_a_system_without_glibc_or_for_a_gpu() -> None:
    with mock.patch.object(ctypes, "CDLL", side_effect=OSError), memory_kept(CPU):
        pass
    with mock.patch.object(ctypes, "CDLL", side_effect=AssertionError), memory_kept(torch.device("cuda")):
        pass
