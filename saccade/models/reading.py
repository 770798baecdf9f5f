"""What every language model's decoder has in common: a stretch of text read, and what is carried on behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

Carried = dict[str, Tensor]
"""What a decoder knows at the end of a stretch of text, by name, one row a text: flat, so that it can be saved."""


@dataclass(frozen=True)
class Reading:
    """A stretch of text, read."""

    features: Tensor
    """What the output layer scores for every next token, laid out as the tokens that were read."""
    carried: Carried
    """With which reading goes on behind it."""
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    """What the decoder asks for beside the likelihood of the text, weighted, summed over tokens."""


def output_layer(width: int, vocabulary: int) -> nn.Linear:
    """Drawn from N(0, 1/width), as token vectors are, which may take its place."""
    output = nn.Linear(width, vocabulary)
    nn.init.normal_(output.weight, std=width**-0.5)
    nn.init.zeros_(output.bias)
    return output
