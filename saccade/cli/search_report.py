"""`search-report`: what beams of many widths miss of the exact mode, and what length rules make of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from saccade.cli.options import BatchTokens, DecodeSettings, Device, MaxLength, Run
from saccade.cli.streams import check_place, count, read_lines, say, tell, to_json
from saccade.cli.words import duration, metric_name
from saccade.errors import UsageError
from saccade.metrics.names import LESS_IS_BETTER, METRICS

if TYPE_CHECKING:
    from saccade.metrics.lines import References
    from saccade.metrics.names import TextMetric
    from saccade.search_report import BeamOutcome, ExactOutcome, RuleReport, SearchReport

Format = Literal["text", "json", "tsv", "markdown", "latex"]
SplitName = Literal["test", "valid"]


def search_report(
    run: Run,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="A file of sources. Default: the recipe's own data.", show_default=False),
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
    lines: Annotated[int, typer.Option(min=1, help="How many lines, from the first on.")] = 200,
    beams: Annotated[str, typer.Option(help="Widths, comma-separated, in ascending order.")] = "1,2,5,10,30,100",
    lengths: Annotated[
        str,
        typer.Option(
            help="Length rules, comma-separated: none, average, power, gnmt, with an exponent where it is not 1, as "
            "gnmt=0.6."
        ),
    ] = "none,average,gnmt",
    metrics: Annotated[
        str, typer.Option(help="Comma-separated, as for `saccade evaluate`; the first is drawn.")
    ] = "bleu,chrf",
    expansions: Annotated[
        int, typer.Option(min=1, help="Exact search of a line is given up after so many prefixes.")
    ] = 2000,
    seconds: Annotated[
        float | None,
        typer.Option(help="… or after so many seconds, its share of the time. Default: no limit.", show_default=False),
    ] = None,
    max_length: MaxLength = None,
    settings: DecodeSettings = None,
    batch_tokens: BatchTokens = 4096,
    format_: Annotated[Format, typer.Option("--format", "-f", help="How the report is written.")] = "text",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw the curves into this file, a .png.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Tell what search misses: beams of many widths beside exact search.

    For each beam, ranked by each length rule: how probable its outputs are, how many are not the best there is (search
    errors, counted where exact search finishes within its budget), how long they are and how good.
    """
    from saccade.cli.scores import refuse, task_of

    if task_of(run) != "translate":
        refuse(run, {"search-report": True})
    widths = _widths(beams)
    names = _metrics(metrics)
    if seconds is not None and not seconds > 0:
        raise UsageError(f"--seconds is {seconds:g}; it must be more than 0.")
    if out is not None and out.suffix != ".png":
        raise UsageError(f"--output is {out}; the picture is a .png: give it such a name.")
    if out is not None:
        check_place(out, "--output")
    sources, references, told = _data(run, source, reference, split, base)
    from saccade.api import load

    model = load(run, device)
    report = model.search_report(
        sources[:lines],
        references[:lines],
        beams=widths,
        lengths=lengths.split(","),
        metrics=names,
        expansions=expansions,
        seconds=seconds,
        decode=model.decoding(n_best=1, max_length=max_length, settings=settings or ()),
        batch_tokens=batch_tokens,
        progress=tell,
    )
    about = {"run": str(run), "data": told, "of_lines": len(sources)}
    say(shown(report, format_, about))
    if out is not None:
        draw(report, out, title=f"{run}: what search misses", data=told)
        tell(f"curves in {out}")


def _widths(text: str) -> list[int]:
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        widths = []
    if not widths or sorted(set(widths)) != widths or widths[0] < 1:
        raise UsageError(f"--beams is {text!r}; write widths in ascending order, as 1,2,5,10.")
    return widths


def _metrics(text: str) -> "list[TextMetric]":
    names = [name.strip() for name in text.split(",")]
    known = [name for name in METRICS if name != "perplexity"]
    if any(name not in known for name in names) or len(set(names)) < len(names):
        raise UsageError(f"--metrics is {text!r}; it must be a list out of {', '.join(known)}, each once.")
    return cast("list[TextMetric]", names)


def _data(
    run: Path, source: Path | None, reference: Path | None, split: SplitName | None, base: Path | None
) -> "tuple[list[str], References, str]":
    from saccade.checkpoint import recorded_base
    from saccade.compare.testset import own_lines

    if source is not None and split is not None:
        raise UsageError("--split chooses among the recipe's own data; leave it out where files are given.")
    if (source is None) != (reference is None):
        raise UsageError("SOURCE and REFERENCE belong together: give both files, or none for the recipe's data.")
    if source is None or reference is None:
        own = own_lines(run, split or "test", base or recorded_base(run))
        return own.inputs, own.references, split or "test"
    sources, references = read_lines(source), read_lines(reference)
    if len(sources) != len(references):
        raise UsageError(
            f"{source} has {count(len(sources), 'line')} and {reference} {len(references):,}; they must pair up."
        )
    if not sources:
        raise UsageError(f"{source}: is empty; there is nothing to search.")
    return sources, references, f"{source} {reference}"


