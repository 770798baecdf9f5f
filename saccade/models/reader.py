"""How a recurrent decoder looks at the source: what it may ask for in a recipe, and what it gets.

Shapes: B sentences, N hypotheses (B × beam), T target tokens, Q queries of a sentence (beam × T), S source tokens,
D query width, E memory width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from saccade.config import Section
from saccade.errors import SaccadeError
from saccade.models.encoders import EncoderConfig
from saccade.nn import masks
from saccade.nn.hard import Choice, Hard
from saccade.nn.readout import ReadoutKind
from saccade.nn.scope import LocalM, LocalP, ScopeKind, Window, make_scope
from saccade.nn.scores import ScoreKind, make_score, weigh
from saccade.types import Encoded

WINDOW, PLACES = 10, 256  # where not given


class HardConfig(Section):
    decay: float = Field(0.9, ge=0.0, lt=1.0)
    """What the baseline, a moving average of a token's log-likelihood, keeps of itself at each batch."""
    reward: float = Field(1.0, gt=0.0)
    """Weight of the REINFORCE term; 1: the gradient of the expected likelihood."""
    entropy: float = Field(0.002, ge=0.0)
    """Weight of the entropy that the places are drawn with."""
    soft: float = Field(0.0, ge=0.0, lt=1.0)
    """The share of looks, in training, that read the mean as soft attention does (in the paper 0.5)."""


