"""The `train` section of a recipe."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config import Section
from saccade.train.optimizer import AdamConfig, OptimizerConfig
from saccade.train.schedule import InverseSqrtSchedule, ScheduleConfig

Precision = Literal["fp32", "tf32", "bf16"]
Every = Annotated[int, Field(ge=1)]
LOWER_IS_BETTER = (
    "loss", "perplexity", "perplexity_per_word", "perplexity_per_byte", "bits_per_character", "nats_per_frame",
    "ter", "ter:cased", "wer", "cer", "per", "g2p_wer",
)  # fmt: skip
"""Metrics of which less is better; of all others, more."""


class TrainConfig(Section):
    updates: Annotated[int, Field(ge=1)] = 10_000
    """Training ends after this many updates."""
    minutes: Annotated[float, Field(gt=0.0)] | None = None
    """Training ends after this much time, if that comes first."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Training ends after this many validations without a new best, if that comes first."""
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = 4096
    """Rows × longest side of a micro-batch stay within this; auto: as much of `update_tokens` as fits into memory."""
    update_tokens: Annotated[int, Field(ge=1)] | None = None
    """With `batch_tokens: auto`, rows × longest side of a whole update, whatever fits at once."""
    batch_sentences: Annotated[int, Field(ge=1)] | None = None
    """A micro-batch holds at most so many pairs."""
    accumulate: Annotated[int, Field(ge=1)] = 1
    """Micro-batches whose gradients make one update; each token counts the same, whichever it came in."""
    optimizer: OptimizerConfig = AdamConfig()
    """How weights move along their gradients."""
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Each layer of the encoder learns at this share of the rate above it, from its top layer down; 1: all alike."""
    schedule: ScheduleConfig = InverseSqrtSchedule()
    """How the learning rate changes over the updates."""
    clip: Annotated[float, Field(gt=0.0)] | None = 1.0
    """Largest norm of the gradient, over all weights together; none: no clipping."""
    smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Label smoothing: this share of the target's mass is spread evenly over the vocabulary."""
    validate_every: Every = 500
    """Updates between two validations; the last update is always validated."""
    save_every: Every | None = None
    """Updates between two checkpoints; where not given, one with each validation."""
    keep: Annotated[int, Field(ge=1)] = 2
    """How many of the last checkpoints are kept."""
    average: Annotated[int, Field(ge=0)] = 0
    """At the end, the mean of the last so many checkpoints is validated too, and kept if it is better; 0: not."""
    ema: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """Validate and publish a moving average of the weights; each update t keeps this share, or (1+t)/(10+t) if less."""
    metric: str = "loss"
    """What the best checkpoint is chosen by, on the validation data: the loss, or one of the task's metrics."""
    log_every: Every = 50
    """Updates between two lines of metrics.jsonl."""
    precision: Precision = "fp32"
    """fp32; tf32 (a GPU's faster float32 products); bf16 (products in bfloat16, weights in float32)."""
    graphs: bool = True
    """On a GPU, capture what sizes of batches launch, and replay it: the same numbers, sooner."""
    deterministic: bool = False
    """On a GPU, only kernels that give the same bits each time: resumed runs are then equal there as on a CPU."""
    skip_limit: Annotated[int, Field(ge=1)] = 20
    """Updates whose gradient is not finite are skipped; training ends after so many in a row (seen when it logs)."""
    workers: Annotated[int, Field(ge=0)] = 1
    """Threads that make batches ahead of need; they change neither the batches nor their order."""
    fingerprint: bool = False
    """Note a checksum of all weights after every update in metrics.jsonl: to prove that two runs are the same."""

    @model_validator(mode="after")
    def _makes_sense(self) -> "TrainConfig":
        if (self.batch_tokens == "auto") != (self.update_tokens is not None):
            raise ValueError(
                f"batch_tokens is {self.batch_tokens} and update_tokens {self.update_tokens}: the two go together, "
                "batch_tokens: auto with how many tokens make an update"
            )
        if self.batch_tokens == "auto" and self.accumulate != 1:
            raise ValueError(
                f"accumulate is {self.accumulate}, but with batch_tokens: auto an update is one batch of update_tokens"
            )
        if self.ema is not None and self.average:
            raise ValueError(
                f"ema is {self.ema} and average {self.average}: the mean of checkpoints and the moving average are two "
                "ways to the same; choose one"
            )
        if self.optimizer.kind == "nt-asgd" and (self.ema is not None or self.average):
            raise ValueError(
                f"optimizer.kind is nt-asgd, which validates and publishes a mean of its own; ema is {self.ema} and "
                f"average {self.average}: leave them out"
            )
        return self

    @property
    def planned_tokens(self) -> int:
        """Rows × longest side of a batch of the plan."""
        return self.batch_tokens if isinstance(self.batch_tokens, int) else self.update_tokens or 0

    @property
    def saves_every(self) -> int:
        return self.save_every or self.validate_every
