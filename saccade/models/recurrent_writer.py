"""A recurrent network that reads a text and scores every next token: the decoder without a source.

With its settings it is the language model of Mikolov et al. (2010), Zaremba et al. (2014), or AWD-LSTM (Merity et al.
2018).
Shapes: B texts, N hypotheses, T tokens, X token width, D width of the last layer, V vocabulary.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.models.cells import RecurrentConfig, recurrent_layers
from saccade.models.reading import Carried, Reading, output_layer
from saccade.nn import masks
from saccade.nn.cells import Memory
from saccade.nn.dropout import Dropout
from saccade.nn.embedding import TokenEmbedding
from saccade.nn.locked import LockedDropout
from saccade.nn.regularisation import activation, change
from saccade.nn.watch import Watch
from saccade.types import Layout, State, Tokens


class RecurrentWriterConfig(RecurrentConfig):
    last_width: int | None = Field(None, ge=1)
    """Width of the last layer, where it is not that of the others (AWD-LSTM: that of the token vectors)."""
    input_dropout: float | None = Field(None, ge=0.0, lt=1.0)
    """Dropout on token vectors, where it is not `dropout`."""
    output_dropout: float | None = Field(None, ge=0.0, lt=1.0)
    """Dropout on what comes out, where it is not `dropout`."""
    activation_penalty: float = Field(0.0, ge=0.0)
    """AR (Merity et al. 2017): this × the mean square of what comes out, with its dropout, is added to the loss."""
    change_penalty: float = Field(0.0, ge=0.0)
    """TAR: this × the mean square of the change of what comes out from token to token, before its dropout."""
    uniform: Annotated[float, Field(gt=0.0)] | Literal["width"] | None = None
    """All weights begin evenly within ± this (Zaremba et al. 2014); width: each layer's within ±1/√its width, token
    vectors and output within ±0.1 (Merity et al. 2018); none: each as its layer's paper has it."""

    @model_validator(mode="after")
    def _layers_fit(self) -> "RecurrentWriterConfig":
        if self.last_width is not None and self.layers == 1:
            raise ValueError(f"last_width is {self.last_width}, but there is one layer: set its width")
        if self.last_width is not None and self.stack != "plain":
            raise ValueError(
                f"last_width is {self.last_width} and stack is {self.stack}, which adds up what layers hand on: "
                "they must be of one width"
            )
        if self.uniform is not None and self.cell.layer_norm:
            raise ValueError("uniform would draw the gains of cell.layer_norm, too, which begin at 1: leave one out")
        return self

    def output_width(self, memory_width: int = 0) -> int:
        """How wide the vector is that the output layer reads."""
        return self.last_width or self.width

    def check_causal(self) -> None:
        """It reads in one direction."""

    @property
    def before_layers(self) -> float:
        return self.dropout if self.input_dropout is None else self.input_dropout

    @property
    def behind_layers(self) -> float:
        return self.dropout if self.output_dropout is None else self.output_dropout


