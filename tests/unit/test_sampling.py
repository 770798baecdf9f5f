"""Drawing tokens: filters by their equations, frequencies by chi-square, a row by itself alone.

A matrix is a model here: row i holds the logits of what follows token i.
"""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from saccade.config import parse
from saccade.decode.greedy import greedy
from saccade.decode.sampling import SampleConfig, draw, filtered, numbers, sample
from saccade.errors import UsageError
from saccade.types import END, PAD, START, State

V = 9
MATRIX = torch.randn(V, V, generator=torch.Generator().manual_seed(3)) * 1.5
NOTHING = State({}, {"row": torch.zeros(1)})
log_ps = st.lists(st.floats(-6, 6), min_size=2, max_size=8).map(lambda z: torch.tensor(z).double().log_softmax(-1))
shares = st.sampled_from([0.05, 0.3, 0.5, 0.72, 0.9, 0.99, 1.0])


def step(last_N: Tensor, state: State) -> tuple[Tensor, State]:
    assert len(state.hypothesis["row"]) == len(last_N)
    return MATRIX[last_N], state


def drawn(
    rows: int, steps: int = 12, stops: frozenset[int] = frozenset((END,)), first: int = START, **settings: Any
) -> list[list[int]]:
    """What each row got."""
    config = parse(SampleConfig, settings)
    got: list[list[int]] = [[] for _ in range(rows)]
    events = sample(
        step,
        State({}, {"row": torch.zeros(rows)}),
        last_N=torch.full((rows,), first),
        numbers_NT=numbers(config.seed, [(row, 0) for row in range(rows)], steps),
        config=config,
        stops=stops,
    )
    for event in events:
        for row, token in zip(event.rows, event.tokens, strict=True):
            got[row].append(token)
    return got


# ---- filters, each against its equation


def by_hand(log_p: Tensor, kept: set[int]) -> list[float]:
    p = log_p.exp().tolist()
    mass = sum(p[v] for v in kept)
    return [p[v] / mass if v in kept else 0.0 for v in range(len(p))]


def left(log_p: Tensor, **settings: Any) -> Tensor:
    return filtered(log_p[None], parse(SampleConfig, settings))[0].exp()


def check(log_p: Tensor, kept: set[int], **settings: Any) -> None:
    got = left(log_p, **settings)
    torch.testing.assert_close(got, torch.tensor(by_hand(log_p, kept)).double())
    assert got.sum().item() == pytest.approx(1.0)


@given(log_ps, st.integers(1, 9))
def test_top_k_keeps_the_k_likeliest(log_p: Tensor, k: int) -> None:
    p = log_p.tolist()
    check(log_p, set(sorted(range(len(p)), key=lambda v: (-p[v], v))[:k]), top_k=k)


@given(log_ps, shares)
def test_top_p_keeps_the_fewest_that_reach_the_mass(log_p: Tensor, mass: float) -> None:
    p = log_p.exp().tolist()
    kept: set[int] = set()
    for v in sorted(range(len(p)), key=lambda v: (-log_p[v].item(), v)):
        if mass < 1 and sum(p[w] for w in kept) >= mass - 1e-12:
            break
        kept.add(v)
    if mass < 1 and any(abs(sum(p[w] for w in kept - {v}) - mass) < 1e-9 for v in kept):
        return  # on the edge itself rounding decides
    check(log_p, kept, top_p=mass)
    least = min(kept, key=lambda v: p[v])
    assert sum(p[v] for v in kept) >= mass - 1e-9 > sum(p[v] for v in kept - {least}) - 2e-9 or mass == 1


@given(log_ps, shares)
def test_min_p_keeps_what_is_not_far_below_the_likeliest(log_p: Tensor, share: float) -> None:
    p = log_p.exp().tolist()
    if any(abs(each - share * max(p)) < 1e-9 for each in p if each < max(p)):
        return
    check(log_p, {v for v in range(len(p)) if p[v] >= share * max(p)}, min_p=share)


@given(log_ps, shares)
def test_typical_keeps_what_is_nearest_to_the_expected_surprise(log_p: Tensor, mass: float) -> None:
    """Meister et al. (2023), equation 9: the smallest set by |H + log p| whose mass is at least τ."""
    p = log_p.exp().tolist()
    entropy = -sum(each * math.log(each) for each in p)
    far = [abs(entropy + math.log(each)) for each in p]
    if len({round(each, 9) for each in far}) < len(far):
        return
    kept: set[int] = set()
    for v in sorted(range(len(p)), key=lambda v: far[v]):
        if mass < 1 and sum(p[w] for w in kept) >= mass:
            break
        kept.add(v)
    check(log_p, kept, typical=mass)