# ---- how it is told


def shown(report: "SearchReport", format_: Format, about: dict[str, Any]) -> str:
    from saccade.view import table

    if format_ == "json":
        return to_json(about | report.to_dict(), indent=2)
    if format_ == "tsv":
        rows = [{"length rule": rule.name, **row} for rule in report.rules for row in _rows(rule)]
        heads = list(rows[0])
        return "\n".join("\t".join(line) for line in (heads, *([row[head] for head in heads] for row in rows)))
    parts = []
    for rule in report.rules:
        rows = _rows(rule)
        match format_:
            case "markdown":
                parts += [f"Length rule {rule.name}:", table.markdown(rows, list(rows[0]))]
            case "latex":
                parts += [f"% length rule {rule.name}", table.latex(rows, list(rows[0]))]
            case _:
                parts += [f"length rule {rule.name}", table.render(rows, list(rows[0]))]
    told = [*_verdicts(report), *_notes(report, about)]
    parts.append("\n".join(f"% {line}" if format_ == "latex" else line for line in told))
    return "\n\n".join(parts)


def _rows(rule: "RuleReport") -> list[dict[str, str]]:
    exact = rule.exact
    rows = []
    outcomes: list[BeamOutcome | ExactOutcome] = [*rule.beams, exact]
    for each in outcomes:
        beam = getattr(each, "beam", None)
        errors = getattr(each, "errors", 0)
        rows.append(
            {
                "beam": "exact" if beam is None else str(beam),
                "log p": f"{each.log_probability:.3f}",
                "score": f"{each.score:.4f}",
                "errors": "–" if not exact.proved else str(errors),
                "of": str(exact.proved),
                "unfinished": str(each.unfinished),
                "empty": str(each.empty),
                "ratio": f"{each.length_ratio:.3f}",
                **{metric_name(name): f"{value:.1f}" for name, value in each.metrics.items()},
                "time": f"{each.seconds:.1f} s",
            }
        )
    return rows


def _verdicts(report: "SearchReport") -> list[str]:
    return [rule.verdict for rule in report.rules]


def _notes(report: "SearchReport", about: dict[str, Any]) -> list[str]:
    """What the numbers mean, and under what they were measured."""
    budget = f"{report.expansions:,} prefixes"
    if report.seconds is not None:
        budget += f" or {report.seconds:g} s"
    spent = sum(each.exact.seconds + sum(beam.seconds for beam in each.beams) for each in report.rules)
    left_out = f", {count(report.empty_sources, 'empty one')} left out" if report.empty_sources else ""
    if report.cut_sources:
        left_out += f", {count(report.cut_sources, 'line')} longer than the model reads: the rest of each was not read"
    decode = ", ".join(f"{name}={value}" for name, value in report.decode.items())
    notes = [
        f"{count(report.lines, 'line')} of {about['of_lines']:,} of {about['data']}{left_out}; {decode}; "
        f"{report.device}, {duration(spent)}",
        f"errors: outputs more than {report.tolerance:g} below the mode, among the lines (of) whose mode is proved "
        f"within {budget}; an unfinished output is one, too",
        "exact: the mode; where the budget ran out, the best that was found. ratio: tokens of outputs ÷ of references",
    ]
    return notes + [f"{metric_name(name)}: {signature}" for name, signature in report.signatures.items() if signature]


def draw(report: "SearchReport", path: Path, *, title: str, data: str) -> None:
    from saccade.view.search import SearchCurve, save_search_png

    first = next(iter(report.signatures))
    curves = []
    for rule in report.rules:
        both = [*rule.beams, rule.exact]
        proved = rule.exact.proved
        curves.append(
            SearchCurve(
                f"{rule.name} ({proved}/{report.lines} proved)",
                [each.metrics[first] for each in both],
                [each.length_ratio for each in both],
                [each.log_probability for each in both],
                [100 * each.errors / proved for each in rule.beams] if proved else None,
                proved / report.lines,
            )
        )
    hollow = "; hollow: best found, not all modes proved" if any(each.proved < 1 for each in curves) else ""
    save_search_png(
        curves,
        [each.beam for each in report.rules[0].beams],
        path,
        metric=metric_name(first) + (" (less is better)" if first in LESS_IS_BETTER else ""),
        title=title,
        detail=f"{count(report.lines, 'line')} of {data}, ranked by each length rule{hollow}",
    )
