"""Masked language models: an encoder that reads a text with blanks, and a head that says what stood in them.

A batch's `source` is the text with its blanks; its `target` is laid out alike, with the token that stood in each blank
and PAD everywhere else (data/masking.py). Where pairs of sentences are told apart, too, a row's last END has the label
for its target (data/next_sentence.py): 1 where the second sentence follows the first, 2 where it does not.
Shapes: B rows, S tokens of a row, N all places of a batch, K places that are looked at, D width, V vocabulary.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.config import Section
from saccade.loss import Loss
from saccade.models.encoders import EncoderConfig, RecurrentEncoder, RecurrentEncoderConfig
from saccade.models.trainable import Trainable
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.vectors import VectorsConfig, check_free
from saccade.nn import masks
from saccade.nn.dropout import Dropout
from saccade.nn.kernels import Activation, activate, product
from saccade.nn.linear_loss import linear_cross_entropy
from saccade.nn.watch import Watch
from saccade.types import END, PAD, Batch, Encoded, Layout, Tokens

JUDGED_AT_ONCE = 1 << 24
"""Logits that are held at once where predictions are compared with what was right."""


class DenseHead(Section):
    kind: Literal["dense"] = "dense"
    """A layer, an activation and a norm between encoder and output, as BERT has them."""
    activation: Activation = "gelu"
    """Behind that layer."""
    epsilon: float = Field(1e-5, gt=0.0)
    """What the norm adds to the variance (BERT: 1e-12)."""


class PlainHead(Section):
    kind: Literal["plain"] = "plain"
    """The output layer reads what the encoder made."""


HeadConfig = Annotated[DenseHead | PlainHead, Field(discriminator="kind")]


class MaskedConfig(Section):
    encoder: EncoderConfig
    """How the text is read."""
    head: HeadConfig = DenseHead()
    """What stands between the encoder and the output."""
    tie: Literal["none", "output"] = "output"
    """Share weights: output = the token vectors also score the output, as in BERT."""
    next_sentence: bool = False
    """Also tell whether the second of two sentences follows the first (BERT's second task)."""
    vectors: VectorsConfig | None = None
    """Pretrained word vectors that the token vectors begin with; for text of kind word."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "MaskedConfig":
        check_free(self.vectors, tied=self.tie == "output")
        if isinstance(self.encoder, RecurrentEncoderConfig) and not self.encoder.bidirectional:
            raise ValueError(
                "encoder.bidirectional is false: a blank is filled from both sides, but what follows it would not be "
                "seen. Set it to true"
            )
        if self.encoder.reads_parse:
            raise ValueError(
                "encoder.positions is tree: a text with blanks comes without its dependency trees. Use other positions"
            )
        into = self.encoder.embedding_width
        if self.tie == "output" and isinstance(self.head, PlainHead) and into != self.encoder.width:
            raise ValueError(
                f"tie is output and head is plain: the token vectors (encoder.embedding {into}) also score what the "
                f"encoder makes, so they must be as wide as it ({self.encoder.width}). Or take the head dense, which "
                "maps one to the other"
            )
        return self


class Dense(nn.Module):
    """norm(φ(W x + b)): the transform of BERT's head."""

    def __init__(self, config: DenseHead, width: int, out: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, out)
        self.norm = nn.LayerNorm(out, config.epsilon)
        self.activation: Activation = config.activation
        self.dropout = Dropout(0.0)  # BERT has none here

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(activate(product(x, self.layer), self.activation, self.dropout))
        return out


class NextSentence(nn.Module):
    """W₂ tanh(W₁ x) of each row's last vector, that of END: BERT's pooler and its classifier, which read [CLS]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.pool = nn.Linear(width, width)
        self.output = nn.Linear(width, 2)

    def forward(self, encoded: Encoded) -> Tensor:
        last_BD = encoded.memory.flatten(0, -2).index_select(0, masks.ends_B(encoded.layout))
        scores_B2: Tensor = self.output(torch.tanh(self.pool(last_BD)))
        return scores_B2


@dataclass(frozen=True)
class Judged:
    """How good predictions were: sums, on the device; and what came of each row."""

    nll: Tensor
    tokens: Tensor
    correct: Tensor
    pair_nll: Tensor
    pairs: Tensor
    correct_pairs: Tensor
    rows: tuple[Tensor, ...]
    """(B, 3), one of each batch: the nats of a row's blanks, how many were right, and how many they are."""

    def __add__(self, other: "Judged") -> "Judged":
        return Judged(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


class MaskedModel(Trainable):
    fills = True

    def __init__(
        self, config: MaskedConfig, encoder: RecurrentEncoder | TransformerEncoder, vocabulary: int, most: float = 1.0
    ) -> None:
        """`most`: the share of a batch's places that may be blanks, beside one of each row.

        On a GPU it fixes how many vectors the output layer reads, where nobody waits to be told how many there are.
        """
        super().__init__()
        self.encoder = encoder
        width, into = config.encoder.width, config.encoder.embedding_width
        self.head: Dense | nn.Identity = nn.Identity()
        if isinstance(config.head, DenseHead):
            self.head, width = Dense(config.head, width, into), into
        self.output = nn.Linear(width, vocabulary)
        nn.init.normal_(self.output.weight, std=width**-0.5)
        nn.init.zeros_(self.output.bias)
        if config.tie == "output":
            self.output.weight = encoder.embed.table.weight
        self.next_sentence = NextSentence(config.encoder.width) if config.next_sentence else None
        self.most = most

    def encode(self, source: Tokens, watch: Watch | None = None) -> Encoded:
        encoded: Encoded = self.encoder(source, watch)
        return encoded

    def forward(self, source: Tokens, watch: Watch | None = None) -> Tensor:
        """Logits (…, V) of what may stand at every place, laid out as the source."""
        logits: Tensor = self.output(self.head(_as(self.encode(source, watch), source.layout)))
        return logits

    def read(self, source: Tokens) -> Tensor:
        """One vector for each place of the source's layout: (N, D)."""
        return _as(self.encode(source), source.layout).flatten(0, -2)

    def scores(self, memory_ND: Tensor, places_K: Tensor) -> Tensor:
        """Logits (K, V) of what may stand at some of those places."""
        logits_KV: Tensor = self.output(self.head(memory_ND.index_select(0, places_K)))
        return logits_KV

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        """That of the blanks; and where pairs are told apart, that of their labels.

        BERT adds the two means. Here a pair's term weighs as much as all blanks of its row together, so that both are
        sums over rows, which divided by the same number become means.
        """
        encoded, target = self.encode(batch.source), batch.target
        gold = _blanks(batch)
        places_K, too_many = self._places(gold.flatten(), len(batch))
        x_KD = self.head(masks.at(_as(encoded, target.layout).flatten(0, -2), places_K))
        gold_K = gold.flatten().index_select(0, places_K)
        sums = linear_cross_entropy(x_KD, self.output.weight, self.output.bias, gold_K, smoothing)
        total = sums.total if too_many is None else torch.where(too_many, torch.nan, sums.total)
        if self.next_sentence is None:
            return Loss(total, sums.nll, (gold != PAD).sum())
        nll_B, said_B = _pair_losses(self.next_sentence(encoded), target)
        blanks_B = masks.pad((gold != PAD).long(), target.layout).sum(1)
        both = Loss(total, sums.nll + nll_B.detach().sum(), blanks_B.sum() + said_B.sum())
        return both.plus({"next_sentence": (nll_B * blanks_B).sum()})

    @torch.no_grad()
    def judge(self, batch: Batch) -> Judged:
        """How probable what stood in the blanks is held to be, and how often it comes first; of pairs, too."""
        encoded, gold = self.encode(batch.source), _blanks(batch)
        gold_N = gold.flatten()
        places_K = gold_N.nonzero().squeeze(-1)
        memory_ND = _as(encoded, batch.target.layout).flatten(0, -2)
        nll_N, right_N = (torch.zeros_like(gold_N, dtype=torch.float64) for _ in range(2))
        for some_R in torch.split(places_K, max(1, JUDGED_AT_ONCE // self.output.out_features)):
            log_p_RV = precise(self.scores(memory_ND, some_R)).log_softmax(-1)
            gold_R = gold_N.index_select(0, some_R)
            nll_N[some_R] = -log_p_RV.gather(-1, gold_R[:, None]).squeeze(-1).double()
            right_N[some_R] = (log_p_RV.argmax(-1) == gold_R).double()
        layout = batch.target.layout
        by_row = [masks.pad(each.view_as(gold), layout).sum(1) for each in (nll_N, right_N, (gold_N != PAD).double())]
        nll, rows = nll_N.sum(), (torch.stack(by_row, dim=-1),)
        correct = right_N.sum().long()
        tokens, none = torch.full_like(correct, len(places_K)), torch.zeros_like(correct)
        if self.next_sentence is None:
            return Judged(nll, tokens, correct, torch.zeros_like(nll), none, none, rows)
        scores_B2 = self.next_sentence(encoded)
        nll_B, said_B = _pair_losses(scores_B2, batch.target)
        right_B = said_B & (scores_B2.argmax(-1) + 1 == _last(batch.target))
        return Judged(nll, tokens, correct, nll_B.sum().double(), said_B.sum(), right_B.sum(), rows)

    def _places(self, gold_N: Tensor, rows: int) -> tuple[Tensor, Tensor | None]:
        """Where the blanks are: so that what the output layer costs goes by them, not by all tokens.

        On a GPU, as many places as there may be blanks, with all blanks among them; and whether there were more, which
        cannot be told to anybody there but by a loss that is no number.
        """
        if not gold_N.is_cuda:
            return gold_N.nonzero().squeeze(-1), None
        room = min(len(gold_N), int(self.most * len(gold_N)) + rows + 1)
        blank_N = (gold_N != PAD).long()
        blanks_N, others_N = blank_N.cumsum(0), (1 - blank_N).cumsum(0)
        turn_N = torch.where(blank_N == 1, blanks_N, blanks_N[-1] + others_N) - 1  # blanks first, each side in order
        order_N = torch.empty_like(turn_N).index_copy_(0, turn_N, torch.arange(len(turn_N), device=turn_N.device))
        return order_N[:room], blanks_N[-1] > room


def precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _as(encoded: Encoded, layout: Layout) -> Tensor:
    """The memory in the layout of what was read: recurrent encoders leave it padded."""
    if layout.is_packed and not encoded.layout.is_packed:
        return masks.pack(encoded.memory, layout)
    return encoded.memory


def _blanks(batch: Batch) -> Tensor:
    """The target without what is none of its blanks: labels, which stand at an END, and what lies on padding."""
    gold = batch.target.ids.masked_fill(batch.source.ids == END, PAD)
    layout = batch.target.layout
    return gold if layout.is_packed else gold.masked_fill(~masks.valid_BT(layout), PAD)


def _last(target: Tokens) -> Tensor:
    """Each row's last target: the label of a pair, or PAD."""
    last_B = target.ids.flatten().index_select(0, masks.ends_B(target.layout))
    return last_B.masked_fill(target.layout.lengths_B == 0, PAD)


def _pair_losses(scores_B2: Tensor, target: Tokens) -> tuple[Tensor, Tensor]:
    """Of each row the negative log-likelihood of its label, 0 where it has none; and whether it has one."""
    label_B = _last(target)
    said_B = label_B != PAD
    nll_B = F.cross_entropy(precise(scores_B2), (label_B - 1).clamp(min=0), reduction="none")
    return torch.where(said_B, nll_B, 0.0), said_B
