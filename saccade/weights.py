"""The tensors of a model by their names: what is saved of it, and what it is filled with again."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from saccade.errors import SaccadeError


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
