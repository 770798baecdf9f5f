"""How to search: the `decode` section of a recipe, and the search it asks for."""

from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from saccade.config import Section
from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.greedy import greedy
from saccade.decode.scores import normalised
from saccade.types import Hypothesis, State, Step


class DecodeConfig(Section):
    beam: int = Field(5, ge=1, le=512)
    """How many prefixes are kept side by side; 1 is greedy."""
    length: Literal["none", "average", "gnmt"] = "average"
    """How scores of hypotheses of unlike lengths are made comparable."""
    alpha: float = Field(1.0, ge=0.0)
    """Exponent of the length normalisation: 0 = none, 1 = the mean log-probability of a token."""
    n_best: int = Field(1, ge=1)
    """How many hypotheses are returned; at most `beam`."""
    max_length: int = Field(256, ge=1)
    """No output is longer than this many tokens …"""
    ratio: float = Field(2.0, gt=0.0)
    """… nor longer than ratio × source tokens + `extra`."""
    extra: int = Field(20, ge=0)
    """See `ratio`."""

    @model_validator(mode="after")
    def _enough_beams(self) -> "DecodeConfig":
        if self.n_best > self.beam:
            raise ValueError(f"n_best is {self.n_best} and beam is {self.beam}: a beam holds at most that many outputs")
        return self

    def limit(self, source_tokens: int) -> int:
        return min(self.max_length, int(self.ratio * source_tokens) + self.extra)


def search(step: Step, state: State, *, limits: list[int], config: DecodeConfig) -> list[list[Hypothesis]]:
    if config.beam == 1:
        return [[_ranked(only, config)] for [only] in greedy(step, state, limits=limits)]
    rule = BeamRule(config.beam, config.length, config.alpha, config.n_best)
    return beam_search(step, state, limits=limits, rule=rule)


def _ranked(hypothesis: Hypothesis, config: DecodeConfig) -> Hypothesis:
    """A greedy output with the score a beam search would give it."""
    length = len(hypothesis.token_log_probabilities)
    return replace(hypothesis, score=normalised(hypothesis.log_probability, length, config.length, config.alpha))
