"""Tagging: an encoder of words, and for each word one of a few tags, chosen word by word or as a whole path.

A batch's `source` has the words of sentences. What they are made of stands in `source.inside`: characters, which are
read beside the words, or pieces, which are read in their place. `target` has tags, laid out as the words; ids begin at
1, and PAD stands where no tag is known. Inside, all goes by words in a row, without padding.
Shapes: B sentences, T words, N words of all sentences, M pieces of all words, C width of characters, K tags.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from saccade.config import Section
from saccade.errors import SaccadeError, UsageError
from saccade.loss import Loss
from saccade.models.encoders import EncoderConfig, RecurrentEncoder
from saccade.models.reading import output_layer
from saccade.models.trainable import Trainable
from saccade.models.transformer_encoder import TransformerEncoder
from saccade.models.vectors import VectorsConfig
from saccade.nn import masks
from saccade.nn.characters import CharacterCnn, CharacterLstm
from saccade.nn.crf import Crf
from saccade.nn.watch import Watch
from saccade.types import PAD, Batch, Layout, Tokens


class CnnCharacters(Section):
    kind: Literal["cnn"] = "cnn"
    """Filters over neighbouring characters, and the largest of each over the word (Ma & Hovy 2016)."""
    embedding: int = Field(30, ge=1)
    """Width of a character's vector."""
    filters: int = Field(30, ge=1)
    """How many filters: the width of what is known of a word by its characters."""
    window: int = Field(3, ge=1)
    """How many neighbouring characters a filter sees."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the characters' vectors."""

    @property
    def width(self) -> int:
        return self.filters


class LstmCharacters(Section):
    kind: Literal["lstm"] = "lstm"
    """An LSTM from either end of the word, its two last states (Lample et al. 2016)."""
    embedding: int = Field(25, ge=1)
    """Width of a character's vector."""
    width: int = Field(50, ge=2)
    """Width of both directions' states together: of what is known of a word by its characters."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on the characters' vectors."""

    @model_validator(mode="after")
    def _halves(self) -> "LstmCharacters":
        if self.width % 2:
            raise ValueError(f"width is {self.width}; each direction has half of it: make it even")
        return self


class SoftmaxOutput(Section):
    kind: Literal["softmax"] = "softmax"
    """Each word's tag by itself."""


class CrfOutput(Section):
    kind: Literal["crf"] = "crf"
    """The best path of tags, with scores of steps from tag to tag: a linear-chain conditional random field."""
    constrain: Literal["none", "search", "all"] = "search"
    """Forbid steps that no span can have, as I-PER behind O: in the search for the best path, in training as well."""


CharactersConfig = Annotated[CnnCharacters | LstmCharacters, Field(discriminator="kind")]
OutputConfig = Annotated[SoftmaxOutput | CrfOutput, Field(discriminator="kind")]


