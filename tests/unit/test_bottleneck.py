"""What the demo says of the model without attention follows from its figures."""

import pytest

from saccade.lab.bottleneck import CONTESTANTS, LENGTHS, Contestant, Report, Result, Share


def result(contestant: Contestant, right: tuple[int, ...]) -> Result:
    shares = tuple(Share(each, 100) for each in right)
    return Result(contestant, 1, 1, 1.0, Share(sum(right), 400), shares, None, 0, None)


@pytest.mark.parametrize(
    ("plain", "verdict"),
    [
        ((95, 97, 96, 99), "The bottleneck is not felt here"),
        ((95, 80, 40, 10), "The bottleneck is felt, and more so the longer the input"),
        ((3, 3, 3, 2), "The bottleneck is not what is seen here"),
    ],
)
def test_the_verdict_is_that_of_the_figures(plain: tuple[int, ...], verdict: str) -> None:
    assert len(plain) == len(LENGTHS)
    told = Report((result(CONTESTANTS[0], plain), result(CONTESTANTS[1], (99, 99, 99, 99))), (), (), ()).verdict
    assert told.startswith(verdict)
    assert f"without attention gets {plain[-1]:.1f} % right, the one with attention 99.0 %" in told
    assert (f"{plain[0]:.1f} % on 8–20 characters" in told) == ("not felt" not in verdict)
