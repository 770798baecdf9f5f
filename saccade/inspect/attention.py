"""Attention weights, re-run on the readable path with the output given: all of one example, cross-attention of many.

Shapes: B sentences, H heads, T target tokens, S source tokens.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


class _CrossAlone(Watch):
    """A notebook for what the decoder looked at in the source: of many sentences the rest would fill the memory."""

    def saw_attention(self, kind: str, weights_BHTS: Tensor) -> None:
        if kind == "cross":
            super().saw_attention(kind, weights_BHTS)

    def saw_states(self, name: str, values_BTD: Tensor) -> None:
        pass


@torch.inference_mode()
def cross_attention(model: Translator, batch: Batch) -> list[Tensor]:
    """Of each layer (B, H, T, S): the weights by which each target token of a padded batch was chosen.

    The decoder takes its readable path, as for `attention_trace`; the encoder, of which nothing is noted, need not.
    There is no layer where the decoder has no attention to the source.
    """
    watch = _CrossAlone()
    was_training = model.training
    model.eval()
    model.decoder.features(batch.decoder_input, model.encode(batch.source), watch)
    model.train(was_training)
    return watch.attention.get("cross", [])
