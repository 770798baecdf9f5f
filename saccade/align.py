"""Which word of the output comes from which word of the source: hard alignments, read from a decoder's attention.

The output is given, or was found by a search; it is decoded again, forced, with the weights noted. A word is what
white space separates, on both sides.
Shapes: B pairs, H heads, T target units, S source units (words, or tokens), t and s tokens.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict

from numpy.typing import NDArray
from pydantic import Field, model_validator

from saccade.config import Section
from saccade.data.parses import on_tokens
from saccade.errors import UsageError
from saccade.inspect.attention import cross_attention
from saccade.inspect.links import Links, Method, joined, links_of, merged
from saccade.lines import Request, Source, Translation, as_tokens
from saccade.metrics.interval import Confidence
from saccade.metrics.links import Gold, alignment_scores, check_range, swapped, write_links
from saccade.metrics.score import Score
from saccade.text import Tokenizer
from saccade.translate import CHARACTERS_PER_TOKEN, Engine
from saccade.types import END, UNKNOWN, Batch, Tokens

THRESHOLD = 0.2
"""Where none is given."""
WEIGHTS_AT_ONCE = 1 << 26
"""Weights of all layers and heads that are held together: 256 MiB."""
AT_ONCE = 1000
"""Pairs that are read into tokens together."""
JOINS = ("intersection", "union", "grow-diag")
"""Methods that put two alignments together."""


class AlignConfig(Section):
    method: Method = "argmax"
    """Which weights become links: each target word's largest; two alignments joined; or all from `threshold` on."""
    threshold: float | None = Field(None, gt=0.0, le=1.0)
    """Of the method threshold: the least weight of a link; 0.2 where not given."""
    layer: int | None = Field(None, ge=1)
    """Which decoder layer's attention, counted from 1; where not given, the last but one, or the only one."""
    head: int | None = Field(None, ge=1)
    """Which head, counted from 1; where not given, the mean of all heads."""
    step: Literal["output", "input"] = "output"
    """The weights of the step that writes a token, or of the next one, which reads it (Chen et al. 2020)."""
    unit: Literal["word", "token"] = "word"
    """What is linked: words, which white space separates, or the tokens of the tokenizers as they are."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "AlignConfig":
        if self.threshold is not None and self.method != "threshold":
            raise ValueError(f"threshold belongs to the method threshold, but method is {self.method}")
        return self


class Aligning(TypedDict, total=False):
    """What may be given of `AlignConfig`."""

    method: Method
    threshold: float | None
    layer: int | None
    head: int | None
    step: Literal["output", "input"]
    unit: Literal["word", "token"]


@dataclass(frozen=True)
class Alignment:
    """The links between one source and one target."""

    source: tuple[str, ...]
    """What is linked: its words, or tokens, as far as they were read."""
    target: tuple[str, ...]
    links: Links
    """(source, target), each counted from 0."""
    cut: bool = False
    """One side had more tokens than are read; what was left out has no links."""
    weights: NDArray[Any] | None = field(default=None, repr=False, compare=False)
    """(target, source): what the links were made of, where it was asked for."""

    def __str__(self) -> str:
        """In Pharaoh's format."""
        return write_links(self.links)


@dataclass(frozen=True)
class Linked:
    """What scores need of an alignment."""

    links: Links
    source: int
    """How many words, or tokens, there are."""
    target: int
    cut: bool

    @staticmethod
    def of(each: Alignment) -> "Linked":
        return Linked(each.links, len(each.source), len(each.target), each.cut)


def link_scores(
    found: Iterable[Alignment | Linked], gold: Sequence[Gold], *, place: str = "gold", confidence: Confidence = True
) -> dict[str, Score]:
    """`aer`, `precision` and `recall` of alignments; gold that links words a pair does not have is refused by line.

    `place` is the name of the gold in errors.
    """
    links: list[Links] = []
    for number, each in enumerate(found, start=1):
        one = Linked.of(each) if isinstance(each, Alignment) else each
        links.append(one.links)
        if not one.cut and number <= len(gold):  # what was not read cannot be told from what is not there
            check_range(gold[number - 1].possible, one.source, one.target, f"{place} line {number}")
    return alignment_scores(links, gold, confidence=confidence)


