"""`translate`: lines in, lines out. One line in is one line out, in order, whatever it holds."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from saccade.cli.options import (
    BatchTokens,
    Beam,
    DecodeSettings,
    Device,
    LengthPenalty,
    MaxLength,
    Mbr,
    MinP,
    Run,
    Samples,
    Seed,
    Temperature,
    TopK,
    TopP,
    Typical,
    check_one_output,
)
from saccade.cli.requests import InputFormat, requests_of
from saccade.cli.streams import Input, chunks, count, output, tell, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.api import Model
    from saccade.decode.settings import DecodeConfig
    from saccade.translate import Translation

Format = Literal["text", "jsonl", "nbest"]


def translate(
    run: Run,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Lines to translate. Default: those of stdin.", show_default=False),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file of lines, plain, .gz or .xz; - is stdin.")
    ] = None,
    input_format: Annotated[
        InputFormat,
        typer.Option(
            help='text: a line is what it says; jsonl: {"text": …, "prefix": …, "must": […], "must_not": […]}.'
        ),
    ] = "text",
    prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="What every output begins with; a line's own wins over it.", show_default=False
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; - is stdout.")] = None,
    beam: Beam = None,
    n_best: Annotated[
        int | None, typer.Option(help="Outputs for each line, at most --beam, or --samples with --mbr.")
    ] = None,
    length_penalty: LengthPenalty = None,
    max_length: MaxLength = None,
    settings: DecodeSettings = None,
    samples: Samples = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    typical: Typical = None,
    seed: Seed = None,
    mbr: Mbr = None,
    batch_tokens: BatchTokens = 4096,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            "-f",
            help="text: a line each; jsonl: all outputs with tokens and scores; nbest: Moses' "
            "`line ||| text ||| features ||| score`, all that was found or drawn unless --n-best is given.",
        ),
    ] = "text",
    scores: Annotated[bool, typer.Option("--scores", help="text: write `score<TAB>text`.")] = False,
    device: Device = "auto",
) -> None:
    """Translate lines.

    From arguments, a file or stdin, to stdout or a file. One line in is one line out, in order; an empty line stays
    empty. Bytes that are no UTF-8 are read as U+FFFD. A model with tree positions wants lines of text, a tab and heads.
    """
    if text and source is not None:
        raise UsageError("TEXT and --input are both given; translate one of them.")
    if format_ == "text" and n_best is not None and n_best > 1:
        raise UsageError("--n-best: text has one line for each line in. Add --format nbest or --format jsonl.")
    if format_ != "text" and scores:
        raise UsageError(f"--scores: {format_} holds the scores anyway. Leave it out.")
    lines = None if text else Input(source)
    from saccade.api import load

    model = load(run, device)
    n_best = 1 if format_ == "text" else n_best
    decode = model.decoding(
        beam=beam, n_best=n_best, length_penalty=length_penalty, max_length=max_length, settings=settings or (),
        mbr=mbr, samples=samples, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical=typical,
        seed=seed,
    )  # fmt: skip
    decode = _fitting(format_, decode, n_best, samples)
    write = _writer(format_, scores, model)
    done = cut = endless = 0
    with output(out) as file:
        for chunk in chunks(text, lines):
            requests = requests_of(chunk, input_format, prefix=prefix, first=done + 1)
            for translation in model.engine.translate(requests, decode, batch_tokens, first=done + 1):
                write(file, done, translation)
                done += 1
                cut += translation.cut
                endless += not translation.hypotheses[0].ended
            file.flush()
    if lines is not None:
        lines.tell_repairs()
    if endless:
        tell(
            f"{count(endless, 'output')} reached the longest allowed length without an end (decode.max_length, "
            "decode.ratio); --max-length allows more."
        )
    if cut:
        tell(f"{count(cut, 'line')} longer than {model.engine.max_source:,} tokens: the rest of each was not read.")


def _fitting(format_: Format, decode: "DecodeConfig", n_best: int | None, samples: int | None) -> "DecodeConfig":
    if format_ == "text":
        check_one_output(samples, decode, "text has one line for each line in. Add --format nbest or --format jsonl")
    if format_ == "nbest" and n_best is None:
        return decode.model_copy(update={"n_best": decode.candidates})
    return decode


Writer = Callable[[TextIO, int, "Translation"], None]


def _writer(format_: Format, scores: bool, model: "Model") -> Writer:
    def text(file: TextIO, _: int, translation: "Translation") -> None:
        file.write(f"{translation.text}\n")

    def scored(file: TextIO, _: int, translation: "Translation") -> None:
        file.write(f"{translation.score:.4f}\t{translation.text}\n")

    def nbest(file: TextIO, number: int, translation: "Translation") -> None:
        for each in translation.hypotheses:
            shown = each.text.replace("|||", "&#124;&#124;&#124;")  # as Moses escapes its own bars
            features = f"logp= {each.log_probability:.4f} length= {len(each.tokens)}"
            file.write(f"{number} ||| {shown} ||| {features} ||| {each.score:.4f}\n")

    def jsonl(file: TextIO, _: int, translation: "Translation") -> None:
        file.write(to_json(_as_dict(translation, model)) + "\n")

    match format_:
        case "text":
            return scored if scores else text
        case "nbest":
            return nbest
        case "jsonl":
            return jsonl


def _as_dict(translation: "Translation", model: "Model") -> dict[str, object]:
    pieces = model.engine.text.target.pieces
    return {
        "source": translation.source,
        "text": translation.text,
        "score": translation.score,
        "cut": translation.cut,
        "hypotheses": [
            {
                "text": each.text,
                "score": each.score,
                "log_probability": each.log_probability,
                "tokens": pieces(each.tokens),
                "token_log_probabilities": each.token_log_probabilities,
                "ended": each.ended,
            }
            for each in translation.hypotheses
        ],
    }