class TaggerConfig(Section):
    encoder: EncoderConfig
    """How the words are read."""
    characters: CharactersConfig | None = None
    """How the characters of words are read beside the words; null: they are not."""
    output: OutputConfig = SoftmaxOutput()
    """How tags are chosen: softmax or crf."""
    pieces: Literal["first", "last", "mean"] = "first"
    """Where words are cut into pieces: which piece's vector stands for the word (BERT: the first)."""
    scheme: Literal["iob2", "bioes"] = "bioes"
    """How spans are written as tags for the model to learn, however the data write them."""
    vectors: VectorsConfig | None = None
    """Pretrained word vectors that the encoder's token vectors begin with."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "TaggerConfig":
        if self.encoder.reads_parse:
            raise ValueError("encoder.positions is tree, but the words of a tagger come without a dependency parse")
        return self


Steps = tuple[list[bool], list[list[bool]], list[bool]]
"""Which tags may begin a sentence, follow one another ([from][to]), end it: as `text.tags.TagSet.steps` says it."""


class TaggerSizes(NamedTuple):
    """What a tagger has to know of its vocabularies."""

    tokens: int
    """Ids of words, or of pieces."""
    tags: int
    """How many tags there are; their ids are 1 to that."""
    characters: int = 0
    in_pieces: bool = False
    """Whether what stands inside of words are pieces, to be read in their place."""

    @staticmethod
    def named(sizes: Mapping[str, int]) -> "TaggerSizes":
        """As config.json has them: of words, with or without characters, or of pieces; and of tags."""
        in_pieces = "pieces" in sizes
        return TaggerSizes(
            sizes["pieces" if in_pieces else "words"], sizes["tags"], sizes.get("characters", 0), in_pieces
        )


class Prediction(NamedTuple):
    """The tags of all words in a row."""

    tags_N: Tensor
    """Ids from 1 on."""
    probability_N: Tensor | None
    """Of that tag given the sentence: of a crf, summed over all paths that have it there."""
    log_probability_B: Tensor | None
    """Of the tags of each sentence together."""


class Tagger(Trainable):
    def __init__(
        self,
        encoder: RecurrentEncoder | TransformerEncoder,
        characters: CharacterCnn | CharacterLstm | None,
        crf: Crf | None,
        sizes: TaggerSizes,
        pieces: Literal["first", "last", "mean"],
    ) -> None:
        super().__init__()
        self.encoder, self.characters, self.crf = encoder, characters, crf
        self.in_pieces, self.pieces = sizes.in_pieces, pieces
        self.output = output_layer(encoder.width, sizes.tags)

    def forward(self, source: Tokens, watch: Watch | None = None) -> Tensor:
        """Each word's own scores of the tags (N, K)."""
        words = source.packed()
        if self.in_pieces:
            features_ND = self._of_pieces(words, watch)
        else:
            beside_NC = None if self.characters is None else self.characters(_inside(words))
            encoded = self.encoder(words, watch, beside_NC)
            features_ND = encoded.memory if encoded.layout.is_packed else masks.pack(encoded.memory, words.layout)
        scores_NK: Tensor = self.output(features_ND)
        return scores_NK

    @property
    def captured(self) -> bool:  # type: ignore[override]
        """How long sentences are in pieces is known on the device alone: a graph would pad them all to the most."""
        return not self.in_pieces

    @property
    def fills(self) -> bool:  # type: ignore[override]
        """What is not captured gains nothing by being filled up."""
        return self.captured

    def _of_pieces(self, words: Tokens, watch: Watch | None) -> Tensor:
        """The pieces of each sentence in a row are read; what stands for a word is taken from its own."""
        inside = _inside(words).packed()
        pieces = Tokens(inside.ids, _in_a_row(words.layout, inside.layout))
        encoded = self.encoder(pieces, watch)
        memory_MD = encoded.memory if encoded.layout.is_packed else masks.pack(encoded.memory, pieces.layout)
        begin_N, length_N = inside.layout.offsets_B, inside.layout.lengths_B
        assert begin_N is not None  # packed
        match self.pieces:
            case "first":
                return memory_MD[begin_N]
            case "last":
                return memory_MD[begin_N + length_N - 1]
            case "mean":
                return torch.segment_reduce(memory_MD, "mean", lengths=length_N, unsafe=True)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> Loss:
        words = batch.source.packed()
        return self.loss_of(self(words), words.layout, batch.target.packed().ids, smoothing)

    def loss_of(self, scores_NK: Tensor, layout: Layout, gold_N: Tensor, smoothing: float = 0.0) -> Loss:
        """Of what `forward` gave, laid out as packed words."""
        scores_NK = _precise(scores_NK)
        if self.crf is not None:
            return self._path_loss(self.crf, scores_NK, layout, gold_N, smoothing)
        tags_N = gold_N - 1  # PAD becomes −1, which is left out
        nll = F.cross_entropy(scores_NK, tags_N, ignore_index=-1, reduction="sum")
        total = nll
        if smoothing:
            total = F.cross_entropy(scores_NK, tags_N, ignore_index=-1, reduction="sum", label_smoothing=smoothing)
        return Loss(total, nll.detach(), (gold_N != PAD).sum())

    def _path_loss(self, crf: Crf, scores_NK: Tensor, layout: Layout, gold_N: Tensor, smoothing: float) -> Loss:
        if smoothing:
            raise UsageError(
                f"train.smoothing is {smoothing}: it spreads a tag's probability word by word, but model.output is "
                "crf, which gives probabilities to whole paths. Set it to 0, or model.output.kind to softmax."
            )
        gold_BT = masks.pad(gold_N, layout)
        tags_BT, known_BT = (gold_BT - 1).clamp(min=0), gold_BT != PAD
        nll = crf.nll(masks.pad(scores_NK, layout), tags_BT, known_BT, layout.unpacked()).sum()
        return Loss(nll, nll.detach(), known_BT.sum())

    def predict(self, source: Tokens, *, probabilities: bool = True) -> Prediction:
        words = source.packed()
        return self.best_of(self(words), words.layout, probabilities=probabilities)

    def best_of(self, scores_NK: Tensor, layout: Layout, *, probabilities: bool = True) -> Prediction:
        """The best tags, given what `forward` gave; their probabilities, which take a while, where asked for."""
        scores_NK = _precise(scores_NK)
        if self.crf is not None:
            return _best_path(self.crf, scores_NK, layout, probabilities=probabilities)
        if not probabilities:
            return Prediction(1 + scores_NK.argmax(-1), None, None)
        best_N, tags_N = scores_NK.log_softmax(-1).max(-1)
        return Prediction(1 + tags_N, best_N.exp(), masks.pad(best_N, layout).sum(-1))


