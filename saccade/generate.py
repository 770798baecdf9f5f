"""Prompts in, texts out, piece by piece as they are written; and how probable a language model finds given texts."""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from torch.utils import _pytree as pytree

from saccade.data.plain_text import Ends, Stretch, beginning, measured, stretches
from saccade.data.streams import ReadConfig, WindowsConfig
from saccade.decode.rules import Wishes
from saccade.decode.sampling import Drawn, SampleConfig, numbers, sample
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import UsageError
from saccade.likelihood import CacheConfig, DynamicConfig, Reader
from saccade.metrics.perplexity import Perplexity, TextCounts
from saccade.metrics.stretches import Sizes, spread
from saccade.models.language_model import LanguageModel
from saccade.replay import Replays
from saccade.text import TextStream, Tokenizer
from saccade.types import END, Hypothesis, State

ROUND_STEPS = 16
"""Where steps of a search are replayed, there is room for a multiple of so many: so that shapes come again."""
ROWS = 64
"""Texts that are written side by side."""
PREFILL = 256
"""Tokens of a prompt that are read at a time: each has a row of logits as wide as the vocabulary."""
LINES_AT_ONCE = 1024
_WRITTEN: dict[Ends, str] = {"line": "\n", "paragraph": "\n\n", "file": ""}
"""How END is written where a text goes on behind it."""


@dataclass(frozen=True)
class Piece:
    """What one more token adds to a text: whole characters, or none where it only begins one."""

    prompt: int
    """Which of the prompts it belongs to."""
    sample: int
    """Which continuation of it."""
    text: str
    token: int
    log_probability: float
    """What the model gives the token, before temperature and filters."""
    last: bool
    """Nothing follows."""


@dataclass(frozen=True)
class Written:
    """One continuation of a prompt."""

    text: str
    """What was written behind the prompt."""
    tokens: tuple[int, ...]
    token_log_probabilities: tuple[float, ...]
    """One a token, the one it stopped at included."""
    ended: bool
    """False where it stopped at the longest allowed length."""
    score: float | None = None
    """What a search ranked it by; None where it was drawn."""

    @property
    def log_probability(self) -> float:
        return sum(self.token_log_probabilities)


@dataclass(frozen=True)
class Generation:
    """All that was written for one prompt."""

    prompt: str
    samples: tuple[Written, ...]

    @property
    def text(self) -> str:
        """The first continuation."""
        return self.samples[0].text


@dataclass(frozen=True)
class ScoredText:
    """How probable a text is: the natural logarithm, token by token, the end last."""

    token_log_probabilities: tuple[float, ...]
    tokens: tuple[str, ...]
    perplexity: Perplexity

    @property
    def log_probability(self) -> float:
        return -self.perplexity.nll


@dataclass
class _Row:
    """A text that is being written."""

    prompt: int
    sample: int
    key: tuple[int, int]
    """What it draws by."""
    ids: list[int]
    """All that stands in front of what comes next: END, the prompt, what was written."""
    stream: TextStream
    drawn: int = 0
    over: bool = False


