"""A language model and a text → the log-probability of every token, in bounded memory, however long the text is.

Before a text stands END, as if a line had ended there: so its first token, too, is predicted, and counted. Two ways to
go on learning from the text as it is read are options: a cache of what was seen, and dynamic evaluation.
Shapes: B texts, T tokens, N tokens of a stretch that are predicted, C tokens in the cache, D width, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.config import Section
from saccade.data.lengths import alike
from saccade.data.streams import ReadConfig, Streams, StreamsConfig, Text, Windows, WindowsConfig
from saccade.errors import UsageError
from saccade.loss import output_loss
from saccade.models.language_model import LanguageModel
from saccade.models.reading import Carried
from saccade.types import END, PAD, Batch, Layout, Tokens

AT_ONCE = 1 << 22
"""Log-probabilities that are held at once."""
BATCH_TOKENS = 4096


class CacheConfig(Section):
    """The continuous cache of Grave et al. (2017): words seen not long ago, in like places, become likelier."""

    window: int = Field(500, ge=1)
    """How many of the last tokens are remembered."""
    theta: float = Field(1.0, ge=0.0)
    """How sharply a token's own place is told from unlike ones."""
    weight: float = Field(0.1, ge=0.0, lt=1.0)
    """λ: the share of the cache in the mixture with the model."""


class DynamicConfig(Section):
    """Dynamic evaluation by gradient descent (Krause et al. 2018, the SGD rule with decay)."""

    rate: float = Field(0.1, ge=0.0)
    """η, of the gradient of a segment's mean loss."""
    decay: float = Field(0.0, ge=0.0, le=1.0)
    """λ: how far weights go back to the trained ones with each step."""
    steps: int = Field(5, ge=1)
    """Tokens of a segment: after each, the weights change."""


ASTRAY = 100.0
"""Nats a token, over a segment, that no model worth a number comes to."""


