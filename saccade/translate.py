"""Lines in, lines out: tokenise, search, put back into words. One line in is one line out, whatever it holds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray

from saccade.data.parses import Heads, on_tokens, read_line
from saccade.decode.control import Control
from saccade.decode.coverage import LookingStep, covered
from saccade.decode.rules import Wishes
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import UsageError
from saccade.metrics.expected import Utility, expected_utility
from saccade.models.translator import Translator
from saccade.text import TextPair
from saccade.types import END, Hypothesis, State, Step, Tokens

MAX_SOURCE_TOKENS = 1024
MAX_HYPOTHESES = 1024
"""Hypotheses searched side by side, whatever the token budget: each needs a row of logits as wide as the vocabulary."""
MAX_PREFIX_TOKENS = 1024
CHARACTERS_PER_TOKEN = 32
"""Of a line at most max_source × this many characters are tokenised, so that a line of 10 MB costs next to nothing."""

Phrases = tuple[tuple[int, ...], ...]
"""Tokens that stand one behind the other, of each."""


@dataclass(frozen=True)
class Request:
    """A line, and what is asked of its output."""

    text: str
    prefix: str = ""
    """What the output begins with; the model goes on from there."""
    must: tuple[str, ...] = ()
    """Each of these is part of the output."""
    must_not: tuple[str, ...] = ()
    """None of these is."""


@dataclass(frozen=True)
class Output:
    """One hypothesis as text."""

    text: str
    score: float
    log_probability: float
    tokens: tuple[int, ...]
    token_log_probabilities: tuple[float, ...]
    ended: bool


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
    must: Phrases = ()
    """What its output must hold …"""
    must_not: Phrases = ()
    """… or must not."""


def as_tokens(sources: Sequence[Source]) -> Tokens:
    parses = [source.parse for source in sources if source.parse is not None]
    return Tokens.of([source.ids for source in sources], parses or None)


@dataclass(frozen=True)
class Engine:
    """A model and its tokenizers, ready to translate."""

    model: Translator
    text: TextPair
    device: torch.device
    max_source: int = MAX_SOURCE_TOKENS

    def translate(
        self, lines: Sequence[str | Request], config: DecodeConfig, batch_tokens: int = 4096, *, first: int = 1
    ) -> list[Translation]:
        """Translations in the order of the lines; an empty line gives an empty one without asking the model.

        What a `Request` asks of the output of an empty line is not heard, then.

        A model that reads dependency trees wants them in the lines, see `read`; `first` is the first line's number,
        which draws go by, too.
        """
        sources = self.read(lines, first=first)
        done: list[Translation] = [Translation(source.text, (_NOTHING,) * config.drawn) for source in sources]
        asked = [i for i, source in enumerate(sources) if source.text]
        lengths = [len(source.ids) for source in sources]
        for rows in _batches(asked, lengths, batch_tokens, max(1, MAX_HYPOTHESES // config.rows)):
            found = self._found([sources[i] for i in rows], config, [first - 1 + i for i in rows])
            for i, outputs in zip(rows, found, strict=True):
                done[i] = Translation(sources[i].text, outputs, cut=sources[i].cut)
        return done

    def read(self, requests: Sequence[str | Request], *, first: int = 1) -> list[Source]:
        """Lines as tokens. Where the model reads dependency trees, each line is its text, a tab, and its heads."""
        heads = None
        asked = [Request(each) if isinstance(each, str) else each for each in requests]
        lines = [each.text for each in asked]
        if self.model.reads_parse:
            both = [_parsed(line, number) for number, line in enumerate(lines, start=first)]
            lines, heads = [text for text, _ in both], [each for _, each in both]
        read = [line[: self.max_source * CHARACTERS_PER_TOKEN] for line in lines]
        encoded = self.text.source.encode_batch(read)
        sources = []
        for i, ids in enumerate(encoded):
            kept = ids[: self.max_source]
            parse = None if heads is None else on_tokens(heads[i], self.text.source.word_places(read[i], kept))
            cut = len(kept) < len(ids) or len(read[i]) < len(lines[i])
            sources.append(Source(lines[i], [*kept, END], parse, cut, *self._wishes(asked[i], first + i)))
        return sources

    def _found(self, sources: list[Source], config: DecodeConfig, lines: list[int]) -> list[tuple[Output, ...]]:
        outputs = self._outputs(sources, config, lines)
        if config.mbr is None:
            return outputs
        candidates = outputs
        if config.mbr.candidates != "samples":
            beam = config.model_copy(update={"sample": None, "mbr": None, "n_best": config.beam})
            candidates = self._outputs(sources, beam, lines)
        if config.mbr.candidates == "both":
            candidates = [(*some, *more) for some, more in zip(outputs, candidates, strict=True)]
        utility, most = config.mbr.utility, config.n_best
        return [by_expected_utility(some, own, utility)[:most] for some, own in zip(candidates, outputs, strict=True)]

    def _outputs(self, sources: list[Source], config: DecodeConfig, lines: list[int]) -> list[tuple[Output, ...]]:
        return [tuple(map(self._output, hypotheses)) for hypotheses in self._search(sources, config, lines)]

    def _wishes(self, request: Request, number: int) -> tuple[tuple[int, ...], Phrases, Phrases]:
        """Prefix, must and must_not as tokens; `number` is the line's."""
        if request.must or request.must_not:
            raise UsageError(
                f"line {number}: must and must_not are not searched for yet; leave them out, or give a prefix."
            )
        prefix = tuple(self.text.target.encode(request.prefix)) if request.prefix else ()
        if len(prefix) > MAX_PREFIX_TOKENS:
            raise UsageError(
                f"line {number}: the prefix ({request.prefix[:40]!r}…) has {len(prefix):,} tokens; the longest allowed "
                f"has {MAX_PREFIX_TOKENS:,}. Give less of it."
            )
        return prefix, (), ()

    @torch.inference_mode()
    def _search(self, sources: list[Source], config: DecodeConfig, lines: list[int]) -> list[list[Hypothesis]]:
        # A prefix is kept whole: where it is longer than the limit, it is what the limit is then.
        limits = [max(config.limit(len(source.ids)), len(source.prefix)) for source in sources]
        step, state = self.begin(sources, max(limits))
        penalty = None
        if config.coverage and config.sample is None:
            looking, counts_BS = self.looking(config.coverage_layer), _counted(sources, self.device)
            step, state, penalty = covered(looking, state, counts_BS=counts_BS, beta=config.coverage)
        wishes = Wishes(
            least=[config.least(len(source.ids), limit) for source, limit in zip(sources, limits, strict=True)],
            prefixes=[source.prefix for source in sources],
            control=self._control(sources, limits),
        )
        return search(step, state, limits=limits, config=config, wishes=wishes, penalty=penalty, lines=lines)

    def looking(self, layer: int) -> LookingStep:
        """The step of `begin`'s state that also tells where this layer of the decoder looked."""
        layers = self.model.cross_layers
        if not layers:
            raise UsageError(
                "decode.coverage: the model's decoder has no weights over the source's tokens (no cross-attention), so "
                "that nothing can be told of its coverage. Set coverage to 0."
            )
        if not -layers <= layer < layers:
            raise UsageError(
                f"decode.coverage_layer is {layer}, but {layers} of the decoder's layers look at the source: give 0 to "
                f"{layers - 1}, or -1 for the last."
            )
        return lambda last_N, state: self.model.looking_step(last_N, state, layer)

    def _control(self, sources: Sequence[Source], limits: Sequence[int]) -> Control | None:
        """What steers the search to outputs that hold what they must and must not; None where nothing is asked."""
        return None

    def begin(self, sources: Sequence[Source], max_steps: int) -> tuple[Step, State]:
        """What every search goes on from: the step function, and the state with one hypothesis a source."""
        encoded = self.model.encode(as_tokens(sources).to(self.device))
        return self.model.step, self.model.start(encoded, max_steps)

    def _output(self, hypothesis: Hypothesis) -> Output:
        # A line break is never part of a line: where a model writes one, the line contract wins. Many readers take a
        # carriage return for one, too.
        text = self.text.target.decode(hypothesis.tokens).replace("\n", " ").replace("\r", " ")
        return Output(
            text,
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.tokens,
            hypothesis.token_log_probabilities,
            hypothesis.ended,
        )


