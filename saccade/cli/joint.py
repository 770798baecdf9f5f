"""Options that bring other runs in: ensembles, a language model, the noisy channel."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.model import Model

With = Annotated[
    list[Path] | None,
    typer.Option(
        "--with",
        metavar="RUN",
        help="Another translator that decides with RUN at every step; can be given again. They must share the target "
        "vocabulary.",
        show_default=False,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="W,W,…",
        help="With --with: how much each model counts, RUN first, as 0.5,0.3,0.2. Default: all the same.",
        show_default=False,
    ),
]
MixName = Annotated[
    Literal["log-linear", "linear"] | None,
    typer.Option(
        help="With --with: log-linear, Σ w log p renormalised; linear, log Σ w p. Default: log-linear.",
        show_default=False,
    ),
]
LanguageModel = Annotated[
    Path | None,
    typer.Option("--lm", metavar="RUN", help="A language model that has a say, see --lm-mode.", show_default=False),
]
LmWeight = Annotated[float | None, typer.Option(help="λ of --lm. Default: 0.2.", show_default=False)]
LmMode = Annotated[
    Literal["shallow", "rerank"] | None,
    typer.Option(
        help="shallow: log p + λ log p_LM at every step; the vocabulary must be shared. rerank: of whole outputs, by "
        "their text. Default: rerank with --channel, else shallow.",
        show_default=False,
    ),
]
Channel = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="A translator of the other direction: the whole beam is ranked anew by log p(y|x) + λ log p(x|y), and "
        "+ λ log p(y) with --lm.",
        show_default=False,
    ),
]
ChannelWeight = Annotated[float | None, typer.Option(help="λ of --channel. Default: 1.", show_default=False)]


@dataclass(frozen=True)
class Others:
    """What was asked for of other runs."""

    runs: tuple[Path, ...] = ()
    weights: str | None = None
    mix: Literal["log-linear", "linear"] | None = None
    lm: Path | None = None
    lm_weight: float | None = None
    lm_mode: Literal["shallow", "rerank"] | None = None
    channel: Path | None = None
    channel_weight: float | None = None

    @property
    def asked(self) -> dict[str, object]:
        """The options that were given, by their names."""
        values = {_option(each.name): getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, ())}

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, to be told with results."""
        shown = {name.lstrip("-").replace("-", "_"): value for name, value in self.asked.items()}
        return {name: _plain(value) for name, value in shown.items()}

    def check(self) -> None:
        """A UsageError for an option that would not be heard; told before anything is loaded."""
        for name, needs in (
            ("weights", "runs"),
            ("mix", "runs"),
            ("lm_weight", "lm"),
            ("lm_mode", "lm"),
            ("channel_weight", "channel"),
        ):
            if getattr(self, name) is not None and not getattr(self, needs):
                raise UsageError(f"{_option(name)} goes with {_option(needs)}, which is not given.")
        self._shares()

    def _shares(self) -> list[float] | None:
        try:
            return None if self.weights is None else [float(each) for each in self.weights.split(",")]
        except ValueError:
            raise UsageError(
                f"--weights is {self.weights!r}; it must be numbers with commas between them, RUN's first, as 0.6,0.4."
            ) from None

    def joined(self, model: "Model", device: str) -> "Model":
        """The model with all that was asked for."""
        if not self.asked:
            return model
        from saccade.api import load
        from saccade.joint import ensemble, fused, reranked

        if self.runs:
            runs = [model, *(load(path, device) for path in self.runs)]
            model = ensemble(runs, weights=self._shares(), mix=self.mix or "log-linear")
        channel = None if self.channel is None else load(self.channel, device)
        language_model = None if self.lm is None else load(self.lm, device)
        lm_weight = 0.2 if self.lm_weight is None else self.lm_weight
        mode = self.lm_mode or ("shallow" if channel is None else "rerank")
        if language_model is not None and mode == "shallow":
            model, language_model = fused(model, language_model, weight=lm_weight), None
        if channel is None and language_model is None:
            return model
        channel_weight = 1.0 if self.channel_weight is None else self.channel_weight
        return reranked(
            model,
            channel=channel,
            channel_weight=channel_weight,
            language_model=language_model,
            lm_weight=lm_weight,
        )


def _option(name: str) -> str:
    return "--with" if name == "runs" else f"--{name.replace('_', '-')}"


def _plain(value: object) -> object:
    match value:
        case Path():
            return str(value)
        case tuple():
            return [str(each) for each in value]
        case _:
            return value