def _precise(scores_NK: Tensor) -> Tensor:
    return scores_NK.to(torch.promote_types(scores_NK.dtype, torch.float32))


def _best_path(crf: Crf, scores_NK: Tensor, layout: Layout, *, probabilities: bool) -> Prediction:
    P_BTK, padded = masks.pad(scores_NK, layout), layout.unpacked()
    tags_BT = crf.best(P_BTK, padded).tags_BT
    tags_N = 1 + masks.pack(tags_BT, layout)
    if not probabilities:
        return Prediction(tags_N, None, None)
    of_tags_BT = crf.marginals(P_BTK, padded).gather(-1, tags_BT[:, :, None]).squeeze(-1)
    return Prediction(tags_N, masks.pack(of_tags_BT, layout), crf.log_probability(P_BTK, tags_BT, padded))


def _inside(words: Tokens) -> Tokens:
    if words.inside is None:
        raise SaccadeError("the tagger reads characters or pieces of words, but the words came without (Tokens.inside)")
    return words.inside


def _in_a_row(words: Layout, pieces: Layout) -> Layout:
    """The layout of sentences of pieces, given that of sentences of words and that of words of pieces; all packed.

    The longest sentence's length has to be known on the host, which waits for it.
    """
    assert words.offsets_B is not None
    assert pieces.offsets_B is not None
    end_N = pieces.offsets_B + pieces.lengths_B
    before_N = torch.cat([end_N.new_zeros(1), end_N])  # pieces before each word, and in all
    offsets_B = before_N[words.offsets_B]
    lengths_B = before_N[words.offsets_B + words.lengths_B] - offsets_B
    longest = int(lengths_B.max())
    count = _count(pieces)
    row_M = torch.arange(len(lengths_B), device=lengths_B.device).repeat_interleave(lengths_B, output_size=count)
    slots_M = row_M * longest + torch.arange(count, device=lengths_B.device) - offsets_B[row_M]
    return Layout(lengths_B, longest, False, offsets_B, slots_M)


def _count(packed: Layout) -> int:
    assert packed.slots_N is not None
    return len(packed.slots_N)
