"""`fill`: lines with blanks in, lines without out. One line in is one line out, in order, whatever it holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from saccade.cli.options import BatchTokens, Device, Run
from saccade.cli.streams import Input, chunks, count, output, tell, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.fill import Filled

Format = Literal["text", "jsonl"]
TOP = 5


def fill(
    run: Run,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Lines with blanks. Default: those of stdin.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file of lines, plain, .gz or .xz; - is stdin.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; - is stdout.")] = None,
    blank: Annotated[str, typer.Option(help="What stands for a blank, of one token, in the lines.")] = "[MASK]",
    top: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many fillings of each blank are told. text: behind the line, a tab before each blank's; 1 and "
            f"none are told unless asked for. jsonl: {TOP} unless asked for.",
            show_default=False,
        ),
    ] = None,
    batch_tokens: BatchTokens = 4096,
    format_: Annotated[
        Format,
        typer.Option(
            "--format", "-f", help="text: each line with the most probable fillings; jsonl: all with probabilities."
        ),
    ] = "text",
    device: Device = "auto",
) -> None:
    """Fill the blanks in lines.

    Each [MASK] is a blank of one token, filled as if the other blanks stayed. One line in is one line out, in order; a
    line without blanks stays as it is.
    """
    if text and source is not None:
        raise UsageError("TEXT and --input are both given; fill one of them.")
    lines = None if text else Input(source)
    from saccade.api import load

    filler = load(run, device).filler
    asked = top or (TOP if format_ == "jsonl" else 1)
    cut = left = 0
    with output(out) as file:
        for chunk in chunks(text, lines, asking="a line with a [MASK]"):
            for filled in filler.fill(chunk, top=asked, blank=blank, batch_tokens=batch_tokens):
                file.write((to_json(as_dict(filled)) if format_ == "jsonl" else as_text(filled, top)) + "\n")
                cut += filled.cut
                left += sum(not fillings for fillings in filled.blanks)
            file.flush()
    if lines is not None:
        lines.tell_repairs()
    if cut:
        tell(
            f"{count(cut, 'line')} longer than {filler.max_tokens:,} tokens: the rest of each was not read, and "
            f"{count(left, 'blank')} there stayed."
        )


def as_text(filled: "Filled", top: int | None) -> str:
    """The line; and where they were asked for, its blanks' fillings, each blank's behind a tab."""
    if top is None:
        return filled.text
    told = (" ".join(f"{each.text} {each.probability:.4f}" for each in fillings) for fillings in filled.blanks)
    return "\t".join([filled.text, *told])


def as_dict(filled: "Filled") -> dict[str, object]:
    return {
        "source": filled.source,
        "text": filled.text,
        "cut": filled.cut,
        "blanks": [
            [{"text": each.text, "probability": each.probability, "token": each.token} for each in fillings]
            for fillings in filled.blanks
        ],
    }
