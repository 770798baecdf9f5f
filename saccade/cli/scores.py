"""`evaluate`: a run's outputs in numbers."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saccade.cli.gates import FailOver, FailUnder, Gate, asked_gates, check_gates, check_names
from saccade.cli.gold import LINK_SCORES, GoldBeside, OneBased, check_stdin, read_gold_lines, tell_cut
from saccade.cli.joint import Channel, ChannelWeight, LanguageModel, LmMode, LmWeight, MixName, Others, Weights, With
from saccade.cli.measure import NAMES_TOLD, Resamples, ResampleSeed, confidence_of, metric_names, references_of
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
from saccade.cli.score_formats import Format, ScoreFormat, shown, table_of, titled
from saccade.cli.streams import output, read_lines, say, tell, tell_unread
from saccade.errors import UsageError
from saccade.run_paths import RECIPE, run_of

if TYPE_CHECKING:
    from saccade.align import Aligner
    from saccade.api import Model
    from saccade.checkpoint import Loaded
    from saccade.config import SectionT
    from saccade.metrics.interval import Confidence
    from saccade.metrics.links import Gold
    from saccade.metrics.score import Score
    from saccade.recipe import Recipe

Lines = list[str]
References = list[tuple[str, ...]]
SplitName = Literal["test", "valid"]
WITHOUT_RESAMPLES = ("masked-language-model",)
"""Tasks none of whose intervals is drawn."""


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
            help=f"Comma-separated, as bleu,bleu:lc,chrf++: of sequence to sequence {NAMES_TOLD}, perplexity. "
            "Default: those of the run's recipe.",
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
    format_: Format = "text",
    fail_under: FailUnder = None,
    fail_over: FailOver = None,
    resamples: Resamples = None,
    resample_seed: ResampleSeed = None,
    gold: GoldBeside = None,
    one_based: OneBased = False,
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
    confidence = confidence_of(resamples, resample_seed)
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
            "--gold": gold,
            "--one-based": one_based or None,
            **others.asked,
        }
        if task_of(run) in WITHOUT_RESAMPLES:
            asked |= {"--resamples": resamples, "--resample-seed": resample_seed}
        refuse(run, {name: value for name, value in {**asked, "--refs": more}.items() if value is not None})
        told, about = _scores_of_files(run, given, split or "test", base, device, learning, confidence)
        _tell_scores(told, format_, about, metrics, asked_gates(fail_under, fail_over))
        return
    asked_names = None if metrics is None else metric_names(metrics)
    gates = asked_gates(fail_under, fail_over)
    beside = () if gold is None else LINK_SCORES
    if asked_names is not None:
        check_names(gates, [*asked_names, *beside])
    _check_files(source, reference, more)
    _check_gold(gold, one_based, source, reference, more, others)
    from saccade.api import load

    scored, sources, references = _lines(run, source, reference, more, split or "test", base)
    right = None if gold is None or source is None else read_gold_lines(gold, len(sources), source, one_based)
    model = others.joined(load(run, device), device)
    names = list(model.metrics) if asked_names is None else asked_names
    check_names(gates, [*names, *beside])
    decode = model.decoding(
        beam=beam, n_best=1, length_penalty=length_penalty, max_length=max_length, settings=settings or (),
        mbr=mbr, samples=samples, seed=seed,
    )  # fmt: skip
    check_one_output(samples, decode, "one output of each line is scored. Draw one")
    about = {"run": str(run), **others.to_dict(), "data": scored, "decode": decode.model_dump()}
    links: dict[str, Score] = {}
    if right is not None:  # before outputs are made, which takes longer: what is wrong with the gold is told at once
        aligner = _aligner(model)
        links = _link_scores(aligner, sources, references, right, gold, batch_tokens, confidence)
        about |= {"gold": str(gold), "align": aligner.config.model_dump()}
    with nullcontext() if out is None else output(out) as file:  # opened before outputs are made, which takes longer
        found = model.evaluate(
            sources, references, metrics=names, decode=decode, batch_tokens=batch_tokens, confidence=confidence
        )
        scores: dict[str, Score] = dict(zip(names, found.scores, strict=True)) | links
        say(shown(scores, format_, about))
        if file is not None:
            file.writelines(f"{each.text}\n" for each in found.translations)
    tell_unread(sum(each.cut for each in found.translations), model.engine.max_source)
    check_gates(scores, gates)


def _check_files(source: Path | None, reference: Path | None, more: list[Path] | None) -> None:
    if (source is None) != (reference is None):
        raise UsageError("SOURCE and REFERENCE belong together: give both files, or none to score the recipe's data.")
    if more and source is None:
        raise UsageError("--refs adds to REFERENCE; give SOURCE and REFERENCE, too.")


def _lines(
    run: Path, source: Path | None, reference: Path | None, more: list[Path] | None, split: SplitName, base: Path | None
) -> tuple[str, Lines, References]:
    """What is scored, in words; and its lines with what is right for them."""
    from saccade.checkpoint import recorded_base
    from saccade.compare.testset import own_lines

    if source is None or reference is None:
        own = own_lines(run, split, base or recorded_base(run))
        return split, own.inputs, own.references
    files = [reference, *(more or ())]
    sources = read_lines(source)
    return " ".join(map(str, [source, *files])), sources, references_of(source, sources, files)


# ---- gold alignments


def _check_gold(
    gold: Path | None,
    one_based: bool,
    source: Path | None,
    reference: Path | None,
    more: list[Path] | None,
    others: Others,
) -> None:
    """Told before anything is read."""
    if gold is None:
        if one_based:
            raise UsageError("--one-based says how --gold is written; give it, too, or leave it out.")
        return
    if source is None:
        raise UsageError(f"--gold {gold}: links words of SOURCE and REFERENCE; give both files, too.")
    if others.asked:
        raise UsageError(
            f"--gold {gold}: alignments are read from one model's attention, but several decide here. Leave out "
            f"{', '.join(others.asked)}, or --gold."
        )
    check_stdin((source, reference, gold, *(more or ())))


def _aligner(model: "Model") -> "Aligner":
    from saccade.align import AlignConfig

    try:
        return model.aligner(AlignConfig())
    except UsageError as error:
        raise UsageError(f"--gold: {error}") from None


def _link_scores(
    aligner: "Aligner",
    sources: Lines,
    references: References,
    right: "list[Gold]",
    gold: Path | None,
    batch_tokens: int,
    confidence: "Confidence",
) -> "dict[str, Score]":
    """Of REFERENCE, decoded again by force; other right outputs have no gold."""
    from saccade.align import Linked, link_scores

    found = [Linked.of(each) for each in aligner.each(sources, [first for first, *_ in references], batch_tokens)]
    tell_cut(aligner, found)
    return link_scores(found, right, place=str(gold), confidence=confidence)


# ---- other tasks


def task_of(run: Path) -> str:
    """What a run was trained for, told before torch is imported."""
    from saccade import config

    recipe = run_of(run) / RECIPE
    if not recipe.is_file():
        from saccade.checkpoint import RunFolder

        RunFolder.open(run)  # tells what is no run folder
        return "translate"  # whoever loads it tells what is wrong with it
    return str(config.read(recipe).get("task", "translate"))


def refuse(run: Path, asked: dict[str, Any]) -> None:
    if asked:
        raise UsageError(f"{', '.join(asked)}: {run} is a run of the task {task_of(run)}, which has no use for it.")


def _scores_of_files(
    run: Path,
    files: list[Path],
    split: SplitName,
    base: Path | None,
    device: str,
    learning: dict[str, str],
    confidence: "Confidence",
) -> "tuple[dict[str, Score], dict[str, Any]]":
    """Of any task but translation: by its own recipe."""
    from saccade import checkpoint
    from saccade.device import pick_device
    from saccade.recipe import load_recipe

    loaded = checkpoint.load(run, pick_device(device))
    recipe = load_recipe(str(run_of(run) / RECIPE))[0]
    at = base or checkpoint.recorded_base(run)
    if learning:
        scores = _learning(recipe, loaded, files, split, at, learning, confidence)
    else:
        scores = recipe.scores(loaded, files, split, at, confidence=confidence)
    return scores, {"run": str(run), "data": " ".join(map(str, files)) or split}


def _learning(
    recipe: "Recipe",
    loaded: "Loaded",
    files: list[Path],
    split: SplitName,
    base: Path,
    learning: dict[str, str],
    confidence: "Confidence",
) -> "dict[str, Score]":
    """Of a language model that goes on learning from the text as it reads it."""
    from saccade.likelihood import CacheConfig, DynamicConfig
    from saccade.tasks.language_model import LanguageModelRecipe

    assert isinstance(recipe, LanguageModelRecipe)
    cache = section(CacheConfig, learning.get("--cache"), "--cache")
    dynamic = section(DynamicConfig, learning.get("--dynamic"), "--dynamic")
    return recipe.scores_with(loaded, files, split, base, cache=cache, dynamic=dynamic, confidence=confidence)


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
    return config.parse(kind, tree, option, whole=option)


def _tell_scores(
    scores: "dict[str, Score]", format_: ScoreFormat, about: dict[str, Any], metrics: str | None, gates: Sequence[Gate]
) -> None:
    names = [name.strip() for name in metrics.split(",")] if metrics else list(scores)
    wrong = [name for name in names if name not in scores]
    if wrong:
        raise UsageError(f"--metrics is {metrics!r}; it must be a list out of {', '.join(scores)}.")
    check_names(gates, names)
    chosen = {name: scores[name] for name in names}
    tables = getattr(scores, "tables", ())
    if format_ == "json":
        about = about | {each.name: each.values for each in tables}
    say(shown(chosen, format_, about))
    for each in tables if format_ in ("text", "markdown", "latex") else ():
        say(titled(each.title, format_))
        say(table_of(each.rows, format_))
    for remark in getattr(scores, "remarks", ()):
        tell(remark)
    check_gates(chosen, gates)
