"""Every law for every tagger."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch.nn import functional as F
from torch.testing import assert_close

from saccade import checkpoint
from saccade.config import plain
from saccade.data.sizes import filled, size_for, size_of
from saccade.disk import read_tensors
from saccade.errors import SaccadeError, UsageError
from saccade.models.build import build_model, build_tagger, settings_of
from saccade.models.tagger import TaggerConfig, TaggerSizes
from saccade.nn.watch import Watch
from saccade.types import PAD, Batch, Tokens
from tests.cases import assert_same
from tests.tagger_cases import LENGTHS, TaggerCase, every_tagger, name_of, row_of, sentences, with_noise

every = pytest.mark.parametrize("case", every_tagger(), ids=name_of)


@every
@torch.no_grad()
def test_padded_equals_packed_equals_alone(case: TaggerCase) -> None:
    """Scores, loss, tags and their probabilities; no sentence knows of the others."""
    model, batch = case.build().double(), case.batch()
    scores_NK, packed = model(batch.source), batch.packed()
    assert_close(model(packed.source), scores_NK)
    assert_close(model.loss(packed).total, model.loss(batch).total)
    found = model.predict(batch.source)
    assert found.probability_N is not None
    assert found.log_probability_B is not None
    total, begin = 0.0, 0
    for b, length in enumerate(LENGTHS):
        alone, mine = row_of(batch, b), slice(begin, begin + length)
        assert_close(model(alone.source), scores_NK[mine])
        single = model.predict(alone.source)
        assert single.tags_N.tolist() == found.tags_N[mine].tolist()
        assert single.probability_N is not None
        assert_close(single.probability_N, found.probability_N[mine])
        assert_close(single.log_probability_B, found.log_probability_B[b : b + 1])
        total += float(model.loss(alone).total)
        begin += length
    assert total == pytest.approx(float(model.loss(batch).total), rel=1e-9)


@every
@torch.no_grad()
def test_what_stands_in_the_padding_changes_nothing(case: TaggerCase) -> None:
    model, batch = case.build(), case.batch()
    noisy, clean = model.loss(with_noise(batch)), model.loss(batch)
    assert_same(noisy.total, clean.total)
    assert noisy.tokens == clean.tokens == sum(LENGTHS) == batch.tokens


@every
@torch.no_grad()
def test_fast_equals_readable(case: TaggerCase) -> None:
    model, batch = case.build(), case.batch()
    assert_same(model(batch.source, Watch()), model(batch.source))


@every
def test_every_parameter_is_reached_by_backward(case: TaggerCase) -> None:
    model, batch = case.build().train(), case.batch((9, 8, 9, 7, 9, 9), seed=3)
    torch.manual_seed(1)
    torch.autograd.backward(model.loss(batch).total)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            assert case.config.vectors is not None
            assert name == "encoder.embed.table.weight"
            continue
        assert parameter.grad is not None, f"{name} has no gradient"
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 1e-8, f"{name} is not reached"


@every
@torch.no_grad()
def test_words_without_a_known_tag_do_not_count(case: TaggerCase) -> None:
    """Neither a word of a sentence, nor a sentence that fills a batch up; of a crf they are summed over."""
    model, batch = case.build(), case.batch()
    unknown = batch.target.ids.clone()
    unknown[1] = PAD
    partly = Batch(batch.source, replace(batch.target, ids=unknown))
    others = sum(float(model.loss(row_of(batch, b)).total) for b in (0, 2, 3))
    loss = model.loss(partly)
    assert float(loss.total) == pytest.approx(others, rel=1e-4)
    assert loss.tokens == sum(LENGTHS) - LENGTHS[1] == partly.tokens
    unknown = batch.target.ids.clone()
    unknown[0, 2] = PAD
    one_less = model.loss(Batch(batch.source, replace(batch.target, ids=unknown)))
    assert one_less.tokens == sum(LENGTHS) - 1
    assert one_less.total <= model.loss(batch).total + 1e-4


@every
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_filled_equals_unfilled(case: TaggerCase, device: str) -> None:
    """The loss, and the gradient of every weight: sentences of PAD, and what their words are made of, do not count."""
    model, batch = case.build().double().to(device), case.batch().packed()
    assert model.fills != case.sizes.in_pieces
    if not model.fills:
        return
    names, weights = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
    made = []
    for other in (batch, *(filled(batch, size_for(batch, tight=tight)) for tight in (True, False))):
        loss = model.loss(other.to(torch.device(device)))
        assert loss.tokens == sum(LENGTHS)
        made.append((loss.total.detach(), torch.autograd.grad(loss.total, weights)))
    (expected, by), *others = made
    for total, gradients in others:
        assert_close(total, expected)
        for name, mine, theirs in zip(names, gradients, by, strict=True):
            assert_close(mine, theirs, rtol=1e-6, atol=1e-9, msg=f"{name} differs")


@every
def test_the_config_builds_the_model_that_was_saved(case: TaggerCase, tmp_path: Path) -> None:
    """From settings and sizes by name, as config.json has them; what a crf forbids comes with the weights."""
    model, batch = case.build(), case.batch()
    (tmp_path / "model.safetensors").write_bytes(save(checkpoint.model_tensors(model)))
    sizes = {"tags": case.sizes.tags, "pieces" if case.sizes.in_pieces else "words": case.sizes.tokens}
    if case.sizes.characters:
        sizes["characters"] = case.sizes.characters
    settings = settings_of("tag", plain(case.config), "config.json")
    assert settings == case.config
    again = build_model("tag", settings, sizes).eval()
    checkpoint.restore_model(again, read_tensors(tmp_path / "model.safetensors"), "model.safetensors")
    with torch.inference_mode():
        expected = model.predict(batch.source)
        found = again.predict(batch.source)  # type: ignore[operator]
    for mine, theirs in zip(found, expected, strict=True):
        assert theirs is not None
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_softmax_loss_is_cross_entropy(smoothing: float) -> None:
    case = every_tagger()[0]
    model, batch = case.build(), case.batch()
    gold_N = batch.packed().target.ids - 1
    loss = model.loss(batch, smoothing)
    scores_NK = model(batch.source)
    assert_same(loss.nll, F.cross_entropy(scores_NK, gold_N, reduction="sum"))
    assert_same(loss.total, F.cross_entropy(scores_NK, gold_N, reduction="sum", label_smoothing=smoothing))


def test_best_tags_without_probabilities_are_the_same() -> None:
    for case in every_tagger():
        model, batch = case.build(), case.batch()
        with torch.inference_mode():
            found, quick = model.predict(batch.source), model.predict(batch.source, probabilities=False)
        assert torch.equal(found.tags_N, quick.tags_N)
        assert quick.probability_N is None


def test_a_constrained_path_is_always_allowed() -> None:
    """Whatever the scores are."""
    from saccade.text.tags import is_written_so
    from tests.tagger_cases import TAGS

    case = next(case for case in every_tagger() if case.name == "lstm, Lample's")
    for seed in range(5):
        model, batch = case.build(seed), sentences([6] * 20, seed)
        assert model.crf is not None
        with torch.inference_mode():
            rows = model.predict(batch.source).tags_N.view(20, 6).tolist()
        assert all(is_written_so([TAGS.name(tag) for tag in row], "bioes") for row in rows)


def test_the_first_piece_stands_for_the_word() -> None:
    """The pieces of a sentence in a row are what the encoder reads, and the tags are those of words' first ones."""
    case = next(case for case in every_tagger() if case.name == "pieces, BERT's")
    model, batch = case.build(), case.batch()
    inside = batch.packed().source.inside
    assert inside is not None
    lengths = inside.layout.lengths_B.tolist()
    begin = 0
    scores_NK = model(batch.source)
    for words in LENGTHS:
        mine = lengths[begin : begin + words]
        first = sum(lengths[:begin])
        row = inside.ids[first : first + sum(mine)]
        memory_MD = model.encoder(Tokens.of([row.tolist()])).memory[0]
        places = [sum(mine[:word]) for word in range(words)]
        assert_same(model.output(memory_MD[places]), scores_NK[begin : begin + words])
        begin += words


