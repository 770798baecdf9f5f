"""Lines in, lines out: tokenise, search, put back into words. One line in is one line out, whatever it holds."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch

from saccade.constraints import Lexicon
from saccade.data.lengths import alike
from saccade.data.parses import Heads, on_tokens, read_line
from saccade.decode.beam import Penalty
from saccade.decode.coverage import LookingStep, covered
from saccade.decode.lexical import Constraints, Lexical
from saccade.decode.rules import Wishes
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import UsageError
from saccade.lines import Output, Request, Source, Translation, as_tokens, filled_up
from saccade.metrics.expected import Utility, best_first
from saccade.models.translator import Translator
from saccade.replay import Replays
from saccade.text import TextPair
from saccade.types import END, Hypothesis, State, Step

MAX_SOURCE_TOKENS = 1024
MAX_HYPOTHESES = 1024
"""Hypotheses searched side by side, whatever the token budget: each needs a row of logits as wide as the vocabulary."""
MAX_PREFIX_TOKENS = 1024
CHARACTERS_PER_TOKEN = 32
"""Of a line at most max_source × this many characters are tokenised, so that a line of 10 MB costs next to nothing."""
CONSTRAINED_AT_ONCE = 256
"""Lines for which phrases that outputs must or must not hold are kept ready: those of one line may take half a MB."""
MAX_BEAM = 512
"""No search for constraints is wider, unless it is asked for."""
ROUND_ROWS, ROUND_SOURCE, ROUND_STEPS = 16, 8, 16
"""Where steps are replayed, batches are filled up to these multiples: so that the next ones are of the same shapes."""


class Partners(Protocol):
    """Who decides with the model at every step."""

    @property
    def reads_parse(self) -> bool: ...

    @property
    def normalised(self) -> bool:
        """Whether what they all come to are log-probabilities."""

    def begin(
        self, own: tuple[Step, State], sources: Sequence[Source], max_steps: int, *, forced: bool
    ) -> tuple[Step, State]:
        """What a search goes on from, made of the model's own; see `Engine.begin`."""

    def own(self, state: State) -> State:
        """Of a state of all of them, that of the model."""


class Judge(Protocol):
    """Who ranks the outputs of a search anew."""

    def ranked(
        self, sources: Sequence[Source], found: Sequence[tuple[Output, ...]], config: DecodeConfig, batch_tokens: int
    ) -> list[tuple[Output, ...]]: ...