@dataclass(frozen=True)
class Reader:
    """A model and how it reads."""

    model: LanguageModel
    read: ReadConfig
    device: torch.device

    # ---- one long text

    def text(
        self, text: Text, *, cache: CacheConfig | None = None, dynamic: DynamicConfig | None = None
    ) -> Iterator[Tensor]:
        """Of every token of one text, in order, its log-probability: on the host, in float64, piece by piece.

        The model is as before afterwards: dynamic evaluation changes a copy.
        """
        model = self.model if dynamic is None else deepcopy(self.model)
        memory = None if cache is None else _Cache(cache)
        learner = None if dynamic is None else _Learner(model, dynamic)
        carried = model.begin(1)
        for batch in self._segments(text, dynamic):
            batch = batch.to(self.device)
            if isinstance(self.read, WindowsConfig):
                carried = model.begin(len(batch))
            features_ND, gold_N, after = self._read(model, batch, carried)
            log_p_N = gold_log_probabilities(model.output, features_ND, gold_N)
            if memory is not None:
                log_p_N = memory.mixed(log_p_N, features_ND, gold_N)
            if learner is not None:
                _check(log_p_N)
            yield log_p_N.cpu()
            if learner is not None:
                learner.learn(batch, carried)
            carried = after

    def _segments(self, text: Text, dynamic: DynamicConfig | None) -> Iterator[Batch]:
        """Stretches of the text, in order; of one row each where the model learns from them."""
        match self.read:
            case StreamsConfig():
                steps = self.read.steps if self.model.forgets else max(self.read.steps, 256)
                return Streams(text, 1, dynamic.steps if dynamic else steps).once()
            case WindowsConfig(length=length, context=context) as read:
                if dynamic is not None:  # of each segment the model sees as much before it as fits its window
                    own = min(dynamic.steps, length)
                    return Windows(text, own, 1, context=length - own).once()
                return Windows(text, read.own, max(1, BATCH_TOKENS // length), context=context).once()

    @torch.inference_mode()
    def _read(self, model: LanguageModel, batch: Batch, carried: Carried) -> tuple[Tensor, Tensor, Carried]:
        """What the output layer scores at every place that is predicted, what stands there, and what is carried on."""
        reading = model.decoder.read(batch.source, carried)
        gold = batch.target.ids
        counted = gold != PAD
        return reading.features[counted], gold[counted], dict(reading.carried)

    # ---- many texts

    @torch.inference_mode()
    def rows(self, rows: Sequence[Sequence[int]], batch_tokens: int = BATCH_TOKENS) -> list[list[float]]:
        """Of each text by itself, read from its beginning, the log-probabilities of its tokens."""
        found: list[list[float]] = [[] for _ in rows]
        asked = [i for i, row in enumerate(rows) if len(row)]
        for some in alike(asked, [len(row) for row in rows], batch_tokens):
            for i, values in zip(some, self._of_rows([rows[i] for i in some], batch_tokens), strict=True):
                found[i] = values
        return found

    def _of_rows(self, rows: list[Sequence[int]], batch_tokens: int) -> list[list[float]]:
        if isinstance(self.read, WindowsConfig):
            return self._of_short_rows(rows)
        target = Tokens.of(rows)
        given_BT = target.ids.roll(1, -1)
        given_BT[:, 0] = END
        carried, picked = self.model.begin(len(rows)), []
        steps = self.read.steps if self.model.forgets else max(1, batch_tokens // len(rows))
        for begin in range(0, target.layout.longest, steps):
            some = slice(begin, begin + steps)
            given, gold_BT = given_BT[:, some].to(self.device), target.ids[:, some].to(self.device)
            reading = self.model.decoder.read(Tokens(given, _whole(given)), carried)  # behind a text's end: no matter
            carried = reading.carried
            log_p_N = gold_log_probabilities(self.model.output, reading.features.flatten(0, 1), gold_BT.flatten())
            picked.append(log_p_N.view(gold_BT.shape).cpu())
        both_BT = torch.cat(picked, dim=1)
        return [both_BT[b, : len(row)].tolist() for b, row in enumerate(rows)]

    def _of_short_rows(self, rows: list[Sequence[int]]) -> list[list[float]]:
        """Texts that may each fit a window: those packed together, a longer one by itself."""
        assert isinstance(self.read, WindowsConfig)
        long = [len(row) > self.read.length for row in rows]
        short = [row for row, is_long in zip(rows, long, strict=True) if not is_long]
        found = iter(self._of_whole(short) if short else ())
        return [self._of_windows(row) if is_long else next(found) for row, is_long in zip(rows, long, strict=True)]

    def _of_whole(self, rows: list[Sequence[int]]) -> list[list[float]]:
        target = Tokens.of(rows)
        batch = Batch(Tokens.of([[END, *row[:-1]] for row in rows]), target).packed().to(self.device)
        features_ND, gold_N, _ = self._read(self.model, batch, self.model.begin(len(rows)))
        values = gold_log_probabilities(self.model.output, features_ND, gold_N).tolist()
        ends = np.cumsum([len(row) for row in rows]).tolist()
        return [values[end - len(row) : end] for row, end in zip(rows, ends, strict=True)]

    def _of_windows(self, row: Sequence[int]) -> list[float]:
        return [value for some in self.text(np.asarray(row)) for value in some.tolist()]


def _whole(ids_BT: Tensor) -> Layout:
    rows, steps = ids_BT.shape
    return Layout(torch.full((rows,), steps, device=ids_BT.device), steps, even=True)


@torch.inference_mode()
def gold_log_probabilities(output: nn.Linear, features_ND: Tensor, gold_N: Tensor) -> Tensor:
    """In float64, without ever holding all logits."""
    rows = max(1, AT_ONCE // output.out_features)
    found = [features_ND.new_empty(0, dtype=torch.float64)]
    for begin in range(0, len(gold_N), rows):
        log_p_RV = output(features_ND[begin : begin + rows]).float().log_softmax(-1)
        found.append(log_p_RV.gather(-1, gold_N[begin : begin + rows, None]).squeeze(-1).double())
    return torch.cat(found)


# ---- learning from what is read


@dataclass
class _Cache:
    """p(w) = (1 − λ) p_model(w) + λ p_cache(w), p_cache(w) ∝ Σ exp(θ h_t · h_i) over the i behind which w stood.

    Grave et al. (2017), equations 2 and 3. Before the first token there is nothing to remember: the model alone.
    """

    config: CacheConfig
    features_CD: Tensor | None = None
    followed_C: Tensor | None = None

    @torch.inference_mode()
    def mixed(self, log_p_N: Tensor, features_ND: Tensor, gold_N: Tensor) -> Tensor:
        if self.features_CD is None or self.followed_C is None:
            self.features_CD, self.followed_C = features_ND[:0], gold_N[:0]
        before = len(self.followed_C)
        all_CD = torch.cat([self.features_CD, features_ND])
        all_C = torch.cat([self.followed_C, gold_N])
        own_N1 = before + torch.arange(len(gold_N), device=gold_N.device)[:, None]
        at_C = torch.arange(len(all_C), device=gold_N.device)
        seen_NC = (at_C < own_N1) & (at_C >= own_N1 - self.config.window)
        score_NC = (self.config.theta * (features_ND.float() @ all_CD.float().T)).double()
        score_NC = score_NC.masked_fill(~seen_NC, -torch.inf)
        right_NC = score_NC.masked_fill(all_C != gold_N[:, None], -torch.inf)
        log_cache_N = right_NC.logsumexp(-1) - score_NC.logsumexp(-1)
        mixed_N = torch.logaddexp(
            log_p_N + math.log1p(-self.config.weight), log_cache_N + math.log(max(self.config.weight, 1e-300))
        )
        self.features_CD, self.followed_C = all_CD[-self.config.window :], all_C[-self.config.window :]
        return torch.where(seen_NC.any(-1), mixed_N, log_p_N)


@dataclass
class _Learner:
    """θ ← θ − η ∇L(s) + λ (θ_trained − θ) behind every segment s (Krause et al. 2018, equations 4 and 5)."""

    model: LanguageModel
    config: DynamicConfig
    trained: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = list(self.model.parameters())
        self.trained = [weight.detach().clone() for weight in self.weights]

    def learn(self, batch: Batch, carried: Carried) -> None:
        with torch.inference_mode(False), torch.enable_grad():
            before = {name: value.clone() for name, value in carried.items()}
            reading = self.model.decoder.read(batch.source, before)
            loss = output_loss(reading.features, self.model.output, batch.target)
            counted = (batch.target.ids != PAD).sum()
            gradients = torch.autograd.grad(loss.total / counted, self.weights, allow_unused=True)
        with torch.no_grad():
            for weight, gradient, trained in zip(self.weights, gradients, self.trained, strict=True):
                if gradient is not None:
                    weight.sub_(self.config.rate * gradient)
                if self.config.decay:
                    weight.add_(self.config.decay * (trained - weight))


def _check(log_p_N: Tensor) -> None:
    """What is learnt on the way must not lead astray: the number at the end would say nothing of the model."""
    if not float(log_p_N.mean()) > -ASTRAY:
        raise UsageError("dynamic evaluation has gone astray: tokens have next to no probability. Lower its rate.")