def test_what_makes_no_sense_is_refused() -> None:
    tree = {"encoder": {"kind": "lstm", "width": 6}, "output": {"kind": "crf"}}
    crf = build_tagger(TaggerConfig.model_validate(tree), TaggerSizes(9, 3))
    batch = Batch(Tokens.of([[4, 5]]), Tokens.of([[1, 2]]))
    with pytest.raises(UsageError, match=r"train\.smoothing is 0\.1: it spreads"):
        crf.loss(batch, 0.1)
    characters = TaggerConfig.model_validate(tree | {"characters": {"kind": "cnn"}})
    with pytest.raises(UsageError, match=r"model\.characters is cnn, but words are cut into pieces"):
        build_tagger(characters, TaggerSizes(9, 3, in_pieces=True))
    with pytest.raises(SaccadeError, match="the words came without"):
        build_tagger(characters, TaggerSizes(9, 3, 9)).loss(batch)
    with pytest.raises(ValueError, match="each direction has half of it"):
        TaggerConfig.model_validate(tree | {"characters": {"kind": "lstm", "width": 5}})
    with pytest.raises(ValueError, match="without a dependency parse"):
        TaggerConfig.model_validate({"encoder": {"kind": "transformer", "positions": "tree"}})


@pytest.mark.gpu
@every
def test_a_gpu_finds_the_same(case: TaggerCase) -> None:
    """Loss, gradients, tags and probabilities, packed, in double precision."""
    model, batch = case.build().double(), case.batch().packed()
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad(model.loss(batch).total, weights)
    found = model.predict(batch.source)
    model, there = model.cuda(), batch.to(torch.device("cuda"))
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for mine, theirs in zip(torch.autograd.grad(model.loss(there).total, weights), expected, strict=True):
        assert_close(mine.cpu(), theirs, rtol=1e-6, atol=1e-8)
    here = model.predict(there.source)
    assert here.tags_N.tolist() == found.tags_N.tolist()
    assert here.probability_N is not None
    assert found.probability_N is not None
    assert_close(here.probability_N.cpu(), found.probability_N, rtol=1e-6, atol=1e-8)


