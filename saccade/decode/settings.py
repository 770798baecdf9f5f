"""How to search or sample: the `decode` section of a recipe, and the hypotheses it asks for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator
from torch import Tensor

from saccade.config import Section
from saccade.decode.beam import BeamRule, Penalty, beam_search
from saccade.decode.greedy import greedy
from saccade.decode.rules import Wishes
from saccade.decode.sampling import DrawConfig, RiskConfig, draw_outputs
from saccade.decode.scores import normalised
from saccade.errors import UsageError
from saccade.replay import Begin
from saccade.types import Hypothesis, State, Step


class DecodeConfig(Section):
    beam: int = Field(5, ge=1, le=512)
    """How many prefixes are kept side by side; 1 is greedy."""
    stop: Literal["count", "length", "proven"] = "count"
    """When a beam stops: at `beam` finished, at the longest length, or when log P(open) / lp(limit) ≤ the n-th best."""
    length: Literal["none", "average", "power", "gnmt"] = "average"
    """What log P is divided by: 1, |Y|, |Y|^α, or ((5 + |Y|) / 6)^α (Wu et al. 2016); |Y| counts END."""
    alpha: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    """The α of power and gnmt: 0 = none, 1 with power = average. Another than 1 with average makes that power."""
    coverage: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    """β of the coverage penalty, β Σ_i log min(Σ_j a_ij, 1) on top of a score (Wu et al. 2016); 0 = none."""
    coverage_layer: int = -1
    """Which layer's cross-attention is a_ij, the mean of its heads: from 0, the lowest; −1 is the last."""
    no_repeat_ngram: int = Field(0, ge=0)
    """No n-gram twice in an output, n being this (Paulus et al. 2018); 0 = not asked."""
    groups: int = Field(1, ge=1)
    """The beam is cut into so many, which `diversity` keeps apart (Vijayakumar et al. 2018)."""
    diversity: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    """λ: a group ranks by log P − λ × the prefixes of groups before it that took the same token at this step."""
    whole_words: bool = True
    """Whether phrases that must or must not be in an output are whole words, or may be parts of words."""
    n_best: int = Field(1, ge=1)
    """How many hypotheses are returned; at most `beam`."""
    min_length: int = Field(0, ge=0)
    """No output ends before it has this many tokens, END not counted …"""
    min_ratio: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    """… nor before min_ratio × source tokens; where that is more than is allowed, at the last place allowed."""
    max_length: int = Field(256, ge=1, le=100_000)
    """No output is longer than this many tokens, END counted, …"""
    ratio: float = Field(2.0, gt=0.0, allow_inf_nan=False)
    """… nor longer than ratio × source tokens + `extra`."""
    extra: int = Field(20, ge=0)
    """See `ratio`."""
    sample: DrawConfig | None = None
    """Draw outputs, within the limits on length, instead of searching for the most probable; none: search."""
    mbr: RiskConfig | None = None
    """Choose by minimum Bayes risk: the candidate with the highest expected utility over the samples."""
    graphs: bool = True
    """On a GPU: replay the steps of a plain search as CUDA graphs, which is faster."""

    @model_validator(mode="before")
    @classmethod
    def _average_with_an_exponent(cls, given: Any) -> Any:
        """`average` had an exponent before `power` had a name: recipes and runs of then mean what they meant."""
        match given:
            case dict() if given.get("length", "average") == "average" and given.get("alpha", 1.0) != 1.0:
                return given | {"length": "power"}
        return given

    @model_validator(mode="after")
    def _makes_sense(self) -> "DecodeConfig":
        if self.n_best > self.beam and self.sample is None:
            raise ValueError(f"n_best is {self.n_best} and beam is {self.beam}: a beam holds at most that many outputs")
        if self.length == "none" and self.alpha not in (0.0, 1.0):
            raise ValueError(
                f"length is none and alpha is {self.alpha:g}: without normalisation no exponent is heard; "
                "set length to power or gnmt, or leave alpha out"
            )
        if self.beam > 1 and self.beam % self.groups:
            raise ValueError(
                f"groups is {self.groups} and beam is {self.beam}: a beam is cut into groups of one size; "
                "make beam a multiple of groups"
            )
        if self.groups == 1 and self.diversity:
            raise ValueError(
                f"diversity is {self.diversity:g} and groups is 1: there are no groups to keep apart; set groups"
            )
        if self.groups > 1 and not self.diversity:
            raise ValueError(
                f"groups is {self.groups} and diversity is 0: every group would find the same; set diversity, as 0.5"
            )
        if self.coverage_layer != -1 and not self.coverage:
            raise ValueError(
                f"coverage_layer is {self.coverage_layer} and coverage is 0: nothing asks for a layer; set coverage"
            )
        if self.min_length >= self.max_length:
            raise ValueError(
                f"min_length is {self.min_length} and max_length is {self.max_length}, END counted: nothing could end; "
                "make max_length larger"
            )
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
        """The most tokens of an output, END counted. Source tokens count END, too."""
        by_source = int(min(self.ratio * source_tokens, self.max_length))  # which no float is too large for
        return min(self.max_length, by_source + self.extra)

    def least(self, source_tokens: int, limit: int) -> int:
        """The fewest tokens of an output, END not counted; never so many that END has no place before the limit."""
        return min(max(self.min_length, int(min(self.min_ratio * source_tokens, limit))), max(limit - 1, 0))

    @property
    def plain(self) -> bool:
        """A search by the model's scores alone, whose steps may be replayed."""
        return self.graphs and self.sample is None and not self.coverage and not self.no_repeat_ngram

    def greedily(self) -> "DecodeConfig":
        """The same limits and wishes without a beam, and without draws."""
        alone = {"beam": 1, "n_best": 1, "groups": 1, "diversity": 0.0, "coverage": 0.0, "coverage_layer": -1}
        return self.model_copy(update={**alone, "sample": None, "mbr": None})

    def widened(self, beam: int) -> "DecodeConfig":
        """With a wider beam: what `beam` 1 does not hear of stays unheard."""
        rule = self.rule
        kept = {"stop": rule.stop, "groups": rule.groups, "diversity": rule.diversity}
        return self.model_copy(update={"beam": beam, **kept})

    @property
    def rule(self) -> BeamRule:
        groups, diversity = (1, 0.0) if self.beam == 1 else (self.groups, self.diversity)
        stop = "count" if self.beam == 1 else self.stop
        return BeamRule(self.beam, self.length, self.alpha, self.n_best, stop, groups, diversity)