@dataclass(frozen=True)
class _Side:
    """A text as what is linked, and the unit that each of its tokens is a part of."""

    units: tuple[str, ...]
    places: list[int]


@dataclass(frozen=True)
class _Written:
    """A target as it is given to the decoder."""

    ids: list[int]
    """Without END."""
    side: _Side
    cut: bool = False


class Aligner:
    """A model that has been asked whether it has what an alignment is made of."""

    def __init__(
        self, engine: Engine, config: AlignConfig, *, reverse: Engine | None = None, name: str = "the model"
    ) -> None:
        """`reverse` translates from target to source: then the two models' alignments are joined."""
        self.engine, self.config, self.reverse = engine, config, reverse
        self._layers, self._heads = _attention_of(engine, name)
        _check("layer", config.layer, self._layers, name)
        _check("head", config.head, self._heads, name)
        if reverse is None:
            return
        if config.method not in JOINS:
            raise UsageError(
                f"a reverse model gives the second of two alignments, but method is {config.method}, which reads one. "
                f"Leave it out, or make method one of {', '.join(JOINS)}."
            )
        if config.unit == "token":
            raise UsageError("unit is token: two models need not cut text into the same tokens. Make unit word.")
        if reverse.model.reads_parse:
            raise UsageError("the reverse model reads dependency trees, which the targets come without.")
        self._backwards = Aligner(reverse, config.model_copy(update={"method": "argmax"}), name="the reverse model")

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        batch_tokens: int = 4096,
        *,
        first: int = 1,
        weights: bool = False,
    ) -> list[Alignment]:
        """Of each source and its target; in order. `first` is the number of the first line, for errors."""
        if len(sources) != len(targets):
            raise UsageError(f"there are {len(sources)} sources and {len(targets)} targets; give as many of each.")
        read = self.engine.read(sources, first=first)
        return self._align(read, self._read(targets), targets, batch_tokens, weights=weights)

    def each(self, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096) -> Iterator[Alignment]:
        """The same one by one, of as many pairs as there may be."""
        for begin in range(0, len(sources), AT_ONCE):
            some = slice(begin, begin + AT_ONCE)
            yield from self.align(sources[some], targets[some], batch_tokens, first=begin + 1)

    def attach(
        self,
        lines: Sequence[str | Request],
        translations: Sequence[Translation],
        batch_tokens: int = 4096,
        *,
        first: int = 1,
    ) -> list[Translation]:
        """Translations of the lines with the alignment of each hypothesis, by the very tokens that were found."""
        read = self.engine.read(lines, first=first)
        sources = [source for source, each in zip(read, translations, strict=True) for _ in each.hypotheses]
        outputs = [output for each in translations for output in each.hypotheses]
        written = [self._written(list(output.tokens)) for output in outputs]
        found = iter(self._align(sources, written, [output.text for output in outputs], batch_tokens))
        return [
            replace(each, hypotheses=tuple(replace(output, alignment=next(found).links) for output in each.hypotheses))
            for each in translations
        ]

    # ---- reading

    def _read(self, targets: Sequence[str]) -> list[_Written]:
        most, text = self.engine.max_source, self.engine.text.target
        read = [target[: most * CHARACTERS_PER_TOKEN] for target in targets]
        return [
            _Written(ids[:most], self._side(text, target, ids[:most], text.word_places(some, ids[:most])),
                     cut=len(ids) > most or len(some) < len(target))
            for ids, some, target in zip(text.encode_batch(read), read, targets, strict=True)
        ]  # fmt: skip

    def _written(self, ids: list[int]) -> _Written:
        text = self.engine.text.target
        return _Written(ids, self._side(text, text.decode(ids), ids, text.written_places(ids)))

    def _of_source(self, source: Source) -> _Side:
        text, ids = self.engine.text.source, source.ids[:-1]
        some = source.text[: self.engine.max_source * CHARACTERS_PER_TOKEN]
        return self._side(text, source.text, ids, text.word_places(some, ids))

    def _side(self, text: Tokenizer, line: str, ids: list[int], places: list[int]) -> _Side:
        if self.config.unit == "token":
            return _Side(tuple(text.pieces(ids)), list(range(len(ids))))
        words = tuple(line.split())
        last = len(words) - 1  # where a tokenizer takes less for white space than `split` does
        places = [min(place, last) for place in places]
        return _Side(words[: max(places, default=-1) + 1], places)

    # ---- weights

    def _align(
        self,
        sources: Sequence[Source],
        written: Sequence[_Written],
        texts: Sequence[str],
        batch_tokens: int,
        *,
        weights: bool = False,
    ) -> list[Alignment]:
        sides = [self._of_source(source) for source in sources]
        done = [
            Alignment(side.units, each.side.units, frozenset(), cut=source.cut or each.cut)
            for source, side, each in zip(sources, sides, written, strict=True)
        ]
        method = self.config.method if self.reverse is None else "argmax"
        asked = [i for i, each in enumerate(done) if each.source and each.target]
        for rows in self._batches(asked, sources, written, batch_tokens):
            for i, weights_ts in zip(rows, self._weights(rows, sources, written), strict=True):
                units = len(done[i].target), len(done[i].source)
                weights_TS = merged(weights_ts, written[i].side.places, sides[i].places, units)
                links = links_of(weights_TS, method, self.config.threshold or THRESHOLD)
                done[i] = replace(done[i], links=links, weights=weights_TS if weights else None)
        if self.reverse is None:
            return done
        other = self._backwards.align(texts, [source.text for source in sources], batch_tokens)
        return [
            replace(one, links=joined(self.config.method, one.links, swapped(two.links)), cut=one.cut or two.cut)
            for one, two in zip(done, other, strict=True)
        ]

    def _batches(
        self, rows: list[int], sources: Sequence[Source], written: Sequence[_Written], batch_tokens: int
    ) -> Iterator[list[int]]:
        """Pairs of like length together, longest first."""
        of_each = self._layers * self._heads
        batch: list[int] = []
        longest_s = longest_t = 0
        for row in sorted(rows, key=lambda i: (-len(sources[i].ids), -len(written[i].ids))):
            s, t = max(longest_s, len(sources[row].ids)), max(longest_t, len(written[row].ids) + 1)
            many = len(batch) + 1
            if batch and (many * max(s, t) > batch_tokens or many * s * t * of_each > WEIGHTS_AT_ONCE):
                yield batch
                batch, s, t = [], len(sources[row].ids), len(written[row].ids) + 1
            batch.append(row)
            longest_s, longest_t = s, t
        if batch:
            yield batch

    def _weights(
        self, rows: Sequence[int], sources: Sequence[Source], written: Sequence[_Written]
    ) -> Iterator[NDArray[Any]]:
        """(t, s) of each pair, without END on either side: what no word can be linked to."""
        given = Tokens.of([[*written[i].ids, END] for i in rows])
        batch = Batch(as_tokens([sources[i] for i in rows]), given).to(self.engine.device)
        layers = cross_attention(self.engine.model, batch)
        layer = self.config.layer or max(1, self._layers - 1)
        weights_BHTS = layers[layer - 1].float()
        weights_BTS = weights_BHTS.mean(1) if self.config.head is None else weights_BHTS[:, self.config.head - 1]
        later = self.config.step == "input"
        for weights_TS, i in zip(weights_BTS.cpu().numpy(), rows, strict=True):
            yield weights_TS[later : len(written[i].ids) + later, : len(sources[i].ids) - 1]


def _attention_of(engine: Engine, name: str) -> tuple[int, int]:
    """How many layers and heads look at the source, found out on two tokens; refused where there are none."""
    parse = on_tokens((), [0, 1]) if engine.model.reads_parse else None
    source = Source("", [UNKNOWN, UNKNOWN, END], parse, cut=False)
    layers = cross_attention(engine.model, Batch(as_tokens([source]), Tokens.of([[END]])).to(engine.device))
    if not layers:
        raise UsageError(
            f"{name}: its decoder has no attention to the source, or reads one state of it alone, so there are no "
            "weights that an alignment could be read from. Train one with model.decoder.attention, or a Transformer."
        )
    return len(layers), layers[0].shape[1]


def _check(what: str, asked: int | None, there: int, name: str) -> None:
    if asked is not None and asked > there:
        raise UsageError(f"{what} is {asked}; of {what}s there {'is' if there == 1 else 'are'} {there} in {name}.")
