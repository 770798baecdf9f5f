"""The hierarchical attention network against the paper's equations, a sentence and a word at a time."""

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.models.build import build_classifier
from saccade.models.hierarchical import HierarchicalClassifier, HierarchicalConfig
from saccade.nn.cells import Gru
from saccade.nn.pooling import AttentionPooling
from saccade.nn.watch import Watch
from tests.classifier_cases import nested

DOCUMENTS = [[[4, 5, 6], [7]], [[8, 9, 10, 4, 5]], [[6], [11, 5], [9, 9, 4]]]
PAPER = HierarchicalConfig.model_validate(
    {
        "words": {"encoder": {"kind": "gru", "width": 6, "embedding": 5}, "attention_width": 4},
        "sentences": {"encoder": {"kind": "gru", "width": 8}, "attention_width": 3},
    }
)


def build(config: HierarchicalConfig = PAPER, vocabulary: int = 12, labels: int = 3) -> HierarchicalClassifier:
    torch.manual_seed(0)
    model = build_classifier(config, vocabulary, labels).double().eval()
    assert isinstance(model, HierarchicalClassifier)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def gru(cell: Gru, xs: list[Tensor]) -> list[Tensor]:
    """r and z, then the candidate, then their mixture: a step at a time, with this cell's two biases."""
    D, h, states = cell.width, xs[0].new_zeros(cell.width), []
    W, U, b, c = cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    for x in xs:
        r = torch.sigmoid(W[:D] @ x + b[:D] + U[:D] @ h + c[:D])
        z = torch.sigmoid(W[D : 2 * D] @ x + b[D : 2 * D] + U[D : 2 * D] @ h + c[D : 2 * D])
        candidate = torch.tanh(W[2 * D :] @ x + b[2 * D :] + r * (U[2 * D :] @ h + c[2 * D :]))
        h = (1 - z) * candidate + z * h
        states.append(h)
    return states


def both_ways(layers: torch.nn.Module, xs: list[Tensor]) -> list[Tensor]:
    ahead, back = layers.forwards[0], layers.backwards[0]  # type: ignore[index]
    assert isinstance(ahead, Gru)
    assert isinstance(back, Gru)
    pairs = zip(gru(ahead, xs), reversed(gru(back, xs[::-1])), strict=True)
    return [torch.cat(pair) for pair in pairs]


def attended(pooling: torch.nn.Module, hs: list[Tensor]) -> tuple[Tensor, list[float]]:
    """u = tanh(W h + b), α = exp(u · c) / Σ exp(u · c), Σ α h."""
    assert isinstance(pooling, AttentionPooling)
    W, b, c = pooling.of_state.weight, pooling.of_state.bias, pooling.context
    powers = [math.exp(float(torch.tanh(W @ h + b) @ c)) for h in hs]
    weights = [power / sum(powers) for power in powers]
    return torch.stack([weight * h for weight, h in zip(weights, hs, strict=True)]).sum(0), weights


@torch.no_grad()
def test_both_levels_are_the_papers_equations() -> None:
    model = build()
    watch = Watch()
    scores_BL = model(nested(DOCUMENTS), watch)
    (of_words,), (of_sentences,) = watch.attention["words.pooling"], watch.attention["sentences.pooling"]
    table, sentence = model.words.embed.table.weight, 0
    for b, document in enumerate(DOCUMENTS):
        vectors = []
        for words in document:
            vector, weights = attended(model.word_pooling, both_ways(model.words.layers, [table[w] for w in words]))  # type: ignore[arg-type]
            vectors.append(vector)
            assert_close(of_words[sentence, 0, 0, : len(words)], torch.tensor(weights, dtype=torch.float64))
            assert not of_words[sentence, 0, 0, len(words) :].any()
            sentence += 1
        v, weights = attended(model.sentence_pooling, both_ways(model.sentences.layers, vectors))  # type: ignore[arg-type]
        assert_close(of_sentences[b, 0, 0, : len(document)], torch.tensor(weights, dtype=torch.float64))
        assert_close(scores_BL[b], model.head.output.weight @ v + model.head.output.bias)


@torch.no_grad()
def test_weights_add_up_in_every_sentence_and_document() -> None:
    model, watch = build(), Watch()
    model(nested(DOCUMENTS), watch)
    for weights in (watch.attention["words.pooling"][0], watch.attention["sentences.pooling"][0]):
        assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


@torch.no_grad()
def test_without_questions_it_is_the_averaging_network() -> None:
    """Context vectors of 0: HN-AVE on the same other weights."""
    model = build()
    for pooling in (model.word_pooling, model.sentence_pooling):
        assert isinstance(pooling, AttentionPooling)
        pooling.context.zero_()
    averaging = PAPER.model_dump(exclude_none=True)
    for level in ("words", "sentences"):
        averaging[level] |= {"pooling": "mean"}
        del averaging[level]["attention_width"]
    other = build(HierarchicalConfig.model_validate(averaging))
    missing, unexpected = other.load_state_dict(model.state_dict(), strict=False)
    assert not missing
    assert all("pooling" in name for name in unexpected)
    assert_close(other(nested(DOCUMENTS)), model(nested(DOCUMENTS)))


@torch.no_grad()
def test_the_order_of_sentences_acts_through_their_encoder_alone() -> None:
    """With its recurrent weights at 0 a step knows nothing of the one before, but for what the update gate keeps of it.

    That gate is held shut.
    """
    model = build()
    there, back = nested(DOCUMENTS), nested([document[::-1] for document in DOCUMENTS])
    assert (model(there) - model(back))[[0, 2]].abs().min() > 1e-6
    for cell in (model.sentences.layers.forwards[0], model.sentences.layers.backwards[0]):  # type: ignore[union-attr, index]
        assert isinstance(cell, Gru)
        cell.weight_hh.zero_()
        cell.bias_ih[cell.width : 2 * cell.width] = -1e3
    assert_close(model(there), model(back))


@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_sentences_without_words_change_nothing(packed: bool) -> None:
    """Wherever they stand: neither the attention nor the sentences' encoder sees them."""
    model = build()
    more = [[[], *document[:1], [], [], *document[1:], []] for document in DOCUMENTS]
    source = nested(more).packed() if packed else nested(more)
    watch = Watch()
    assert_close(model(source, watch), model(nested(DOCUMENTS)))
    assert_close(watch.attention["sentences.pooling"][0].sum(-1), torch.ones(3, 1, 1, dtype=torch.float64))


def test_it_is_as_large_as_the_papers() -> None:
    """V·200 + both GRUs + two attentions + the output; torch's GRU has a second bias of every gate."""
    config = HierarchicalConfig.model_validate(
        {
            "words": {"encoder": {"kind": "gru", "width": 100, "embedding": 200}, "attention_width": 100},
            "sentences": {"encoder": {"kind": "gru", "width": 100}, "attention_width": 100},
        }
    )
    model, V, C = build(config, 1000, 5), 1000, 5
    grus = 2 * 3 * 50 * (200 + 50 + 1) + 2 * 3 * 50 * (100 + 50 + 1)
    second_biases = 2 * 2 * 3 * 50
    expected = V * 200 + grus + second_biases + 2 * (100 * 100 + 100 + 100) + C * 100 + C
    assert sum(each.numel() for each in model.parameters()) == expected
