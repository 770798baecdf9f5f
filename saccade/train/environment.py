"""What a run was made on: versions and hardware, for the run folder and for results."""

import os
import platform
from importlib import metadata
from typing import Any

import torch

import saccade


def environment() -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    packages = ("torch", "numpy", "tokenizers", "safetensors", "pydantic", "sacrebleu")
    return {
        "saccade": saccade.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "packages": {name: version(name) for name in packages},
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