@given(log_ps, st.floats(0.1, 5))
def test_temperature_divides_the_logits(log_p: Tensor, temperature: float) -> None:
    torch.testing.assert_close(left(log_p, temperature=temperature), (log_p / temperature).softmax(-1))


@given(log_ps, st.integers(1, 5), shares, shares)
def test_filters_act_one_behind_the_other(log_p: Tensor, k: int, mass: float, share: float) -> None:
    step_by_step = filtered(filtered(log_p[None], SampleConfig(temperature=0.7, top_k=k)), SampleConfig(top_p=mass))
    step_by_step = filtered(step_by_step, SampleConfig(min_p=share))
    together = filtered(log_p[None], SampleConfig(temperature=0.7, top_k=k, top_p=mass, min_p=share))
    torch.testing.assert_close(together, step_by_step)


def test_of_equals_the_first_ids_stay() -> None:
    even = torch.zeros(6).double().log_softmax(-1)
    assert left(even, top_k=2).tolist() == pytest.approx([0.5, 0.5, 0, 0, 0, 0])
    assert left(even, top_p=0.4).tolist() == pytest.approx([1 / 3] * 3 + [0] * 3)


# ---- what is drawn


@given(log_ps, st.floats(0, 1, exclude_max=True))
def test_a_number_falls_into_the_part_of_its_token(log_p: Tensor, number: float) -> None:
    p = log_p.exp()
    token = int(draw(log_p[None], torch.tensor([number]).double())[0])
    below = p[:token].sum().item()
    assert below - 1e-9 <= number <= below + p[token].item() + 1e-9


def test_the_edges_of_the_numbers_never_draw_what_may_not_be() -> None:
    log_p = torch.tensor([-torch.inf, 0.5, -torch.inf, 0.1, -torch.inf]).double().log_softmax(-1)
    for number, token in ((0.0, 1), (1 - 2.0**-53, 3), (1.0, 3)):
        assert draw(log_p[None], torch.tensor([number]).double()).tolist() == [token]


CRITICAL = {5: 20.515, 6: 22.458}
"""Of chi-square with so many degrees of freedom: exceeded once in 1,000; the seed is fixed."""


@pytest.mark.parametrize("rule", [{}, {"temperature": 0.6}, {"top_k": 7}, {"top_p": 0.97, "temperature": 1.3}])
def test_frequencies_are_those_of_the_distribution(rule: dict[str, Any]) -> None:
    count, start = 20_000, 5
    allowed = torch.tensor([PAD, START])
    log_p = MATRIX[start].double().log_softmax(-1).index_fill(0, allowed, -torch.inf)
    p = filtered(log_p[None], parse(SampleConfig, rule))[0].exp()
    got = Counter(row[0] for row in drawn(count, 1, frozenset(), start, seed=11, **rule))
    expected = {v: count * share for v, share in enumerate(p.tolist()) if share > 0}
    assert set(got) <= set(expected)
    distance = sum((got[v] - mean) ** 2 / mean for v, mean in expected.items())
    assert distance < CRITICAL[len(expected) - 1]


def test_the_second_token_follows_the_first() -> None:
    """Of pairs of tokens, too: the numbers of two steps do not go together."""
    count, start = 40_000, 5
    pairs = Counter(tuple(row) for row in drawn(count, 2, frozenset(), start, seed=5, top_k=2))
    first = filtered(MATRIX[start].index_fill(0, torch.tensor([PAD, START]), -torch.inf)[None], SampleConfig(top_k=2))
    distance, cells = 0.0, 0
    for one in first[0].exp().nonzero().flatten().tolist():
        row = MATRIX[one].index_fill(0, torch.tensor([PAD, START]), -torch.inf)
        second = filtered(row[None], SampleConfig(top_k=2))
        for two in second[0].exp().nonzero().flatten().tolist():
            mean = count * (first[0, one] + second[0, two]).exp().item()
            distance, cells = distance + (pairs[one, two] - mean) ** 2 / mean, cells + 1
    assert cells == 4
    assert distance < 16.27  # 3 degrees of freedom


