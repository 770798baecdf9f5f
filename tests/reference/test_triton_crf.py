"""The kernel that walks through tags = the loops of crf_sums.py: on a GPU where there is one, else interpreted."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.nn import crf_sums, triton_crf
from saccade.nn.crf import BLOCKED, Steps, partition
from saccade.types import Layout
from tests.support.on_triton import DEVICE, MARKS, needs_to_run, on_gpu_only

needs_to_run(triton_crf._walk)
pytestmark = MARKS


def scores(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE)


def lattice(tags: int, lengths: list[int], reach: float = 1.0) -> tuple[Tensor, Steps, Layout]:
    layout = Layout.padded(lengths).map(lambda x: x.to(DEVICE))
    P_BTK = reach * scores(len(lengths), max(lengths), tags, seed=tags)
    return P_BTK, Steps(scores(tags), reach * scores(tags, tags, seed=1), scores(tags, seed=2)), layout


@pytest.mark.parametrize("lengths", [[7, 1, 0, 4], [1, 1], [17]], ids=str)
@pytest.mark.parametrize("tags", [1, 2, 5, 19, 33, 64])
@pytest.mark.parametrize("reach", [1.0, 100.0])
def test_walks_are_the_loops(tags: int, reach: float, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """From both ends, with sentences of unequal lengths, one word, none; tags that are ruled out; scores far apart."""
    P_BTK, steps, layout = lattice(tags, lengths, reach)
    P_BTK[0, -1, tags // 2] += BLOCKED
    steps.pairs_KK[0] += BLOCKED
    sums = crf_sums._Sums(P_BTK, *steps, layout)
    made = []
    for in_kernels in (False, True):
        monkeypatch.setattr(triton_crf, "available", lambda _, given=in_kernels: given)
        made.append((sums.from_the_left(), sums.from_the_right()))
    for slow, fast in zip(*made, strict=True):
        assert_close(fast, slow, rtol=1e-12, atol=1e-12)


def test_sums_and_gradients_are_those_of_the_readable_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_crf, "available", lambda _: True)
    P_BTK, steps, layout = lattice(5, [6, 1, 0, 3])
    wanted = [each.requires_grad_() for each in (P_BTK, *steps)]
    both = crf_sums.log_partition(P_BTK, *steps, layout), partition(P_BTK, steps, layout)
    assert_close(*both)
    for one, other in zip(*(torch.autograd.grad(each.square().sum(), wanted) for each in both), strict=True):
        assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_sentences_without_words_have_no_walk() -> None:
    P_BTK, one_K = scores(2, 0, 3), torch.zeros(3, device=DEVICE).double()
    lengths_B = torch.tensor([0, 0], device=DEVICE)
    walked = triton_crf.walk(P_BTK, one_K, scores(3, 3), one_K, lengths_B, left=True, tiny=crf_sums.TINY)
    assert walked.shape == (2, 0, 3)


def test_a_walk_shows_what_is_not_a_number() -> None:
    P_BTK, steps, layout = lattice(4, [3, 3])
    P_BTK[1, 1, 2] = float("nan")
    for left, edge_K in ((True, steps.start_K), (False, steps.end_K)):
        out_BTK = triton_crf.walk(
            P_BTK, edge_K, steps.pairs_KK.exp(), steps.end_K, layout.lengths_B, left=left, tiny=crf_sums.TINY
        )
        assert out_BTK[0].isfinite().all()
        assert out_BTK[1, -1 if left else 0].isnan().all()


@on_gpu_only
def test_kernels_walk_where_they_may() -> None:
    assert triton_crf.available(scores(2, 3, triton_crf.MOST_TAGS))
    assert not triton_crf.available(scores(2, 3, triton_crf.MOST_TAGS + 1))
    assert not triton_crf.available(scores(2, 3, 4).float())
    assert not triton_crf.available(scores(2, 3, 4).cpu())


@on_gpu_only
def test_a_walk_is_captured_wherever_its_lengths_begin() -> None:
    """A part of a batch that is copied as a whole begins at any number of it."""
    P_BTK, steps, layout = lattice(4, [3, 2])
    sums = crf_sums._Sums(P_BTK, *steps, layout)
    launched = sums.from_the_left()
    torch.cuda.synchronize()
    for begin in range(3):
        whole = torch.zeros(5, dtype=torch.long, device=DEVICE)
        whole[begin : begin + 2] = layout.lengths_B
        sums.lengths_B = whole[begin : begin + 2]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = sums.from_the_left()
        graph.replay()
        assert_close(captured, launched, rtol=0, atol=0)