def search(
    step: Step,
    state: State,
    *,
    limits: list[int],
    config: DecodeConfig,
    last_N: Tensor | None = None,
    wishes: Wishes | None = None,
    penalty: Penalty | None = None,
    lines: Sequence[int] | None = None,
    begin: Begin | None = None,
) -> list[list[Hypothesis]]:
    """The n best hypotheses of each sentence. Of `wishes`, n-grams are what the config says of them.

    A beam of one is greedy, whatever `stop` and `groups` say; where a penalty or a control asks for it, as a beam
    search that stops by count, which is the same. Where the config draws, it is the samples as they were drawn, by the
    sentences' numbers `lines`, each with log P / lp for its score; what minimum Bayes risk chooses by is text, which is
    not known here. `begin`: steps of a search may be replayed.
    """
    wishes = replace(wishes or Wishes(), no_repeat_ngram=config.no_repeat_ngram)
    chooses = wishes.control is not None and wishes.control.chooses
    if config.sample is not None:
        if chooses:
            raise UsageError("sample: what an output must hold can be searched for, but not drawn. Use a beam.")
        by = range(len(limits)) if lines is None else lines
        samples = draw_outputs(step, state, lines=by, limits=limits, config=config.sample, last_N=last_N, wishes=wishes)
        return [[_ranked(each, config) for each in some] for some in samples]
    if config.beam == 1 and penalty is None and not chooses:
        found = greedy(step, state, limits=limits, last_N=last_N, wishes=wishes, begin=begin)
        return [[_ranked(only, config)] for [only] in found]
    return beam_search(
        step, state, limits=limits, rule=config.rule, last_N=last_N, wishes=wishes, penalty=penalty, begin=begin
    )


def _ranked(hypothesis: Hypothesis, config: DecodeConfig) -> Hypothesis:
    """An output with the score that a beam search would give it."""
    length = len(hypothesis.token_log_probabilities)
    return replace(hypothesis, score=normalised(hypothesis.log_probability, length, config.length, config.alpha))
