"""The tensors of a model by their names: what is saved of it, and what it is filled with again."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from saccade.errors import SaccadeError

_DRAWN = {
    torch.Tensor.normal_,
    torch.Tensor.uniform_,
    *(getattr(nn.init, name) for name in ("normal_", "uniform_", "kaiming_uniform_", "kaiming_normal_")),
}
_OF_ONE_SHAPE = {
    getattr(torch.Tensor, name)
    for name in ("__neg__", "__invert__", "__mul__", "__rmul__", "__truediv__", "__rpow__", "neg", "mul", "div", "log")
}


class Undrawn(TorchFunctionMode):
    """Within it models are built without first weights: for those that `restore_model` fills, or that are measured.

    To draw them takes longer than to read them (a QR for every gate). And on the meta device, where only shapes are
    wanted, torch imports its compiler to multiply: a second and a half of every command that uses a run.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in _DRAWN:
            return args[0] if args else given["tensor"]
        if func is torch.randn:
            return torch.empty(*args, **given)
        if func is torch.linalg.qr:  # of orthogonal first weights
            matrix: Tensor = args[0]
            return matrix, matrix.new_empty(matrix.shape[1], matrix.shape[1])
        if func is torch.eye and "out" in given:
            return given["out"]
        if func is torch.arange and given.get("device") == torch.device("meta"):
            return torch.empty(len(range(*args)), dtype=given.get("dtype"), device="meta")
        if func in _OF_ONE_SHAPE and args[0].is_meta:
            return torch.empty_like(args[0])
        return func(*args, **given)


def kept(model: nn.Module) -> dict[str, Tensor]:
    """Every weight under one name, tied ones once; and what a model has learnt beside them."""
    lasting = model.state_dict().keys()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in lasting}
    return {**dict(model.named_parameters()), **buffers}


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What a model is saved as."""
    return {name: tensor.detach().contiguous() for name, tensor in kept(model).items()}


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    wanted = kept(model)
    check_fit(wanted, tensors, origin)
    with torch.no_grad():
        for name, parameter in wanted.items():
            parameter.copy_(tensors[name])


def check_fit(wanted: Mapping[str, Tensor], tensors: Mapping[str, Tensor], origin: str) -> None:
    if wanted.keys() != tensors.keys():
        missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
        raise SaccadeError(f"{origin}: is not of this model: missing {missing[:3]}, unknown {extra[:3]}.")
    for name, parameter in wanted.items():
        if parameter.shape != tensors[name].shape:
            raise SaccadeError(
                f"{origin}: {name} has shape {tuple(tensors[name].shape)}, the model {tuple(parameter.shape)}."
            )


def on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
