"""Generated sentences with tagged spans: short notices about made-up people, places and firms, and when it was.

    Mr. Tarvel Osk of Bolmen Ltd. met Ira Dunmor in Port Velsa on 3 May 1987 .
    B-PER I-PER I-PER …

Names are put together from syllables, and the same ones name people, places and firms: which of them it is, the words
around it tell, and no test name has to be known from training. A sentence is a pure function of (seed, split, number).
"""

import random
from typing import Annotated, Literal

from pydantic import Field

from saccade.config import Section
from saccade.data.conll import Tagged
from saccade.text.tags import Span, write_tags


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_BEGINNINGS = _list("bal bol dor dun fen gal har ira kal lor mar nor osk pel ral sor tar ul vel zor")
_MIDDLES = _list("a ba de ga i ko lu me ni o pa ri ta u ze")
_ENDS = _list("den dor kand la len mar mor na nor ra sa stad tin ton va vel win")
_FIRST = _list("Ada Boris Clara Daud Emil Farah Greta Hugo Ines Jonas Kofi Lena Mira Nils Olga Pavel Rosa Samir Tara")
_MONTHS = _list("January February March April May June July August September October November December")
_TITLES = ("Mr.", "Mrs.", "Dr.", "Prof.", "Judge")
_FIRMS = ("Ltd.", "Inc.", "AG", "Bank", "Group")
_BEFORE_PLACES = ("Port", "North", "Lake", "Upper")

# {P}erson, {L}ocation, {O}rganisation, {D}ate; a word that is none of these stands for itself.
FORMS = tuple(
    form.split()
    for form in (
        "{P} met {P} in {L} on {D} .",
        "{P} of {O} will speak in {L} .",
        "{O} opened an office in {L} on {D} .",
        "On {D} , {P} left {O} .",
        "{O} , based in {L} , named {P} as its head .",
        "The road from {L} to {L} was closed on {D} .",
        "{P} , {P} and {P} work for {O} .",
        "Nothing was heard from {L} on {D} .",
        "Shares of {O} fell , said {P} .",
        "It rained in {L} , {L} and {L} .",
        "Nobody came .",
        "{P} was born in {L} in {Y} and joined {O} in {Y} .",
    )
)
TYPES = {"P": "PER", "L": "LOC", "O": "ORG", "D": "DATE", "Y": "DATE"}

Split = Literal["train", "valid", "test"]


class NoticesData(Section):
    """Generated sentences: nothing has to be downloaded."""

    kind: Literal["notices"] = "notices"
    """Short notices about made-up people (PER), places (LOC), firms (ORG) and dates (DATE)."""
    train: Annotated[int, Field(ge=1)] = 4000
    """How many sentences are learnt from."""
    valid: Annotated[int, Field(ge=1)] = 400
    """How many the best checkpoint is chosen by."""
    test: Annotated[int, Field(ge=1)] = 400
    """How many the finished model is scored on."""
    seed: Annotated[int, Field(ge=0)] = 1
    """Which sentences: another seed gives others."""


def notice(seed: int, split: Split, number: int) -> Tagged:
    draw = random.Random(f"{seed} {split} {number}")
    words: list[str] = []
    spans: list[Span] = []
    for part in draw.choice(FORMS):
        kind = part[1:-1] if part.startswith("{") else ""
        if not kind:
            words.append(part)
            continue
        own = _MAKERS[kind](draw)
        spans.append(Span(TYPES[kind], len(words), len(words) + len(own)))
        words += own
    return Tagged(tuple(words), tuple(write_tags(spans, len(words), "iob2")), f"{split} {number}")


def _name(draw: random.Random) -> str:
    middle = draw.choice(_MIDDLES) if draw.random() < 0.5 else ""
    return (draw.choice(_BEGINNINGS) + middle + draw.choice(_ENDS)).capitalize()


def _person(draw: random.Random) -> list[str]:
    match draw.randrange(4):
        case 0:
            return [draw.choice(_TITLES), _name(draw)]
        case 1:
            return [_name(draw)]
        case _:
            return [draw.choice(_FIRST), _name(draw)]


def _place(draw: random.Random) -> list[str]:
    return [draw.choice(_BEFORE_PLACES), _name(draw)] if draw.random() < 0.3 else [_name(draw)]


def _firm(draw: random.Random) -> list[str]:
    return [_name(draw), draw.choice(_FIRMS)] if draw.random() < 0.6 else [_name(draw)]


def _date(draw: random.Random) -> list[str]:
    day = [str(draw.randint(1, 28)), draw.choice(_MONTHS)]
    return [*day, *_year(draw)] if draw.random() < 0.6 else day


def _year(draw: random.Random) -> list[str]:
    return [str(draw.randint(1950, 2030))]


_MAKERS = {"P": _person, "L": _place, "O": _firm, "D": _date, "Y": _year}
