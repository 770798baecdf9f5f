"""What recurrent encoder and decoder have in common: which cell, how its layers are stacked, what is dropped."""

from typing import Literal

from pydantic import Field, model_validator
from torch import nn

from saccade.config import Section
from saccade.nn.cells import Activation, Polarity, ResetPlace, Variant
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.locked import LockedDropout
from saccade.nn.recurrent import CellKind, RecurrentLayers, StackKind

CONCERNS: dict[str, tuple[CellKind, ...]] = {
    "activation": ("elman",),
    "identity": ("elman",),
    "forget_gate": ("lstm",),
    "forget_bias": ("lstm", "lstmn"),
    "peepholes": ("lstm",),
    "reset": ("gru",),
    "polarity": ("gru",),
    "layer_norm": ("elman", "lstm", "gru"),
    "last_read": ("lstmn",),
}
"""Which kinds of cell a setting of `cell` concerns."""


class CellConfig(Section):
    """Which of its published forms a cell has."""

    activation: Activation = "tanh"
    """Of elman: what its sum goes through; Elman's own was logistic."""
    identity: bool = False
    """Of elman: begin with the identity matrix as recurrent weights (Le et al. 2015, with relu)."""
    forget_gate: bool = True
    """Of lstm: the gate of Gers et al. (2000); without it, the constant error carousel of 1997."""
    forget_bias: float = 1.0
    """Of lstm and lstmn: what the forget gate's bias begins at (Jozefowicz et al. 2015)."""
    peepholes: bool = False
    """Of lstm: the gates see the memory cells (Gers & Schmidhuber 2000)."""
    reset: ResetPlace = "after"
    """Of gru: the reset gate acts after the recurrent product (torch, cuDNN) or before it (Cho et al. 2014)."""
    polarity: Polarity = "keep"
    """Of gru: the gate z keeps the old state (Cho et al. 2014, torch) or lets the new one in (Chung et al. 2014)."""
    layer_norm: bool = False
    """Of elman, lstm and gru: layer norm inside the cell (Ba et al. 2016)."""
    last_read: bool = True
    """Of lstmn: what was read last from the tape is part of the score (the paper) or not (the authors' encoder)."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "CellConfig":
        if not self.forget_gate and self.forget_bias != 1.0:
            raise ValueError(f"forget_bias is {self.forget_bias}, but forget_gate is off: there is no such bias")
        return self

    def check_with(self, kind: CellKind) -> None:
        """Refuse what does not concern this kind of cell."""
        for name, kinds in CONCERNS.items():
            value = getattr(self, name)
            if kind not in kinds and value != CellConfig.model_fields[name].default:
                raise ValueError(f"cell.{name} is {value}, which is a setting of {' and '.join(kinds)}; kind is {kind}")

    def variant(self) -> Variant:
        return Variant(
            activation=self.activation,
            identity=self.identity,
            forget_gate=self.forget_gate,
            forget_bias=self.forget_bias,
            peepholes=self.peepholes,
            reset=self.reset,
            polarity=self.polarity,
            layer_norm=self.layer_norm,
            last_read=self.last_read,
        )


class RecurrentConfig(Section):
    """What recurrent encoder and decoder have in common."""

    kind: CellKind = "lstm"
    """Which recurrent cell; lstmn is the LSTM that attends to its own past (Cheng et al. 2016)."""
    layers: int = Field(1, ge=1)
    """How many layers are stacked."""
    width: int = Field(256, ge=1)
    """Width of each layer's output; with two directions each has half of it."""
    cell: CellConfig = CellConfig()
    """Which form of the cell."""
    stack: StackKind = "plain"
    """What a layer hands up: its output, plus its input (residual) or all inputs so far (dense; Britz et al. 2017)."""
    embedding: int | None = Field(None, ge=1)
    """Width of the token vectors; the layers' width where not given."""
    scale_embedding: bool = False
    """Token vectors times √(their width) where they are read, as in Transformers; not where they score the output."""
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Dropout on token vectors, between layers and on what comes out; the recurrence itself is left alone."""
    locked: bool = False
    """That dropout has the same mask at all steps of a sentence (variational dropout, Gal & Ghahramani 2016)."""
    weight_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the recurrent weights that is 0 for a whole batch (Merity et al. 2018)."""
    embedding_dropout: float = Field(0.0, ge=0.0, lt=1.0)
    """Share of the vocabulary whose vectors are 0 for a whole batch (Gal & Ghahramani 2016)."""

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    @model_validator(mode="after")
    def _cell_fits(self) -> "RecurrentConfig":
        self.cell.check_with(self.kind)
        return self


def recurrent_layers(
    config: RecurrentConfig,
    input_width: int,
    *,
    bidirectional: bool,
    role: Literal["encoder", "decoder"],
    source_width: int | None = None,
    last_width: int | None = None,
) -> RecurrentLayers:
    return RecurrentLayers(
        config.kind,
        input_width,
        config.width,
        config.layers,
        bidirectional=bidirectional,
        dropout=config.dropout,
        variant=config.cell.variant(),
        stack=config.stack,
        locked=config.locked,
        weight_dropout=config.weight_dropout,
        source_width=source_width,
        last_width=last_width,
        role=role,
    )


def recurrent_embedding(config: RecurrentConfig, vocabulary: int) -> TokenEmbedding:
    """Its dropout is drawn token by token; a locked one has to know sentences, and follows where they are padded."""
    return TokenEmbedding(
        vocabulary,
        config.embedding_width,
        scaled=config.scale_embedding,
        dropout=0.0 if config.locked else config.dropout,
        word_dropout=config.embedding_dropout,
    )


def locked_dropout(config: RecurrentConfig) -> LockedDropout:
    """Of the token vectors, (B, T, D)."""
    return LockedDropout(config.dropout if config.locked else 0.0)


def output_dropout(config: RecurrentConfig) -> nn.Module:
    """Of what comes out, (B, T, D)."""
    return LockedDropout(config.dropout) if config.locked else Dropout(config.dropout)
