"""A small grammar of English-like sentences, generated, with the probability of each known by construction.

Verbs agree with their subjects in number, reflexives and possessives in number and gender, determiners with their nouns
in number, however much stands between. So what a language model can at best reach is known (`log_probability`), and
pairs of sentences that differ in one agreement alone can be made at will: data/minimal_pairs.py.

The grammar is a table of weighted rules. A symbol ends in what it agrees in: `m` and `f` a man or a woman, `p` several
people, `s` a thing, `t` several things; of verbs `1` is for one, `2` for many.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Literal

from pydantic import Field

from saccade.config import Section

Split = Literal["train", "valid", "test"]
Rule = tuple[float, tuple[str, ...]]

PEOPLE = "mfp"
ALL = "mfpst"
NUMBER = {"m": "1", "f": "1", "s": "1", "p": "2", "t": "2"}
NOUNS = {
    "m": "king boy waiter uncle monk actor",
    "f": "queen girl waitress aunt nun actress",
    "p": "kings boys queens girls guards farmers pilots",
    "s": "gate clock letter garden lantern bridge",
    "t": "gates clocks letters gardens lanterns bridges",
}
# One form for one, one for many.
SLEEPS = ("sleeps sings waits laughs falls", "sleep sing wait laugh fall")
SEES = ("sees likes follows admires", "see like follow admire")
HURTS = ("hurts praises trusts", "hurt praise trust")
SAYS = ("says thinks knows", "say think know")
SELLS = ("sells paints opens", "sell paint open")
STANDS = ("stands shines waits", "stand shine wait")
IS = ("is", "are")
REFLEXIVES = {"m": "himself", "f": "herself", "p": "themselves"}
POSSESSIVES = {"m": "his", "f": "her", "p": "their"}
DETERMINERS = ("the the the this that every", "the the the these those some")
PREPOSITIONS = "near behind beside"
ADJECTIVES = "old small famous quiet"
QUALITIES = "green broken new heavy"


class GrammarData(Section):
    """Sentences of a small English-like grammar with agreement; generated, no download."""

    kind: Literal["grammar"] = "grammar"
    """Generated sentences."""
    train: int = Field(default=20_000, ge=1)
    """Sentences to train on."""
    valid: int = Field(default=1_000, ge=1)
    """Sentences to validate on; drawn like all others, so that short ones come again."""
    test: int = Field(default=1_000, ge=1)
    """Sentences to test on."""
    seed: int = 1
    """Another seed is another draw."""


def _words(text: str) -> list[Rule]:
    return [(1.0, (word,)) for word in text.split()]


@cache
def rules() -> dict[str, tuple[Rule, ...]]:
    """Symbol → its rules with their probabilities. What is no symbol is a word."""
    table: dict[str, list[Rule]] = {
        "S": [
            *((0.27, ("NP_m", "VP_m")), (0.27, ("NP_f", "VP_f")), (0.3, ("NP_p", "VP_p"))),
            *((0.08, ("NP_s", "STATE_1")), (0.08, ("NP_t", "STATE_2"))),
        ],
        "ANY": [(1.0, (f"NP_{kind}",)) for kind in ALL],
        "PREP": _words(PREPOSITIONS),
        "ADJ": _words(ADJECTIVES),
        "QUALITY": _words(QUALITIES),
    }
    for kind in ALL:
        noun, det = f"N_{kind}", f"DET_{NUMBER[kind]}"
        table[noun] = _words(NOUNS[kind])
        table[f"NP_{kind}"] = [
            (0.58, (det, noun)),
            (0.18, (det, "ADJ", noun)),
            (0.14, (det, noun, "PREP", "ANY")),
        ]
        if kind in PEOPLE:
            table[f"NP_{kind}"].append((0.1, (det, noun, f"WHO_{kind}")))
    for kind in PEOPLE:
        number = NUMBER[kind]
        table[f"WHO_{kind}"] = [(0.5, ("who", f"SEES_{number}", "ANY"))]
        table[f"WHO_{kind}"] += [(0.17, ("who", f"NP_{other}", f"SEES_{NUMBER[other]}")) for other in PEOPLE]
        table[f"VP_{kind}"] = [
            (0.3, (f"SLEEPS_{number}",)),
            (0.22, (f"SEES_{number}", "ANY")),
            (0.14, (f"HURTS_{number}", REFLEXIVES[kind])),
            (0.14, (f"SELLS_{number}", POSSESSIVES[kind], "OWN")),
            (0.1, (f"SLEEPS_{number}", "and", f"SLEEPS_{number}")),
            (0.1, (f"SAYS_{number}", "that", "S")),
        ]
    table["OWN"] = [*table["N_s"], *table["N_t"]]
    both = {"SLEEPS": SLEEPS, "SEES": SEES, "HURTS": HURTS, "SAYS": SAYS, "SELLS": SELLS, "STANDS": STANDS}
    for name, (one, many) in (both | {"DET": DETERMINERS}).items():
        table[f"{name}_1"], table[f"{name}_2"] = _words(one), _words(many)
    for number, is_ in zip("12", IS, strict=True):
        table[f"STATE_{number}"] = [(0.6, (is_, "QUALITY")), (0.4, (f"STANDS_{number}",))]
    return {symbol: _normalised(some) for symbol, some in table.items()}


def _normalised(some: list[Rule]) -> tuple[Rule, ...]:
    """Equal rules are one; the weights sum to 1."""
    joined: dict[tuple[str, ...], float] = {}
    for weight, parts in some:
        joined[parts] = joined.get(parts, 0.0) + weight
    total = sum(joined.values())
    return tuple((weight / total, parts) for parts, weight in joined.items())


# ---- sentences


def sentence(seed: int, split: Split, index: int) -> str:
    """The sentence at `index`: a pure function of its three arguments."""
    return spelt(_drawn("S", random.Random(f"{seed}/{split}/{index}")))


def sentences(seed: int, split: Split, count: int) -> Iterator[str]:
    return (sentence(seed, split, index) for index in range(count))


def _drawn(symbol: str, draw: random.Random) -> list[str]:
    found = rules().get(symbol)
    if found is None:
        return [symbol]
    probabilities, choices = zip(*found, strict=True)
    chosen = bisect_right(list(accumulate(probabilities)), draw.random())
    return [word for part in choices[min(chosen, len(choices) - 1)] for word in _drawn(part, draw)]


def spelt(words: Sequence[str]) -> str:
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def _words_of(text: str) -> list[str] | None:
    """None where it is not spelt like a sentence."""
    words = text[:-1].split(" ") if text.endswith(".") and text[:1].isupper() else []
    return [words[0].lower(), *words[1:]] if words and spelt([words[0].lower(), *words[1:]]) == text else None


# ---- how probable they are


def log_probability(text: str) -> float:
    """That the grammar makes exactly this sentence, by all ways it can; -inf where it cannot.

    The inside probabilities (Baker 1979) of the rules as they are, over all stretches of the sentence.
    """
    words = _words_of(text)
    if words is None:
        return -math.inf
    memory: dict[tuple[str, int, int], float] = {}

    def inside(symbol: str, begin: int, end: int) -> float:
        if symbol not in rules():
            return 1.0 if end - begin == 1 and words[begin] == symbol else 0.0
        key = (symbol, begin, end)
        if key not in memory:
            memory[key] = 0.0  # no symbol makes itself: what is under way adds nothing
            memory[key] = sum(weight * in_turn(parts, begin, end) for weight, parts in rules()[symbol])
        return memory[key]

    def in_turn(parts: tuple[str, ...], begin: int, end: int) -> float:
        first, *rest = parts
        if not rest:
            return inside(first, begin, end)
        total = 0.0
        for middle in range(begin + 1, end - len(rest) + 1):
            left = inside(first, begin, middle)
            if left:
                total += left * in_turn(tuple(rest), middle, end)
        return total

    found = inside("S", 0, len(words))
    return math.log(found) if found else -math.inf


@cache
def entropy() -> float:
    """Nats that a sentence has on average: H(S), with H(A) = Σ p (−log p + Σ H(parts)) for every symbol.

    Every sentence is made in one way, so that this is the entropy of sentences, too; the rules recur, so that the
    equations are solved by going round.
    """
    found = dict.fromkeys(rules(), 0.0)
    while True:
        after = {
            symbol: sum(p * (-math.log(p) + sum(found.get(part, 0.0) for part in parts)) for p, parts in some)
            for symbol, some in rules().items()
        }
        if max(abs(after[symbol] - found[symbol]) for symbol in found) < 1e-12:
            return after["S"]
        found = after