class RecurrentWriter(nn.Module):
    """p(w_{t+1} | w_1 … w_t) = softmax(W h_t + b), h being what the last layer makes of the token vectors."""

    computes_padding, mixes_sentences = True, False

    def __init__(self, config: RecurrentWriterConfig, vocabulary: int) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.forgets = config.kind == "lstmn"
        before, behind = config.before_layers, config.behind_layers
        self.embed = TokenEmbedding(
            vocabulary,
            config.embedding_width,
            scaled=config.scale_embedding,
            dropout=0.0 if config.locked else before,
            word_dropout=config.embedding_dropout,
        )
        self.locked = LockedDropout(before if config.locked else 0.0)
        self.layers = recurrent_layers(
            config, config.embedding_width, bidirectional=False, role="decoder", last_width=config.last_width
        )
        self.dropout = LockedDropout(behind) if config.locked else Dropout(behind)
        self.output = output_layer(config.output_width(), vocabulary)
        match config.uniform:
            case None:
                pass
            case "width":
                self._draw_by_width()
            case reach:
                _draw(self, reach)

    def _draw_by_width(self) -> None:
        """Small first weights: with larger ones AWD-LSTM learnt next to nothing for its first eleven epochs."""
        widths = [self.width] * (self.config.layers - 1) + [self.config.output_width()]
        for parts, width in zip(self.layers.levels, widths, strict=True):
            for part in parts:
                _draw(part, width**-0.5)
        _draw(self.embed, 0.1)
        _draw(self.output, 0.1)
        nn.init.zeros_(self.output.bias)

    # ---- whole stretches

    def begin(self, rows: int) -> Carried:
        return _carried(self.layers.nothing_yet(self._rows(rows)))

    def read(self, given: Tokens, carried: Carried, watch: Watch | None = None) -> Reading:
        """Of an lstmn the tape begins anew, with the state that was carried on: it could not grow for ever."""
        layout = given.layout
        x_BTX = self.locked(masks.pad(self._embedded(given.ids), layout))
        before = self.layers.open(_memories(carried, len(self.layers.forwards)), layout.longest)
        raw_BTD, after = self.layers(x_BTX, layout.unpacked(), before, watch)
        out_BTD: Tensor = self.dropout(raw_BTD)
        kept = ({name: memory[name] for name in self.layers.first.states} for memory in after)
        return Reading(masks.pack(out_BTD, layout), _carried(kept), self._terms(out_BTD, raw_BTD, layout))

    def _terms(self, out_BTD: Tensor, raw_BTD: Tensor, layout: Layout) -> dict[str, Tensor]:
        """Means become sums over tokens, as the loss is one: divided by the tokens they are means again."""
        terms, valid_BT, tokens = dict[str, Tensor](), masks.valid_BT(layout), layout.lengths_B.sum()
        if self.config.activation_penalty:
            terms["activation"] = self.config.activation_penalty * tokens * activation(out_BTD, valid_BT)
        if self.config.change_penalty:
            terms["change"] = self.config.change_penalty * tokens * change(raw_BTD, valid_BT)
        return terms

    # ---- step by step

    def start(self, rows: int, max_steps: int) -> State:
        return State({}, {"layers": self.layers.open(self.layers.nothing_yet(self._rows(rows)), max_steps)})

    def step(self, last_N: Tensor, state: State) -> tuple[Tensor, State]:
        x_NX = self._embedded(last_N)
        top_ND, layers = self.layers.step(self.layers.hoist(x_NX), state.hypothesis["layers"])
        return self.output(top_ND), State(state.source, {"layers": layers})

    def prefill(self, prefix_NT: Tensor, state: State) -> tuple[Tensor, State]:
        rows, steps = prefix_NT.shape
        layout = Layout(torch.full((rows,), steps, device=prefix_NT.device), steps, even=True)
        top_NTD, layers = self.layers(self._embedded(prefix_NT), layout, state.hypothesis["layers"])
        return self.output(top_NTD), State(state.source, {"layers": layers})

    def _embedded(self, ids: Tensor) -> Tensor:
        """Tokens need no places: their order is that of the steps."""
        vectors: Tensor = self.embed(ids, torch.zeros((), dtype=torch.long, device=ids.device))
        return vectors

    def _rows(self, rows: int) -> Tensor:
        return self.output.weight.new_empty(rows, 0)


def _draw(part: nn.Module, reach: float) -> None:
    for parameter in part.parameters():
        nn.init.uniform_(parameter, -reach, reach)


def _carried(memories: Iterable[Memory]) -> Carried:
    return {f"{level}.{name}": value for level, memory in enumerate(memories) for name, value in memory.items()}


def _memories(carried: Carried, layers: int) -> list[Memory]:
    memories: list[Memory] = [{} for _ in range(layers)]
    for key, value in carried.items():
        level, _, name = key.partition(".")
        memories[int(level)][name] = value
    return memories
