"""How many floating-point operations a batch takes: what utilisation is computed from."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from saccade.models.trainable import Trainable
from saccade.types import Batch

TRAINING = 3
"""A backward pass is counted as two forward passes: one product for the inputs' gradient, one for the weights'."""


@torch.no_grad()
def training_flops(model: Trainable, batch: Batch) -> int:
    """Matrix products of the readable path, where none hides in a fused kernel; elementwise work is not counted."""
    with FlopCounterMode(display=False) as counter:
        model.readable(batch)
    return TRAINING * int(counter.get_total_flops())
