"""`generate`: prompts in, texts out, as they are written."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from saccade.cli.options import DecodeSettings, Device, MinP, Run, Seed, Temperature, TopK, TopP, Typical
from saccade.cli.streams import Input, argument_text, count, output, tell, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.api import Model
    from saccade.decode.sampling import SampleConfig
    from saccade.decode.settings import DecodeConfig
    from saccade.generate import Generation

Stop = Literal["end", "line", "length"]
AT_ONCE = 64
"""Prompts that are gone on with side by side."""


def generate(
    run: Run,
    prompt: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT", help="Texts to go on with. Default: none, from the beginning.", show_default=False
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="A file of prompts, one a line; - is stdin.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; - is stdout.")] = None,
    samples: Annotated[
        int | None, typer.Option(help="Continuations of each prompt. Default: the recipe's.", show_default=False)
    ] = None,
    seed: Seed = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="The most tokens of a continuation. Default: the recipe's.", show_default=False)
    ] = None,
    stop: Annotated[
        Stop | None,
        typer.Option(
            help="Where a text ends before: at the end mark, at a line's end, too, or nowhere. Default: the recipe's.",
            show_default=False,
        ),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    typical: Typical = None,
    beam: Annotated[
        int | None,
        typer.Option(
            help="Search for the most probable text instead of drawing: prefixes kept side by side, 1 is greedy.",
            show_default=False,
        ),
    ] = None,
    n_best: Annotated[int | None, typer.Option(help="Continuations of each prompt, at most --beam.")] = None,
    settings: DecodeSettings = None,
    format_: Annotated[
        Literal["text", "jsonl"],
        typer.Option("--format", "-f", help="text: prompt and continuation; jsonl: with tokens and log-probabilities."),
    ] = "text",
    device: Device = "auto",
) -> None:
    """Go on with texts.

    A language model writes behind each prompt, drawing token after token; one text is shown as it is written. Several
    texts are separated by an empty line. With --beam the most probable text is searched for, and told when it is found.
    """
    if prompt and source is not None:
        raise UsageError("PROMPT and --input are both given; go on with one of them.")
    from saccade.api import load
    from saccade.decode.asked import searching_or_drawing

    model = load(run, device)
    decode, asked = searching_or_drawing({
        "samples": samples, "seed": seed, "max_tokens": max_tokens, "stop": stop, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical": typical,
        "beam": beam, "n_best": n_best, "settings": settings or (),
    })  # fmt: skip
    config = model.sampling(**asked)
    given = [argument_text(each) for each in prompt or [""]]
    lines = None if source is None else Input(source)
    done = endless = 0
    with output(out) as file:
        if lines is None and format_ == "text" and decode is None and len(given) * config.samples == 1:
            endless, given = _stream(file, model, given[0], config), []
        for prompts in _some(given) if lines is None else lines.chunks(AT_ONCE):
            for written in _written(model, prompts, config, decode, first=done):
                _write(file, model, written, format_, first=done == 0)
                done += 1
                endless += sum(not each.ended for each in written.samples)
            file.flush()
    if lines is not None:
        lines.tell_repairs()
    if endless and config.stop != "length":
        tell(f"{count(endless, 'text')} stopped {_where(model, config, decode)}.")


def _where(model: "Model", config: "SampleConfig", decode: "DecodeConfig | None") -> str:
    most = f"at {config.max_tokens:,} tokens (--max-tokens allows more)"
    window = getattr(model.writer.read, "length", None)
    if decode is None or window is None:
        return most
    return f"{most} or where it fills, with its prompt, the {window:,} tokens that the model reads at a time"


def _stream(file: TextIO, model: "Model", prompt: str, config: "SampleConfig") -> int:
    """1 where it came to no end of its own."""
    from saccade.types import END

    file.write(prompt)
    file.flush()
    drawn, token = 0, END
    for piece in model.writer.stream([prompt], config):
        drawn, token = drawn + 1, piece.token
        if piece.text:
            file.write(piece.text)
            file.flush()
    file.write("\n")
    return int(drawn >= config.max_tokens and token != END)


def _some(prompts: list[str]) -> Iterator[list[str]]:
    for begin in range(0, len(prompts), AT_ONCE):
        yield prompts[begin : begin + AT_ONCE]


def _written(
    model: "Model", prompts: list[str], config: "SampleConfig", decode: "DecodeConfig | None", *, first: int
) -> "list[Generation]":
    """Prompt n draws the same whether those before it were asked for with it or earlier."""
    if decode is None:
        return model.writer.generate(prompts, config, first=first)
    return model.writer.search(prompts, decode, config.max_tokens)


def _write(file: TextIO, model: "Model", written: "Generation", format_: str, *, first: bool) -> None:
    if format_ == "jsonl":
        rows = [
            {
                "text": each.text,
                **({} if each.score is None else {"score": each.score}),
                "ended": each.ended,
                "log_probability": each.log_probability,
                "tokens": model.writer.text.pieces(each.tokens),
                "token_log_probabilities": each.token_log_probabilities,
            }
            for each in written.samples
        ]
        file.write(to_json({"prompt": written.prompt, "samples": rows}) + "\n")
        return
    for number, each in enumerate(written.samples):
        between = "" if first and number == 0 else "\n"
        file.write(f"{between}{written.prompt}{each.text}\n")
