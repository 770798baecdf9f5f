"""The attention that alignments are read from is that of the trace, in any batch, for every model that has some."""

import numpy as np
import pytest
import torch

from saccade.inspect.attention import attention_trace, cross_attention
from saccade.models.recurrent_decoder import RecurrentDecoder
from saccade.types import Batch
from tests.cases import TranslatorCase, every_translator, name_of


@pytest.mark.parametrize("case", every_translator(), ids=name_of)
def test_a_batch_of_alignments_is_its_traces(case: TranslatorCase) -> None:
    model, batch = case.build(), case.batch()
    layers = cross_attention(model, batch)
    for b in range(len(batch)):
        source, target, parse = _row(batch, b)
        trace = attention_trace(
            model, source, target, source_pieces=[""] * (len(source) + 1), target_pieces=[""] * (len(target) + 1),
            parse=parse,
        )  # fmt: skip
        alone = trace.attention.get("cross", np.zeros((0,)))
        assert len(layers) == len(alone)
        for together_BHTS, alone_HTS in zip(layers, alone, strict=True):
            mine = together_BHTS[b, :, : len(target) + 1, : len(source) + 1].numpy()
            np.testing.assert_allclose(mine, alone_HTS, atol=1e-5)
            assert not together_BHTS[b, :, : len(target) + 1, len(source) + 1 :].any()  # nobody looks at padding


def _row(batch: Batch, b: int) -> tuple[list[int], list[int], np.ndarray | None]:
    n, m = int(batch.source.layout.lengths_B[b]), int(batch.target.layout.lengths_B[b])
    parse = batch.source.parse
    rows = None if parse is None else torch.stack([parse.words[b, :n], parse.heads[b, :n]], -1).numpy()
    return batch.source.ids[b, : n - 1].tolist(), batch.target.ids[b, : m - 1].tolist(), rows


def test_models_with_and_without_attention_are_told_apart() -> None:
    """Every score and scope of recurrent attention shows weights, but for the one that reads a single state."""
    scores, scopes, without = set(), set(), 0
    for case in every_translator():
        model = case.build()
        layers = cross_attention(model, case.batch())
        if not isinstance(model.decoder, RecurrentDecoder):
            assert layers
            continue
        attention = case.config.decoder.attention  # type: ignore[union-attr]
        lstmn = case.config.decoder.kind == "lstmn"
        if attention is None or attention.score == "last":
            assert not layers or lstmn
            without += not layers
        else:
            assert layers
            scores.add(attention.score)
            scopes.add(attention.scope)
    assert without > 5
    assert len(scores) == 9  # eight that choose, and the mean
    assert scopes == {"global", "local-m", "local-p"}
