"""Memory that a CPU's training uses again and again is kept, not given back to the system at every step.

glibc asks the system for every large tensor and gives it back when it is freed: each step then pays for the zeroing of
hundreds of megabytes of fresh pages.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # malloc.h
NEVER, NONE = -1, 0
# glibc begins with 128 KiB for both thresholds and raises them as blocks are freed; once set, they stay. So they are
# put where its own rule ends: blocks beyond 32 MiB go back to the system.
USUAL_TRIM, USUAL_MMAP_THRESHOLD, USUAL_MMAP_MAX = 64 << 20, 32 << 20, 65536


@contextmanager
def memory_kept(device: torch.device) -> Iterator[None]:
    """While entered, freed memory stays with the process; after it, all that is free goes back.

    A setting of the whole process. Where there is no glibc, or the work is a GPU's, nothing changes.
    """
    libc = _glibc() if device.type == "cpu" else None
    if libc is None:
        yield
        return
    libc.mallopt(M_MMAP_MAX, NONE)
    libc.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        libc.mallopt(M_MMAP_MAX, USUAL_MMAP_MAX)
        libc.mallopt(M_MMAP_THRESHOLD, USUAL_MMAP_THRESHOLD)
        libc.mallopt(M_TRIM_THRESHOLD, USUAL_TRIM)
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
