"""Scheduled sampling (Bengio et al. 2015): in training, some tokens given to the decoder are its own guesses.

A coin for every token of every sentence decides, with probability ε_i at update i for the gold one; or one for each
sentence, whose tokens are then all gold or all guesses. A guess is a constant: no gradient flows into how it was made.
"""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config import Section

Guess = Literal["sample", "greedy"]
Coin = Literal["token", "target"]


class LinearSampling(Section):
    kind: Literal["linear"] = "linear"
    """ε_i = max(floor, start − slope · i)."""
    start: float = Field(1.0, ge=0.0, le=1.0)
    """ε at the beginning."""
    slope: float = Field(1e-4, ge=0.0)
    """What ε loses at each update."""
    floor: float = Field(0.0, ge=0.0, le=1.0)
    """ε at the end."""
    guess: Guess = "sample"
    """Draw the guess from the model's distribution, or take the most probable token."""
    coin: Coin = "token"
    """Toss for each token, or once for the whole target of a sentence."""

    @model_validator(mode="after")
    def _falls(self) -> "LinearSampling":
        if self.floor > self.start:
            raise ValueError(f"floor is {self.floor} and start is {self.start}: the share of gold tokens must not grow")
        return self

    def share(self, update: int) -> float:
        """ε behind so many updates: how many of the tokens are gold."""
        return max(self.floor, self.start - self.slope * update)


class ExponentialSampling(Section):
    kind: Literal["exponential"] = "exponential"
    """ε_i = base^i."""
    base: float = Field(0.9999, gt=0.0, lt=1.0)
    """What ε is multiplied with at each update."""
    guess: Guess = "sample"
    """Draw the guess from the model's distribution, or take the most probable token."""
    coin: Coin = "token"
    """Toss for each token, or once for the whole target of a sentence."""

    def share(self, update: int) -> float:
        return float(self.base**update)


class InverseSigmoidSampling(Section):
    kind: Literal["inverse-sigmoid"] = "inverse-sigmoid"
    """ε_i = speed / (speed + exp(i / speed))."""
    speed: float = Field(2000.0, ge=1.0)
    """The larger, the later and slower ε falls: it is half after speed · ln(speed) updates."""
    guess: Guess = "sample"
    """Draw the guess from the model's distribution, or take the most probable token."""
    coin: Coin = "token"
    """Toss for each token, or once for the whole target of a sentence."""

    def share(self, update: int) -> float:
        return self.speed / (self.speed + math.exp(min(update / self.speed, 700.0)))


SamplingConfig = Annotated[LinearSampling | ExponentialSampling | InverseSigmoidSampling, Field(discriminator="kind")]
