"""Which device a name means here."""

import torch

from saccade.errors import UsageError


def pick_device(name: str) -> torch.device:
    """`auto` is the first GPU where there is one, else the CPU."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    if name != "cpu" and not name.startswith("cuda"):
        raise UsageError(f"--device is {name!r}; it must be auto, cpu, cuda or cuda:N.")
    if name.startswith("cuda") and not cuda:
        raise UsageError(f"--device is {name!r}, but this torch ({torch.__version__}) sees no GPU. Use auto or cpu.")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device is {name!r}; it must be auto, cpu, cuda or cuda:N.") from None
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise UsageError(f"--device is {name!r}, but there are {torch.cuda.device_count()} GPUs, counted from 0.")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # where Triton launches its kernels
    return device
