"""`score`: how probable a model finds given texts or outputs; which of two it finds the more probable."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from saccade.cli.joint import MixName, Others, Weights, With
from saccade.cli.measure import check_pairs
from saccade.cli.options import BatchTokens, Cache, Device, Dynamic, Run
from saccade.cli.scores import refuse, section, task_of
from saccade.cli.streams import Input, count, read_lines, say, tell, tell_unread, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.api import Model
    from saccade.metrics.score import Score

GROUPS = ("agreement", "reflexive", "pronoun", "all")
Format = Literal["text", "jsonl", "json", "tsv"]


def score(
    run: Run,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="A file of texts, or of sources for a translator; - is stdin. Default: stdin.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="TARGET", help="For a translator: a file of targets, line by line.", show_default=False),
    ] = None,
    document: Annotated[
        bool, typer.Option("--document", help="All lines as one text, read from one end to the other.")
    ] = False,
    contrast: Annotated[
        str | None,
        typer.Option(
            metavar="PAIRS",
            help="Rank minimal pairs: agreement, reflexive, pronoun or all (generated), or a file of good<TAB>bad or "
            "JSON lines, with a phenomenon if there is one; for a translator the source goes first.",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            min=1, help="With --contrast: generated pairs of each phenomenon. Default: 100.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --contrast: another seed, other generated pairs. Default: 1.", show_default=False
        ),
    ] = None,
    cache: Cache = None,
    dynamic: Dynamic = None,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="Lines: text or jsonl, with every token. --document: text or json. --contrast: text, json or tsv.",
            show_default=False,
        ),
    ] = None,
    with_: With = None,
    weights: Weights = None,
    mix: MixName = None,
    batch_tokens: BatchTokens = 4096,
    device: Device = "auto",
) -> None:
    """How probable the model finds given texts.

    One natural logarithm a line, the end mark included; the perplexity of all together on stderr. With --document the
    perplexity by token, word, byte and character; with --contrast how often the better of two is the more probable.
    """
    task, others = task_of(run), Others(tuple(with_ or ()), weights, mix)
    others.check()
    if task != "translate":
        refuse(run, others.asked)
    drawn = {name: value for name, value in (("--pairs", pairs), ("--seed", seed)) if value is not None}
    if drawn and contrast not in GROUPS:
        given = "the pairs are those of a file" if contrast is not None else "no pairs are asked for"
        raise UsageError(f"{', '.join(drawn)}: says which pairs are generated, but {given}. Leave it out.")
    if contrast is not None:
        if source is not None or document:
            raise UsageError("--contrast has its own pairs; leave out SOURCE, TARGET and --document.")
        if cache is not None or dynamic is not None:
            raise UsageError("--cache and --dynamic go on learning from one text: they go with --document.")
        shape = _format(format_, "--contrast", "text", "json", "tsv")
        how_many, by = pairs or 100, 1 if seed is None else seed
        _contrast(run, contrast, how_many, by, shape, task, device, others)
    elif task == "translate":
        asked = {"--document": document or None, "--cache": cache, "--dynamic": dynamic}
        refuse(run, {name: value for name, value in asked.items() if value is not None})
        shape = _format(format_, "a translator's outputs", "text", "jsonl")
        _translations(run, source, target, shape, batch_tokens, device, others)
    elif target is not None:
        raise UsageError(f"TARGET: {run} is a run of the task {task}, whose texts have no other side.")
    elif document:
        learning = {"cache": cache, "dynamic": dynamic}
        _document(run, source, learning, _format(format_, "--document", "text", "json"), device)
    elif cache is not None or dynamic is not None:
        raise UsageError("--cache and --dynamic go on learning from one text: they go with --document.")
    else:
        _lines(run, source, _format(format_, "lines", "text", "jsonl"), batch_tokens, device)


def _format(asked: Format | None, of: str, *known: str) -> str:
    if asked is not None and asked not in known:
        raise UsageError(f"--format is {asked}; of {of} it must be one of {', '.join(known)}.")
    return asked or known[0]


# ---- texts


def _lines(run: Path, source: Path | None, format_: str, batch_tokens: int, device: str) -> None:
    from saccade.api import load

    model, total, lines = load(run, device), None, 0
    given = Input(source)
    for chunk in given.chunks():
        for each in model.writer.score(chunk, batch_tokens):
            total = each.perplexity if total is None else total + each.perplexity
            lines += 1
            if format_ == "text":
                say(f"{each.log_probability:.4f}")
            else:
                row = {"log_probability": each.log_probability, "tokens": each.tokens}
                say(to_json(row | {"token_log_probabilities": each.token_log_probabilities}))
    given.tell_repairs()
    if total is None:
        raise UsageError(f"{source or '-'}: is empty; there is nothing to score.")
    tell(
        f"perplexity {_short(total.per_token)} per token, {_short(total.per_word)} per word · "
        f"{total.bits_per_character:.4f} bits per character · {count(total.counts.tokens, 'token')} · "
        f"{count(lines, 'line')}"
    )


def _short(value: float) -> str:
    """Nobody counts the digits of a perplexity beyond a million."""
    return f"{value:.4f}" if value < 1e6 else f"{value:.4e}"


def _document(run: Path, source: Path | None, learning: dict[str, str | None], format_: str, device: str) -> None:
    from saccade.api import load
    from saccade.likelihood import CacheConfig, DynamicConfig

    cache = section(CacheConfig, learning["cache"], "--cache")
    dynamic = section(DynamicConfig, learning["dynamic"], "--dynamic")
    model = load(run, device)
    given = Input(source)
    found = model.perplexity(given.lines(), cache=cache, dynamic=dynamic)
    given.tell_repairs()
    if format_ == "json":
        say(to_json({"run": str(run), **found.to_dict()}, indent=2))
        return
    shown = found.to_dict()
    counts = shown.pop("counts")
    for name, value in {**shown, **counts}.items():
        say(f"{name.replace('_', ' '):20}  {f'{value:,}' if isinstance(value, int) else f'{value:.4f}'}")


# ---- outputs of translators


def _translations(
    run: Path,
    source: Path | None,
    target: Path | None,
    format_: str,
    batch_tokens: int,
    device: str,
    others: Others,
) -> None:
    if source is None or target is None:
        raise UsageError("SOURCE and TARGET: a translator's outputs are scored given their sources; name both files.")
    sources, targets = read_lines(source), read_lines(target)
    check_pairs(source, sources, target, targets)
    from saccade.api import load
    from saccade.evaluate import score as scored

    model = others.joined(load(run, device), device)
    total, tokens, cut = 0.0, 0, 0
    for each in scored(model.engine, sources, targets, batch_tokens):
        cut += each.cut
        total += each.log_probability
        tokens += len(each.tokens)
        if format_ == "text":
            say(f"{each.log_probability:.4f}")
        else:
            row = {"log_probability": each.log_probability, "tokens": each.tokens}
            say(to_json(row | {"token_log_probabilities": each.token_log_probabilities, "cut": each.cut}))
    tell_unread(cut, model.engine.max_source)
    perplexity = math.exp(min(-total / tokens, 700.0))
    tell(f"perplexity {perplexity:.4f} per token · {count(tokens, 'token')} · {count(len(sources), 'line')}")


# ---- pairs


def _contrast(
    run: Path, name: str, count_: int, seed: int, format_: str, task: str, device: str, others: Others
) -> None:
    from saccade.api import load
    from saccade.data.minimal_pairs import Group, MinimalPair, generated, read_pairs

    chosen: list[MinimalPair]
    if name in GROUPS:
        if task == "translate":
            raise UsageError(
                f"--contrast {name}: the generated pairs are texts without a source, and {run} is a translator. Give a "
                "file of source<TAB>good<TAB>bad."
            )
        chosen = list(generated(cast(Group, name), count_, seed))
    else:
        lines = read_lines(Path(name)) if name == "-" or Path(name).exists() else None
        if lines is None:
            raise UsageError(f"--contrast {name}: is neither a file nor one of {', '.join(GROUPS)}.")
        chosen = list(read_pairs(lines, name, with_source=task == "translate"))
        if not chosen:
            raise UsageError(f"--contrast {name}: holds no pairs.")
    model: Model = others.joined(load(run, device), device)
    say(_shown(model.contrast(chosen), format_, {"run": str(run), **others.to_dict(), "pairs": name}))


def _shown(found: "dict[str, Score]", format_: str, about: dict[str, Any]) -> str:
    from saccade.view import table

    if format_ == "json":
        return to_json(about | {"accuracy": {name: each.to_dict() for name, each in found.items()}}, indent=2)
    if format_ == "tsv":
        heads = ("phenomenon", "accuracy", "low", "high", "pairs")
        cells = [(name, f"{s.value:.1f}", f"{s.low:.1f}", f"{s.high:.1f}", str(s.count)) for name, s in found.items()]
        return "\n".join("\t".join(row) for row in (heads, *cells))
    rows = [
        {
            "phenomenon": name,
            "accuracy": f"{each.value:.1f} %",
            "95 % interval": f"{each.low:.1f} – {each.high:.1f}",
            "pairs": f"{each.count:,}",
        }
        for name, each in found.items()
    ]
    return table.render(rows, list(rows[0]))