class AttentionConfig(Section):
    """What one score or scope alone reads may stand beside any other: so another is one change in a recipe."""

    score: ScoreKind = "additive"
    """How a state meets a key: by one of eight scores; or none: the memory's mean, or the encoder's last state."""
    scope: ScopeKind = "global"
    """Which source tokens are looked at: all; near the target's own place (local-m) or a predicted one (local-p)."""
    query: Literal["current", "previous"] = "current"
    """Which state asks: h_t (Luong et al. 2015), or s_{t−1}, whose context enters the cell (Bahdanau et al. 2015)."""
    readout: ReadoutKind = "luong"
    """What the output layer reads: tanh(W [c; h]), [c; h] itself, or Bahdanau's maxout layer."""
    readout_width: int | None = Field(None, ge=1)
    """Width of that vector; the decoder's width where not given."""
    width: int | None = Field(None, ge=1)
    """Of the additive and concat scores: their inner width; the decoder's width where not given."""
    rank: int | None = Field(None, ge=1)
    """Of the reduced-rank score: its rank; a quarter of the decoder's width where not given."""
    places: int | None = Field(None, ge=1)
    """Of the location score: how many source tokens it sees; 256 where not given."""
    temperature: Literal["learned"] | float | None = None
    """Of the cosine score: what it is divided by, a number, or learned, from 0.1 on; learned where not given."""
    window: int | None = Field(None, ge=1)
    """Of the local scopes: how far they look to either side of their place; 10 where not given."""
    renormalise: bool = False
    """Of local-p: divide the weights by their sum behind the Gaussian; in the paper they are not."""
    gate: bool = False
    """Multiply the context with a number between 0 and 1 made of the query (Xu et al. 2015, section 4.2.1)."""
    doubly_stochastic: float = Field(0.0, ge=0.0)
    """Weight of the term that wants every source token looked at once in all (Xu et al. 2015)."""
    coverage: float | None = Field(None, ge=0.0)
    """Let the score see the weights so far, and punish repetition with this weight (See et al. 2017)."""
    coverage_after: int = Field(0, ge=0)
    """Updates before the punishment begins: from the start, it keeps attention from being learnt."""
    pointer: bool = False
    """Mix copying from the source into the output (See et al. 2017); needs one vocabulary for both sides."""
    hard: HardConfig | None = None
    """Read one source token, drawn in training and the most probable else, instead of a mean (Xu et al. 2015)."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "AttentionConfig":
        self._weights_fit_their_uses()
        if isinstance(self.temperature, float) and self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}: scores are divided by it, so it must be above 0")
        if self.coverage is not None and self.score != "additive":
            raise ValueError(f"coverage is a part of the additive score, but score is {self.score}")
        if self.coverage_after and not self.coverage:
            raise ValueError(f"coverage_after is {self.coverage_after}, but coverage punishes nothing: give a weight")
        if self.score == "last" and self.scope != "global":
            raise ValueError(f"score is last, which reads one state: there is nothing for scope {self.scope} to choose")
        if self.readout == "concat" and self.readout_width is not None:
            raise ValueError("readout is concat, whose width is that of memory and state: leave readout_width out")
        return self

    def _weights_fit_their_uses(self) -> None:
        uses = {
            "hard": self.hard is not None,
            "doubly_stochastic": self.doubly_stochastic > 0,
            "pointer": self.pointer,
        }
        if self.score in ("mean", "last"):
            for name in (name for name, is_on in uses.items() if is_on):
                raise ValueError(f"score is {self.score}, which makes no choice between source tokens, as {name} needs")
        if self.scope == "local-p" and not self.renormalise:
            for name in (name for name in ("hard", "pointer") if uses[name]):
                raise ValueError(f"{name} needs weights that sum to 1: set renormalise for scope local-p")
        if self.hard is not None:
            soft = [name for name in ("doubly_stochastic", "pointer") if uses[name]]
            for name in soft + (["coverage"] if self.coverage is not None else []):
                raise ValueError(f"{name} works on the weights of all source tokens, but hard attention reads one")

    def check_with(self, encoder: EncoderConfig, width: int) -> None:
        """Refuse what makes no sense with this encoder and a decoder of this width."""
        if self.score in ("dot", "scaled-dot", "cosine") and encoder.width != width:
            raise ValueError(
                f"decoder.attention.score is {self.score}, which needs encoder.width ({encoder.width}) = decoder.width "
                f"({width}); make them equal or use general"
            )
        if self.score == "last" and not encoder.ends_in_states:
            raise ValueError(
                f"decoder.attention.score is last, but a {encoder.kind} encoder ends in no state: use mean"
            )

    def output_width(self, width: int, memory_width: int) -> int:
        """How wide the vector is that the output layer reads."""
        return memory_width + width if self.readout == "concat" else self.readout_width or width


@dataclass(frozen=True)
class Look:
    """What each query got."""

    context_NTE: Tensor
    weights_NTS: Tensor
    choice: Choice | None = None
    """(N, T) each, where attention is hard."""


class Reader(nn.Module):
    """The contexts of queries."""

    def __init__(self, config: AttentionConfig, width: int, memory_width: int) -> None:
        super().__init__()
        self.reads_final = config.score == "last"
        self.shows = not self.reads_final
        """Whether weights tell where it looked."""
        self.copies = config.pointer
        self.keeps_weights = config.pointer or config.doubly_stochastic > 0
        """Whether something behind the context asks for the weights it was made of."""
        rank = config.rank or max(1, width // 4)
        inner = rank if config.score == "reduced-rank" else config.width or width
        self.score = make_score(
            config.score,
            width,
            memory_width,
            inner,
            places=config.places or PLACES,
            temperature=config.temperature if isinstance(config.temperature, float) else None,
            covers=config.coverage is not None,
        )
        self.covers = config.coverage is not None
        self.scope = make_scope(config.scope, width, config.window or WINDOW, renormalise=config.renormalise)
        self.gate = nn.Linear(width, 1) if config.gate else None
        hard = config.hard
        self.hard = None
        if hard is not None:
            self.hard = Hard(decay=hard.decay, reward=hard.reward, entropy=hard.entropy, soft=hard.soft)

    @property
    def goes_by_place(self) -> bool:
        """Whether a query must know which target token it is for."""
        return isinstance(self.scope, LocalM)

    def prepare(self, encoded: Encoded) -> dict[str, Tensor]:
        """What belongs to the sentence: made once, shared by its hypotheses."""
        layout = encoded.layout
        if self.reads_final:
            final_B1E = encoded.final[-1]["h"][:, None]
            return {"memory": final_B1E, "keys": final_B1E}
        memory_BSE = masks.pad(encoded.memory, layout)
        source = {"memory": memory_BSE, "keys": self.score.prepare(memory_BSE)}
        may_look = masks.keys_B1S(layout)
        if may_look is not None:
            source["may_look"] = may_look
        if isinstance(self.scope, LocalM | LocalP):
            source["lengths"] = layout.lengths_B
        if self.copies:
            if encoded.source is None:
                raise SaccadeError("a pointer copies the source's tokens, but what was encoded came without them")
            source["ids"] = masks.pad(encoded.source.ids, encoded.source.layout)
        return source

    def begin(self, source: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a hypothesis begins with: nothing covered, at place 0."""
        memory_BSE, begun = source["memory"], {}
        if self.covers:
            precise = torch.promote_types(memory_BSE.dtype, torch.float32)
            begun["coverage"] = memory_BSE.new_zeros(memory_BSE.shape[:2], dtype=precise)
        if self.goes_by_place:
            begun["place"] = torch.zeros(len(memory_BSE), dtype=torch.long, device=memory_BSE.device)
        return begun

    def after(self, look: Look, hypothesis: dict[str, Tensor]) -> dict[str, Tensor]:
        """What a hypothesis has of it behind the look."""
        then: dict[str, Tensor] = {}
        if self.covers:
            then["coverage"] = hypothesis["coverage"] + look.weights_NTS.sum(1)
        if self.goes_by_place:
            then["place"] = hypothesis["place"] + look.weights_NTS.shape[1]
        return then

    def forward(self, queries_NTD: Tensor, source: dict[str, Tensor], hypothesis: dict[str, Tensor]) -> Look:
        """The hypotheses of one sentence are further queries to the same memory, which is never repeated."""
        rows, steps = queries_NTD.shape[:2]
        queries_BQD = queries_NTD.reshape(len(source["memory"]), -1, queries_NTD.shape[-1])
        weights_BQS = self._weights(queries_BQD, source, hypothesis, steps)
        choice = None
        if self.hard is not None:
            choice = self.hard.choose(weights_BQS)
            weights_BQS = choice.weights
            shape = (rows, steps)
            choice = Choice(
                weights_BQS.reshape(rows, steps, -1),
                choice.log_probability.reshape(shape),
                choice.entropy.reshape(shape),
            )
        context_BQE = weights_BQS.to(source["memory"].dtype) @ source["memory"]
        if self.gate is not None:
            context_BQE = torch.sigmoid(self.gate(queries_BQD)) * context_BQE
        return Look(context_BQE.reshape(rows, steps, -1), weights_BQS.reshape(rows, steps, -1), choice)

    def _weights(
        self, queries_BQD: Tensor, source: dict[str, Tensor], hypothesis: dict[str, Tensor], steps: int
    ) -> Tensor:
        if self.covers:
            coverage_BQS = hypothesis["coverage"].view(*queries_BQD.shape[:2], -1)  # a step at a time: Q is the beam
            scores_BQS: Tensor = self.score(queries_BQD, source["keys"], coverage_BQS)
        else:
            scores_BQS = self.score(queries_BQD, source["keys"])
        window: Window
        match self.scope:
            case None:
                return weigh(scores_BQS, source.get("may_look"))
            case LocalM():
                place_NT = hypothesis["place"][:, None] + torch.arange(steps, device=queries_BQD.device)
                window = self.scope(place_NT.reshape(queries_BQD.shape[:2]), source["lengths"], scores_BQS.shape[-1])
            case LocalP():
                window = self.scope(queries_BQD, source["lengths"], scores_BQS.shape[-1])
        return window.weigh(scores_BQS, source.get("may_look"))
