"""Text that a language model is searched for: against brute force, its own scores, and whatever else is searched."""

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch

from saccade.data.streams import WindowsConfig
from saccade.decode.asked import searching_or_drawing
from saccade.decode.sampling import SampleConfig
from saccade.decode.settings import DecodeConfig
from saccade.errors import UsageError
from saccade.generate import Engine, Written
from saccade.types import END, PAD, START, Tokens
from tests.unit.test_generate import PROMPTS, engine, every, shown


def log_p(mine: Engine, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = mine.model(Tokens.of([ids]))[0, -1]
    return logits.log_softmax(-1)


@every
def test_a_beam_of_one_takes_the_likeliest_token_each_time(kind: str) -> None:
    """As drawing at temperature 0 does, as far as both go."""
    mine = engine(kind, length=12)
    found = mine.search(PROMPTS, DecodeConfig(beam=1), 6)
    drawn = mine.generate(PROMPTS, SampleConfig(temperature=0.0, max_tokens=6))
    for one, other in zip(found, drawn, strict=True):
        (written,) = one.samples
        most = len(written.tokens)
        assert written.tokens == other.samples[0].tokens[:most]
        assert written.ended == (written.tokens[-1] == END)
        if written.ended:
            assert (written.text, written.tokens) == (other.text, other.samples[0].tokens)
        assert written.token_log_probabilities == pytest.approx(
            other.samples[0].token_log_probabilities[:most], abs=1e-4
        )


@every
def test_what_is_found_is_scored_as_the_model_scores_it_given(kind: str) -> None:
    mine = engine(kind, length=14)
    config = DecodeConfig(beam=4, n_best=4, length="gnmt", alpha=0.6)
    for prompt, found in zip(PROMPTS, mine.search(PROMPTS, config, 7), strict=True):
        assert found.prompt == prompt
        assert 1 <= len(found.samples) <= 4
        scores = [each.score or 0.0 for each in found.samples]
        assert scores == sorted(scores, reverse=True)
        assert len({each.tokens for each in found.samples}) == len(found.samples)
        ids = mine.prompt_ids(prompt)
        if isinstance(mine.read, WindowsConfig) and len(ids) > mine.read.length:
            ids = ids[-(mine.read.length // 2) :]
        for each in found.samples:
            gold = [log_p(mine, ids + list(each.tokens[:t]))[token].item() for t, token in enumerate(each.tokens)]
            assert each.token_log_probabilities == pytest.approx(gold, abs=1e-4)
            assert each.score == pytest.approx(math.fsum(gold) / ((5 + len(gold)) / 6) ** 0.6, abs=1e-4)
            assert each.text == shown(mine, prompt, each, "end")


@every
def test_neither_other_prompts_nor_how_many_there_are_change_what_is_found(kind: str) -> None:
    mine, config = engine(kind, length=16), DecodeConfig(beam=3, n_best=2)
    together = mine.search(PROMPTS, config, 6)
    for rows in (1, 5):
        for one, other in zip(together, mine.search(PROMPTS, config, 6, rows), strict=True):
            assert [each.tokens for each in one.samples] == [each.tokens for each in other.samples]
    assert [each.tokens for each in together[0].samples] == [each.tokens for each in together[5].samples]
    assert mine.search([], config, 6) == []


def outputs(mine: Engine, ids: list[int], limit: int, choices: list[int]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every continuation with its log-probability; END ends it, and so does the limit."""
    scores = log_p(mine, ids).tolist()
    yield (END,), scores[END]
    for token in choices:
        if limit == 1:
            yield (token,), scores[token]
            continue
        for tokens, value in outputs(mine, [*ids, token], limit - 1, choices):
            yield (token, *tokens), scores[token] + value


def few(kind: str) -> tuple[Engine, list[int]]:
    mine = engine(kind, length=16)
    choices = [token for token in mine.text.encode("the cat") if token > END][:3]
    with torch.no_grad():
        bias = mine.model.output.bias
        bias[[token for token in range(len(bias)) if token not in {*choices, END, PAD, START}]] = -1e4
        bias[[PAD, START]] = -1e4
    return mine, choices


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_a_beam_that_loses_nothing_finds_the_most_probable_text(kind: str) -> None:
    mine, choices = few(kind)
    for prompt in ("the", ""):
        every_one = sorted(outputs(mine, mine.prompt_ids(prompt), 4, choices), key=lambda each: -each[1])
        (found,) = mine.search([prompt], DecodeConfig(beam=4 * 3**2 * 4, n_best=1, length="none"), 4)
        assert found.samples[0].tokens == every_one[0][0]
        assert found.samples[0].score == pytest.approx(every_one[0][1], abs=1e-4)


def test_a_window_holds_prompt_and_text() -> None:
    """Of 12 places 4 are the prompt's, END before it included: 9 tokens can follow, the last of them unread."""
    mine = engine("transformer", length=12)
    with torch.no_grad():
        mine.model.output.bias[END] = -1e4
    config = DecodeConfig(beam=2)

    def most(prompt: str, tokens: int) -> int:
        (found,) = mine.search([prompt], config, tokens)
        assert not found.samples[0].ended
        return len(found.samples[0].tokens)

    assert len(mine.prompt_ids("the")) == 4
    assert most("the", 50) == 9
    assert most("the", 5) == 5
    assert most("the cat sat on the mat", 50) == 13 - 6  # more than the window: its later half is kept
    both = mine.search(["the", "the cat sat"], config, 50)
    assert [len(each.samples[0].tokens) for each in both] == [9, 13 - 12]


def test_settings_of_the_search_are_heard() -> None:
    mine = engine("lstm")
    with torch.no_grad():
        mine.model.output.bias[END] = 9.0

    def written(**settings: object) -> Written:
        return mine.search(["the cat"], DecodeConfig.model_validate({"beam": 3, **settings}), 12)[0].samples[0]

    assert len(written().tokens) == 1
    assert len(written(min_length=4).tokens) == 5
    assert written(min_length=4).ended
    with pytest.raises(UsageError, match="min_length is 12 and max_tokens is 12"):
        written(min_length=12)
    with torch.no_grad():
        mine.model.output.bias[END] = -9.0
    tokens = written(no_repeat_ngram=2).tokens
    pairs = list(pairwise(tokens))
    assert len(set(pairs)) == len(pairs)


def test_a_text_may_be_longer_than_a_translation() -> None:
    decode, asked = searching_or_drawing({"beam": 2, "settings": ["min_length=300", "beam=7"], "max_tokens": 310})
    assert decode is not None
    assert (decode.beam, decode.min_length, asked) == (2, 300, {"max_tokens": 310})
