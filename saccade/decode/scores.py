"""What a search ranks by: log-probabilities of the tokens it may choose, and length normalisation.

Shapes: N hypotheses, V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor

from saccade.types import PAD, START

LengthRule = Literal["none", "average", "power", "gnmt"]


def allowed_log_probabilities(logits_NV: Tensor) -> Tensor:
    """The log-softmax in float32 over the whole vocabulary; PAD and START can be scored but never chosen."""
    log_p_NV = logits_NV.float().log_softmax(-1)
    log_p_NV[:, PAD] = log_p_NV[:, START] = -torch.inf  # not by a list of both, which would be copied to the device
    return log_p_NV


def length_penalty(length: int, rule: LengthRule, alpha: float) -> float:
    """What log P is divided by; |Y|, the length, counts END. It never falls as |Y| grows, since α ≥ 0.

    none: 1. average and power: |Y|^α, so that α = 1 is the mean. gnmt: ((5 + |Y|) / 6)^α (Wu et al. 2016, equation 14).
    """
    match rule:
        case "none":
            return 1.0
        case "average" | "power":
            return float(max(length, 1) ** alpha)
        case "gnmt":
            return float(((5 + length) / 6) ** alpha)


def normalised(log_probability: float, length: int, rule: LengthRule, alpha: float) -> float:
    """The score: log P / lp(|Y|), `length_penalty` being lp."""
    return log_probability / length_penalty(length, rule, alpha)