SIZED = [(5, 7, 2, 3), (7, 5, 3, 3)] * 2
"""Sentences of two batches, each twice, that are filled up to one size."""


@every
def test_batches_of_like_lengths_have_one_size(case: TaggerCase) -> None:
    """Of every tagger: what is captured for one on a GPU is replayed for the other."""
    model = case.build()
    batches = [case.batch(lengths, seed=seed).packed() for seed, lengths in enumerate(SIZED)]
    assert len({size_for(batch, tight=model.computes_padding) for batch in batches}) == 1
    assert len({size_of(batch) for batch in batches}) > 1


@pytest.mark.gpu
@every
def test_captured_equals_launched(case: TaggerCase) -> None:
    """As CUDA graphs, dropout included, for batches that are filled up to one size."""
    from saccade.train.gradient import Gradient
    from saccade.train.numerics import numerics

    device, model = torch.device("cuda"), case.build().cuda().train()
    batches = [case.batch(lengths, seed=seed).packed() for seed, lengths in enumerate(SIZED)]
    batches = batches if model.fills else batches[:1] * 3
    with numerics("fp32", device, deterministic=False):
        made = []
        for captures in (False, True):
            gradient = Gradient(model, device, "fp32", 0.0, seed=1, captures=captures)
            for update, batch in enumerate(batches, start=1):
                gradient.clear()
                gradient.accumulate([batch], update)
            made.append([p.grad.clone() for p in model.parameters() if p.requires_grad and p.grad is not None])
            assert gradient._graphs is not None
            assert len(gradient._graphs.captured) == (captures and model.captured)
    for captured, launched in zip(*made, strict=True):
        assert_close(captured, launched, rtol=1e-4, atol=1e-5)
