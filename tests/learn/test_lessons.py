"""Each mechanism learns the task it is for, where its neighbour in the lineage, trained as long, does not."""

from typing import Any

import pytest

from tests.support.learning import Lesson, learnt, share_right, taught
from tests.support.tasks import (
    LISTOPS_WORDS,
    closing_brackets,
    copying_without_repeats,
    larger_of_neighbours,
    list_operations,
    recalling,
    reversing,
    shuffled,
)


def recurrent(kind: str, width: int = 32, *, cell: dict[str, Any] | None = None, **decoder: Any) -> dict[str, Any]:
    """Read forwards alone, so that what stands first is farthest from the end."""
    side = {"kind": kind, "width": width, "cell": cell or {}}
    return {"encoder": side | {"bidirectional": False}, "decoder": side | decoder}


def transformer(layers: int = 1, **settings: Any) -> dict[str, Any]:
    side = {"kind": "transformer", "width": 32, "heads": 4, "dropout": 0.0} | settings
    return {"encoder": side | {"layers": layers}, "decoder": side | {"layers": 1}}


# ---- attention


@pytest.mark.parametrize("score", ["additive", "general", "cosine"])
def test_attention_reverses_what_does_not_fit_into_one_state(score: str) -> None:
    assert learnt(two_ways({"attention": {"score": score}}), REVERSE) >= 0.85


def test_without_attention_as_much_training_is_in_vain() -> None:
    """Some 27 bits a line have to go through one state of 32 numbers."""
    assert learnt(two_ways({}), REVERSE) <= 0.2


REVERSE = Lesson(reversing(8, 8, 10), words=8, updates=180)


def two_ways(decoder: dict[str, Any]) -> dict[str, Any]:
    side = {"kind": "gru", "width": 32, "embedding": 16}
    return {"encoder": side, "decoder": side | decoder}


# ---- gates

RECALL = Lesson(recalling(8, kept=1, nearest=1, farthest=30, others=2), words=10, updates=250)
AFAR = recalling(8, kept=1, nearest=30, farthest=30, others=2)


@pytest.mark.parametrize(("kind", "cell"), [("gru", {}), ("lstm", {"forget_bias": 4.0})])
def test_gates_carry_a_letter_over_a_long_stretch(kind: str, cell: dict[str, Any]) -> None:
    """A forget gate that begins open: σ(4)³⁰ is more than a half (Jozefowicz et al. 2015)."""
    assert share_right(taught(recurrent(kind, cell=cell), RECALL), AFAR) >= 0.9


def test_an_elman_network_forgets_it() -> None:
    """One letter of eight is right by chance (Bengio et al. 1994)."""
    assert share_right(taught(recurrent("elman"), RECALL), AFAR) <= 0.4


def test_an_lstmn_recalls_from_its_tape() -> None:
    lesson = Lesson(recalling(8, kept=2, nearest=12, farthest=12, others=4), words=12, updates=260)
    assert learnt(recurrent("lstmn", width=24), lesson) >= 0.8


# ---- structure


def test_an_lstm_closes_nested_brackets() -> None:
    lesson = Lesson(closing_brackets(longest=14, deepest=6), words=4, updates=300)
    assert learnt(recurrent("lstm", attention={"score": "general"}), lesson) >= 0.9


def test_a_transformer_works_out_nested_lists() -> None:
    """All four operators are taught; the sum modulo ten takes far longer than this and stays at chance, one in eight.

    The largest and smallest of nested lists come out by what stands where, not by digits and operators in any order.
    """
    lesson = Lesson(list_operations(3, depth=2), LISTOPS_WORDS, updates=450, rate=4e-3, warmup=50)
    learner = taught(transformer(2, width=48, feedforward=96, positions="learned"), lesson)
    extremes = list_operations(3, depth=2, operators=("MAX", "MIN"))
    right = share_right(learner, extremes, tested=400)
    assert right >= 0.75
    assert share_right(learner, shuffled(extremes), tested=400) <= right - 0.07
    assert share_right(learner, list_operations(3, depth=2, operators=("MED",)), tested=400) >= 0.45


# ---- positions and patterns

ORDER = Lesson(copying_without_repeats(8, 3, 5), words=8, updates=220, rows=32, rate=5e-3, warmup=30)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative", "rotary", "alibi"])
def test_positions_tell_the_order(positions: str) -> None:
    assert learnt(transformer(2, positions=positions), ORDER) >= 0.8


def test_without_positions_a_source_is_a_bag() -> None:
    assert learnt(transformer(2, positions="none"), ORDER) <= 0.3


def test_a_window_suffices_for_what_is_near() -> None:
    """Lines are longer than the window, on both sides."""
    lesson = Lesson(larger_of_neighbours(6, 6, 9), words=6, updates=200, rows=32, rate=5e-3, warmup=30)
    assert learnt(transformer(pattern={"kind": "window", "width": 2}), lesson) >= 0.9
