"""Phrases that an output must hold or must not hold → what a search needs to see to it."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from saccade.decode.characters import WORD, symbol_of
from saccade.decode.lexical import Constraints
from saccade.decode.phrases import Automaton, Spellings, automaton, folded, holds
from saccade.decode.wanted import NEVER, Forbidden, Required
from saccade.errors import UsageError
from saccade.text import Tokenizer
from saccade.text.phrases import ways_to_write, word_end

_CACHED = 256


@dataclass
class Lexicon:
    """The tokens of one vocabulary, and what was made of phrases before."""

    tokenizer: Tokenizer
    spellings: Spellings
    _required: dict[tuple[str, int, bool], Required] = field(default_factory=dict)
    _forbidden: dict[tuple[tuple[str, ...], bool], Forbidden] = field(default_factory=dict)

    @staticmethod
    def of(tokenizer: Tokenizer) -> "Lexicon":
        every = range(tokenizer.size)
        spelt = [tokenizer.spelling(each) for each in every]
        return Lexicon(tokenizer, Spellings.of(spelt, [tokenizer.is_set_off(each) for each in every]))

    def constraints(
        self,
        must: Sequence[str],
        must_not: Sequence[str],
        *,
        prefix: Sequence[int] = (),
        whole_words: bool = True,
        place: str = "",
    ) -> Constraints | None:
        """None where nothing is asked. `place` begins what is said of a phrase that cannot be asked for."""
        try:
            wanted = Counter(self._phrase(each, "must") for each in must)
            unwanted = tuple(sorted({self._phrase(each, "must_not") for each in must_not}))
            self._refuse_contradictions(list(wanted), unwanted, prefix, whole_words)
            required = tuple(self._require(phrase, times, whole_words) for phrase, times in wanted.items())
            forbidden = self._forbid(unwanted, whole_words) if unwanted else None
        except UsageError as error:
            raise UsageError(f"{place}{error}") from None
        return Constraints(required, forbidden) if required or forbidden else None

    def unmet(self, text: str, must: Sequence[str], must_not: Sequence[str], *, whole_words: bool = True) -> list[str]:
        """The phrases of which an output does not hold what was asked for."""
        wanted = Counter(self._phrase(each, "must") for each in must)
        found = [each for each, times in wanted.items() if holds(text, each, whole_words=whole_words) < times]
        return found + [
            phrase
            for phrase in must_not
            if any(holds(text, form, whole_words=whole_words) for form in _forms(self._phrase(phrase, "must_not")))
        ]

    def _phrase(self, given: str, argument: str) -> str:
        """As it stands in an output: in the tokenizer's normal form, with single spaces."""
        phrase = folded(self.tokenizer.normalise(given))
        if not phrase:
            raise UsageError(f"{argument}: {given!r} has no word in it. Leave it out, or give a word or more.")
        return phrase

    def _refuse_contradictions(
        self, must: Sequence[str], must_not: Sequence[str], prefix: Sequence[int], whole_words: bool
    ) -> None:
        for unwanted in must_not:
            for wanted in must:
                if any(holds(wanted, form, whole_words=whole_words) for form in _forms(unwanted)):
                    raise UsageError(
                        f"must: {wanted!r} holds {unwanted!r}, which must_not forbids: no output can do both. "
                        "Leave out one of the two."
                    )
            if prefix:
                forbidden = self._forbid((unwanted,), whole_words)
                if forbidden.need_S[forbidden.automaton.after(prefix)] >= NEVER:
                    raise UsageError(
                        f"prefix: {self.tokenizer.decode(prefix)!r} holds {unwanted!r}, which must_not forbids. "
                        "Leave out one of the two."
                    )

    def _forbid(self, phrases: tuple[str, ...], whole_words: bool) -> Forbidden:
        key = (phrases, whole_words)
        if key not in self._forbidden:
            if len(self._forbidden) >= _CACHED:
                self._forbidden.clear()
            forms = dict.fromkeys(form for phrase in phrases for form in _forms(phrase))
            made = automaton(list(forms), self.spellings, whole_words=whole_words)
            self._forbidden[key] = Forbidden.of(made, self.spellings.silent)
        return self._forbidden[key]

    def _require(self, phrase: str, times: int, whole_words: bool) -> Required:
        key = (phrase, times, whole_words)
        if key not in self._required:
            try:
                spaced, plain = self._ways(phrase, whole_words)
            except UsageError as error:
                raise UsageError(f"must: {error}") from None
            if len(self._required) >= _CACHED:
                self._required.clear()
            made = automaton([phrase], self.spellings, times=times, whole_words=whole_words)
            self._required[key] = _required(made, spaced, plain, plain_anywhere=_fits_anywhere(phrase, whole_words))
        return self._required[key]

    def _ways(self, phrase: str, whole_words: bool) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        ways = ways_to_write(phrase, self.tokenizer)
        if ways.spaced is not None or _fits_anywhere(phrase, whole_words):
            return ways.spaced, ways.plain
        end = word_end(self.tokenizer)
        if end is None or ways.plain is None:
            raise UsageError(
                f"{phrase!r} cannot be written inside a text: the vocabulary of the target has it only without a space "
                "before it. Use other words."
            )
        return (end, *ways.plain), ways.plain


def _required(
    made: Automaton, spaced: tuple[int, ...] | None, plain: tuple[int, ...] | None, *, plain_anywhere: bool
) -> Required:
    if plain is None or plain == spaced:
        assert spaced is not None
        return Required.of(made, [spaced], anew=0, at_begin=0)
    if spaced is None:
        return Required.of(made, [plain], anew=0, at_begin=0)
    return Required.of(made, [spaced, plain], anew=1 if plain_anywhere else 0, at_begin=1)


def _fits_anywhere(phrase: str, whole_words: bool) -> bool:
    """Whether it may follow any character without a space."""
    return not whole_words or symbol_of(phrase[0]) != WORD


def _forms(phrase: str) -> list[str]:
    """One text in Unicode may be written in several ways that look alike: letter and mark as one character or two."""
    return list(dict.fromkeys([phrase, unicodedata.normalize("NFC", phrase), unicodedata.normalize("NFD", phrase)]))
