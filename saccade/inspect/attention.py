"""Every attention weight of one example, re-run on the readable path with the output given."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from saccade.models.translator import Translator
from saccade.nn.watch import Watch
from saccade.types import END, Batch, Tokens, Trace


@torch.inference_mode()
def attention_trace(
    model: Translator,
    source: Sequence[int],
    target: Sequence[int],
    *,
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    title: str = "",
    parse: np.ndarray[Any, Any] | None = None,
) -> Trace:
    """`source` and `target` without END, which is added to both; the row of a target token is what it was chosen by.

    `parse`, for a model that reads dependency trees: word and head of each source token and of END.
    """
    device = next(model.parameters()).device
    read = Tokens.of([[*source, END]], None if parse is None else [parse])
    batch = Batch(read, Tokens.of([[*target, END]])).to(device)
    watch = Watch()
    was_training = model.training
    model.eval()
    model(batch, watch)
    model.train(was_training)
    arrays = {
        kind: np.stack([weights_BHTS[0].float().cpu().numpy() for weights_BHTS in layers])
        for kind, layers in watch.attention.items()
    }
    return Trace(tuple(source_pieces), tuple(target_pieces), arrays, title)
