"""How to search or sample: the `decode` section of a recipe, and the hypotheses it asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field, model_validator

from saccade.config import Section
from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.greedy import greedy
from saccade.decode.sampling import DrawConfig, RiskConfig, draw_outputs
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
    sample: DrawConfig | None = None
    """Draw outputs, within the limits on length, instead of searching for the most probable; none: search."""
    mbr: RiskConfig | None = None
    """Choose by minimum Bayes risk: the candidate with the highest expected utility over the samples."""

    @model_validator(mode="after")
    def _enough_beams(self) -> "DecodeConfig":
        if self.n_best > self.beam and self.sample is None:
            raise ValueError(f"n_best is {self.n_best} and beam is {self.beam}: a beam holds at most that many outputs")
        return self

    @model_validator(mode="after")
    def _something_to_choose_among(self) -> "DecodeConfig":
        if self.mbr is None:
            if self.sample is not None and self.n_best > 1:
                raise ValueError(
                    f"n_best is {self.n_best}, but samples have no order to choose the best by: all of them are "
                    "outputs, as many as sample.samples says; or set mbr"
                )
        elif self.sample is None or self.sample.samples < 2:
            raise ValueError("mbr estimates what to choose from samples: set sample.samples to 2 or more, as 100")
        elif self.n_best > self.candidates:
            raise ValueError(f"n_best is {self.n_best} and there are {self.candidates} candidates to choose among")
        return self

    @property
    def candidates(self) -> int:
        """How many outputs there are at most to choose the best among."""
        if self.sample is None:
            return self.beam
        chosen = "samples" if self.mbr is None else self.mbr.candidates
        return self.sample.samples * (chosen != "beam") + self.beam * (chosen != "samples")

    @property
    def drawn(self) -> int:
        """How many outputs there are at least: every sample is one, but of candidates there may be but one."""
        return 1 if self.sample is None or self.mbr is not None else self.sample.samples

    @property
    def rows(self) -> int:
        """Hypotheses of a sentence that are kept side by side."""
        return self.beam if self.sample is None else max(self.sample.samples, self.beam)

    def limit(self, source_tokens: int) -> int:
        return min(self.max_length, int(self.ratio * source_tokens) + self.extra)


def search(
    step: Step, state: State, *, limits: list[int], config: DecodeConfig, lines: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence, best first; or its samples as drawn, by the sentences' numbers `lines`.

    A sample is scored as a search would score it. What minimum Bayes risk chooses by is text: it is not known here.
    """
    if config.sample is not None:
        by = range(len(limits)) if lines is None else lines
        samples = draw_outputs(step, state, lines=by, limits=limits, config=config.sample)
        return [[_ranked(each, config) for each in some] for some in samples]
    if config.beam == 1:
        return [[_ranked(only, config)] for [only] in greedy(step, state, limits=limits)]
    rule = BeamRule(config.beam, config.length, config.alpha, config.n_best)
    return beam_search(step, state, limits=limits, rule=rule)


def _ranked(hypothesis: Hypothesis, config: DecodeConfig) -> Hypothesis:
    """An output with the score that a beam search would give it."""
    length = len(hypothesis.token_log_probabilities)
    return replace(hypothesis, score=normalised(hypothesis.log_probability, length, config.length, config.alpha))