@pytest.mark.parametrize("rule", [{"top_k": 1}, {"temperature": 0.0}, {"top_p": 1e-9}, {"min_p": 1.0}])
def test_the_narrowest_rules_are_greedy(rule: dict[str, Any]) -> None:
    (wanted,) = greedy(step, NOTHING, limits=[12])[0]
    got = drawn(3, **rule)
    for row in got:
        assert tuple(token for token in row if token != END) == wanted.tokens
        assert (row[-1] == END) == wanted.ended


def test_what_is_told_of_a_token_is_the_models_own_probability() -> None:
    config = SampleConfig(temperature=0.5, top_k=2)
    (event,) = sample(step, NOTHING, last_N=torch.tensor([4]), numbers_NT=numbers(1, [(0, 0)], 1), config=config)
    expected = MATRIX[4].log_softmax(-1)[event.tokens[0]].item()
    assert list(event.log_probabilities) == pytest.approx([expected], abs=1e-6)


def test_pad_and_start_are_never_drawn() -> None:
    with_them = MATRIX.clone()
    with_them[:, [PAD, START]] = 50.0
    events = sample(
        lambda last_N, state: (with_them[last_N], state), State({}, {"row": torch.zeros(500)}),
        last_N=torch.full((500,), START), numbers_NT=numbers(1, [(row, 0) for row in range(500)], 3),
        config=SampleConfig(),
    )  # fmt: skip
    assert not {PAD, START} & {token for event in events for token in event.tokens}


# ---- a row by itself


def test_a_seed_repeats_itself_and_another_does_not() -> None:
    assert drawn(20, seed=7) == drawn(20, seed=7)
    assert drawn(20, seed=7) != drawn(20, seed=8)
    rows = drawn(50, stops=frozenset(), seed=7)
    assert len({tuple(row) for row in rows}) >= 45  # rows do not repeat each other


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 1000))
def test_how_many_rows_and_steps_there_are_changes_nothing(rows: int, steps: int, seed: int) -> None:
    many = drawn(30, 12, seed=seed)
    assert drawn(rows, 12, seed=seed) == many[:rows]
    assert drawn(rows, steps, seed=seed) == [row[:steps] for row in many[:rows]]


def test_numbers_are_even_and_go_by_key_alone() -> None:
    all_of_them = numbers(3, [(p, s) for p in range(40) for s in range(5)], 100)
    assert torch.equal(numbers(3, [(7, 2)], 60)[0], all_of_them[7 * 5 + 2, :60])
    assert all_of_them.min() >= 0
    assert all_of_them.max() < 1
    counts = np.histogram(all_of_them, bins=10, range=(0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 27.88  # 9 degrees of freedom, once in 1,000


def test_rows_end_at_a_stop_and_not_before() -> None:
    for row in drawn(60, 12, frozenset((END, 6)), seed=2):
        assert not {END, 6} & set(row[:-1])
        assert len(row) == 12 or row[-1] in (END, 6)
    assert all(len(row) == 12 for row in drawn(60, 12, frozenset(), seed=2))


def test_no_steps_are_no_events() -> None:
    assert list(sample(step, NOTHING, last_N=torch.tensor([4]), numbers_NT=torch.zeros(1, 0), config=SampleConfig())) \
        == []  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "value"),
    [("temperature", -0.1), ("top_k", 0), ("top_p", 0.0), ("top_p", 1.1), ("min_p", 0.0), ("typical", 2.0),
     ("samples", 0), ("seed", -1), ("max_tokens", 0), ("stop", "never")],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(setting: str, value: object) -> None:
    with pytest.raises(UsageError, match=setting):
        parse(SampleConfig, {setting: value})


@pytest.mark.parametrize("temperature", [1e-320, 1e-12, 1e300])
def test_no_temperature_makes_a_token_of_what_may_not_be_drawn(temperature: float) -> None:
    log_p_NV = torch.tensor([[-math.inf, -1.0, -0.5, -3.0]], dtype=torch.float64)
    drawn_NV = filtered(log_p_NV, SampleConfig(temperature=temperature)).exp()
    assert drawn_NV[0, 0] == 0.0
    assert float(drawn_NV.sum()) == pytest.approx(1.0)
    with pytest.raises(ValidationError):
        SampleConfig(temperature=math.inf)
