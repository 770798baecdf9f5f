"""Tasks that are made by a rule, each of which needs something that some mechanism has and others lack."""

import random
from collections.abc import Callable
from statistics import median

from tests.support.learning import Example, Task

# ---- letters


def reversing(letters: int, shortest: int, longest: int) -> Task:
    def task(draw: random.Random) -> Example:
        line = [draw.randrange(letters) for _ in range(draw.randint(shortest, longest))]
        return line, line[::-1]

    return task


def copying_without_repeats(letters: int, shortest: int, longest: int) -> Task:
    """A bag of the letters says all but their order."""

    def task(draw: random.Random) -> Example:
        line = draw.sample(range(letters), draw.randint(shortest, longest))
        return line, line

    return task


def recalling(letters: int, kept: int, nearest: int, farthest: int, others: int) -> Task:
    """The first letters, which stand before a stretch of others that do not matter."""

    def task(draw: random.Random) -> Example:
        first = [draw.randrange(letters) for _ in range(kept)]
        return first + [letters + draw.randrange(others) for _ in range(draw.randint(nearest, farthest))], first

    return task


def larger_of_neighbours(letters: int, shortest: int, longest: int) -> Task:
    """At each place, the larger of the letter there and the one before it."""

    def task(draw: random.Random) -> Example:
        line = [draw.randrange(letters) for _ in range(draw.randint(shortest, longest))]
        return line, [max(pair) for pair in zip(line, [0, *line[:-1]], strict=True)]

    return task


# ---- nested brackets: Dyck-2


def closing_brackets(longest: int, deepest: int) -> Task:
    """Round (0) and square (1) brackets opened, of which some are closed again (2, 3): close the rest, inside out."""

    def task(draw: random.Random) -> Example:
        line, stack = list[int](), list[int]()
        for _ in range(draw.randint(1, longest)):
            if stack and (len(stack) == deepest or draw.random() < 0.5):
                line.append(stack.pop() + 2)
            else:
                stack.append(draw.randrange(2))
                line.append(stack[-1])
        return line, [kind + 2 for kind in reversed(stack)]

    return task


def shuffled(task: Task) -> Task:
    """The same targets, their sources in any order."""

    def other(draw: random.Random) -> Example:
        line, target = task(draw)
        return draw.sample(line, len(line)), target

    return other


# ---- ListOps (Nangia and Bowman 2018)

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "MAX": max,
    "MIN": min,
    "MED": lambda values: int(median(values)),
    "SM": lambda values: sum(values) % 10,
}
NAMES = [*OPERATORS, "]"]
LISTOPS_WORDS = 10 + len(NAMES)


def list_operations(arguments: int, depth: int, operators: tuple[str, ...] = tuple(OPERATORS)) -> Task:
    """[MAX 2 9 [MIN 4 7 ] 0 ] → 9: digits are ids 0 to 9, then the operators, which open a list, and its end."""

    def tree(draw: random.Random, left: int) -> tuple[list[int], int]:
        name = draw.choice(operators)
        line, values = [10 + NAMES.index(name)], list[int]()
        for _ in range(draw.randint(2, arguments)):
            nested = left > 1 and draw.random() < 0.35
            inner, value = tree(draw, left - 1) if nested else ([digit := draw.randrange(10)], digit)
            line += inner
            values.append(value)
        return [*line, 10 + NAMES.index("]")], OPERATORS[name](values)

    def task(draw: random.Random) -> Example:
        line, value = tree(draw, depth)
        return line, [value]

    return task
