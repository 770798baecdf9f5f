"""What goes into a translator and what comes out of it: lines, what is asked of their outputs, and these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from saccade.data.parses import Heads
from saccade.decode.lexical import Constraints
from saccade.errors import UsageError
from saccade.types import Tokens


@dataclass(frozen=True)
class Request:
    """A line, and what is asked of its output."""

    text: str
    prefix: str = ""
    """What the output begins with; the model goes on from there."""
    must: Sequence[str] = ()
    """Phrases that the output holds, each as whole words; one that is given twice, twice. See docs/constraints.md."""
    must_not: Sequence[str] = ()
    """Phrases that it does not hold."""

    def __post_init__(self) -> None:
        for name, phrases in (("must", self.must), ("must_not", self.must_not)):
            if isinstance(phrases, str):
                raise UsageError(f"{name}: is {phrases!r}; it must be a list of phrases, as [{phrases!r}].")


@dataclass(frozen=True)
class Output:
    """One hypothesis as text."""

    text: str
    score: float
    log_probability: float
    tokens: tuple[int, ...]
    token_log_probabilities: tuple[float, ...]
    ended: bool
    alignment: frozenset[tuple[int, int]] | None = None
    """(source word, target word), each counted from 0, where it was asked for; see `saccade.align`."""
    unmet: tuple[str, ...] = ()
    """Phrases of the request that it must hold and does not, or must not and does."""
    features: Mapping[str, float] = field(default_factory=dict)
    """What it was ranked by beside the model, where others had a say: `rerank.py`."""


@dataclass(frozen=True)
class Translation:
    """All that came of one line, best first."""

    source: str
    """The line; without its parse, where it came with one."""
    hypotheses: tuple[Output, ...]
    cut: bool = False
    """The line had more tokens than are read; the rest was left out."""

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        return self.hypotheses[0].score

    @property
    def alignment(self) -> frozenset[tuple[int, int]] | None:
        return self.hypotheses[0].alignment


@dataclass(frozen=True)
class Source:
    """A line as the model reads it."""

    text: str
    ids: list[int]
    """END is the last."""
    parse: NDArray[Any] | None
    """Word and head of each id (`types.Parse`), for a model that reads dependency trees."""
    cut: bool
    """There was more of it than is read."""
    prefix: tuple[int, ...] = ()
    """The first tokens of its output."""
    must: tuple[str, ...] = ()
    must_not: tuple[str, ...] = ()
    constraints: Constraints | None = None
    """What its output must hold or must not hold, as the search takes it."""
    heads: Heads | None = None
    """The parse that came with the line, by words; for whoever reads it by other tokens."""


def as_tokens(sources: Sequence[Source], multiple: int = 1) -> Tokens:
    """Padded to the longest, and on to a multiple of so many tokens."""
    parses = [source.parse for source in sources if source.parse is not None]
    longest = max((len(source.ids) for source in sources), default=0)
    return Tokens.of([source.ids for source in sources], parses or None, longest=filled_up(longest, multiple))


def filled_up(count: int, multiple: int) -> int:
    """The next multiple."""
    return -(-count // multiple) * multiple
