"""BERT with both of its heads = Hugging Face's on copied weights: logits, losses and gradients; and as large.

Hugging Face pools the first token, we the last, END, which stands for [CLS] here: so their input is ours with its last
token put first, each token keeping the position and the segment it has with us.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from saccade.config import parse
from saccade.models.build import build_masked
from saccade.models.masked import Dense, MaskedConfig, MaskedModel
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.nn.masks import valid_BT
from saccade.types import END, PAD, Batch, Layout, Tokens
from tests.reference.test_huggingface import HEADS, LAYERS, PLACES, WIDTH, V, block_of_bert, norm, randomised

LENGTHS = (9, 5, 7)
PREDICTED = 2  # in every row: then our sum, in which pairs weigh as blanks do, is their sum of two means


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers")


def bert(**changes: Any) -> MaskedConfig:
    encoder = {
        "kind": "transformer", "layers": LAYERS, "width": WIDTH, "heads": HEADS, "feedforward": 17, "norm": "post",
        "activation": "gelu", "positions": "learned", "places": PLACES, "segments": 2, "scale_embedding": False,
        "norm_embedding": True, "epsilon": 1e-12,
    } | changes  # fmt: skip
    return parse(MaskedConfig, {"encoder": encoder, "head": {"kind": "dense", "epsilon": 1e-12}, "next_sentence": True})


def copied(theirs: Any) -> MaskedModel:
    ours, vectors = build_masked(bert(), V).eval(), theirs.bert.embeddings
    encoder = ours.encoder
    assert isinstance(encoder, TransformerEncoder)
    assert encoder.embed.positions is not None
    assert encoder.segments is not None
    assert encoder.enter is not None
    with torch.no_grad():
        encoder.embed.table.load_state_dict(vectors.word_embeddings.state_dict())
        encoder.embed.positions.load_state_dict({"table.weight": vectors.position_embeddings.weight})
        encoder.segments.table.load_state_dict(vectors.token_type_embeddings.state_dict())
        norm(encoder.enter.norm, vectors.LayerNorm)
        for mine, their in zip(encoder.stack, theirs.bert.encoder.layer, strict=True):
            block_of_bert(mine, their)
        assert isinstance(ours.head, Dense)
        ours.head.layer.load_state_dict(theirs.cls.predictions.transform.dense.state_dict())
        norm(ours.head.norm, theirs.cls.predictions.transform.LayerNorm)
        ours.output.bias.copy_(theirs.cls.predictions.decoder.bias)
        assert ours.next_sentence is not None
        ours.next_sentence.pool.load_state_dict(theirs.bert.pooler.dense.state_dict())
        ours.next_sentence.output.load_state_dict(theirs.cls.seq_relationship.state_dict())
    return ours


def pairs() -> Batch:
    """a END b END, with two blanks in every row."""
    generator = torch.Generator().manual_seed(1)
    sources, targets = [], []
    for row, length in enumerate(LENGTHS):
        source = torch.randint(4, V, (length,), generator=generator).tolist()
        source[length // 2], source[-1] = END, END
        target = [PAD] * length
        for place in (0, length - 2):
            target[place] = int(torch.randint(4, V, (), generator=generator))
        target[-1] = 1 + row % 2
        sources.append(source)
        targets.append(target)
    return Batch(Tokens.of(sources), Tokens.of(targets))


def rolled(x_BS: Tensor, layout: Layout) -> Tensor:
    """Each row's last entry first."""
    out = x_BS.clone()
    for b, length in enumerate(layout.lengths_B.tolist()):
        out[b, :length] = x_BS[b, :length].roll(1)
    return out


def test_bert_for_pre_training(transformers: Any) -> None:
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=V, max_position_embeddings=PLACES, hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, intermediate_size=17, attn_implementation="eager",
    )  # fmt: skip
    theirs = randomised(transformers.BertForPreTraining(settings))
    ours, batch = copied(theirs), pairs()
    source, layout = batch.source.ids, batch.source.layout
    valid = valid_BT(layout)
    behind = (source == END).long().cumsum(1) - (source == END).long()
    blanks = batch.target.ids.masked_fill(source == END, PAD)
    answer = theirs(
        input_ids=rolled(source, layout),
        attention_mask=valid.long(),
        token_type_ids=rolled(behind.masked_fill(~valid, 0), layout),
        position_ids=rolled(torch.arange(layout.longest).expand_as(source), layout),
        labels=rolled(blanks.masked_fill(blanks == PAD, -100), layout),
        next_sentence_label=torch.tensor([0, 1, 0]),
    )

    def assert_near(mine: Tensor, their: Tensor) -> None:
        assert_close(mine, their, rtol=2e-5, atol=2e-5)

    logits = ours(batch.source)
    for b, length in enumerate(LENGTHS):
        assert_near(logits[b, :length].roll(1, 0), answer.prediction_logits[b, :length])
    assert ours.next_sentence is not None
    scores = ours.next_sentence(ours.encode(batch.source))
    assert_near(scores, answer.seq_relationship_logits)

    loss = ours.loss(batch)
    count = PREDICTED * len(LENGTHS)
    assert_near(loss.total / count, answer.loss)
    of_pairs = torch.nn.functional.cross_entropy(answer.seq_relationship_logits, torch.tensor([0, 1, 0]))
    assert_near(loss.extra["next_sentence"] / count, of_pairs)
    assert_near((loss.total - loss.extra["next_sentence"]) / count, answer.loss - of_pairs)
    judged = ours.judge(batch)
    assert_near(judged.nll.float() / count, answer.loss - of_pairs)
    assert_near(judged.pair_nll.float() / len(LENGTHS), of_pairs)

    torch.autograd.backward(loss.total / count)
    answer.loss.backward()
    vectors, encoder = theirs.bert.embeddings, ours.encoder
    assert isinstance(encoder, TransformerEncoder)
    assert encoder.segments is not None
    assert isinstance(ours.head, Dense)
    twins = [
        (encoder.embed.table.weight, vectors.word_embeddings.weight),  # tied: both uses of it
        (encoder.segments.table.weight, vectors.token_type_embeddings.weight),
        (ours.head.layer.weight, theirs.cls.predictions.transform.dense.weight),
        (ours.output.bias, theirs.cls.predictions.bias),
        (ours.next_sentence.pool.weight, theirs.bert.pooler.dense.weight),
    ]
    for mine, their in twins:
        assert mine.grad is not None
        their_gradient = their.grad.clone()
        if mine is encoder.embed.table.weight:
            their_gradient[0] = mine.grad[0]  # they leave out PAD as an input; here it occurs as an output alone
        assert_near(mine.grad, their_gradient)


@pytest.mark.parametrize(
    ("layers", "width", "heads", "size"), [(12, 768, 12, 110_106_428), (24, 1024, 16, 336_226_108)]
)
def test_the_size_of_bert_with_its_heads(layers: int, width: int, heads: int, size: int) -> None:
    """With 30,522 tokens: 109,482,240 and 335,141,888 of the model itself, the heads beside them, the output tied."""
    config = bert(layers=layers, width=width, heads=heads, feedforward=4 * width, places=512)
    with torch.device("meta"):
        model = build_masked(config, 30_522)
    assert sum(p.numel() for p in model.parameters()) == size
