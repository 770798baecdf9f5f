"""The combinations that the laws are tried on hold every pair that can be, and no other is called refused."""

from itertools import product
from random import Random

import pytest

from tests.support.pairs import Options, covering, every_pair, pairs_of
from tests.support.tasks import NAMES, OPERATORS, list_operations

CHOICES = {
    name: {f"{name}{each}": None for each in range(count)} for name, count in zip("abcde", (4, 3, 3, 2, 2), strict=True)
}
NAMED = [list(each) for each in CHOICES.values()]


@pytest.mark.parametrize("seed", range(5))
def test_every_pair_that_can_be_is_covered(seed: int) -> None:
    """Against all combinations, for rules drawn at random that forbid two or three options together."""
    draw = Random(seed)
    forbidden = [{draw.choice(options) for options in draw.sample(NAMED, size)} for size in (2, 2, 3, 3)]

    def make(options: Options) -> Options | None:
        return None if any(rule <= set(options) for rule in forbidden) else options

    made, refused = covering(CHOICES, make)
    allowed = [options for options in product(*NAMED) if make(options) is not None]
    met = {pair for options in made for pair in pairs_of(options)}
    assert met == {pair for options in allowed for pair in pairs_of(options)}
    assert refused == {(pair[0][1], pair[1][1]) for pair in every_pair(NAMED) if pair not in met}
    assert all(options in allowed for options in made)
    assert len(made) < len(allowed) / 3
    assert covering(CHOICES, make) == (made, refused)


def test_lists_are_worked_out_by_the_published_rule() -> None:
    """Read once more from left to right with a stack."""
    task, draw = list_operations(arguments=4, depth=3), Random(1)
    for _ in range(200):
        line, target = task(draw)
        assert worked_out(line) == target


def worked_out(line: list[int]) -> list[int]:
    stack: list[list[int | str]] = [[]]
    for word in line:
        name = NAMES[word - 10] if word >= 10 else ""
        if name == "]":
            operator, *values = stack.pop()
            stack[-1].append(OPERATORS[str(operator)]([int(value) for value in values]))
        elif name:
            stack.append([name])
        else:
            stack[-1].append(word)
    return [int(value) for value in stack[0]]
