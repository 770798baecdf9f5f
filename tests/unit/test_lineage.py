"""The picture of a row: numbers that stand beside their dots."""

import math

import pytest

from bench.lineage import Rung, beside, draw


@pytest.mark.parametrize("near", [0.0, 2.0, 30.0])
def test_numbers_of_a_picture_stand_beside_their_dots_and_cover_none(near: float) -> None:
    """A heap of four dots, one above the other or apart: no two numbers, nor a number and a dot, on one place."""
    dots = [(100 + near * (k % 2), 100 + near * (k // 2) + k / 10) for k in range(4)]
    numbers = [(x + dx, y + dy) for (x, y), (dx, dy) in zip(dots, beside(dots), strict=True)]
    for dot, number in zip(dots, numbers, strict=True):
        assert 8 < math.dist(dot, number) < 11
    apart = [math.dist(one, other) for k, one in enumerate(numbers) for other in (*numbers[:k], *dots)]
    assert min(apart) > 7


def test_numbers_of_the_drawn_picture_cover_none() -> None:
    """Where they stand is chosen on the paper as it is in the end, whatever room the names take."""
    costs = [(0.3, 21.6), (0.6, 36.7), (0.72, 36.9), (0.76, 36.8), (0.77, 36.7), (2.4, 41.2)]
    found = [Rung(f"{k} {'of a long name ' * 3}", 2014 + k, (cost[1],), cost[0]) for k, cost in enumerate(costs)]
    figure = draw(found, metric="BLEU", title="A row")
    panel = figure.axes[1]
    figure.canvas.draw()
    dots = [panel.transData.transform(cost) * 72 / figure.dpi for cost in costs]
    asides = beside([(float(x), float(y)) for x, y in dots])
    assert [tuple(text.get_position()) for text in panel.texts] == [pytest.approx(aside) for aside in asides]
