"""Minimal pairs: two texts that differ in one thing, of which a model should find the good one more probable.

Read from files, or made by the grammar of data/grammar.py: agreement of subject and verb with others standing between
(Linzen et al. 2016, Marvin & Linzen 2018), reflexives and possessive pronouns.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from saccade.data import grammar
from saccade.data.grammar import NOUNS, NUMBER, PEOPLE, POSSESSIVES, REFLEXIVES, spelt
from saccade.data.json_rows import read_row, string_of
from saccade.errors import UsageError

Group = Literal["agreement", "reflexive", "pronoun", "all"]
GROUPS: tuple[Group, ...] = ("agreement", "reflexive", "pronoun", "all")
UNNAMED = "all"
"""The phenomenon of pairs that come without one."""
TRIES = 500
"""Draws that bring nothing new, one behind the other, after which there seem to be no other pairs."""

# What stands in a sentence, slot by slot; the starred one is wrong in the bad sentence. a and b are people who differ
# in number, or in gender, c is a thing or things that differ from a in number.
TEMPLATES = {
    "agreement-simple": "NP.a *SLEEPS.a",
    "agreement-preposition": "NP.a PREP NP.c *SLEEPS.a",
    "agreement-subject-relative": "NP.a who SEES.a NP.b *SLEEPS.a",
    "agreement-object-relative": "NP.a who NP.b SEES.b *SLEEPS.a",
    "agreement-inside-relative": "NP.a who NP.b *SEES.b SLEEPS.a",
    "agreement-clause": "NP.b SAYS.b that NP.a *SLEEPS.a",
    "agreement-coordination": "NP.a SLEEPS.a and *SLEEPS.a",
    "agreement-determiner": "*THIS.a NOUN.a SLEEPS.a",
    "reflexive-number": "NP.a HURTS.a *REFLEXIVE.a",
    "reflexive-gender": "NP.a HURTS.a *REFLEXIVE.a",
    "reflexive-relative": "NP.a who SEES.a NP.b HURTS.a *REFLEXIVE.a",
    "reflexive-clause": "NP.b SAYS.b that NP.a HURTS.a *REFLEXIVE.a",
    "pronoun-number": "NP.a SELLS.a *POSSESSIVE.a OWN",
    "pronoun-gender": "NP.a SELLS.a *POSSESSIVE.a OWN",
    "pronoun-preposition": "NP.a PREP NP.b SELLS.a *POSSESSIVE.a OWN",
    "pronoun-clause": "NP.b SAYS.b that NP.a SELLS.a *POSSESSIVE.a OWN",
}
_BY_GENDER = ("reflexive-gender", "pronoun-gender", "pronoun-preposition")
_VERBS = {"SLEEPS": grammar.SLEEPS, "SEES": grammar.SEES, "HURTS": grammar.HURTS, "SAYS": grammar.SAYS}
_FORMS = {
    name: tuple(text.split() for text in both)
    for name, both in (_VERBS | {"SELLS": grammar.SELLS, "THIS": ("this that every", "these those some")}).items()
}


@dataclass(frozen=True)
class MinimalPair:
    good: str
    bad: str
    phenomenon: str = UNNAMED
    source: str | None = None
    """For translators: what both are given as outputs of."""


# ---- generated


def phenomena(group: Group) -> list[str]:
    return [name for name in TEMPLATES if group in ("all", name.partition("-")[0])]


def generated(group: Group, count: int, seed: int = 1) -> Iterator[MinimalPair]:
    """`count` unlike pairs of each phenomenon of the group; fewer, where there are no more of it."""
    for phenomenon in phenomena(group):
        seen: set[MinimalPair] = set()
        index = newest = 0
        while len(seen) < count and index - newest < TRIES:
            index += 1
            pair = _made(phenomenon, random.Random(f"{seed}/{phenomenon}/{index}"))
            if pair not in seen:
                seen.add(pair)
                newest = index
                yield pair


def _made(phenomenon: str, draw: random.Random) -> MinimalPair:
    of = dict.fromkeys("abc", "")
    by_gender = phenomenon in _BY_GENDER
    of["a"] = _one(draw, "mf" if by_gender else PEOPLE)
    unlike = [kind for kind in PEOPLE if NUMBER[kind] != NUMBER[of["a"]]]
    of["b"] = {"m": "f", "f": "m"}[of["a"]] if by_gender else _one(draw, unlike)
    of["c"] = "t" if NUMBER[of["a"]] == "1" else "s"
    good: list[str] = []
    bad: list[str] = []
    for slot in TEMPLATES[phenomenon].split():
        name, _, role = slot.lstrip("*").partition(".")
        wrong = "a" if role == "b" else "b"
        place = draw.getrandbits(32)
        right = _filled(name, of.get(role, ""), place)
        good += right
        bad += _filled(name, of[wrong], place) if slot.startswith("*") else right
    return MinimalPair(spelt(good), spelt(bad), phenomenon)


def _filled(name: str, kind: str, place: int) -> list[str]:
    """What stands in a slot; which of its words, the place decides, so that forms of one word have one place."""
    number = 0 if NUMBER.get(kind) == "1" else 1
    match name:
        case "NP":
            determiners = grammar.DETERMINERS[number].split()
            return [determiners[place % len(determiners)], *_filled("NOUN", kind, place // len(determiners))]
        case "NOUN":
            return [_at(NOUNS[kind].split(), place)]
        case "PREP":
            return [_at(grammar.PREPOSITIONS.split(), place)]
        case "OWN":
            return [_at([*NOUNS["s"].split(), *NOUNS["t"].split()], place)]
        case "REFLEXIVE":
            return [REFLEXIVES[kind]]
        case "POSSESSIVE":
            return [POSSESSIVES[kind]]
        case "who" | "that" | "and":
            return [name]
        case _:
            return [_at(_FORMS[name][number], place)]


def _at(words: Sequence[str], place: int) -> str:
    return words[place % len(words)]


def _one(draw: random.Random, choices: Sequence[str]) -> str:
    return choices[int(draw.random() * len(choices))]


# ---- from files


def read_pairs(lines: Iterable[str], origin: str, *, with_source: bool) -> Iterator[MinimalPair]:
    """One a line: JSON objects, or tab-separated good, bad and, where there is one, phenomenon; a source goes first."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _of_json(line, with_source) if line.lstrip().startswith("{") else _of_cells(line, with_source)
        except ValueError as error:
            raise UsageError(f"{origin}:{number}: {error}.") from None


def _of_cells(line: str, with_source: bool) -> MinimalPair:
    cells = line.split("\t")
    wanted = ["source"] * with_source + ["good", "bad"]
    if not len(wanted) <= len(cells) <= len(wanted) + 1:
        raise ValueError(
            f"the row has {len(cells)} tab-separated columns; it must be {', '.join(wanted)} and, if you like, "
            "phenomenon"
        )
    source = cells.pop(0) if with_source else None
    good, bad, phenomenon = [*cells, UNNAMED][:3]
    return MinimalPair(good, bad, phenomenon, source)


def _of_json(line: str, with_source: bool) -> MinimalPair:
    row = read_row(line)
    good, bad = string_of(row, "good", "--contrast"), string_of(row, "bad", "--contrast")
    source = string_of(row, "source", "--contrast") if with_source else None
    phenomenon = string_of(row, "phenomenon", "--contrast") if "phenomenon" in row else UNNAMED
    return MinimalPair(good, bad, phenomenon, source)
