"""Ctrl-C that is pressed more than once: while a command ends, and behind that."""

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from saccade.cli.stopping import Stopping


@pytest.fixture
def came() -> Iterator[list[int]]:
    """What the handler that was there before has heard."""
    heard: list[int] = []

    def before(number: int, _: FrameType | None) -> None:
        heard.append(number)

    earlier = {number: signal.signal(number, before) for number in (signal.SIGINT, signal.SIGTERM)}
    yield heard
    for number, handler in earlier.items():
        signal.signal(number, handler)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("saccade.cli.stopping.time.monotonic", lambda: now[0])
    return now


def end_at_once(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), Stopping():
        signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_comes_again_while_a_command_ends_is_the_same_wish(
    number: int, came: list[int], clock: list[float]
) -> None:
    end_at_once(number)
    for moment in (100.0, 101.9):
        clock[0] = moment
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert came == []


def test_later_it_is_another(came: list[int], clock: list[float]) -> None:
    end_at_once(signal.SIGINT)
    clock[0] = 102.1
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGINT, signal.SIGINT, signal.SIGTERM]


def test_after_a_graceful_stop_it_is_another_at_once(came: list[int], clock: list[float]) -> None:
    with Stopping() as waiting:
        waiting.armed = True
        signal.raise_signal(signal.SIGINT)
    assert waiting.asked()
    signal.raise_signal(signal.SIGINT)
    assert came == [signal.SIGINT]


def test_where_nothing_came_all_is_as_it_was(came: list[int]) -> None:
    with Stopping():
        pass
    signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM]
