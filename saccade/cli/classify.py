"""`classify`: lines in, labels out. One line in is one line out, in order, whatever it holds."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from saccade.cli.options import Device, Run
from saccade.cli.streams import Input, chunks, output, tell, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.classify import Classified

Format = Literal["text", "tsv", "jsonl"]
IN_JSON = 5
"""Labels that JSON lines hold of each text, unless --top says otherwise."""


def classify(
    run: Run,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Lines to classify. Default: those of stdin.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file of lines, plain, .gz or .xz; - is stdin.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; - is stdout.")] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="text: a label a line; tsv: `label<TAB>text`, as training data are; jsonl: with all that is known.",
        ),
    ] = "text",
    top: Annotated[
        int | None,
        typer.Option(
            help=f"tsv, jsonl: the so many most probable labels. Default: 1, in jsonl {IN_JSON}.",
            min=1,
            show_default=False,
        ),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="text: write `probability<TAB>label`; tsv: it follows its label.")
    ] = False,
    batch_tokens: Annotated[int, typer.Option(help="Sequences × longest of a batch.", min=1)] = 8192,
    device: Device = "auto",
) -> None:
    """Give each line a label.

    From arguments, a file or stdin, to stdout or a file. One line in is one line out, in order; an empty line is given
    a label, too. A model of two texts wants a tab between them. Bytes that are no UTF-8 are read as U+FFFD.
    """
    if text and source is not None:
        raise UsageError("TEXT and --input are both given; classify one of them.")
    if format_ == "text" and top is not None and top > 1:
        raise UsageError("--top: text has one label for each line in. Add --format tsv or --format jsonl.")
    if format_ == "jsonl" and scores:
        raise UsageError("--scores: jsonl holds the probabilities anyway. Leave it out.")
    lines = None if text else Input(source)
    from saccade.api import load

    engine = load(run, device).classifier
    most = top or (IN_JSON if format_ == "jsonl" else 1)
    write = _writer(format_, scores=scores)
    done = cut = 0
    with output(out) as file:
        for chunk in chunks(text, lines):
            for each in engine.classify(chunk, top=most, batch_tokens=batch_tokens, first=done + 1):
                write(file, each)
                done += 1
                cut += each.cut
            file.flush()
    if lines is not None:
        lines.tell_repairs()
    for told in engine.told_of_cut(cut):
        tell(told)


Writer = Callable[[TextIO, "Classified"], None]


def _writer(format_: Format, *, scores: bool) -> Writer:
    def text(file: TextIO, each: "Classified") -> None:
        file.write(f"{each.probability:.4f}\t{each.label}\n" if scores else f"{each.label}\n")

    def tsv(file: TextIO, each: "Classified") -> None:
        answers = [
            cell for answer in each.answers for cell in (answer.label, f"{answer.probability:.4f}")[: 1 + scores]
        ]
        # White space within a cell becomes a space: a tab there would be a column.
        file.write("\t".join(" ".join(cell.split()) for cell in (*answers, *each.texts)) + "\n")

    def jsonl(file: TextIO, each: "Classified") -> None:
        names = ("text", "second")
        file.write(
            to_json(
                {
                    **dict(zip(names, each.texts, strict=False)),
                    "label": each.label,
                    "score": each.probability,
                    "labels": [{"label": answer.label, "score": answer.probability} for answer in each.answers],
                    "cut": each.cut,
                }
            )
            + "\n"
        )

    match format_:
        case "text":
            return text
        case "tsv":
            return tsv
        case "jsonl":
            return jsonl
