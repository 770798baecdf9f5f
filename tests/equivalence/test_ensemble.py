"""Step functions joined: the formulas written out, on tables (row = the last two tokens, column = the next one)."""

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from saccade.decode.ensemble import Mix, ensemble, even_weights, fused, mixed
from saccade.decode.scores import allowed_log_probabilities, normalised
from saccade.decode.settings import DecodeConfig, search
from saccade.errors import UsageError
from saccade.types import END, PAD, START, Hypothesis, State, Step

VOCABULARY, CHOICES = 6, (3, 4, 5)
WIDE = 4 * 3**2
"""A beam that loses nothing at a limit of 4: see test_decode."""
seeds = st.integers(0, 2**31)
mixes = pytest.mark.parametrize("mix", ["log-linear", "linear"])
some_weights = st.lists(st.floats(0.05, 20.0), min_size=2, max_size=4)


def cubes_of(seed: int, sentences: int = 1, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(sentences, VOCABULARY, VOCABULARY, VOCABULARY, generator=generator)


def table(cubes_BPVV: Tensor) -> tuple[Step, State]:
    """One cube a sentence; the hypothesis remembers the token before the last, so states must follow their prefixes."""

    def step(last_N: Tensor, state: State) -> tuple[Tensor, State]:
        before_N = state.hypothesis["before"]
        which_N = state.source["which"].repeat_interleave(len(before_N) // len(state.source["which"]))
        return cubes_BPVV[which_N, before_N, last_N], State(state.source, {"before": last_N})

    sentences = len(cubes_BPVV)
    return step, State({"which": torch.arange(sentences)}, {"before": torch.full((sentences,), START)})


def found_by(joined: tuple[Step, State], limits: list[int], config: DecodeConfig) -> list[list[Hypothesis]]:
    return search(*joined, limits=limits, config=config)


def assert_alike(one: list[list[Hypothesis]], other: list[list[Hypothesis]], tolerance: float = 1e-4) -> None:
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert (a.tokens, a.ended) == (b.tokens, b.ended)
            assert a.score == pytest.approx(b.score, abs=tolerance)
            assert a.token_log_probabilities == pytest.approx(b.token_log_probabilities, abs=tolerance)


def assert_alike_but_for_ties(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> None:
    """Two paths may have the same probabilities in another order: their rounding decides which comes first."""
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            if a.tokens == b.tokens:
                assert_alike([[a]], [[b]])
                continue
            assert a.ended == b.ended
            assert a.score == pytest.approx(b.score, abs=1e-4)
            assert sorted(a.token_log_probabilities) == pytest.approx(sorted(b.token_log_probabilities), abs=1e-4)


def every_output(limit: int, prefix: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], bool]]:
    if len(prefix) == limit:
        yield prefix, False
        return
    yield prefix, True
    for token in CHOICES:
        yield from every_output(limit, (*prefix, token))


def forced(cube: Tensor, tokens: tuple[int, ...]) -> list[list[float]]:
    """Log-probabilities of every next token while the given ones are written, in float64."""
    rows, before, last = [], START, START
    for token in tokens:
        rows.append(cube[before, last].double().log_softmax(-1).tolist())
        before, last = last, token
    return rows


# ---- formulas


@settings(max_examples=60, deadline=None)
@given(seed=seeds, given_weights=some_weights, spread=st.sampled_from([0.5, 3.0, 30.0]))
def test_both_mixes_are_their_formulas_written_out(seed: int, given_weights: list[float], spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = [spread * torch.randn(6, 6, generator=generator) for _ in given_weights]
    w = [each / sum(given_weights) for each in given_weights]
    assert even_weights(len(w), given_weights) == pytest.approx(w)
    p = [[[math.exp(z - _log_sum(row)) for z in row] for row in each.double().tolist()] for each in logits]
    log_linear, linear = mixed(logits, w, "log-linear"), mixed(logits, w, "linear")
    for row in range(6):
        mean = [sum(wi * math.log(max(pi[row][v], 1e-300)) for wi, pi in zip(w, p, strict=True)) for v in range(6)]
        expected = torch.tensor([each - _log_sum(mean) for each in mean])
        assert_close(log_linear[row], expected, rtol=1e-4, atol=1e-4)
        arithmetic = [sum(wi * pi[row][v] for wi, pi in zip(w, p, strict=True)) for v in range(6)]
        assert_close(linear[row].exp(), torch.tensor(arithmetic), rtol=1e-4, atol=1e-6)
    assert_close(log_linear.exp().sum(-1), torch.ones(6))
    assert_close(linear.exp().sum(-1), torch.ones(6))


def _log_sum(values: list[float]) -> float:
    top = max(values)
    return top + math.log(math.fsum(math.exp(each - top) for each in values))


@mixes
def test_probabilities_of_nothing_leave_numbers(mix: Mix) -> None:
    """One member rules token 3 out, the other all but 3: what is left is a distribution, not NaN."""
    one, two = torch.zeros(1, 6), torch.full((1, 6), -torch.inf)
    one[0, 3], two[0, 3] = -torch.inf, 0.0
    for half in (torch.float32, torch.bfloat16):
        found = mixed([one.to(half), two.to(half)], [0.5, 0.5], mix)
        assert found.dtype == torch.float32
        assert not found.isnan().any()
        assert_close(found.logsumexp(-1), torch.zeros(1), atol=1e-5, rtol=0)
    certain = mixed([1e4 * one.nan_to_num(neginf=-1.0), torch.randn(1, 6)], [0.3, 0.7], mix)
    assert certain.isfinite().all()


# ---- laws of ensembles


@mixes
@settings(max_examples=25, deadline=None)
@given(seed=seeds, beam=st.integers(1, 5), limits=st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_of_one_and_of_equals_it_is_the_model(mix: Mix, seed: int, beam: int, limits: list[int]) -> None:
    config, cubes = DecodeConfig(beam=beam, n_best=beam), cubes_of(seed, len(limits))
    alone = found_by(table(cubes), limits, config)
    assert found_by(ensemble([table(cubes)], mix=mix), limits, config) == alone
    assert found_by(ensemble([table(cubes)], weights=[7.0], mix=mix), limits, config) == alone
    for copies, weights in ((2, None), (3, None), (2, [0.9, 0.1])):
        together = ensemble([table(cubes) for _ in range(copies)], weights=weights, mix=mix)
        assert_alike(found_by(together, limits, config), alone)


@mixes
@settings(max_examples=25, deadline=None)
@given(seed=seeds, beam=st.integers(1, 5), limits=st.lists(st.integers(1, 6), min_size=1, max_size=3))
@example(seed=235, beam=3, limits=[1, 6])  # two paths of the same probabilities
def test_order_does_not_matter(mix: Mix, seed: int, beam: int, limits: list[int]) -> None:
    """Of two members to the last bit, of three as far as sums go."""
    members = [table(cubes_of(seed + n, len(limits))) for n in range(3)]
    config = DecodeConfig(beam=beam, n_best=beam)
    one = found_by(ensemble(members[:2], weights=[0.7, 0.3], mix=mix), limits, config)
    assert found_by(ensemble(members[1::-1], weights=[0.3, 0.7], mix=mix), limits, config) == one
    three = found_by(ensemble(members, weights=[0.5, 0.3, 0.2], mix=mix), limits, config)
    turned = found_by(ensemble(members[::-1], weights=[0.2, 0.3, 0.5], mix=mix), limits, config)
    assert_alike_but_for_ties(turned, three)


@mixes
@settings(max_examples=25, deadline=None)
@given(seed=seeds, beam=st.integers(1, 4))
def test_next_to_all_weight_on_one_is_that_one(mix: Mix, seed: int, beam: int) -> None:
    members, config = [table(cubes_of(seed + n)) for n in range(2)], DecodeConfig(beam=beam, n_best=beam)
    for n in range(2):
        weights = [1.0, 1e-9] if n == 0 else [1e-9, 1.0]
        assert_alike(
            found_by(ensemble(members, weights=weights, mix=mix), [5], config), found_by(members[n], [5], config)
        )


@mixes
@settings(max_examples=20, deadline=None)
@given(seed=seeds, weights=st.lists(st.floats(0.1, 5.0), min_size=3, max_size=3))
def test_a_search_that_loses_nothing_finds_the_best_of_all_outputs(mix: Mix, seed: int, weights: list[float]) -> None:
    cubes = [cubes_of(seed + n)[0] for n in range(3)]
    w = [each / sum(weights) for each in weights]

    def log_p(tokens: tuple[int, ...], ended: bool) -> list[float]:
        written = (*tokens, END) if ended else tokens
        scores = []
        for token, *rows in zip(written, *(forced(cube, written) for cube in cubes), strict=True):
            if mix == "linear":
                scores.append(math.log(sum(wi * math.exp(row[token]) for wi, row in zip(w, rows, strict=True))))
            else:
                mean = [sum(wi * row[v] for wi, row in zip(w, rows, strict=True)) for v in range(VOCABULARY)]
                scores.append(mean[token] - _log_sum(mean))
        return scores

    outputs = [(tokens, ended, log_p(tokens, ended)) for tokens, ended in every_output(4)]
    tokens, ended, scores = max(outputs, key=lambda each: normalised(sum(each[2]), len(each[2]), "average", 1.0))
    together = ensemble([table(cube[None]) for cube in cubes], weights=weights, mix=mix)
    ((best,),) = found_by(together, [4], DecodeConfig(beam=WIDE))
    assert (best.tokens, best.ended) == (tokens, ended)
    assert best.token_log_probabilities == pytest.approx(scores, abs=1e-4)


@mixes
def test_several_tokens_at_once_are_mixed_as_one_by_one(mix: Mix) -> None:
    logits = [torch.randn(2, 3, 6), torch.randn(2, 3, 6)]
    whole = mixed(logits, [0.4, 0.6], mix)
    for t in range(3):
        assert_close(whole[:, t], mixed([each[:, t] for each in logits], [0.4, 0.6], mix))


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([0.5], "there are 1 of them for 2 models"),
        ([0.5, 0.2, 0.3], "there are 3 of them for 2 models"),
        ([1.0, 0.0], "0 is not a positive number"),
        ([1.0, -2.0], "-2 is not a positive number"),
        ([1.0, math.nan], "nan is not a positive number"),
        ([math.inf, 1.0], "inf is not a positive number"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: list[float], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ensemble([table(cubes_of(0)), table(cubes_of(1))], weights=weights)


# ---- fusion


@settings(max_examples=60, deadline=None)
@given(seed=seeds, weight=st.floats(1e-3, 5.0), spread=st.sampled_from([0.5, 3.0, 30.0]))
def test_what_a_search_sees_of_fusion_is_its_formula(seed: int, weight: float, spread: float) -> None:
    """log p + λ log p_LM for every token that may be chosen, although searches take a log-softmax."""
    one, two = cubes_of(seed, spread=spread), cubes_of(seed + 1, spread=spread)
    step, state = fused(table(one), table(two), weight=weight)
    logits, _ = step(torch.tensor([START]), state)
    seen = allowed_log_probabilities(logits)[0, END:]
    log_p, log_lm = (cube[0, START, START].log_softmax(-1) for cube in (one, two))
    assert_close(seen, (log_p + weight * log_lm)[END:], rtol=1e-4, atol=1e-4)
    assert not logits.isnan().any()


@settings(max_examples=20, deadline=None)
@given(seed=seeds, weight=st.floats(0.05, 3.0), length=st.sampled_from(["none", "average", "gnmt"]))
def test_a_fused_search_that_loses_nothing_finds_the_best_of_all_outputs(seed: int, weight: float, length: str) -> None:
    one, two = cubes_of(seed)[0], cubes_of(seed + 1)[0]
    config = DecodeConfig(beam=WIDE, length=length)

    def scored(tokens: tuple[int, ...], ended: bool) -> list[float]:
        written = (*tokens, END) if ended else tokens
        rows = zip(written, forced(one, written), forced(two, written), strict=True)
        return [mine[token] + weight * theirs[token] for token, mine, theirs in rows]

    outputs = [(tokens, ended, scored(tokens, ended)) for tokens, ended in every_output(4)]
    tokens, ended, scores = max(
        outputs, key=lambda each: normalised(math.fsum(each[2]), len(each[2]), config.length, config.alpha)
    )
    ((best,),) = found_by(fused(table(one[None]), table(two[None]), weight=weight), [4], config)
    assert (best.tokens, best.ended) == (tokens, ended)
    assert best.token_log_probabilities == pytest.approx(scores, abs=1e-3)
    assert best.log_probability == pytest.approx(math.fsum(scores), abs=1e-3)


@settings(max_examples=20, deadline=None)
@given(seed=seeds, beam=st.integers(1, 4), limits=st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_a_weight_of_nothing_is_no_language_model(seed: int, beam: int, limits: list[int]) -> None:
    first, second = (table(cubes_of(seed + n, len(limits))) for n in range(2))
    config = DecodeConfig(beam=beam, n_best=beam)
    alone = found_by(first, limits, config)
    assert found_by(fused(first, second, weight=0.0), limits, config) == alone
    assert_alike(found_by(fused(first, second, weight=1e-9), limits, config), alone)


def test_fusion_is_not_renormalised_and_what_is_lost_goes_to_pad() -> None:
    """Uniform over the six tokens twice: each has 1/6 · 1/6 with λ = 1, together ⅙; PAD takes the rest, 31/36."""
    flat = torch.zeros(1, VOCABULARY, VOCABULARY, VOCABULARY)
    step, state = fused(table(flat), table(flat), weight=1.0)
    logits, _ = step(torch.tensor([START]), state)
    assert_close(logits[0, 1:].exp(), torch.full((5,), 1 / 36))
    assert logits[0, PAD].exp().item() == pytest.approx(31 / 36)


@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(UsageError, match="it must be a number that is not negative"):
        fused(table(cubes_of(0)), table(cubes_of(1)), weight=weight)
