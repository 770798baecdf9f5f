"""The conditional random field is what it says: every sum and every best path against all paths written out."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from saccade.nn.crf import BLOCKED, Allowed, Crf, marginals, partition, path_score, viterbi
from saccade.nn.crf_sums import log_partition, word_marginals
from saccade.types import Layout

Lattice = tuple[Crf, Tensor, Layout]


def lattice(
    tags: int, lengths: list[int], seed: int = 0, allowed: Allowed | None = None, *, held: bool = False
) -> Lattice:
    """In double precision, with weights that are all unlike; what stands on padding is large, to be noticed."""
    torch.manual_seed(seed)
    crf = Crf(tags, allowed, constrained=held).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_()
    longest = max(lengths)
    P_BTK = torch.randn(len(lengths), longest, tags, dtype=torch.float64)
    for b, length in enumerate(lengths):
        P_BTK[b, length:] = 50.0
    return crf, P_BTK.requires_grad_(), Layout.padded(lengths)


def may(path: tuple[int, ...], allowed: Allowed | None) -> bool:
    if allowed is None or not path:
        return True
    inner = all(bool(allowed.pairs_KK[a, b]) for a, b in pairwise(path))
    return bool(allowed.first_K[path[0]]) and inner and bool(allowed.last_K[path[-1]])


def every_path(crf: Crf, P_TK: Tensor, allowed: Allowed | None = None) -> dict[tuple[int, ...], Tensor]:
    """Each path with its score, by the definition."""
    length, tags = P_TK.shape
    scores = {}
    for path in product(range(tags), repeat=length):
        if may(path, allowed):
            score = P_TK.new_zeros(()) if not path else crf.start[path[0]] + crf.end[path[-1]]
            for place, tag in enumerate(path):
                score = score + P_TK[place, tag]
                if place:
                    score = score + crf.pairs[path[place - 1], tag]
            scores[path] = score
    return scores


def some_allowed(tags: int, seed: int) -> Allowed:
    """Tag 0 may always stand, so that there is a path."""
    generator = torch.Generator().manual_seed(seed)
    first, pairs, last = (torch.rand(shape, generator=generator) < 0.5 for shape in ((tags,), (tags, tags), (tags,)))
    for each in (first, pairs, last):
        each[0] = True
    pairs[:, 0] = True
    return Allowed(first, pairs, last)


shapes = st.tuples(st.integers(1, 3), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 9999))


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_partition_and_paths_are_those_written_out(shape: tuple[int, list[int], int]) -> None:
    """log Z, its gradient, the score of the gold path, Viterbi's path and score; on sentences of unequal length."""
    tags, lengths, seed = shape
    crf, P_BTK, layout = lattice(tags, lengths, seed)
    steps = crf.steps(constrained=False)
    total_B, fast_B = partition(P_BTK, steps, layout), log_partition(P_BTK, *steps, layout)
    best = viterbi(P_BTK, steps, layout)
    by_hand = []
    for b, length in enumerate(lengths):
        scores = every_path(crf, P_BTK[b, :length])
        by_hand.append(torch.stack(list(scores.values())).logsumexp(0))
        top = max(scores, key=lambda path: float(scores[path].detach()))
        assert tuple(best.tags_BT[b, :length].tolist()) == top
        assert_close(best.score_B[b], scores[top])
        for path in list(scores)[:: max(1, len(scores) // 5)]:
            tags_BT = torch.zeros(len(lengths), layout.longest, dtype=torch.long)
            tags_BT[b, :length] = torch.tensor(path, dtype=torch.long)
            tags_BT[b, length:] = tags - 1  # what stands on padding is nobody's tag
            assert_close(path_score(P_BTK, tags_BT, steps, layout)[b], scores[path])
    hand_B = torch.stack(by_hand)
    assert_close(total_B, hand_B)
    assert_close(fast_B, hand_B)
    if not any(lengths):
        return
    wanted = [P_BTK, *crf.parameters()]
    weight_B = torch.arange(1.0, 1 + len(lengths), dtype=torch.float64)
    gradients = [
        torch.autograd.grad((sum_B * weight_B).sum(), wanted, allow_unused=True, materialize_grads=True)
        for sum_B in (hand_B, total_B, fast_B)
    ]
    for by_hand_, readable, fast in zip(*gradients, strict=True):
        assert_close(readable, by_hand_)
        assert_close(fast, by_hand_)


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_marginals_are_sums_over_paths(shape: tuple[int, list[int], int]) -> None:
    tags, lengths, seed = shape
    allowed = some_allowed(tags, seed)
    crf, P_BTK, layout = lattice(tags, lengths, seed, allowed)
    found_BTK = crf.marginals(P_BTK, layout)
    for b, length in enumerate(lengths):
        scores = every_path(crf, P_BTK[b, :length], allowed)
        probability = torch.stack(list(scores.values())).softmax(0)
        for place, tag in product(range(length), range(tags)):
            through = [p for path, p in zip(scores, probability, strict=True) if path[place] == tag]
            assert_close(found_BTK[b, place, tag], sum(through, torch.zeros((), dtype=torch.float64)))
        assert_close(found_BTK[b, :length].sum(-1), torch.ones(length, dtype=torch.float64))
        assert not found_BTK[b, length:].any()


@settings(max_examples=25, deadline=None)
@given(shapes)
def test_the_best_allowed_path(shape: tuple[int, list[int], int]) -> None:
    """And its probability among the allowed ones; in training all paths count, unless it is held to them as well."""
    tags, lengths, seed = shape
    allowed = some_allowed(tags, seed)
    for held in (False, True):
        crf, P_BTK, layout = lattice(tags, lengths, seed, allowed, held=held)
        best = crf.best(P_BTK, layout)
        log_p_B = crf.log_probability(P_BTK, best.tags_BT, layout)
        known_BT = torch.ones_like(best.tags_BT, dtype=torch.bool)
        nll_B = crf.nll(P_BTK, best.tags_BT, known_BT, layout)
        for b, length in enumerate(lengths):
            scores = every_path(crf, P_BTK[b, :length], allowed)
            top = max(scores, key=lambda path: float(scores[path].detach()))
            assert tuple(best.tags_BT[b, :length].tolist()) == top
            total = torch.stack(list(scores.values())).logsumexp(0)
            assert_close(log_p_B[b], scores[top] - total)
            every = scores if held else every_path(crf, P_BTK[b, :length])
            assert_close(nll_B[b], torch.stack(list(every.values())).logsumexp(0) - scores[top])


def test_probabilities_of_all_paths_sum_to_one_and_no_loss_is_below_zero() -> None:
    crf, P_BTK, _ = lattice(3, [4])
    paths = torch.tensor(list(product(range(3), repeat=4)))
    P_NTK = P_BTK.expand(len(paths), -1, -1)
    whole = Layout.padded([4] * len(paths))
    nll_N = crf.nll(P_NTK, paths, torch.ones_like(paths, dtype=torch.bool), whole)
    assert_close((-nll_N).exp().sum(), torch.ones((), dtype=torch.float64))
    assert (nll_N >= 0).all()


def test_without_steps_it_is_a_softmax_a_word() -> None:
    """Loss, best tags, marginals."""
    torch.manual_seed(3)
    crf, layout = Crf(4).double(), Layout.padded([5, 2, 3])
    P_BTK, tags_BT = torch.randn(3, 5, 4, dtype=torch.float64), torch.randint(4, (3, 5))
    valid = torch.arange(5) < layout.lengths_B[:, None]
    nll_BT = F.cross_entropy(P_BTK.transpose(1, 2), tags_BT, reduction="none") * valid
    assert_close(crf.nll(P_BTK, tags_BT, valid, layout), nll_BT.sum(1))
    assert torch.equal(crf.best(P_BTK, layout).tags_BT, P_BTK.argmax(-1) * valid)
    assert_close(crf.marginals(P_BTK, layout), P_BTK.softmax(-1) * valid[:, :, None])


@settings(max_examples=25, deadline=None)
@given(shapes, st.floats(0.0, 1.0))
def test_unknown_tags_are_summed_over(shape: tuple[int, list[int], int], share: float) -> None:
    tags, lengths, seed = shape
    crf, P_BTK, layout = lattice(tags, lengths, seed)
    generator = torch.Generator().manual_seed(seed)
    tags_BT = torch.randint(tags, P_BTK.shape[:2], generator=generator)
    known_BT = torch.rand(tags_BT.shape, generator=generator) < share
    nll_B = crf.nll(P_BTK, tags_BT, known_BT, layout)
    for b, length in enumerate(lengths):
        scores = every_path(crf, P_BTK[b, :length])

        def fits(path: tuple[int, ...], b: int = b) -> bool:
            return all(not known_BT[b, t] or tags_BT[b, t] == tag for t, tag in enumerate(path))

        ours = torch.stack([score for path, score in scores.items() if fits(path)]).logsumexp(0)
        assert_close(nll_B[b], torch.stack(list(scores.values())).logsumexp(0) - ours)


def test_sentences_without_a_known_tag_have_neither_loss_nor_gradient() -> None:
    crf, P_BTK, layout = lattice(3, [3, 4])
    nll_B = crf.nll(P_BTK, torch.zeros(2, 4, dtype=torch.long), torch.tensor([[True], [False]]).expand(2, 4), layout)
    assert nll_B[1] == 0
    (by_P,) = torch.autograd.grad(nll_B.sum(), P_BTK)
    assert by_P[0, :3].any()
    assert not by_P[1].any()
    assert not by_P[0, 3:].any()


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_long_sentences_and_large_scores_stay_finite(scale: float) -> None:
    """In single precision, with a path that must go through forbidden steps."""
    torch.manual_seed(0)
    nowhere = Allowed(torch.tensor([True, False]), torch.zeros(2, 2, dtype=torch.bool), torch.tensor([False, True]))
    for allowed in (None, nowhere):
        crf, layout = Crf(2, allowed, constrained=True), Layout.padded([300, 1])
        P_BTK = (scale * torch.randn(2, 300, 2)).requires_grad_()
        tags_BT = torch.randint(2, (2, 300))
        loss = crf.nll(P_BTK, tags_BT, torch.ones_like(tags_BT, dtype=torch.bool), layout).sum()
        (by_P,) = torch.autograd.grad(loss, P_BTK)
        assert loss.isfinite()
        assert by_P.isfinite().all()
        assert crf.marginals(P_BTK, layout).isfinite().all()
        assert crf.best(P_BTK, layout).score_B.isfinite().all()


def test_marginals_are_the_gradient_of_the_partition() -> None:
    crf, P_BTK, layout = lattice(4, [5, 3])
    steps = crf.steps(constrained=False)
    (by_P,) = torch.autograd.grad(partition(P_BTK, steps, layout).sum(), P_BTK)
    assert_close(marginals(P_BTK, steps, layout), by_P)
    assert_close(word_marginals(P_BTK, *steps, layout), by_P)


@pytest.mark.parametrize("reach", [1.0, 30.0, 200.0])
@pytest.mark.parametrize("held", [False, True])
def test_fast_equals_readable(reach: float, held: bool) -> None:
    """Sums, marginals and gradients, with scores that lie as far apart as no training drives them."""
    crf, P_BTK, layout = lattice(7, [9, 1, 40, 0], allowed=some_allowed(7, 1))
    steps = crf.steps(constrained=held)
    large_BTK = P_BTK * reach
    assert_close(log_partition(large_BTK, *steps, layout), partition(large_BTK, steps, layout))
    assert_close(word_marginals(large_BTK, *steps, layout), marginals(large_BTK, steps, layout))
    wanted = [P_BTK, crf.start, crf.pairs, crf.end]
    fast, readable = (
        torch.autograd.grad(sums.square().sum(), wanted, retain_graph=True)
        for sums in (log_partition(large_BTK, *steps, layout), partition(large_BTK, steps, layout))
    )
    for one, other in zip(fast, readable, strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_forbidden_is_as_good_as_impossible() -> None:
    """However much better a path that is not allowed would be."""
    allowed = Allowed(
        torch.tensor([True, True]), torch.tensor([[True, False], [True, True]]), torch.tensor([True, True])
    )
    crf, layout = Crf(2, allowed), Layout.padded([3])
    P_BTK = torch.tensor([[[100.0, 0.0], [0.0, 100.0], [0.0, 100.0]]])
    assert crf.best(P_BTK, layout).tags_BT.tolist() == [[1, 1, 1]]
    assert BLOCKED < -1e3
