"""What a search ranks by: log-probabilities of the tokens it may choose, and length normalisation.

Shapes: N hypotheses, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor

from saccade.types import PAD, START

LengthRule = Literal["none", "average", "gnmt"]


def allowed_log_probabilities(logits_NV: Tensor) -> Tensor:
    """The log-softmax in float32 over the whole vocabulary; PAD and START can be scored but never chosen."""
    log_p_NV = logits_NV.float().log_softmax(-1)
    log_p_NV[:, [PAD, START]] = -torch.inf
    return log_p_NV


def normalised(log_probability: float, length: int, rule: LengthRule, alpha: float) -> float:
    """Average: ÷ length^α, so that α = 1 is the mean; gnmt: ÷ ((5 + length) / 6)^α (Wu et al. 2016). END counts."""
    match rule:
        case "none":
            return log_probability
        case "average":
            return float(log_probability / max(length, 1) ** alpha)
        case "gnmt":
            return float(log_probability / ((5 + length) / 6) ** alpha)
