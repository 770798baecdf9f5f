"""Ranking a search's outputs anew by other models: the noisy channel (Yee et al. 2019, Ng et al. 2019).

    score(y) = [log p(y | x) + λ_ch log p(x | y) + λ_lm log p(y)] / norm(|y|)

p(y | x) is the direct model that searched, p(x | y) the channel: a translator of the other direction, p(y) a language
model. norm is the length rule of the search (1, |y|^α or ((5 + |y|) / 6)^α, with |y| the output's tokens, END counted).
The first term is the score that the search gave: where it added something, as a penalty, that stays. Channel and
language model score texts, so they may have any vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from saccade.decode.scores import normalised
from saccade.decode.settings import DecodeConfig
from saccade.evaluate import score
from saccade.generate import Engine as Writer
from saccade.lines import Output, Source
from saccade.text import Tokenizer
from saccade.translate import Engine


@dataclass(frozen=True)
class NoisyChannel:
    """λ of what is not there does not count."""

    source_text: Tokenizer
    """By which the lines were read: of a line that was cut, the channel scores what was read of it."""
    channel: Engine | None = None
    channel_weight: float = 1.0
    language_model: Writer | None = None
    lm_weight: float = 0.2

    def ranked(
        self, sources: Sequence[Source], found: Sequence[tuple[Output, ...]], config: DecodeConfig, batch_tokens: int
    ) -> list[tuple[Output, ...]]:
        """Each source's outputs, best first, with `features`: logs of p(y | x), p(x | y) and p(y)."""
        pairs = [(self._said(source), each.text) for source, some in zip(sources, found, strict=True) for each in some]
        of_channel, of_text = self._channel_scores(pairs, batch_tokens), self._text_scores(pairs, batch_tokens)
        parts = iter(
            [
                {"direct": each.log_probability} | of_channel.get(pair, {}) | of_text.get(pair[1], {})
                for pair, each in zip(pairs, (each for some in found for each in some), strict=True)
            ]
        )
        scored = [[self._scored(each, next(parts), config) for each in some] for some in found]
        return [tuple(sorted(some, key=lambda each: -each.score)) for some in scored]

    def _scored(self, output: Output, parts: dict[str, float], config: DecodeConfig) -> Output:
        more = self.channel_weight * parts.get("channel", 0.0) + self.lm_weight * parts.get("lm", 0.0)
        length = len(output.token_log_probabilities)
        total = output.score + normalised(more, length, config.length, config.alpha)
        return replace(output, score=total, features=parts)

    def _said(self, source: Source) -> str:
        return self.source_text.decode(source.ids[:-1]) if source.cut else source.text

    def _channel_scores(
        self, pairs: Sequence[tuple[str, str]], batch_tokens: int
    ) -> dict[tuple[str, str], dict[str, float]]:
        if self.channel is None:
            return {}
        unlike = list(dict.fromkeys(pairs))
        scored = score(self.channel, [y for _, y in unlike], [x for x, _ in unlike], batch_tokens)
        return {pair: {"channel": each.log_probability} for pair, each in zip(unlike, scored, strict=True)}

    def _text_scores(self, pairs: Sequence[tuple[str, str]], batch_tokens: int) -> dict[str, dict[str, float]]:
        if self.language_model is None:
            return {}
        unlike = list(dict.fromkeys(y for _, y in pairs))
        scored = self.language_model.score(unlike, batch_tokens)
        return {text: {"lm": each.log_probability} for text, each in zip(unlike, scored, strict=True)}