def by_expected_utility(
    candidates: Sequence[Output], samples: Sequence[Output], utility: Utility
) -> tuple[Output, ...]:
    """The candidates of unlike texts, best first, each with its expected utility over the samples for a score.

    Of equals, to nine digits behind the point, the first is the better one.
    """
    distinct: dict[str, Output] = {}
    for each in candidates:
        distinct.setdefault(each.text, each)
    values = expected_utility(list(distinct), [each.text for each in samples], utility)
    scored = [replace(each, score=value) for each, value in zip(distinct.values(), values, strict=True)]
    return tuple(sorted(scored, key=lambda each: -round(each.score, 9)))


def _counted(sources: Sequence[Source], device: torch.device) -> torch.Tensor:
    """(B, S): which source tokens a coverage penalty counts: all but END, which is no part of what is said, and PAD."""
    lengths_B1 = torch.tensor([[len(source.ids)] for source in sources], device=device)
    return torch.arange(max(len(source.ids) for source in sources), device=device) < lengths_B1 - 1


def _parsed(line: str, number: int) -> tuple[str, Heads]:
    try:
        return read_line(line)
    except ValueError as error:
        raise UsageError(
            f"line {number} ({line[:40]!r}): {error}. The model reads dependency trees (model.encoder.positions is "
            "tree): give each line as its text, a tab, and for each word the place of its head, 0 for the root."
        ) from None


_NOTHING = Output("", 0.0, 0.0, (), (), ended=True)


def _batches(rows: list[int], lengths: list[int], batch_tokens: int, most: int) -> Iterator[list[int]]:
    """Rows of like length together, longest first, so that what does not fit in memory fails at once."""
    batch: list[int] = []
    for row in sorted(rows, key=lambda i: -lengths[i]):
        if batch and (len(batch) >= most or (len(batch) + 1) * lengths[batch[0]] > batch_tokens):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
