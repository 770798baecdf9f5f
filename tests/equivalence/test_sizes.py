"""A batch filled up to a size = the batch itself, and what was captured as a graph = what is launched."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.config import parse
from saccade.data.sizes import filled, size_for, size_of
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.nn.masks import pack
from saccade.train.gradient import Gradient
from saccade.train.numerics import numerics
from saccade.train.settings import Precision
from saccade.types import PAD, Batch, Tokens
from tests.cases import TranslatorCase, every_translator, name_of

translators = pytest.mark.parametrize("case", every_translator(), ids=name_of)
lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=40)


def pairs(lengths: list[tuple[int, int]], seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    sides = [[random.integers(4, 13, length) for length in side] for side in zip(*lengths, strict=True)]
    return Batch(Tokens.of(sides[0]), Tokens.of(sides[1])).packed()


# ---- sizes


@given(lengths, st.booleans())
def test_a_filled_batch_has_its_size_and_the_same_pairs_first(lengths: list[tuple[int, int]], tight: bool) -> None:
    batch = pairs(lengths)
    size = size_for(batch, tight=tight)
    full = filled(batch, size)
    assert len(full) == size.rows
    for side, mine, tokens, longest in (
        (full.source, batch.source, size.source_tokens, size.source_longest),
        (full.target, batch.target, size.target_tokens, size.target_longest),
    ):
        real = len(mine.ids)
        assert len(side.ids) == tokens == int(side.layout.lengths_B.sum())
        assert side.layout.longest == longest >= int(side.layout.lengths_B.max())
        assert torch.equal(side.ids[:real], mine.ids)
        assert (side.ids[real:] == PAD).all()
        assert torch.equal(side.layout.lengths_B[: len(batch)], mine.layout.lengths_B)
        assert tokens - real < max(16, real / 32 + 1)
        assert longest == mine.layout.longest or not tight
    assert size_for(batch, tight=tight) == size  # nothing but the batch decides


@given(st.lists(st.lists(st.integers(0, 90), min_size=1, max_size=30), min_size=1, max_size=12), st.booleans())
def test_what_tokens_are_made_of_is_filled_as_well(made_of: list[list[int]], tight: bool) -> None:
    """Sentences of words of characters: both sides stay word by word the same, and every character has its word."""
    words = Tokens.of([[5] * len(row) for row in made_of])
    inside = Tokens.of([[7] * length for row in made_of for length in row])
    batch = Batch(replace(words, inside=inside), words).packed()
    size = size_for(batch, tight=tight)
    full = filled(batch, size)
    assert size.source_tokens == size.target_tokens
    assert torch.equal(full.source.layout.lengths_B, full.target.layout.lengths_B)
    mine, theirs = batch.source.inside, full.source.inside
    assert mine is not None
    assert theirs is not None
    real = len(mine.ids)
    assert (len(theirs.ids), theirs.layout.longest) == size.inside
    assert len(theirs.layout.lengths_B) == size.source_tokens
    assert int(theirs.layout.lengths_B.sum()) == len(theirs.ids)
    assert int(theirs.layout.lengths_B.max()) <= theirs.layout.longest
    assert torch.equal(theirs.layout.lengths_B[: len(batch.source.ids)], mine.layout.lengths_B)
    assert torch.equal(theirs.ids[:real], mine.ids)
    assert (theirs.ids[real:] == PAD).all()
    assert len(theirs.ids) - real < max(64, real / 8 + 1)
    assert size_of(full) == size


@given(lengths)
def test_a_batch_in_one_piece_is_the_batch_again(lengths: list[tuple[int, int]]) -> None:
    batch = pairs(lengths)
    again = batch.holding(batch.flat())
    for mine, theirs in ((batch.source, again.source), (batch.target, again.target)):
        assert torch.equal(mine.ids, theirs.ids)
        for name in ("lengths_B", "offsets_B", "slots_N"):
            assert torch.equal(getattr(mine.layout, name), getattr(theirs.layout, name)), name


@translators
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_filled_equals_unfilled(case: TranslatorCase, device: str) -> None:
    """The loss, and the gradient of every weight, in double precision: the sentences of PAD are never seen."""
    model, batch = case.build().double().to(device), case.batch().packed()
    names, weights = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)

    def of(batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
        here = batch.to(torch.device(device))
        loss = model.loss(here, 0.1)
        return loss.nll, torch.autograd.grad(loss.total, weights, allow_unused=True, materialize_grads=True)

    full = filled(batch, size_for(batch, tight=model.computes_padding))
    assert len(full.target.ids) > len(batch.target.ids)
    (nll, expected), (full_nll, actual) = of(batch), of(full)
    torch.testing.assert_close(full_nll, nll)
    for name, mine, theirs in zip(names, actual, expected, strict=True):
        torch.testing.assert_close(mine, theirs, msg=f"{name} differs")


# ---- on a GPU

WIDE = {"kind": "transformer", "layers": 2, "width": 64, "heads": 2, "feedforward": 96}
RECURRENT = {"kind": "lstm", "layers": 2, "width": 32, "dropout": 0.2}
SIDES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pre-norm": (WIDE | {"dropout": 0.1}, {"tie": "all"}),
    "post-norm": (WIDE | {"norm": "post", "activation": "gelu", "dropout": 0.0}, {}),
    "rotary": (WIDE | {"positions": "rotary", "norm_kind": "rms", "gated": True}, {}),
    "relative": (WIDE | {"positions": "relative"}, {}),
    "attention dropout": (WIDE | {"attention_dropout": 0.2}, {}),
    "attention dropout, padded": (WIDE | {"attention_dropout": 0.2, "positions": "alibi"}, {}),
    "attention dropout, narrow heads": (WIDE | {"attention_dropout": 0.2, "heads": 8}, {}),
    "attention dropout, window": (WIDE | {"attention_dropout": 0.2, "pattern": {"kind": "window", "width": 5}}, {}),
    "window": (WIDE | {"positions": "alibi", "pattern": {"kind": "window", "width": 5}}, {}),
}
ADDITIVE = {"score": "additive"}
READERS: dict[str, dict[str, Any]] = {
    "lstm": {"attention": {"score": "general"}},
    "fed": {"attention": {"score": "dot"}, "feed_input": True},
    "pointer and coverage": {"attention": ADDITIVE | {"pointer": True, "coverage": 1.0}},
    "hard": {"attention": ADDITIVE | {"hard": {}}},
    "sampled": {"attention": ADDITIVE, "sampling": {"kind": "linear", "start": 0.5}},
}
ON_GPU: dict[str, dict[str, Any]] = {
    **{name: {"encoder": side, "decoder": dict(side)} | more for name, (side, more) in SIDES.items()},
    **{name: {"encoder": RECURRENT, "decoder": RECURRENT | reader} for name, reader in READERS.items()},
}
models = pytest.mark.parametrize("config", ON_GPU.values(), ids=ON_GPU.keys())


def built(config: dict[str, Any]) -> Translator:
    torch.manual_seed(0)
    return build_translator(parse(TranslatorConfig, config), 13, 13).cuda()


@models
def test_the_list_of_the_gpu_can_be_built(config: dict[str, Any]) -> None:
    """Here, where there may be no GPU to find out."""
    model = build_translator(parse(TranslatorConfig, config), 13, 13).train()
    batch = pairs([(9, 7), (4, 5)])
    assert model.loss(filled(batch, size_for(batch, tight=model.computes_padding)), 0.1).total.isfinite()


@pytest.mark.gpu
@models
def test_packed_with_kernels_equals_padded_without(config: dict[str, Any]) -> None:
    model = built(config).eval()
    batch = pairs([(40, 33), (5, 9), (70, 64), (1, 2), (17, 16)])
    packed = batch.to(torch.device("cuda"))
    padded = Batch(_padded(batch.source), _padded(batch.target)).to(torch.device("cuda"))
    torch.testing.assert_close(model(packed), pack(model(padded), packed.target.layout), rtol=2e-3, atol=2e-3)


def _padded(side: Tokens) -> Tokens:
    ends = side.layout.lengths_B.cumsum(0).tolist()
    return Tokens.of([side.ids[begin:end].tolist() for begin, end in zip([0, *ends], ends, strict=False)])


def gradient_of(gradient: Gradient, batch: Batch, update: int) -> Iterator[Tensor]:
    """With what the model learns on its way forward, a baseline, at its beginning."""
    lasting = gradient.model.state_dict()
    for name, buffer in gradient.model.named_buffers():
        if name in lasting:
            buffer.zero_()
    gradient.clear()
    yield gradient.accumulate([batch], update)
    for parameter in gradient.model.parameters():
        assert parameter.grad is not None
        yield parameter.grad.clone()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@models
def test_captured_equals_launched(config: dict[str, Any], precision: Precision) -> None:
    """To the bit, dropout included, for several batches of one size; and twice the same."""
    device, model = torch.device("cuda"), built(config).train()
    first, second = (pairs([(40, 33), (5, 9), (61, 64), (3, 2), (17, 16)], seed) for seed in (0, 1))
    with numerics(precision, device, deterministic=True):
        launching = Gradient(model, device, precision, 0.1, seed=1)
        assert launching._graphs is not None
        launching._graphs.captures = False
        expected = [list(gradient_of(launching, batch, update)) for update, batch in enumerate((first, second, first))]
        capturing = Gradient(model, device, precision, 0.1, seed=1)
        assert capturing._graphs is not None
        list(gradient_of(capturing, second, 7))  # a size that comes a second time is captured
        for _ in range(2):
            for update, batch in enumerate((first, second, first)):
                for mine, theirs in zip(gradient_of(capturing, batch, update), expected[update], strict=True):
                    assert torch.equal(mine, theirs)
        assert len(capturing._graphs.captured) == 1


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:no further batches are captured")  # neither do graphs fit
def test_what_does_not_fit_is_made_in_pieces() -> None:
    """With a card of little memory: the same gradient as with a large one, and what fits is found and kept."""
    device = torch.device("cuda")
    model = built({"encoder": WIDE | {"dropout": 0.0}, "decoder": WIDE | {"dropout": 0.0}}).train()
    batch = pairs([(60, 60)] * 2000)
    with numerics("fp32", device):
        expected = list(gradient_of(Gradient(model, device, "fp32", 0.1, seed=1), batch, 1))
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        _, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (600 << 20)) / total)
        try:
            small = Gradient(model, device, "fp32", 0.1, seed=1)
            found = list(gradient_of(small, batch, 1))
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    assert small.fits is not None
    assert 60 <= small.fits < 60 * 2000
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_graphs_can_be_turned_off() -> None:
    device, batch = torch.device("cuda"), pairs([(9, 7), (4, 5)])
    gradient = Gradient(built(ON_GPU["pre-norm"]).train(), device, "fp32", 0.1, seed=1, captures=False)
    assert gradient._graphs is not None
    one, other, again = (list(gradient_of(gradient, batch, 1)) for _ in range(3))
    assert not gradient._graphs.captured
    assert all(torch.allclose(a, b) and torch.allclose(a, c) for a, b, c in zip(one, other, again, strict=True))
    assert not gradient.give_way()  # there is nothing to let go of


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:no further batches are captured")
def test_graphs_give_way_once_and_for_all() -> None:
    device, batch = torch.device("cuda"), pairs([(9, 7), (4, 5)])
    gradient = Gradient(built(ON_GPU["post-norm"]).train(), device, "fp32", 0.1, seed=1)
    assert gradient._graphs is not None
    expected, _ = (list(gradient_of(gradient, batch, 1)) for _ in range(2))
    assert len(gradient._graphs.captured) == 1
    assert gradient.give_way()
    for mine, theirs in zip(gradient_of(gradient, batch, 1), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    list(gradient_of(gradient, batch, 1))
    assert not gradient._graphs.captured
