"""One measured number, how sure it is, and how it was measured."""

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Score:
    """A corpus score with its 95 % confidence interval."""

    name: str
    value: float
    low: float
    """The lower end of the interval; NaN where no interval was asked for or none can be estimated."""
    high: float
    signature: str | None
    """What it takes to measure the same again, in sacrebleu's notation; None where the name says it all."""
    count: int
    """How many examples were scored."""
    places: int = 1
    """Digits behind the point that are told."""
    unit: str = "lines"
    """What was counted."""

    def to_dict(self) -> dict[str, str | int | float | None]:
        """Plain values for JSON, which has no NaN: an unknown end of the interval is None."""
        return {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(self).items()
            if key != "places" and (key != "unit" or value != "lines")
        }


def digits(score: Score, *, width: int | None = None) -> str:
    """The value as `sacrebleu -b` prints it: so many digits behind the point, and nothing else."""
    return f"{score.value:.{score.places if width is None else width}f}"
