"""Arguments and options that mean the same in every command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.decode.settings import DecodeConfig

WholeRun = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `saccade train` leaves it.")]
Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run folder, as `saccade train` leaves it, or a checkpoint in it: RUN/checkpoints/step-N."
    ),
]
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:N.")]
Beam = Annotated[
    int | None, typer.Option(help="Prefixes kept side by side; 1 is greedy. Default: the recipe's.", show_default=False)
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        help="Exponent of the length normalisation: 0 none, 1 the mean. Default: the recipe's.", show_default=False
    ),
]
MaxLength = Annotated[
    int | None, typer.Option(help="The most tokens of an output. Default: the recipe's.", show_default=False)
]
DecodeSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--decode",
        metavar="NAME=VALUE",
        help="Any setting of the recipe's decode section, as `length=gnmt`; can be given again. "
        "`saccade settings decode` lists them.",
        show_default=False,
    ),
]
BatchTokens = Annotated[int, typer.Option(min=1, help="Source tokens translated at once.")]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help="Of a language model: mix in a cache of what was read. window=500,theta=1,weight=0.1, or some of them, or "
        "on.",
        show_default=False,
    ),
]
Dynamic = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help="Of a language model: go on learning from the text. rate=0.1,decay=0,steps=5, or some of them, or on.",
        show_default=False,
    ),
]
# ---- to draw by
Temperature = Annotated[
    float | None, typer.Option(help="Below 1 likely tokens become likelier; 0 takes the likeliest.")
]
TopK = Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")]
TopP = Annotated[float | None, typer.Option(help="Draw from the fewest that have this probability.")]
MinP = Annotated[float | None, typer.Option(help="Draw from those at least this share as probable as the likeliest.")]
Typical = Annotated[
    float | None, typer.Option(help="Draw from those nearest to the expected surprise, up to this probability.")
]
Seed = Annotated[
    int | None, typer.Option(help="The same seed, the same text. Default: the recipe's.", show_default=False)
]
Samples = Annotated[
    int | None,
    typer.Option(help="Draw so many outputs of each line, instead of searching. With --mbr: 100.", show_default=False),
]
Mbr = Annotated[
    Literal["chrf", "bleu"] | None,
    typer.Option(
        help="Choose the sample that is most like all others: minimum Bayes risk by sentence chrF or BLEU.",
        show_default=False,
    ),
]


def check_one_output(samples: int | None, decode: "DecodeConfig", rule: str) -> None:
    """Refuse many samples where none of them is chosen; what a recipe draws more is left out without a word."""
    if samples is not None and decode.drawn > 1:
        raise UsageError(f"--samples: is {samples}, but {rule}, or let --mbr choose among them.")
