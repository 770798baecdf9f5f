"""`evaluate` and `score`: a run's outputs in numbers, and how probable it finds the outputs of others."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from saccade.cli.options import BatchTokens, Beam, Device, LengthPenalty, MaxLength, Run
from saccade.cli.streams import count, read_lines, say, tell, to_json, write_lines
from saccade.errors import GateFailed, UsageError

if TYPE_CHECKING:
    from saccade.evaluate import MetricName
    from saccade.metrics.score import Score

METRICS = ("bleu", "chrf", "exact_match")
Lines = list[str]
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
    split: Annotated[
        SplitName | None, typer.Option(help="Which of the recipe's splits. Default: test.", show_default=False)
    ] = None,
    base: Annotated[
        Path | None, typer.Option(help="The folder that relative paths in the recipe are seen from. Default: this one.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="Comma-separated, as bleu,chrf. Default: all of the run's task.", show_default=False),
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    max_length: MaxLength = None,
    batch_tokens: BatchTokens = 4096,
    format_: Annotated[
        Literal["text", "json", "tsv", "markdown"], typer.Option("--format", "-f", help="How the scores are written.")
    ] = "text",
    fail_under: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC=VALUE", help="Exit with status 3 if the metric is less; can be given again."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs to this file, too.")] = None,
    device: Device = "auto",
) -> None:
    """Score a run on test data.

    Translations are made and scored against REFERENCE; each score comes with its 95 % confidence interval and, where
    it has one, the sacrebleu signature. Runs of other tasks take files as their recipe has them.
    """
    if (source is not None) and split is not None:
        raise UsageError("--split chooses among the recipe's own data; leave it out where files are given.")
    if task_of(run) != "translate":
        files = [file for file in (source, reference) if file is not None]
        asked = {"--beam": beam, "--length-penalty": length_penalty, "--max-length": max_length, "--output": out}
        _refuse(run, {name: value for name, value in asked.items() if value is not None})
        scores, about = _scores_of_files(run, files, split or "test", base, device)
        _tell_scores(scores, format_, about, metrics, fail_under or ())
        return
    names = _metric_names(metrics or ",".join(METRICS))
    gates = [_gate(text, names) for text in fail_under or ()]
    if (source is None) != (reference is None):
        raise UsageError("SOURCE and REFERENCE belong together: give both files, or none to score the recipe's data.")
    from saccade.api import load
    from saccade.checkpoint import recorded_base

    if source is not None and reference is not None:
        sources, references = read_lines(source), read_lines(reference)
        _check_pairs(source, sources, reference, references)
        scored = f"{source} {reference}"
    else:
        scored = split or "test"
        sources, references = _own_data(run, scored, base or recorded_base(run))
    model = load(run, device)
    decode = model.decoding(beam=beam, n_best=1, length_penalty=length_penalty, max_length=max_length)
    found = model.evaluate(sources, references, metrics=names, decode=decode, batch_tokens=batch_tokens)
    if out is not None:
        write_lines(out, (each.text for each in found.translations))
    scores = dict(zip(names, found.scores, strict=True))
    say(_shown(scores, format_, {"run": str(run), "data": scored, "decode": decode.model_dump()}))
    cut = sum(each.cut for each in found.translations)
    if cut:
        tell(f"{count(cut, 'line')} longer than {model.engine.max_source:,} tokens: the rest of each was not read.")
    _check_gates(scores, gates)


def _check_gates(scores: "Mapping[str, Score]", gates: "Sequence[tuple[str, float]]") -> None:
    missed = [f"{name} is {scores[name].value:.2f}, less than {least:g}" for name, least in gates if not
              scores[name].value >= least]  # fmt: skip
    if missed:
        raise GateFailed(f"--fail-under: {'; '.join(missed)}.")


def task_of(run: Path) -> str:
    """What a run was trained for, told before torch is imported."""
    from saccade import config

    if not (run / "train.yaml").is_file():
        return "translate"  # whoever loads it tells what is wrong with it
    return str(config.read(run / "train.yaml").get("task", "translate"))


def _refuse(run: Path, asked: dict[str, Any]) -> None:
    if asked:
        raise UsageError(f"{', '.join(asked)}: {run} is a run of the task {task_of(run)}, which has no use for it.")


def _scores_of_files(
    run: Path, files: list[Path], split: SplitName, base: Path | None, device: str
) -> "tuple[dict[str, Score], dict[str, Any]]":
    """Of any task but translation: by its own recipe."""
    from saccade import checkpoint
    from saccade.device import pick_device
    from saccade.recipe import load_recipe

    loaded = checkpoint.load(run, pick_device(device))
    recipe = load_recipe(str(run / checkpoint.RECIPE))[0]
    scores = recipe.scores(loaded, files, split, base or checkpoint.recorded_base(run))
    return scores, {"run": str(run), "data": " ".join(map(str, files)) or split}


def _tell_scores(
    scores: "dict[str, Score]", format_: str, about: dict[str, Any], metrics: str | None, fail_under: Sequence[str]
) -> None:
    names = [name.strip() for name in metrics.split(",")] if metrics else list(scores)
    wrong = [name for name in names if name not in scores]
    if wrong:
        raise UsageError(f"--metrics is {metrics!r}; it must be a list out of {', '.join(scores)}.")
    gates = []
    for text in fail_under:
        name, _, value = text.partition("=")
        try:
            gates.append((name, float(value)))
        except ValueError:
            name = ""
        if name not in names:
            raise UsageError(f"--fail-under {text}: write it as metric=value, with one of {', '.join(names)}.")
    shown = {name: scores[name] for name in names}
    say(_shown(shown, format_, about))
    _check_gates(shown, gates)


def _metric_names(text: str) -> "list[MetricName]":
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if name not in METRICS]
    if wrong or not names or len(set(names)) < len(names):
        raise UsageError(f"--metrics is {text!r}; it must be a list out of {', '.join(METRICS)}, each once.")
    return cast("list[MetricName]", names)


def _gate(text: str, names: "list[MetricName]") -> "tuple[MetricName, float]":
    name, _, value = text.partition("=")
    try:
        least = float(value)
    except ValueError:
        least = math.nan
    if name not in METRICS or math.isnan(least):
        raise UsageError(f"--fail-under {text}: write it as metric=value, for example --fail-under bleu=25.")
    if name not in names:
        raise UsageError(f"--fail-under {text}: {name} is not among --metrics {','.join(names)}.")
    return name, least


def _check_pairs(one: Path, ones: Lines, other: Path, others: Lines) -> None:
    if len(ones) != len(others):
        raise UsageError(f"{one} has {count(len(ones), 'line')} and {other} {len(others):,}; they must pair up.")
    if not ones:
        raise UsageError(f"{one}: is empty; there is nothing to score.")


def _own_data(run: Path, split: SplitName, base: Path) -> tuple[Lines, Lines]:
    """The split as the recipe in the run folder has it; empty lines count, since the model is asked for them, too."""
    from saccade.checkpoint import RECIPE, RunFolder
    from saccade.data.files import Counts, FilesData, pairs
    from saccade.data.parses import line_of
    from saccade.data.splits import has_split, split_pairs
    from saccade.recipe import load_recipe
    from saccade.tasks.translate import TranslateRecipe

    RunFolder.open(run)
    recipe = load_recipe(str(run / RECIPE))[0]
    assert isinstance(recipe, TranslateRecipe)
    data = recipe.data
    if not has_split(data, split):
        raise UsageError(
            f"{run}: its recipe names no {split} data. Give SOURCE and REFERENCE, or --split valid for the "
            "validation data."
        )
    if not isinstance(data, FilesData):
        found = list(split_pairs(data, split, base=base, counts=Counts()))
    else:
        _check_there(data, split, base)
        rules = {"test": data.test, "valid": data.valid}[split]
        assert rules is not None
        counts = Counts()
        found = list(pairs(rules, base=base, on_bad=data.on_bad, trim=data.trim, counts=counts, keep_empty=True))
    parsed = recipe.model.encoder.reads_parse
    sources = [line_of(pair.source, pair.heads if parsed else None) for pair in found]
    return sources, [pair.target for pair in found]


def _check_there(data: Any, split: SplitName, base: Path) -> None:
    from saccade.data.files import locate

    for name in getattr(data, split).files:
        if not locate(name, base).path.exists():
            raise UsageError(
                f"{name}: is not in {base}. The recipe names it relative to the folder it was trained from: go there, "
                "give that folder by --base, or give SOURCE and REFERENCE."
                if not Path(name).is_absolute()
                else f"{name}: is not there any more. Give SOURCE and REFERENCE."
            )


def _shown(scores: "Mapping[Any, Score]", format_: str, about: dict[str, Any]) -> str:
    from saccade.metrics.score import digits
    from saccade.view import table

    if format_ == "json":
        return to_json(about | {"scores": {name: score.to_dict() for name, score in scores.items()}}, indent=2)
    rows = [
        {
            "metric": score.name,
            "value": digits(score),
            "95 % interval": "" if math.isnan(score.low) else f"{score.low:.1f} – {score.high:.1f}",
            "lines": f"{score.count:,}",
            "signature": score.signature or "",
        }
        for score in scores.values()
    ]
    columns = list(rows[0])
    match format_:
        case "tsv":
            heads = ("metric", "value", "low", "high", "lines", "signature")
            cells = [
                (name, digits(s), *(("", "") if math.isnan(s.low) else (f"{s.low:.1f}", f"{s.high:.1f}")), str(s.count),
                 s.signature or "")
                for name, s in scores.items()
            ]  # fmt: skip
            return "\n".join("\t".join(row) for row in (heads, *cells))
        case "markdown":
            return table.markdown(rows, columns)
        case _:
            return table.render(rows, columns)


def score(
    run: Run,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A file of sources; - is stdin.", show_default=False)
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A file of targets, line by line.", show_default=False)
    ],
    format_: Annotated[
        Literal["text", "jsonl"],
        typer.Option("--format", "-f", help="text: the log-probability of each line; jsonl: of each token, too."),
    ] = "text",
    batch_tokens: BatchTokens = 4096,
    device: Device = "auto",
) -> None:
    """How probable the model finds given outputs.

    One natural logarithm a line, the end mark included; the perplexity of all together on stderr.
    """
    sources, targets = read_lines(source), read_lines(target)
    _check_pairs(source, sources, target, targets)
    from saccade.api import load
    from saccade.evaluate import score as scored

    model = load(run, device)
    total, tokens = 0.0, 0
    for each in scored(model.engine, sources, targets, batch_tokens):
        total += each.log_probability
        tokens += len(each.tokens)
        if format_ == "text":
            say(f"{each.log_probability:.4f}")
        else:
            row = {"log_probability": each.log_probability, "tokens": each.tokens}
            say(to_json(row | {"token_log_probabilities": each.token_log_probabilities}))
    perplexity = math.exp(min(-total / tokens, 700.0))
    tell(f"perplexity {perplexity:.4f} per token · {count(tokens, 'token')} · {count(len(sources), 'line')}")
