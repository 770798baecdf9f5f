"""Arguments and options that mean the same in every command."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, as `saccade train` leaves it.")]
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
