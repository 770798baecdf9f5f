"""`translate`: lines in, lines out. One line in is one line out, in order, whatever it holds."""

import os
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from saccade.cli.joint import Channel, ChannelWeight, LanguageModel, LmMode, LmWeight, MixName, Others, Weights, With
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
from saccade.cli.scores import section
from saccade.cli.streams import Input, chunks, count, output, tell, tell_unread, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.align import Aligner
    from saccade.api import Model
    from saccade.decode.settings import DecodeConfig
    from saccade.lines import Translation

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
    must: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PHRASE", help="What every output holds, as whole words; can be given again.", show_default=False
        ),
    ] = None,
    must_not: Annotated[
        list[str] | None,
        typer.Option(metavar="PHRASE", help="What no output holds; can be given again.", show_default=False),
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
    alignments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write which source word each word comes from, a line for each line: Pharaoh's i-j, from 0.",
            show_default=False,
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            metavar="SETTINGS",
            help="How that is read from the attention, as method=intersection,layer=2, or on; jsonl then has it, too. "
            "See `saccade align`.",
            show_default=False,
        ),
    ] = None,
    with_: With = None,
    weights: Weights = None,
    mix: MixName = None,
    lm: LanguageModel = None,
    lm_weight: LmWeight = None,
    lm_mode: LmMode = None,
    channel: Channel = None,
    channel_weight: ChannelWeight = None,
    device: Device = "auto",
) -> None:
    """Translate lines.

    From arguments, a file or stdin, to stdout or a file. One line in is one line out, in order; an empty line stays
    empty. Bytes that are no UTF-8 are read as U+FFFD. A model with tree positions wants lines of text, a tab and heads.
    """
    if text and source is not None:
        raise UsageError("TEXT and --input are both given; translate one of them.")
    if format_ == "text" and n_best not in (None, 1):
        raise UsageError("--n-best: text has one line for each line in. Add --format nbest or --format jsonl.")
    if format_ != "text" and scores:
        raise UsageError(f"--scores: {format_} holds the scores anyway. Leave it out.")
    _check_alignments(alignments, align, format_, out)
    others = Others(tuple(with_ or ()), weights, mix, lm, lm_weight, lm_mode, channel, channel_weight)
    others.check()
    lines = None if text else Input(source)
    from saccade.api import load

    model = others.joined(load(run, device), device)
    n_best = 1 if format_ == "text" else n_best
    decode = model.decoding(
        beam=beam, n_best=n_best, length_penalty=length_penalty, max_length=max_length, settings=settings or (),
        mbr=mbr, samples=samples, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, typical=typical,
        seed=seed,
    )  # fmt: skip
    decode = _fitting(format_, decode, n_best, samples)
    aligner = None if align is None and alignments is None else _aligner(model, align)
    write = _writer(format_, scores, model)
    done = 0
    told: Counter[str] = Counter()
    with output(out) as file, nullcontext() if alignments is None else output(alignments) as links:
        for chunk in chunks(text, lines):
            requests = requests_of(
                chunk, input_format, prefix=prefix, must=must or (), must_not=must_not or (), first=done + 1
            )
            found = model.engine.translate(requests, decode, batch_tokens, first=done + 1)
            for translation in aligner.attach(requests, found, batch_tokens, first=done + 1) if aligner else found:
                write(file, done, translation)
                _write_links(links, translation)
                done += 1
                told.update(_faults(translation))
            file.flush()
    if lines is not None:
        lines.tell_repairs()
    _tell(told, model.engine.max_source)


def _faults(translation: "Translation") -> dict[str, bool]:
    best = translation.hypotheses[0]
    return {"cut": translation.cut, "endless": not best.ended, "unmet": bool(best.unmet)}


def _tell(counted: Counter[str], max_source: int) -> None:
    if counted["endless"]:
        tell(
            f"{count(counted['endless'], 'output')} reached the longest allowed length without an end "
            "(decode.max_length, decode.ratio); --max-length allows more."
        )
    if counted["unmet"]:
        tell(
            f"not as must and must_not ask: {count(counted['unmet'], 'output')}. An empty line, a prefix or another "
            "setting of the search stood in the way. `unmet` in --format jsonl has the phrases."
        )
    tell_unread(counted["cut"], max_source)


def _check_alignments(alignments: Path | None, align: str | None, format_: Format, out: Path | None) -> None:
    if align is not None and alignments is None and format_ != "jsonl":
        raise UsageError(f"--align: {format_} has no room for alignments. Add --alignments FILE or --format jsonl.")
    if alignments is not None and _one_place(alignments, out or Path("-")):
        raise UsageError(
            f"--alignments {alignments}: the translations go there, too. Name another file for one of them."
        )


def _one_place(one: Path, other: Path) -> bool:
    """Both stdout, or one file; two devices may be one, as /dev/null."""
    if "-" in (str(one), str(other)):
        return str(one) == str(other)
    return os.path.realpath(one) == os.path.realpath(other) and (one.is_file() or not one.exists())


def _aligner(model: "Model", settings: str | None) -> "Aligner":
    from saccade.align import AlignConfig

    return model.aligner(section(AlignConfig, settings, "--align") or AlignConfig())


def _write_links(file: TextIO | None, translation: "Translation") -> None:
    """Where it comes from, as a line; to a file, or to nowhere."""
    from saccade.metrics.links import write_links

    if file is not None:
        file.write(f"{write_links(translation.alignment or ())}\n")


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
            features += "".join(f" {name}= {value:.4f}" for name, value in each.features.items())
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
                **({} if each.alignment is None else {"alignment": sorted(each.alignment)}),
                "unmet": each.unmet,
                **({"features": dict(each.features)} if each.features else {}),
            }
            for each in translation.hypotheses
        ],
    }
