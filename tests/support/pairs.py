"""Few combinations of options that together hold every pair of them: greedy all-pairs, always the same ones.

Most faults of a program with many options come from two of them meeting (Kuhn et al. 2004).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from random import Random
from typing import TypeVar

Options = tuple[str, ...]
Pair = tuple[tuple[int, str], tuple[int, str]]
T = TypeVar("T")

DRAWN = 16
"""Combinations that are drawn for each that is taken."""
TRIED = 300
"""Combinations that are drawn before two options are said to be never together."""


@cache
def pairs_of(options: Options) -> frozenset[Pair]:
    """Each option is known by the place of its choice: two choices may have options of one name."""
    return frozenset(combinations(enumerate(options), 2))


def every_pair(choices: Sequence[Sequence[str]]) -> list[Pair]:
    return [
        ((i, a), (j, b)) for (i, one), (j, other) in combinations(enumerate(choices), 2) for a, b in product(one, other)
    ]


def covering(
    choices: Mapping[str, Mapping[str, object]], make: Callable[[Options], T | None]
) -> tuple[list[T], set[tuple[str, str]]]:
    """What `make` makes of the combinations, and the pairs that it has always refused, by giving None.

    Each time, of a few combinations that hold the first pair not yet met, the one with the most such pairs. A pair that
    could be but was not found would be among those refused: the caller says which these are.
    """
    names, draw = [list(each) for each in choices.values()], Random(0)
    made, refused, missing = list[T](), set[tuple[str, str]](), dict.fromkeys(every_pair(names))
    taken, makes = list[Options](), cache(make)
    while missing:
        pair = next(iter(missing))
        best, most, found = None, frozenset[Pair](), 0
        for _ in range(TRIED):
            options = _filled(pair, names, missing, taken, draw)
            if makes(options) is None:
                continue
            found += 1
            gained = pairs_of(options) & missing.keys()
            best, most = (options, gained) if len(gained) > len(most) else (best, most)
            if found == DRAWN:
                break
        if best is None:
            refused.add((pair[0][1], pair[1][1]))
            del missing[pair]
            continue
        case = makes(best)
        assert case is not None
        made.append(case)
        taken.append(best)
        missing = {each: None for each in missing if each not in most}
    return made, refused


def _filled(
    pair: Pair, names: list[list[str]], missing: Mapping[Pair, None], taken: Sequence[Options], draw: Random
) -> Options:
    """The pair; and what makes the most new pairs with what is chosen, or anything, or what went with it once."""
    chosen = dict(pair)
    way = draw.choice(("most", "most", "most", "any", "known"))
    rest = [place for place in range(len(names)) if place not in chosen]
    draw.shuffle(rest)
    known = [each for each in taken if any(each[at] == one for at, one in pair)] if way == "known" else []
    like = draw.choice(known) if known else None
    for place in rest:

        def gain(option: str, place: int = place) -> int:
            new = place, option
            return sum(((at, new) if at[0] < place else (new, at)) in missing for at in chosen.items())

        options = draw.sample(names[place], len(names[place]))
        chosen[place] = like[place] if like else max(options, key=gain) if way == "most" else options[0]
    return tuple(chosen[place] for place in range(len(names)))
