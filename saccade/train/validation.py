"""How well the model of the moment does on the validation data."""

import math
from collections.abc import Iterable

import torch

from saccade.data.parses import line_of
from saccade.data.store import Store
from saccade.models.language_model import LanguageModel
from saccade.models.reading import Carried
from saccade.models.trainable import Trainable
from saccade.train.numerics import autocast
from saccade.train.settings import Precision
from saccade.types import Batch

AT_ONCE = 1 << 16
"""The most rows × longest side that are validated at once, however large the updates are."""


@torch.inference_mode()
def mean_loss(
    model: Trainable, batches: Iterable[Batch], precision: Precision, device: torch.device
) -> dict[str, float]:
    """Mean negative log-likelihood of a token, without smoothing; and its perplexity."""
    nll, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    for batch in batches:
        tokens += batch.tokens
        with autocast(precision, device):
            on_device = batch.to(device)
            nll += model.loss(on_device).nll
    loss = nll.item() / max(1, tokens)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}


@torch.inference_mode()
def stream_loss(
    model: LanguageModel, chunks: Iterable[Batch], precision: Precision, device: torch.device
) -> dict[str, float]:
    """The same of streams of text, the state carried on through each."""
    nll, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    carried: Carried = {}
    for chunk in chunks:
        tokens += chunk.tokens
        carried = model.begin(len(chunk)) if chunk.begins else carried
        with autocast(precision, device):
            loss, carried = model.loss_from(chunk.to(device), carried)
        nll += loss.nll
    loss_of_token = nll.item() / max(1, tokens)
    return {"loss": loss_of_token, "perplexity": math.exp(min(loss_of_token, 700.0))}


def valid_lines(store: Store) -> tuple[list[str], list[str]]:
    """Sources as lines for translation, with their parse where there is one; and what is right for them."""
    texts = [store.text(i) for i in range(len(store))]
    sources = [source for source, _ in texts]
    if store.parses is not None:
        sources = [line_of(source, store.heads(i)) for i, source in enumerate(sources)]
    return sources, [target for _, target in texts]
