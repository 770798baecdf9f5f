"""Searches over real models: in a batch as alone, and scored as the model scores a given target."""

from itertools import chain

import pytest
import torch
from torch.testing import assert_close

from saccade.decode.coverage import LEAST, covered
from saccade.decode.sampling import DrawConfig
from saccade.decode.settings import DecodeConfig, search
from saccade.models.translator import Translator
from saccade.nn.watch import Watch
from saccade.types import END, Batch, Hypothesis, State, Tokens
from tests.cases import TranslatorCase, every_translator, name_of, sentence, sentences

translators = pytest.mark.parametrize("case", every_translator(), ids=name_of)
configs = pytest.mark.parametrize(
    "config",
    [
        DecodeConfig(beam=1),
        DecodeConfig(beam=3, n_best=3),
        DecodeConfig(
            beam=4, n_best=4, length="gnmt", alpha=0.6, stop="proven", groups=2, diversity=0.5, no_repeat_ngram=2
        ),
    ],
    ids=["greedy", "beam 3", "beam 4, gnmt, proven, two groups"],
)
LIMITS = [5, 7, 2, 4]


@torch.no_grad()
def decode(model: Translator, source: Tokens, limits: list[int], config: DecodeConfig) -> list[list[Hypothesis]]:
    state = model.start(model.encode(source), max(limits))
    return search(model.step, state, limits=limits, config=config)


def given(source: Tokens, found: list[list[Hypothesis]]) -> Batch:
    """Every hypothesis as a target beside its sentence."""
    pairs = [(b, each) for b, some in enumerate(found) for each in some]
    targets = [[*each.tokens, END] if each.ended else each.tokens for _, each in pairs]
    return Batch(sentences([(source, b) for b, _ in pairs]), Tokens.of(targets))


@configs
@translators
def test_a_batch_is_decoded_as_its_sentences_alone(case: TranslatorCase, config: DecodeConfig) -> None:
    model, source = case.build(), case.batch().source
    together = decode(model, source, LIMITS, config)
    for b, (found, limit) in enumerate(zip(together, LIMITS, strict=True)):
        (alone,) = decode(model, sentence(source, b), [limit], config)
        assert [each.tokens for each in alone] == [each.tokens for each in found]
        assert [each.ended for each in alone] == [each.ended for each in found]
        assert_close([each.score for each in alone], [each.score for each in found], rtol=1e-4, atol=1e-4)


@configs
@translators
def test_a_hypothesis_is_scored_as_the_model_scores_it_given(case: TranslatorCase, config: DecodeConfig) -> None:
    model, source = case.build(), case.batch().source
    found = decode(model, source, LIMITS, config)
    batch = given(source, found)
    with torch.no_grad():
        log_p_BT = model(batch).log_softmax(-1).gather(-1, batch.target.ids[:, :, None]).squeeze(-1)
    for each, length, log_p_T in zip(chain(*found), batch.target.layout.lengths_B.tolist(), log_p_BT, strict=True):
        log_p = log_p_T[:length]
        assert_close(torch.tensor(each.token_log_probabilities), log_p, rtol=1e-4, atol=1e-4)
        assert_close(torch.tensor(each.log_probability), log_p.sum(), rtol=1e-4, atol=1e-4)


@translators
def test_a_batch_is_drawn_as_its_sentences_alone(case: TranslatorCase) -> None:
    """Sentence b by its number b; samples that are over leave, and their sentence with the last of them."""
    model, source = case.build(), case.batch().source
    config = DecodeConfig(sample=DrawConfig(samples=5, temperature=1.5))
    with torch.no_grad():
        state = model.start(model.encode(source), max(LIMITS))
        together = search(model.step, state, limits=LIMITS, config=config, lines=[3, 1, 7, 2])
        for b, (found, limit, line) in enumerate(zip(together, LIMITS, [3, 1, 7, 2], strict=True)):
            state = model.start(model.encode(sentence(source, b)), limit)
            (alone,) = search(model.step, state, limits=[limit], config=config, lines=[line])
            assert [(each.tokens, each.ended) for each in alone] == [(each.tokens, each.ended) for each in found]
            assert_close([each.score for each in alone], [each.score for each in found], rtol=1e-4, atol=1e-4)


# ---- where they looked


def covered_search(
    model: Translator, source: Tokens, limits: list[int], config: DecodeConfig, layer: int
) -> list[list[Hypothesis]]:
    counts_BS = torch.arange(source.layout.longest) < source.layout.lengths_B[:, None] - 1
    begun = model.start(model.encode(source), max(limits))

    def looking(last_N: torch.Tensor, state: State) -> tuple[torch.Tensor, State, torch.Tensor]:
        return model.looking_step(last_N, state, layer)

    step, state, penalty = covered(looking, begun, counts_BS=counts_BS, beta=config.coverage)
    return search(step, state, limits=limits, config=config, penalty=penalty)


looking_translators = pytest.mark.parametrize(
    "case", [case for case in every_translator() if case.build().cross_layers], ids=name_of
)


@looking_translators
@torch.no_grad()
def test_coverage_is_that_of_the_output_given_to_the_readable_path(case: TranslatorCase) -> None:
    """Of all hypotheses, whose sums a beam has moved about, against the attention of `explain`, layer by layer."""
    model, source = case.build(), case.batch().source
    config = DecodeConfig(beam=3, n_best=3, coverage=0.3)
    for layer in (0, -1):
        found = covered_search(model, source, LIMITS, config, layer)
        watch, batch = Watch(), given(source, found)
        model(batch, watch)
        lengths = [side.layout.lengths_B.tolist() for side in (batch.target, batch.source)]
        looks_BHTS = watch.attention["cross"][layer]
        for each, target, length, looks_HTS in zip(chain(*found), *lengths, looks_BHTS, strict=True):
            seen_S = looks_HTS[:, :target, : length - 1].mean(0).sum(0)  # over heads, over tokens; without END
            penalty = 0.3 * seen_S.clamp(LEAST, 1.0).log().sum().item()
            mean = each.log_probability / len(each.token_log_probabilities)
            assert each.score == pytest.approx(mean + penalty, abs=2e-4)


def test_a_beam_of_one_with_coverage_is_greedy_but_for_its_score() -> None:
    case = next(case for case in every_translator() if case.build().cross_layers)
    model, source = case.build(), case.batch().source
    plain = decode(model, source, LIMITS, DecodeConfig(beam=1))
    covering = covered_search(model, source, LIMITS, DecodeConfig(beam=1, coverage=0.3), -1)
    assert [each.tokens for (each,) in plain] == [each.tokens for (each,) in covering]
    assert all(one.score <= other.score for (one,), (other,) in zip(covering, plain, strict=True))
