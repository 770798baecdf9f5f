"""`evaluate`: a run's outputs in numbers."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from saccade.cli.joint import Channel, ChannelWeight, LanguageModel, LmMode, LmWeight, MixName, Others, Weights, With
from saccade.cli.options import (
    BatchTokens,
    Beam,
    Cache,
    DecodeSettings,
    Device,
    Dynamic,
    LengthPenalty,
    MaxLength,
    Mbr,
    Run,
    Samples,
    Seed,
    check_one_output,
)
from saccade.cli.streams import count, read_lines, say, tell, to_json, write_lines
from saccade.errors import GateFailed, UsageError
from saccade.metrics.names import LESS_IS_BETTER, METRICS

if TYPE_CHECKING:
    from saccade.checkpoint import Loaded
    from saccade.config import SectionT
    from saccade.metrics.names import MetricName
    from saccade.metrics.score import Score
    from saccade.recipe import Recipe

Lines = list[str]
References = list[tuple[str, ...]]
Gate = tuple[str, float, bool]
"""Metric, bound, and whether more than the bound is what fails."""
SplitName = Literal["test", "valid"]


def evaluate(
    run: Run,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="Data to score: a file of sources, or one as the recipe's own. Default: the recipe's own data.",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Argument(metavar="REFERENCE", help="The file with the right outputs.", show_default=False)
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Option("--refs", metavar="FILE", help="A file with other right outputs; can be given again."),
    ] = None,
    split: Annotated[
        SplitName | None, typer.Option(help="Which of the recipe's splits. Default: test.", show_default=False)
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="The folder that relative paths in the recipe are seen from. Default: this one.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, as bleu,chrf: bleu, bleu_code, chrf, ter, exact_match, wer, cer, per, g2p_wer, "
            "rouge_1, rouge_2, rouge_l, answer_em, answer_f1, bracket_f1, slot_f1, intent_accuracy, distinct_1, "
            "distinct_2, perplexity of sequence to sequence. Default: those of the run's recipe.",
            show_default=False,
        ),
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    max_length: MaxLength = None,
    settings: DecodeSettings = None,
    mbr: Mbr = None,
    samples: Samples = None,
    seed: Seed = None,
    batch_tokens: BatchTokens = 4096,
    format_: Annotated[
        Literal["text", "json", "tsv", "markdown"], typer.Option("--format", "-f", help="How the scores are written.")
    ] = "text",
    fail_under: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=VALUE", help="Exit with status 3 if the metric is less; can be given again."),
    ] = None,
    fail_over: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=VALUE", help="The same if it is more: for errors and perplexity."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to this file, too.")] = None,
    with_: With = None,
    weights: Weights = None,
    mix: MixName = None,
    lm: LanguageModel = None,
    lm_weight: LmWeight = None,
    lm_mode: LmMode = None,
    channel: Channel = None,
    channel_weight: ChannelWeight = None,
    cache: Cache = None,
    dynamic: Dynamic = None,
    device: Device = "auto",
) -> None:
    """Score a run on test data.

    Translations are made and scored against REFERENCE; each score comes with its 95 % confidence interval and, where
    it has one, the sacrebleu signature. Runs of other tasks take files as their recipe has them.
    """
    if (source is not None) and split is not None:
        raise UsageError("--split chooses among the recipe's own data; leave it out where files are given.")
    others = Others(tuple(with_ or ()), weights, mix, lm, lm_weight, lm_mode, channel, channel_weight)
    others.check()
    learning = {name: value for name, value in (("--cache", cache), ("--dynamic", dynamic)) if value is not None}
    if task_of(run) != "language-model":
        refuse(run, learning)
    if task_of(run) != "translate":
        given = [file for file in (source, reference) if file is not None]
        asked = {
            "--beam": beam,
            "--length-penalty": length_penalty,
            "--max-length": max_length,
            "--decode": settings,
            "--mbr": mbr,
            "--samples": samples,
            "--seed": seed,
            "--output": out,
            **others.asked,
        }
        refuse(run, {name: value for name, value in {**asked, "--refs": more}.items() if value is not None})
        told, about = _scores_of_files(run, given, split or "test", base, device, learning)
        _tell_scores(told, format_, about, metrics, _asked_gates(fail_under, fail_over))
        return
    asked_names = None if metrics is None else _metric_names(metrics)
    asked_gates = _asked_gates(fail_under, fail_over)
    if asked_names is not None:
        _check_names(asked_gates, asked_names)
    if (source is None) != (reference is None):
        raise UsageError("SOURCE and REFERENCE belong together: give both files, or none to score the recipe's data.")
    if more and source is None:
        raise UsageError("--refs adds to REFERENCE; give SOURCE and REFERENCE, too.")
    from saccade.api import load
    from saccade.checkpoint import recorded_base
    from saccade.compare.testset import own_lines

    if source is not None and reference is not None:
        files = [reference, *(more or ())]
        sources = read_lines(source)
        references = _references(source, sources, files)
        scored = " ".join(map(str, [source, *files]))
    else:
        scored = split or "test"
        own = own_lines(run, scored, base or recorded_base(run))
        sources, references = own.inputs, own.references
    model = others.joined(load(run, device), device)
    names = list(model.metrics) if asked_names is None else asked_names
    _check_names(asked_gates, names)
    decode = model.decoding(
        beam=beam, n_best=1, length_penalty=length_penalty, max_length=max_length, settings=settings or (),
        mbr=mbr, samples=samples, seed=seed,
    )  # fmt: skip
    check_one_output(samples, decode, "one output of each line is scored. Draw one")
    found = model.evaluate(sources, references, metrics=names, decode=decode, batch_tokens=batch_tokens)
    if out is not None:
        write_lines(out, (each.text for each in found.translations))
    scores: dict[str, Score] = dict(zip(names, found.scores, strict=True))
    say(_shown(scores, format_, {"run": str(run), **others.to_dict(), "data": scored, "decode": decode.model_dump()}))
    cut = sum(each.cut for each in found.translations)
    if cut:
        tell(f"{count(cut, 'line')} longer than {model.engine.max_source:,} tokens: the rest of each was not read.")
    _check_gates(scores, asked_gates)


def _references(source: Path, sources: Lines, files: Sequence[Path]) -> References:
    """Of each source what is right: a line of every file."""
    found = [read_lines(file) for file in files]
    for file, lines in zip(files, found, strict=True):
        check_pairs(source, sources, file, lines)
    return list(zip(*found, strict=True))


def _check_gates(scores: "Mapping[str, Score]", gates: Sequence[Gate]) -> None:
    missed = [
        f"{name} is {scores[name].value:.2f}, {'more' if over else 'less'} than {bound:g}"
        for name, bound, over in gates
        if not (scores[name].value <= bound if over else scores[name].value >= bound)
    ]
    if missed:
        option = "--fail-over" if all(over for _, _, over in gates) else "--fail-under"
        raise GateFailed(f"{option}: {'; '.join(missed)}.")


def task_of(run: Path) -> str:
    """What a run was trained for, told before torch is imported."""
    from saccade import config

    if not (run / "train.yaml").is_file():
        from saccade.checkpoint import RunFolder

        RunFolder.open(run)  # tells what is no run folder
        return "translate"  # whoever loads it tells what is wrong with it
    return str(config.read(run / "train.yaml").get("task", "translate"))


def refuse(run: Path, asked: dict[str, Any]) -> None:
    if asked:
        raise UsageError(f"{', '.join(asked)}: {run} is a run of the task {task_of(run)}, which has no use for it.")


def _scores_of_files(
    run: Path, files: list[Path], split: SplitName, base: Path | None, device: str, learning: dict[str, str]
) -> "tuple[dict[str, Score], dict[str, Any]]":
    """Of any task but translation: by its own recipe."""
    from saccade import checkpoint
    from saccade.device import pick_device
    from saccade.recipe import load_recipe

    loaded = checkpoint.load(run, pick_device(device))
    recipe = load_recipe(str(run / checkpoint.RECIPE))[0]
    at = base or checkpoint.recorded_base(run)
    scores = (
        _learning(recipe, loaded, files, split, at, learning) if learning else recipe.scores(loaded, files, split, at)
    )
    return scores, {"run": str(run), "data": " ".join(map(str, files)) or split}


def _learning(
    recipe: "Recipe", loaded: "Loaded", files: list[Path], split: SplitName, base: Path, learning: dict[str, str]
) -> "dict[str, Score]":
    """Of a language model that goes on learning from the text as it reads it."""
    from saccade.likelihood import CacheConfig, DynamicConfig
    from saccade.tasks.language_model import LanguageModelRecipe

    assert isinstance(recipe, LanguageModelRecipe)
    cache = section(CacheConfig, learning.get("--cache"), "--cache")
    dynamic = section(DynamicConfig, learning.get("--dynamic"), "--dynamic")
    return recipe.scores_with(loaded, files, split, base, cache=cache, dynamic=dynamic)


def section(kind: "type[SectionT]", text: str | None, option: str) -> "SectionT | None":
    """Settings from the command line, `name=value,name=value`; `on`: as they are by default."""
    from saccade import config

    if text is None:
        return None
    tree: dict[str, Any] = {}
    for part in () if text == "on" else text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{option} is {text!r}; write it as name=value,name=value, or on.")
        tree[name.strip()] = config.parse_yaml(value, option)
    return config.parse(kind, tree, option)


def _tell_scores(
    scores: "dict[str, Score]", format_: str, about: dict[str, Any], metrics: str | None, gates: Sequence[Gate]
) -> None:
    names = [name.strip() for name in metrics.split(",")] if metrics else list(scores)
    wrong = [name for name in names if name not in scores]
    if wrong:
        raise UsageError(f"--metrics is {metrics!r}; it must be a list out of {', '.join(scores)}.")
    _check_names(gates, names)
    shown = {name: scores[name] for name in names}
    tables = getattr(scores, "tables", ())
    if format_ == "json":
        about = about | {each.name: each.values for each in tables}
    say(_shown(shown, format_, about))
    for each in tables if format_ in ("text", "markdown") else ():
        say(f"\n{each.title}\n" if format_ == "text" else f"\n{each.title[0].upper()}{each.title[1:]}:\n")
        say(_table(each.rows, format_))
    for remark in getattr(scores, "remarks", ()):
        tell(remark)
    _check_gates(shown, gates)


def _metric_names(text: str) -> "list[MetricName]":
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if name not in METRICS]
    if wrong or not names or len(set(names)) < len(names):
        raise UsageError(f"--metrics is {text!r}; it must be a list out of {', '.join(METRICS)}, each once.")
    return cast("list[MetricName]", names)


def _asked_gates(under: Sequence[str] | None, over: Sequence[str] | None) -> list[Gate]:
    return [_gate(text, over=False) for text in under or ()] + [_gate(text, over=True) for text in over or ()]


def _gate(text: str, *, over: bool) -> Gate:
    option, example = ("--fail-over", "per=8") if over else ("--fail-under", "bleu=25")
    name, _, value = text.partition("=")
    try:
        bound = float(value)
    except ValueError:
        bound = math.nan
    if not name or math.isnan(bound):
        raise UsageError(f"{option} {text}: write it as metric=value, for example {option} {example}.")
    if not over and name in LESS_IS_BETTER:
        raise UsageError(f"--fail-under {text}: of {name} less is better; say --fail-over {text}.")
    return name, bound, over


def _check_names(gates: Sequence[Gate], names: Sequence[str]) -> None:
    for name, bound, over in gates:
        if name not in names:
            option = "--fail-over" if over else "--fail-under"
            raise UsageError(f"{option} {name}={bound:g}: {name} is not among the metrics: {', '.join(names)}.")


def check_pairs(one: Path, ones: Lines, other: Path, others: Lines) -> None:
    if len(ones) != len(others):
        raise UsageError(f"{one} has {count(len(ones), 'line')} and {other} {len(others):,}; they must pair up.")
    if not ones:
        raise UsageError(f"{one}: is empty; there is nothing to score.")


def _shown(scores: "Mapping[Any, Score]", format_: str, about: dict[str, Any]) -> str:
    from saccade.metrics.score import digits

    if format_ == "json":
        return to_json(about | {"scores": {name: score.to_dict() for name, score in scores.items()}}, indent=2)
    lines = all(score.unit == "lines" for score in scores.values())
    rows = [
        {
            "metric": score.name,
            "value": digits(score),
            "95 % interval": "" if math.isnan(score.low) else f"{score.low:.1f} – {score.high:.1f}",
            "lines" if lines else "over": f"{score.count:,}{'' if lines else f' {score.unit}'}",
            "signature": score.signature or "",
        }
        for score in scores.values()
    ]
    match format_:
        case "tsv":
            heads = ("metric", "value", "low", "high", "lines", "signature")
            cells = [
                (name, digits(s), *(("", "") if math.isnan(s.low) else (f"{s.low:.1f}", f"{s.high:.1f}")), str(s.count),
                 s.signature or "")
                for name, s in scores.items()
            ]  # fmt: skip
            return "\n".join("\t".join(row) for row in (heads, *cells))
        case _:
            return _table(rows, format_)


def _table(rows: Sequence[Mapping[str, str]], format_: str) -> str:
    from saccade.view import table

    draw = table.markdown if format_ == "markdown" else table.render
    return draw(rows, list(rows[0]))