@dataclass(frozen=True)
class Engine:
    """A language model and its tokenizer, ready to write and to score."""

    model: LanguageModel
    text: Tokenizer
    device: torch.device
    read: ReadConfig
    ends: Ends = "line"
    reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reader", Reader(self.model, self.read, self.device))

    # ---- writing

    def generate(
        self, prompts: Sequence[str], config: SampleConfig, rows: int = ROWS, *, first: int = 0
    ) -> list[Generation]:
        """`config.samples` continuations of each prompt; `first` is the first one's number, which draws go by."""
        texts: dict[tuple[int, int], list[Piece]] = {}
        for piece in self.stream(prompts, config, rows, first=first):
            texts.setdefault((piece.prompt, piece.sample), []).append(piece)
        return [
            Generation(prompt, tuple(self._written(texts[p, s], config) for s in range(config.samples)))
            for p, prompt in enumerate(prompts)
        ]

    def _written(self, pieces: list[Piece], config: SampleConfig) -> Written:
        return Written(
            "".join(piece.text for piece in pieces),
            tuple(piece.token for piece in pieces),
            tuple(piece.log_probability for piece in pieces),
            pieces[-1].token in self._stops(config),
        )

    def stream(
        self, prompts: Sequence[str], config: SampleConfig, rows: int = ROWS, *, first: int = 0
    ) -> Iterator[Piece]:
        """The same as it is written: pieces of up to `rows` texts by turns. How many there are changes nothing."""
        keys = ((p, s) for p in range(len(prompts)) for s in range(config.samples))
        while some := list(islice(keys, rows)):
            given = {p: self.prompt_ids(prompts[p]) for p in {p for p, _ in some}}
            yield from self._write(
                [_Row(p, s, (first + p, s), list(given[p]), self._behind(prompts[p])) for p, s in some], config
            )

    def search(
        self, prompts: Sequence[str], config: DecodeConfig, max_tokens: int, rows: int = ROWS
    ) -> list[Generation]:
        """The `n_best` continuations of each prompt that a search ranks highest, best first; END alone ends them.

        None has more than `max_tokens` tokens, END counted. Where the model reads windows, what is searched must fit
        into one with the prompt: of a prompt that fills it the later half is kept, and what is left of the window is
        the most tokens of a continuation.
        """
        if config.min_length >= max_tokens:
            raise UsageError(
                f"min_length is {config.min_length} and max_tokens is {max_tokens}, END counted: nothing could end. "
                "Make max_tokens larger."
            )
        read: list[list[int]] = []
        groups: dict[int, list[int]] = {}  # by the most tokens: whoever may write on stands behind no window's end
        for p, prompt in enumerate(prompts):
            read.append(self._cropped(self.prompt_ids(prompt)))
            groups.setdefault(self._left(max_tokens, read[p]), []).append(p)
        done: dict[int, Generation] = {}
        at_once = max(1, rows // config.beam)
        for limit, group in groups.items():
            for begin in range(0, len(group), at_once):
                some = group[begin : begin + at_once]
                for p, found in zip(some, self._search([read[p] for p in some], config, limit), strict=True):
                    done[p] = Generation(prompts[p], tuple(self._found(prompts[p], each) for each in found))
        return [done[p] for p in range(len(prompts))]

    @torch.inference_mode()
    def _search(self, rows: list[list[int]], config: DecodeConfig, limit: int) -> list[list[Hypothesis]]:
        limits = [limit] * len(rows)
        last_N = torch.tensor([ids[-1] for ids in rows], device=self.device)
        wishes = Wishes(least=[config.least(0, limit)] * len(rows))
        plain = config.plain and wishes.none
        with nullcontext() if self.replays is None or not plain else self.replays.lent() as begin:
            state = self._state([ids[:-1] for ids in rows], limit, multiple=1 if begin is None else ROUND_STEPS)
            return search(
                self.model.step, state, limits=limits, config=config, last_N=last_N, wishes=wishes, begin=begin
            )

    @cached_property
    def replays(self) -> Replays | None:
        return Replays.on(self.device, self.model)

    def _found(self, prompt: str, found: Hypothesis) -> Written:
        stream = self._behind(prompt)
        text = "".join([*(stream.add(token) for token in found.tokens), stream.finish()])
        tokens = (*found.tokens, END) if found.ended else found.tokens
        return Written(text, tokens, found.token_log_probabilities, found.ended, found.score)

    def _behind(self, prompt: str) -> TextStream:
        """What writes on behind a prompt: a word that comes without its space needs one, where there is none yet."""
        return TextStream(self.text, begun=bool(prompt) and not prompt[-1].isspace())

    def prompt_ids(self, prompt: str) -> list[int]:
        """END, behind which every text begins, and the prompt."""
        return [END, *self._ids(beginning(prompt, self.ends))]

    def _ids(self, parts: Sequence[Stretch]) -> list[int]:
        encoded = self.text.encode_batch([part.text for part in parts])
        return [each for ids, part in zip(encoded, parts, strict=True) for each in (*ids, *[END][: part.ended])]

    def _write(self, rows: list[_Row], config: SampleConfig) -> Iterator[Piece]:
        """Round after round: in each, as many tokens as fit into what the model can look back on."""
        stops = self._stops(config)
        while rows:
            for row in rows:
                row.ids = self._cropped(row.ids)
            steps = min(self._left(config.max_tokens - row.drawn, row.ids) for row in rows)
            keys = [row.key for row in rows]
            drawn = max(row.drawn for row in rows)
            every = numbers(config.seed, keys, drawn + steps)
            own = torch.stack([every[n, row.drawn : row.drawn + steps] for n, row in enumerate(rows)])
            state = self._state([row.ids[:-1] for row in rows], steps)
            last_N = torch.tensor([row.ids[-1] for row in rows], device=self.device)
            step = self.model.step
            for event in sample(step, state, last_N=last_N, numbers_NT=own, config=config, stops=stops):
                yield from self._pieces(rows, event, stops, config)
            rows = [row for row in rows if not row.over]

    def _pieces(self, rows: list[_Row], event: Drawn, stops: frozenset[int], config: SampleConfig) -> Iterator[Piece]:
        for n, token, log_p in zip(event.rows, event.tokens, event.log_probabilities, strict=True):
            row = rows[n]
            row.ids.append(token)
            row.drawn += 1
            row.over = token in stops or row.drawn == config.max_tokens
            text = self._shown(row, token, stops)
            yield Piece(row.prompt, row.sample, text, token, log_p, row.over)

    def _shown(self, row: _Row, token: int, stops: frozenset[int]) -> str:
        if token == END:
            return row.stream.finish() + ("" if token in stops else _WRITTEN[self.ends])
        text = row.stream.add(token)
        if token in stops:
            text = text.partition("\n")[0]  # the line's end itself is not part of the line
        return text + (row.stream.finish() if row.over else "")

    def _stops(self, config: SampleConfig) -> frozenset[int]:
        match config.stop:
            case "length":
                return frozenset()
            case "end":
                return frozenset((END,))
            case "line":
                return frozenset((END, *self._line_feeds))

    @cached_property
    def _line_feeds(self) -> list[int]:
        return [each for each in range(self.text.size) if b"\n" in self.text.spelling(each)]

    # ---- what the model has in mind while it writes

    def _cropped(self, ids: list[int]) -> list[int]:
        """Where a window is full, its later half is kept: a Transformer has learnt of no places beyond."""
        if isinstance(self.read, WindowsConfig) and len(ids) > self.read.length:
            return ids[-max(1, self.read.length // 2) :]
        return ids

    def _left(self, tokens: int, ids: list[int]) -> int:
        """How many of so many tokens fit behind those that are there."""
        return min(tokens, self.read.length + 1 - len(ids)) if isinstance(self.read, WindowsConfig) else tokens

    @torch.inference_mode()
    def _state(self, rows: list[list[int]], steps: int, multiple: int = 1) -> State:
        """That behind each of the rows. Those of one length are read together, equal ones once.

        There is room for so many further steps, and on up to a multiple of places.
        """
        longest = -(-(max(map(len, rows)) + steps) // multiple) * multiple
        unlike = sorted({tuple(row) for row in rows}, key=len)
        groups: dict[int, list[tuple[int, ...]]] = {}
        for row in unlike:
            groups.setdefault(len(row), []).append(row)
        states = [self._read(np.array(group, dtype=np.int64), longest) for group in groups.values()]
        trees = [(state.source, state.hypothesis) for state in states]
        source, hypothesis = pytree.tree_map(lambda *parts: torch.cat(parts), *trees)
        place = {row: n for n, row in enumerate(row for group in groups.values() for row in group)}
        chosen_N = torch.tensor([place[tuple(row)] for row in rows], device=self.device)
        return State(source, hypothesis).select_sentences(chosen_N, beam=1)

    def _read(self, ids_NT: np.ndarray[tuple[int, ...], np.dtype[np.int64]], max_steps: int) -> State:
        state = self.model.start(len(ids_NT), max_steps)
        for begin in range(0, ids_NT.shape[1], PREFILL):
            prefix_NT = torch.from_numpy(ids_NT[:, begin : begin + PREFILL]).to(self.device)
            _, state = self.model.prefill(prefix_NT, state)
        return state

    # ---- scoring

    def score(self, texts: Sequence[str], batch_tokens: int = 4096) -> Iterator[ScoredText]:
        """Each text by itself, read from its beginning; its end counts."""
        for begin in range(0, len(texts), LINES_AT_ONCE):
            some = texts[begin : begin + LINES_AT_ONCE]
            parts = [_closed(text, self.ends) for text in some]
            rows = [self._ids(each) for each in parts]
            for part, ids, values in zip(parts, rows, self.reader.rows(rows, batch_tokens), strict=True):
                ends_nll = -math.fsum(value for each, value in zip(ids, values, strict=True) if each == END)
                counts = TextCounts(len(ids), **measured(part))
                perplexity = Perplexity(-math.fsum(values), counts, ends_nll)
                yield ScoredText(tuple(values), tuple(self.text.pieces(ids)), perplexity)

    def score_document(
        self, lines: Iterable[str], *, cache: CacheConfig | None = None, dynamic: DynamicConfig | None = None
    ) -> Perplexity:
        """All lines as one text, which is read from one end to the other."""
        return self.score_stretches(stretches(lines, self.ends), cache=cache, dynamic=dynamic)

    def score_stretches(
        self,
        parts: Iterable[Stretch],
        *,
        cache: CacheConfig | None = None,
        dynamic: DynamicConfig | None = None,
        frames: Callable[[str], int] | None = None,
        each: bool = False,
    ) -> Perplexity:
        """The same of a text that is cut already; `frames` counts those of music.

        With `each` it is noted, too, what every stretch costs that ends in END: what intervals are made of.
        """
        ids, counts, sizes = array("I"), Counter[str](), Sizes()
        every = iter(parts)
        while some := list(islice(every, LINES_AT_ONCE)):
            ids.extend(self._ids(some))
            for part in some:
                size = measured([part])
                if frames is not None:
                    size["frames"] = frames(part.text)
                counts.update(size)
                if each:
                    sizes.add(size, ended=part.ended)
        if not ids:
            raise UsageError("the text is empty: there is nothing to score.")
        text = np.frombuffer(ids, dtype=np.uint32)
        found = self.score_tokens(text, TextCounts(**counts), cache=cache, dynamic=dynamic, each=each)
        if found.stretches_NK is None:
            return found
        return replace(found, stretches_NK=np.concatenate([found.stretches_NK, sizes.table()], axis=1))

    def score_tokens(
        self,
        text: np.ndarray[tuple[int, ...], np.dtype[np.unsignedinteger]],
        counts: TextCounts,
        *,
        cache: CacheConfig | None = None,
        dynamic: DynamicConfig | None = None,
        each: bool = False,
    ) -> Perplexity:
        """One text that is tokens already; `counts` is what its characters and words were.

        With `each`, of every stretch: its nats, those of its end, and its tokens.
        """
        nll = ends_nll = 0.0
        begin = 0
        costs_NK = np.zeros((max(1, int((text == END).sum())), 3)) if each else None
        ended = 0
        for values in self.reader.text(text, cache=cache, dynamic=dynamic):
            nll -= values.sum().item()
            is_end = np.asarray(text[begin : begin + len(values)]) == END
            ends_nll -= values[torch.from_numpy(is_end)].sum().item()
            begin += len(values)
            if costs_NK is not None:
                spread(-values.numpy(), is_end, costs_NK, ended)
                ended += int(is_end.sum())
        return Perplexity(nll, counts.with_tokens(len(text)), ends_nll, costs_NK)


def _closed(text: str, ends: Ends) -> list[Stretch]:
    """A text with its end; where files are what ends, the text is one, without a line feed at its own end."""
    parts = beginning(text, ends)
    return [*parts[:-1], Stretch(parts[-1].text)] if parts else [Stretch("")]
