"""`scale_embedding` of recurrent models = the same weights with token vectors that are √D times as long where read."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from saccade.nn.embedding import TokenEmbedding
from tests.cases import TranslatorCase, assert_same, every_translator, name_of
from tests.language_cases import LanguageCase, every_language_model
from tests.language_cases import sentences as texts

RECURRENT = ("elman", "lstm", "gru", "lstmn")
translators = [
    case
    for case in every_translator()
    if all(side.kind in RECURRENT for side in (case.config.encoder, case.config.decoder))
]
writers = [case for case in every_language_model() if case.config.decoder.kind in RECURRENT]


def lengthened(embed: TokenEmbedding) -> None:
    """The table itself may score the output, too: what is read becomes another one."""
    embed.table.weight = nn.Parameter(embed.table.weight.detach() * embed.table.embedding_dim**0.5)


def test_what_is_compared_is_all_that_is_recurrent() -> None:
    assert len(translators) > 60
    assert len(writers) > 6


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("case", translators, ids=name_of)
@torch.no_grad()
def test_a_scaled_side_is_that_side_with_longer_vectors(case: TranslatorCase, side: str) -> None:
    def variant(scaled: bool) -> TranslatorCase:
        changed = getattr(case.config, side).model_copy(update={"scale_embedding": scaled})
        return replace(case, config=case.config.model_copy(update={side: changed}))

    scaled, plain = variant(True).build(), variant(False).build()
    plain.load_state_dict(scaled.state_dict())
    batch = case.batch()
    before = plain.loss(batch).total
    lengthened(getattr(plain, side).embed)
    assert_same(scaled.loss(batch).total, plain.loss(batch).total)
    assert not torch.allclose(before, plain.loss(batch).total, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("case", writers, ids=lambda case: case.name)
@torch.no_grad()
def test_a_scaled_language_model_is_that_model_with_longer_vectors(case: LanguageCase) -> None:
    def variant(scaled: bool) -> LanguageCase:
        decoder = case.config.decoder.model_copy(update={"scale_embedding": scaled})
        return replace(case, config=case.config.model_copy(update={"decoder": decoder}))

    scaled, plain = variant(True).build(), variant(False).build()
    plain.load_state_dict(scaled.state_dict())
    before = plain.loss(texts()).total
    lengthened(plain.decoder.embed)
    assert_same(scaled.loss(texts()).total, plain.loss(texts()).total)
    assert not torch.allclose(before, plain.loss(texts()).total, rtol=1e-9, atol=0.0)
