"""Every option of the beam, proved on random matrices: against brute force, and against the search written out plainly.

Whoever compares two searches of random matrices compares real numbers that are all unlike; ties are not looked at.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.decode.beam import BeamRule, beam_search
from saccade.decode.control import Choice, Written
from saccade.decode.coverage import LEAST, covered
from saccade.decode.finished import Stop
from saccade.decode.greedy import greedy
from saccade.decode.rules import Wishes
from saccade.decode.scores import LengthRule, length_penalty, normalised
from saccade.decode.settings import DecodeConfig, search
from saccade.decode.survivors import survivors
from saccade.types import END, PAD, START, Hypothesis, State, Step
from tests.equivalence.test_decode import (
    CHOICES,
    VOCABULARY,
    V,
    alike,
    assert_alike,
    exhaustive,
    log_probabilities,
    matrix_of,
    model_of,
    seeds,
)
from tests.support.naive_beam import Wanted, allowed, naive_beam

RULES: list[tuple[LengthRule, float]] = [("none", 1.0), ("average", 1.0), ("power", 0.4), ("power", 1.7), ("gnmt", 0.6)]
lengths = st.sampled_from(RULES)
spreads = st.sampled_from([0.3, 1.0, 3.0])
wanted_of = st.builds(
    Wanted,
    least=st.integers(0, 3),
    prefix=st.lists(st.sampled_from(CHOICES), max_size=2).map(tuple),
    no_repeat_ngram=st.integers(0, 3),
)
open_stops = pytest.mark.parametrize("stop", ["length", "proven"])


def wishes_of(wanted: list[Wanted]) -> Wishes:
    """The n-grams of all are those of the first."""
    return Wishes([one.least for one in wanted], [one.prefix for one in wanted], wanted[0].no_repeat_ngram)


def following(cube: Tensor, tokens: tuple[int, ...]) -> list[float]:
    before, last = ((START, START, *tokens))[-2:]
    found: list[float] = cube[before, last].log_softmax(-1).tolist()
    return found


def permitted(cube: Tensor, limit: int, wanted: Wanted, prefix: tuple[int, ...] = ()) -> Iterator[Hypothesis]:
    """Every output that the wishes let through, unscored."""
    if len(prefix) == limit:
        yield Hypothesis(prefix, 0.0, 0.0, log_probabilities(cube, prefix, ended=False), ended=False)
        return
    for token in allowed(following(cube, prefix), prefix, wanted):
        if token == END:
            yield Hypothesis(prefix, 0.0, 0.0, log_probabilities(cube, prefix, ended=True), ended=True)
        else:
            yield from permitted(cube, limit, wanted, (*prefix, token))


def scored(outputs: Iterator[Hypothesis], length: LengthRule, alpha: float) -> list[Hypothesis]:
    def score(each: Hypothesis) -> Hypothesis:
        scores = each.token_log_probabilities
        total = math.fsum(scores)
        return replace(each, score=normalised(total, len(scores), length, alpha), log_probability=total)

    return sorted((score(each) for each in outputs), key=lambda each: -each.score)


# ---- when a search stops


@open_stops
@settings(max_examples=40, deadline=None)
@given(seed=seeds, limit=st.integers(1, 4), spread=spreads, rule=lengths)
def test_a_beam_of_all_prefixes_is_exhaustive(
    stop: Stop, seed: int, limit: int, spread: float, rule: tuple[LengthRule, float]
) -> None:
    """(V−1)^(T−1) holds every prefix, and 2k candidates every END: the whole list is that of brute force."""
    cube = matrix_of(seed, spread)
    step, state = model_of(cube[None])
    beam = (V - 1) ** (limit - 1)
    found = beam_search(step, state, limits=[limit], rule=BeamRule(beam, *rule, n_best=beam, stop=stop))[0]
    assert_alike(found, exhaustive(cube, limit, *rule)[:beam])


@open_stops
@settings(max_examples=40, deadline=None)
@given(seed=seeds, limit=st.integers(1, 4), rule=lengths, wanted=wanted_of)
def test_what_is_asked_for_and_nothing_else_is_found(
    stop: Stop, seed: int, limit: int, rule: tuple[LengthRule, float], wanted: Wanted
) -> None:
    """A beam that loses nothing finds the best of all outputs with this prefix, this length and no n-gram twice."""
    cube = matrix_of(seed)
    wanted = replace(wanted, prefix=wanted.prefix[:limit])
    step, state = model_of(cube[None])
    beam_rule = BeamRule((V - 1) ** (limit - 1), *rule, stop=stop)
    found = beam_search(step, state, limits=[limit], rule=beam_rule, wishes=wishes_of([wanted]))[0]
    assert_alike(found, scored(permitted(cube, limit, wanted), *rule)[:1])


@settings(max_examples=50, deadline=None)
@given(seed=seeds, limit=st.integers(1, 8), rule=lengths, wanted=wanted_of, beam=st.integers(1, 6), data=st.data())
def test_what_is_proven_is_what_the_longest_search_finds(
    seed: int, limit: int, rule: tuple[LengthRule, float], wanted: Wanted, beam: int, data: st.DataObject
) -> None:
    step, state = model_of(matrix_of(seed)[None])
    wishes = wishes_of([replace(wanted, prefix=wanted.prefix[:limit])])
    n_best = data.draw(st.integers(1, beam))
    steps = []
    lists = []
    for stop in ("proven", "length"):
        counted = Counted(step)
        beam_rule = BeamRule(beam, *rule, n_best=n_best, stop=stop)
        lists.append(beam_search(counted, state, limits=[limit], rule=beam_rule, wishes=wishes)[0])
        steps.append(counted.steps)
    assert lists[0] == lists[1]
    assert steps[0] <= steps[1]


@dataclass
class Counted:
    """A step that counts how often it is asked."""

    step: Step
    steps: int = 0
    rows: int = 0

    def __call__(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        self.steps += 1
        self.rows += len(last_N)
        return self.step(last_N, state)


def sure_of_its_end() -> tuple[Step, State]:
    """3 with 0.9, then END with 0.99: nothing else can be as good."""
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START, [END, 3, 4]] = torch.tensor([0.05, 0.9, 0.05])
    p[3:, [END, 5]] = torch.tensor([0.99, 0.01])
    return model_of(p.log().expand(1, VOCABULARY, VOCABULARY, VOCABULARY))


def test_a_proof_ends_the_search_as_soon_as_it_stands() -> None:
    """After two steps the best open prefix is 3 5, with 0.009 < 0.891; by length all 50 are asked."""
    for stop, steps in (("proven", 2), ("length", 50)):
        step, state = sure_of_its_end()
        counted = Counted(step)
        (found,) = beam_search(counted, state, limits=[50], rule=BeamRule(2, "none", stop=stop))[0]  # type: ignore[arg-type]
        assert (found.tokens, found.ended, counted.steps) == ((3,), True, steps)


def test_finished_sentences_leave_the_batch() -> None:
    """The first is done after one step, the second after two; the third goes on to its limit of four."""
    p = torch.full((3, VOCABULARY, VOCABULARY), 1e-9)
    p[0, START, END] = p[1, START, 3] = p[1, 3, END] = p[2, :, 4] = 1.0
    step, state = model_of(p.log()[:, None].expand(3, VOCABULARY, VOCABULARY, VOCABULARY))
    counted = Counted(step)
    rule = BeamRule(2, "none", stop="proven")
    found = beam_search(counted, state, limits=[4, 4, 4], rule=rule)
    assert [each.tokens for (each,) in found] == [(), (3,), (4, 4, 4, 4)]
    assert (counted.steps, counted.rows) == (4, 2 * (3 + 2 + 1 + 1))


def test_a_proof_reckons_with_the_length_that_is_still_possible() -> None:
    """log 0.891 / 2 is the best so far; 3 5 has log 0.009 / 3, and may come to log 0.009 / 99: no proof yet."""
    step, state = sure_of_its_end()
    counted = Counted(step)
    (found,) = beam_search(counted, state, limits=[99], rule=BeamRule(2, "average", stop="proven"))[0]
    assert found.tokens == (3,)
    assert 2 < counted.steps < 99


@pytest.mark.parametrize("stop", ["count", "length", "proven"])
@settings(max_examples=50, deadline=None)
@given(
    seed=seeds,
    limits=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    groups=st.integers(1, 3),
    width=st.integers(1, 3),
    diversity=st.sampled_from([0.0, 0.3, 2.0]),
    rule=lengths,
    wanted=st.lists(wanted_of, min_size=3, max_size=3),
    spread=st.sampled_from([1.0, 3.0]),
)
def test_the_search_is_the_one_written_out(
    stop: Stop,
    seed: int,
    limits: list[int],
    groups: int,
    width: int,
    diversity: float,
    rule: tuple[LengthRule, float],
    wanted: list[Wanted],
    spread: float,
) -> None:
    """All options at once, of a batch: each sentence as the plain search finds it alone. Sorted, distinct, scored."""
    wanted = [
        replace(one, prefix=one.prefix[:limit], no_repeat_ngram=wanted[0].no_repeat_ngram)
        for one, limit in zip(wanted, limits, strict=False)
    ]
    cubes = torch.stack([matrix_of(seed + b, spread) for b in range(len(limits))])
    step, state = model_of(cubes)
    beam = groups * width
    beam_rule = BeamRule(beam, *rule, n_best=beam, stop=stop, groups=groups, diversity=diversity)
    lists = beam_search(step, state, limits=limits, rule=beam_rule, wishes=wishes_of(wanted))
    for cube, limit, one, found in zip(cubes, limits, wanted, lists, strict=True):

        def of_cube(tokens: tuple[int, ...], cube: Tensor = cube) -> list[float]:
            return following(cube, tokens)

        exact = replace(beam_rule, stop="length") if stop == "proven" else beam_rule
        expected = naive_beam(of_cube, limit, exact, one)
        assert_alike(found, expected)
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert len({each.tokens for each in found}) == len(found)
        for each in found:
            assert each.tokens[: len(one.prefix)] == one.prefix
            assert len(each.tokens) + each.ended <= limit


# ---- a beam of one


@settings(max_examples=50, deadline=None)
@given(seed=seeds, limits=st.lists(st.integers(0, 7), min_size=1, max_size=4), rule=lengths, wanted=wanted_of)
def test_a_beam_of_one_that_stops_by_count_is_greedy(
    seed: int, limits: list[int], rule: tuple[LengthRule, float], wanted: Wanted
) -> None:
    """Whatever α is, and whatever is asked of the output: both ask one place which tokens may follow."""
    step, state = model_of(torch.stack([matrix_of(seed + b) for b in range(len(limits))]))
    wishes = wishes_of([replace(wanted, prefix=wanted.prefix[:limit]) for limit in limits])
    beamed = beam_search(step, state, limits=limits, rule=BeamRule(1, *rule), wishes=wishes)
    for (one,), (other,) in zip(beamed, greedy(step, state, limits=limits, wishes=wishes), strict=True):
        counted = len(other.token_log_probabilities)
        score = normalised(other.log_probability, counted, *rule)
        assert alike(one, replace(other, score=score))


@open_stops
@settings(max_examples=40, deadline=None)
@given(seed=seeds, limit=st.integers(1, 7), rule=lengths)
def test_a_beam_of_one_that_goes_on_finds_the_best_end_on_its_way(
    stop: Stop, seed: int, limit: int, rule: tuple[LengthRule, float]
) -> None:
    """The way is that of greedy, past its end; so it is greedy where no other end on the way scores better."""
    cube = matrix_of(seed)
    step, state = model_of(cube[None])
    (way,) = greedy(step, state, limits=[limit], wishes=Wishes([limit]))[0]
    ends = [(way.tokens[:t], True) for t in range(limit) if _is_second(cube, way.tokens[:t])] + [(way.tokens, False)]
    outputs = [Hypothesis(tokens, 0.0, 0.0, log_probabilities(cube, tokens, ended), ended) for tokens, ended in ends]
    best = scored(iter(outputs), *rule)[0]
    (found,) = beam_search(step, state, limits=[limit], rule=BeamRule(1, *rule, stop=stop))[0]
    assert alike(found, best)
    (greedily,) = greedy(step, state, limits=[limit])[0]
    theirs = normalised(greedily.log_probability, len(greedily.token_log_probabilities), *rule)
    assert found.score >= theirs - 1e-5
    if best.tokens == greedily.tokens:
        assert alike(found, replace(greedily, score=theirs))


def _is_second(cube: Tensor, tokens: tuple[int, ...]) -> bool:
    """Whether END is one of the two best continuations: more are not looked at."""
    possible = allowed(following(cube, tokens), tokens, Wanted())
    return END in sorted(possible, key=lambda token: -possible[token])[:2]


# ---- groups


@settings(max_examples=40, deadline=None)
@given(seed=seeds, limit=st.integers(1, 6), groups=st.integers(2, 4), width=st.integers(1, 3), rule=lengths)
def test_the_first_group_is_a_beam_of_its_own_and_without_diversity_all_are(
    seed: int, limit: int, groups: int, width: int, rule: tuple[LengthRule, float]
) -> None:
    step, state = model_of(matrix_of(seed)[None])
    beam = groups * width
    plain = beam_search(step, state, limits=[limit], rule=BeamRule(width, *rule, n_best=width))[0]
    same = BeamRule(beam, *rule, n_best=beam, groups=groups)
    together = beam_search(step, state, limits=[limit], rule=same)[0]
    assert_alike(together[:width], plain)
    apart = beam_search(step, state, limits=[limit], rule=replace(same, diversity=5.0))[0]
    found = {each.tokens for each in apart}
    assert all(each.tokens in found or (len(found) == beam and apart[-1].score >= each.score) for each in plain)


def test_groups_by_hand() -> None:
    """Both groups would take 3 (0.5); the second pays 1 for it, and log 0.3 > log 0.5 − 1: it takes 4.

    What is returned is the model's: log 0.3, not less.
    """
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START, [3, 4, 5]] = torch.tensor([0.5, 0.3, 0.2])
    p[3:, END] = 1.0
    step, state = model_of(p.log().expand(1, VOCABULARY, VOCABULARY, VOCABULARY))

    def found(diversity: float) -> list[tuple[tuple[int, ...], float]]:
        rule = BeamRule(2, "none", n_best=2, groups=2, diversity=diversity)
        lists = beam_search(step, state, limits=[3], rule=rule)
        return [(each.tokens, round(math.exp(each.score), 4)) for each in lists[0]]

    assert found(0.0) == [((3,), 0.5)]  # both found the same
    assert found(0.5) == [((3,), 0.5)]  # log 0.3 < log 0.5 − 0.5
    assert found(1.0) == [((3,), 0.5), ((4,), 0.3)]


def test_more_groups_pay_more() -> None:
    """The third of three groups pays twice for 3 and once for 4, which the second has taken."""
    total = torch.tensor([[[0.0, 0.0, -9.0, -1.0, -1.5, -2.6]]]).expand(1, 3, 6).clone()
    total[:, :, :2] = -torch.inf
    for diversity, tokens in ((0.0, [3, 3, 3]), (0.6, [3, 4, 3]), (2.0, [3, 4, 5])):
        choice = survivors(total, groups=3, diversity=diversity)
        assert (choice.living_Bk % 6).tolist() == [tokens]
        assert (choice.living_Bk // 6).tolist() == [[0, 1, 2]]


# ---- what is asked of an output


def test_prefixes_are_kept_and_scored_as_all_tokens_are() -> None:
    cube = matrix_of(11)
    step, state = model_of(cube.expand(3, *cube.shape))
    prefixes = [(5, 5, 3), (), (4,)]
    for found in (
        greedy(step, state, limits=[6, 6, 1], wishes=Wishes(prefixes=prefixes)),
        beam_search(step, state, limits=[6, 6, 1], rule=BeamRule(3), wishes=Wishes(prefixes=prefixes)),
    ):
        for prefix, (best,) in zip(prefixes, found, strict=True):
            assert best.tokens[: len(prefix)] == prefix
            scores = log_probabilities(cube, best.tokens, best.ended)
            assert best.token_log_probabilities == pytest.approx(scores, abs=1e-5)
        assert (found[2][0].tokens, found[2][0].ended) == ((4,), False)


def test_where_nothing_else_is_left_an_output_may_end_too_early() -> None:
    """Three tokens, none twice, and at least nine of them: END after the third. A forced prefix may repeat."""
    step, state = model_of(matrix_of(2)[None])
    for prefix in ((), (3, 3)):
        wishes = Wishes(least=[9], prefixes=[prefix], no_repeat_ngram=1)
        beamed = beam_search(step, state, limits=[12], rule=BeamRule(4, stop="length"), wishes=wishes)
        for (found,) in (greedy(step, state, limits=[12], wishes=wishes)[0], beamed[0]):
            assert found.ended
            assert sorted(found.tokens[len(prefix) :]) == ([4, 5] if prefix else [3, 4, 5])
            assert found.tokens[: len(prefix)] == prefix


def test_the_least_length_counts_no_end_and_leaves_room_for_one() -> None:
    logits = torch.zeros(VOCABULARY, VOCABULARY)
    logits[:, END] = 5.0
    step, state = model_of(logits.expand(1, VOCABULARY, VOCABULARY, VOCABULARY))
    for beam in (1, 3):
        for least, tokens in ((0, 0), (2, 2), (3, 3)):
            config = DecodeConfig(beam=beam, length="none", min_length=least)
            wishes = Wishes(least=[config.least(1, 4)])
            (found,) = search(step, state, limits=[4], config=config, wishes=wishes)[0]
            assert (len(found.tokens), found.ended) == (tokens, True)
    assert DecodeConfig(min_length=3, min_ratio=0.5).least(10, 99) == 5
    assert DecodeConfig(min_length=3, min_ratio=0.5).least(5, 99) == 3
    assert DecodeConfig(min_length=3, min_ratio=0.5).least(10, 4) == 3  # END has the fourth place
    assert DecodeConfig(min_length=3).least(10, 0) == 0


@settings(max_examples=40, deadline=None)
@given(seed=seeds, beam=st.integers(1, 4), first=st.lists(st.sampled_from(CHOICES), min_size=2, max_size=2))
def test_a_search_begins_behind_any_token(seed: int, beam: int, first: list[int]) -> None:
    """As a prefix of that token does, which is then no part of the output."""
    cubes = torch.stack([matrix_of(seed), matrix_of(seed + 1)])
    step, state = model_of(cubes)
    last_N = torch.tensor(first)
    # The model's step before it: what it remembers is START.
    config = DecodeConfig(beam=beam, length="none", n_best=beam)
    found = search(step, state, limits=[3, 5], config=config, last_N=last_N)
    for cube, token, some in zip(cubes, first, found, strict=True):
        for each in some:
            tokens = (*each.tokens, END) if each.ended else each.tokens
            before, last, scores = START, token, []
            for next_token in tokens:
                scores.append(cube[before, last].log_softmax(-1)[next_token].item())
                before, last = last, next_token
            assert each.token_log_probabilities == pytest.approx(scores, abs=1e-4)


# ---- whoever steers it


@dataclass(frozen=True)
class Diary:
    """A control that notes for itself what each hypothesis is, and holds it against what the search says."""

    tokens_NT: Tensor
    chooses: bool
    needed: int = 5

    def widen(self, beam: int) -> "Diary":
        return replace(self, tokens_NT=self.tokens_NT.repeat_interleave(beam, 0))

    def mask(self, log_p_NV: Tensor, written: Written) -> Tensor:
        assert written.tokens_NM[:, : written.t].tolist() == self.tokens_NT.tolist()
        assert (written.tokens_NM[:, written.t :] == PAD).all()
        assert (written.limit_B > written.t).any()
        log_p_NV = log_p_NV.clone()
        log_p_NV[:, 3] = -torch.inf
        return log_p_NV

    def choose(self, total_BkV: Tensor, written: Written) -> Choice:
        """Only what holds the needed token may end."""
        B, k, _ = total_BkV.shape
        total_BkV = total_BkV.clone()
        total_BkV[:, :, END].masked_fill_(~self.whole().view(B, k), -torch.inf)
        return survivors(total_BkV)

    def advance(self, parent_N: Tensor, token_N: Tensor) -> "Diary":
        return replace(self, tokens_NT=torch.cat([self.tokens_NT[parent_N], token_N[:, None]], 1))

    def whole(self) -> Tensor:
        return (self.tokens_NT == self.needed).any(1)

    def keep(self, rows_N: Tensor) -> "Diary":
        return replace(self, tokens_NT=self.tokens_NT[rows_N])


def diary(sentences: int, *, chooses: bool) -> Diary:
    return Diary(torch.zeros(sentences, 0, dtype=torch.long), chooses)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, limits=st.lists(st.integers(0, 6), min_size=1, max_size=4), beam=st.integers(1, 5))
def test_a_control_follows_its_hypotheses(seed: int, limits: list[int], beam: int) -> None:
    step, state = model_of(torch.stack([matrix_of(seed + b) for b in range(len(limits))]))
    config = DecodeConfig(beam=beam, n_best=beam)
    masked = search(step, state, limits=limits, config=config, wishes=Wishes(control=diary(len(limits), chooses=False)))
    chosen = search(step, state, limits=limits, config=config, wishes=Wishes(control=diary(len(limits), chooses=True)))
    for limit, found, some in zip(limits, masked, chosen, strict=True):
        assert all(3 not in each.tokens for each in (*found, *some))
        assert all(5 in each.tokens for each in some if each.ended)
        whole = [each for each in some if 5 in each.tokens]
        assert whole in ([], some), "what is not whole comes only where nothing is"
        assert limit == 0 or found[0].tokens or found[0].ended


def test_a_control_that_chooses_is_asked_even_by_a_beam_of_one() -> None:
    p = torch.full((VOCABULARY, VOCABULARY), 1e-9)
    p[START:, [END, 4, 5]] = torch.tensor([0.5, 0.3, 0.2])
    step, state = model_of(p.log().expand(1, VOCABULARY, VOCABULARY, VOCABULARY))
    wishes = Wishes(control=diary(1, chooses=True))
    (found,) = search(step, state, limits=[4], config=DecodeConfig(beam=1), wishes=wishes)[0]
    assert found.tokens == (4, 4, 4, 4)  # never whole, so that it may not end: the living one is what there is
    (found,) = search(step, state, limits=[4], config=DecodeConfig(beam=3, length="none"), wishes=wishes)[0]
    assert (found.tokens, found.ended) == ((5,), True)


# ---- coverage


def looking_model(seed: int, cube: Tensor, source: int) -> tuple[object, State, Tensor]:
    """A step that looks at the source by the last two tokens."""
    weights_VVS = torch.randn(VOCABULARY, VOCABULARY, source, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    step, state = model_of(cube[None])

    def looking(last_N: Tensor, state: State) -> tuple[Tensor, State, Tensor]:
        before_N = state.hypothesis["before"]
        logits_NV, after = step(last_N, state)
        return logits_NV, after, weights_VVS[before_N, last_N]

    return looking, state, weights_VVS


@open_stops
@settings(max_examples=40, deadline=None)
@given(seed=seeds, limit=st.integers(1, 3), rule=lengths, beta=st.sampled_from([0.1, 0.7, 3.0]))
def test_the_best_by_coverage_is_that_of_brute_force(
    stop: Stop, seed: int, limit: int, rule: tuple[LengthRule, float], beta: float
) -> None:
    """Prefixes are still pruned by log P, so that only a beam of all outputs, (V−1)^T, loses nothing.

    Of four source tokens the last is END, which does not count.
    """
    cube, counts = matrix_of(seed), torch.tensor([[True, True, True, False]])
    looking, begun, weights_VVS = looking_model(seed, cube, source=4)
    step, state, penalty = covered(looking, begun, counts_BS=counts, beta=beta)  # type: ignore[arg-type]

    def cp(tokens: tuple[int, ...], ended: bool) -> float:
        path = (START, START, *tokens)
        steps = len(tokens) + ended
        seen = torch.stack([weights_VVS[path[j], path[j + 1]] for j in range(steps)]).sum(0)[:3]
        return beta * seen.clamp(LEAST, 1.0).log().sum().item()

    def with_cp(each: Hypothesis) -> Hypothesis:
        return replace(each, score=each.score + cp(each.tokens, each.ended))

    beam = (V - 1) ** limit
    beam_rule = BeamRule(beam, *rule, n_best=beam, stop=stop)
    found = beam_search(step, state, limits=[limit], rule=beam_rule, penalty=penalty)[0]
    expected = sorted(map(with_cp, exhaustive(cube, limit, *rule)), key=lambda each: -each.score)
    assert_alike(found, expected[:beam])


def test_coverage_by_hand() -> None:
    """Seen 0.5 and 1.25: β (log 0.5 + log 1). What nobody looked at counts as `LEAST`; END and PAD do not count."""
    state = State({}, {"x": torch.zeros(1)})
    _, begun, penalty = covered(lambda *_: None, state, counts_BS=torch.tensor([[True, True, False]]), beta=0.2)  # type: ignore[arg-type]
    for seen, expected in (([0.5, 1.25, 0.0], 0.2 * math.log(0.5)), ([1.0, 0.0, 1.0], 0.2 * math.log(LEAST))):
        after = State(begun.source, begun.hypothesis | {"seen": torch.tensor([seen])})
        assert penalty(after).item() == pytest.approx(expected, abs=1e-6)


# ---- lengths


def test_length_penalties_never_fall_and_average_is_power_of_one() -> None:
    for rule, alpha in [*RULES, ("power", 0.0), ("gnmt", 0.0)]:
        values = [length_penalty(n, rule, alpha) for n in range(1, 50)]
        assert values == sorted(values)
        assert values[0] == 1.0
    assert [length_penalty(n, "average", 1.0) for n in (1, 2, 7)] == [1.0, 2.0, 7.0]
    assert length_penalty(7, "power", 1.0) == length_penalty(7, "average", 1.0)
    assert length_penalty(7, "power", 2.0) == 49.0