@dataclass(frozen=True)
class Engine:
    """A model and its tokenizers, ready to translate."""

    model: Translator
    text: TextPair
    device: torch.device
    max_source: int = MAX_SOURCE_TOKENS
    partners: Partners | None = None
    judge: Judge | None = None

    def translate(
        self, lines: Sequence[str | Request], config: DecodeConfig, batch_tokens: int = 4096, *, first: int = 1
    ) -> list[Translation]:
        """Translations in the order of the lines; an empty line gives an empty one without asking the model.

        What a `Request` asks of the output of an empty line is not heard, then.

        A model that reads dependency trees wants them in the lines, see `read`; `first` is the first line's number,
        which draws go by, too.
        """
        at_once = CONSTRAINED_AT_ONCE
        if len(lines) > at_once and any(type(each) is Request and (each.must or each.must_not) for each in lines):
            parts = [
                self.translate(lines[begin : begin + at_once], config, batch_tokens, first=first + begin)
                for begin in range(0, len(lines), at_once)
            ]
            return [each for part in parts for each in part]
        sources = self._constrained(self.read(lines, first=first), config, first)
        done: list[Translation] = [Translation(source.text, (_nothing(source),) * config.drawn) for source in sources]
        asked = [i for i, source in enumerate(sources) if source.text]
        lengths = [filled_up(len(source.ids), ROUND_SOURCE if self.replays else 1) for source in sources]
        widths = [_width(source, config.beam) for source in sources]
        for width in sorted({widths[i] for i in asked}):  # what a line gets does not hang on the lines beside it
            same = [i for i in asked if widths[i] == width]
            wide = config if width == config.beam else config.widened(width)
            most, multiple = max(1, MAX_HYPOTHESES // max(width, config.rows)), ROUND_ROWS if self.replays else 1
            for rows in alike(same, lengths, batch_tokens, most=most, multiple=multiple):
                found = self._chosen([sources[i] for i in rows], wide, batch_tokens, [first - 1 + i for i in rows])
                for i, outputs in zip(rows, found, strict=True):
                    done[i] = Translation(sources[i].text, outputs, cut=sources[i].cut)
        return done

    def _chosen(
        self, sources: list[Source], config: DecodeConfig, batch_tokens: int, lines: list[int]
    ) -> list[tuple[Output, ...]]:
        """What is found or drawn, or chosen of it by minimum Bayes risk; `lines`: the numbers that draws go by."""
        if self.judge is not None and config.sample is not None:
            raise UsageError(
                "sample: the noisy channel ranks what a beam finds, but samples are asked for. Leave one of them out."
            )
        outputs = self._outputs(sources, config, batch_tokens, lines)
        if config.mbr is None:
            return outputs
        candidates = outputs
        if config.mbr.candidates != "samples":
            beam = config.model_copy(update={"sample": None, "mbr": None, "n_best": config.beam})
            candidates = self._outputs(sources, beam, batch_tokens, lines)
        if config.mbr.candidates == "both":
            candidates = [(*some, *more) for some, more in zip(outputs, candidates, strict=True)]
        utility, most = config.mbr.utility, config.n_best
        return [by_expected_utility(some, own, utility)[:most] for some, own in zip(candidates, outputs, strict=True)]

    def _outputs(
        self, sources: list[Source], config: DecodeConfig, batch_tokens: int, lines: list[int]
    ) -> list[tuple[Output, ...]]:
        searched = config if self.judge is None else config.model_copy(update={"n_best": config.beam})
        found = [
            tuple(self._output(each, source, config) for each in hypotheses)
            for source, hypotheses in zip(sources, self._search(sources, searched, lines), strict=True)
        ]
        if self.judge is None:
            return found
        ranked = self.judge.ranked(sources, found, config, batch_tokens)
        return [outputs[: config.n_best] for outputs in ranked]

    @property
    def reads_parse(self) -> bool:
        """Whether the model, or one that decides with it, reads dependency trees."""
        return self.model.reads_parse or (self.partners is not None and self.partners.reads_parse)

    def read(self, requests: Sequence[str | Request], *, first: int = 1) -> list[Source]:
        """Lines as tokens. Where the model reads dependency trees, each line is its text, a tab, and its heads."""
        heads = None
        asked = [Request(each) if isinstance(each, str) else each for each in requests]
        lines = [each.text for each in asked]
        if self.reads_parse:
            both = [_parsed(line, number) for number, line in enumerate(lines, start=first)]
            lines, heads = [text for text, _ in both], [each for _, each in both]
        prefixes = [self._prefix(each.prefix, number) for number, each in enumerate(asked, start=first)]
        return [
            replace(source, prefix=prefix, must=tuple(each.must), must_not=tuple(each.must_not))
            for source, prefix, each in zip(self._tokenised(lines, heads), prefixes, asked, strict=True)
        ]

    def reread(self, sources: Sequence[Source]) -> list[Source]:
        """What another engine has read, as this one reads it."""
        heads = [source.heads for source in sources if source.heads is not None]
        return self._tokenised([source.text for source in sources], heads or None)

    def _tokenised(self, lines: Sequence[str], heads: Sequence[Heads] | None) -> list[Source]:
        read = [line[: self.max_source * CHARACTERS_PER_TOKEN] for line in lines]
        encoded = self.text.source.encode_batch(read)
        sources = []
        for i, ids in enumerate(encoded):
            kept = ids[: self.max_source]
            own = None if heads is None else heads[i]
            parse = None
            if own is not None and self.model.reads_parse:
                parse = on_tokens(own, self.text.source.word_places(read[i], kept))
            cut = len(kept) < len(ids) or len(read[i]) < len(lines[i])
            sources.append(Source(lines[i], [*kept, END], parse, cut, heads=own))
        return sources

    def _prefix(self, text: str, number: int) -> tuple[int, ...]:
        """As tokens; `number` is the line's."""
        prefix = tuple(self.text.target.encode(text)) if text else ()
        if len(prefix) > MAX_PREFIX_TOKENS:
            raise UsageError(
                f"line {number}: the prefix ({text[:40]!r}…) has {len(prefix):,} tokens; the longest allowed "
                f"has {MAX_PREFIX_TOKENS:,}. Give less of it."
            )
        return prefix

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon.of(self.text.target)

    def _constrained(self, sources: list[Source], config: DecodeConfig, first: int) -> list[Source]:
        """With what their requests say that outputs must hold and must not."""
        done = []
        for number, source in enumerate(sources, start=first):
            if not (source.must or source.must_not):
                done.append(source)
                continue
            constraints = self._lexicon.constraints(
                source.must,
                source.must_not,
                prefix=source.prefix,
                whole_words=config.whole_words,
                place=f"line {number}: ",
            )
            if constraints is not None and constraints.required and config.rule.groups > 1:
                raise UsageError(
                    f"line {number}: must: {source.must[0]!r} is asked for, and decode.groups is {config.groups}: "
                    "constraints share a beam's places out in a way of their own. Leave out one of the two."
                )
            if constraints is not None and constraints.required and config.sample is not None:
                raise UsageError(
                    f"line {number}: must: {source.must[0]!r} is asked for, and samples: what an output must hold can "
                    "be searched for, but not drawn. Leave out one of the two."
                )
            done.append(replace(source, constraints=constraints))
        return done

    @cached_property
    def replays(self) -> Replays | None:
        return Replays.on(self.device, self.model)

    def forget(self) -> None:
        """Give back the memory that is held for searches to come."""
        if self.replays is not None:
            self.replays.loops.clear()
            torch.cuda.empty_cache()  # else their pool stays with us, and others on the card go without

    @torch.inference_mode()
    def _search(self, sources: list[Source], config: DecodeConfig, lines: list[int]) -> list[list[Hypothesis]]:
        limits = [_limit(source, config) for source in sources]
        wishes = Wishes(
            least=[config.least(len(source.ids), limit) for source, limit in zip(sources, limits, strict=True)],
            prefixes=[source.prefix for source in sources],
            control=self._control(sources, config),
        )
        plain = self.partners is None and config.plain and wishes.none
        with nullcontext() if self.replays is None or not plain else self.replays.lent() as begin:
            own, penalty = self._alone(sources, max(limits), filled=begin is not None), None
            if config.coverage and config.sample is None:
                looking, counts_BS = self.looking(config.coverage_layer), _counted(sources, self.device)
                step, state, penalty = covered(looking, own[1], counts_BS=counts_BS, beta=config.coverage)
                own = step, state
            step, state = self._together(own, sources, max(limits))
            del own  # the search is to be the only one that holds the state
            penalty = self._of_own(penalty)
            return search(
                step, state, limits=limits, config=config, wishes=wishes, penalty=penalty, lines=lines, begin=begin
            )

    def looking(self, layer: int) -> LookingStep:
        """The step of the model's own state that also tells where this layer of the decoder looked."""
        layers = self.model.cross_layers
        if not layers:
            raise UsageError(
                "decode.coverage: the model's decoder has no weights over the source's tokens (no cross-attention), so "
                "that nothing can be told of its coverage. Set coverage to 0."
            )
        if not -layers <= layer < layers:
            raise UsageError(
                f"decode.coverage_layer is {layer}, but {layers} of the decoder's layers look at the source: give "
                "one of them, counted from 0, or -1 for the last."
            )
        return lambda last_N, state: self.model.looking_step(last_N, state, layer)

    def _control(self, sources: Sequence[Source], config: DecodeConfig) -> Lexical | None:
        """What steers the search to outputs that hold what they must and must not; None where nothing is asked."""
        asked = [source.constraints or Constraints() for source in sources]
        if not any(each.required or each.forbidden for each in asked):
            return None
        every_end = config.rule.stop != "count"
        return Lexical.of(asked, every_end=every_end, device=self.device, vocabulary=self.text.target.size)

    def begin(self, sources: Sequence[Source], max_steps: int, *, forced: bool = False) -> tuple[Step, State]:
        """What every search goes on from: the step function, and the state with one hypothesis a source.

        `forced`: instead of a step, the function that reads several given tokens at once.
        """
        return self._together(self._alone(sources, max_steps, forced=forced), sources, max_steps, forced=forced)

    def _alone(
        self, sources: Sequence[Source], max_steps: int, *, forced: bool = False, filled: bool = False
    ) -> tuple[Step, State]:
        """`filled`: up to multiples, see `ROUND_SOURCE`."""
        tokens = as_tokens(sources, ROUND_SOURCE if filled else 1)
        state = self.model.start(
            self.model.encode(tokens.to(self.device)), filled_up(max_steps, ROUND_STEPS if filled else 1)
        )
        return self.model.prefill if forced else self.model.step, state

    def _together(
        self, own: tuple[Step, State], sources: Sequence[Source], max_steps: int, *, forced: bool = False
    ) -> tuple[Step, State]:
        return own if self.partners is None else self.partners.begin(own, sources, max_steps, forced=forced)

    def _of_own(self, penalty: Penalty | None) -> Penalty | None:
        """A penalty that looks at the model's own state, for a search that has the states of all."""
        partners = self.partners
        if penalty is None or partners is None:
            return penalty
        return lambda state: penalty(partners.own(state))

    def as_text(self, tokens: Sequence[int]) -> str:
        """An output as one line."""
        # A line break is never part of a line: where a model writes one, the line contract wins. Many readers take a
        # carriage return for one, too.
        return self.text.target.decode(tokens).replace("\n", " ").replace("\r", " ")

    def _output(self, hypothesis: Hypothesis, source: Source, config: DecodeConfig) -> Output:
        text = self.as_text(hypothesis.tokens)
        return Output(
            text,
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.tokens,
            hypothesis.token_log_probabilities,
            hypothesis.ended,
            unmet=self._unmet(text, source, config),
        )

    def _unmet(self, text: str, source: Source, config: DecodeConfig) -> tuple[str, ...]:
        if source.constraints is None:
            return ()
        return tuple(self._lexicon.unmet(text, source.must, source.must_not, whole_words=config.whole_words))


def by_expected_utility(some: Sequence[Output], samples: Sequence[Output], utility: Utility) -> tuple[Output, ...]:
    """Those of unlike texts, best first, each with its expected utility over the samples for a score."""
    ranked = best_first([each.text for each in some], [each.text for each in samples], utility)
    return tuple(replace(some[n], score=value) for n, value in ranked)


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


def _nothing(source: Source) -> Output:
    """What comes of an empty line; it holds no phrase, whatever was asked."""
    return Output("", 0.0, 0.0, (), (), ended=True, unmet=source.must)


def _width(source: Source, beam: int) -> int:
    """A place at least for each number of tokens of what must be that a hypothesis can have met, none of them too."""
    if source.constraints is None or not source.constraints.required:
        return beam
    return max(beam, min(source.constraints.tokens + 1, MAX_BEAM))


def _limit(source: Source, config: DecodeConfig) -> int:
    """A prefix is kept whole, and there is room for what must be, END and all: the limit grows where it has to."""
    limit, prefix = config.limit(len(source.ids)), len(source.prefix)
    if source.constraints is not None and source.constraints.required:
        return max(limit, prefix + source.constraints.longest + 1)
    return max(limit, prefix)
