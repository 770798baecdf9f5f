"""What numbers a training computes with: precision, denormals, determinism, and where its randomness comes from."""

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from saccade.train.settings import Precision


def seed_everything(*key: int) -> None:
    """Key every generator by what is about to be computed, so that nothing depends on what was computed before."""
    digest = hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little") >> 1
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would note a stack trace for a GPU that is not there
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def numerics(precision: Precision, device: torch.device, *, deterministic: bool = False) -> Iterator[None]:
    """While entered, float32 products are as precise as asked for, and numbers next to zero are zero.

    These are settings of the whole process: they are put back, so that others in it compute as before.
    """
    products, tf32, flushes = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, _flushes()
    before = torch.are_deterministic_algorithms_enabled()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it at its first product
            torch.use_deterministic_algorithms(True)
    torch.set_flush_denormal(True)  # sums of vanishing gradients would slow a CPU a hundredfold
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = tf32
            torch.use_deterministic_algorithms(before)
        torch.set_flush_denormal(flushes)


def _flushes() -> bool:
    """Whether the processor takes the smallest numbers for zero; torch can set that, but not tell it."""
    return math.ulp(0.0) + 0.0 == 0.0


def fingerprint(model: nn.Module) -> str:
    """A checksum of every weight, bit for bit."""
    total = hashlib.sha256()
    for name, parameter in model.named_parameters():
        total.update(name.encode())
        total.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
