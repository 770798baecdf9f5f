"""`align`: which word of a target comes from which word of its source, and how often that is right."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from saccade.cli.gates import FailOver, FailUnder, Gate, asked_gates, check_gates, check_names
from saccade.cli.gold import LINK_SCORES, GoldFile, OneBased, check_stdin, read_gold_lines, tell_cut
from saccade.cli.options import BatchTokens, Device
from saccade.cli.score_formats import shown
from saccade.cli.streams import count, output, read_lines, say, to_json
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.align import Aligner, Alignment, Linked
    from saccade.metrics.score import Score

Format = Literal["text", "jsonl", "json", "tsv", "markdown", "latex"]
Lines = list[str]


def align(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run folder with attention; or a file of links that --gold is to score."),
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE",
            help="A file of sources; - is stdin. Without TARGET: of source<TAB>target, which more columns may follow.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="TARGET", help="A file with their targets, line by line.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Where the links go; - is stdout.")] = None,
    method: Annotated[
        Literal["argmax", "intersection", "union", "grow-diag", "threshold"],
        typer.Option(
            help="argmax: of each target word the most attended source word. intersection, union, grow-diag: that, "
            "joined with the same the other way round. threshold: all links with at least that weight."
        ),
    ] = "argmax",
    threshold: Annotated[
        float | None, typer.Option(help="The least weight, of --method threshold. Default: 0.2.", show_default=False)
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(help="Decoder layer, from 1. Default: the last but one, or the only one.", show_default=False),
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="Head, from 1. Default: the mean of all.", show_default=False)
    ] = None,
    step: Annotated[
        Literal["output", "input"],
        typer.Option(help="Of each token the weights of the step that writes it, or of the next, which reads it."),
    ] = "output",
    unit: Annotated[
        Literal["word", "token"], typer.Option(help="Link words, which white space separates, or tokens.")
    ] = "word",
    reverse: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A run from target to source, whose alignment is the other one to join."),
    ] = None,
    gold: GoldFile = None,
    one_based: OneBased = False,
    swap: Annotated[bool, typer.Option("--swap", help="--gold has the target first; a file of pairs, too.")] = False,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="Links: text (Pharaoh's i-j), jsonl. With --gold, of the scores: text, json, tsv, markdown, latex.",
            show_default=False,
        ),
    ] = None,
    fail_under: FailUnder = None,
    fail_over: FailOver = None,
    batch_tokens: BatchTokens = 4096,
    device: Device = "auto",
) -> None:
    """Align given pairs by a model's attention.

    One line of links for each pair, source-target, words counted from 0. With --gold: alignment error rate, precision
    and recall, with 95 % confidence intervals; the links go to -o, where it is given.
    """
    shape = _format(format_, scored=gold is not None)
    if gold is None and (one_based or swap):
        raise UsageError("--one-based and --swap say how --gold is written; give it, too, or leave them out.")
    gates = asked_gates(fail_under, fail_over)
    check_names(gates, LINK_SCORES if gold is not None else [])
    settings = {"method": method, "threshold": threshold, "layer": layer, "head": head, "step": step, "unit": unit}
    if run.is_file():
        if source is not None or gold is None:
            raise UsageError(f"{run}: is a file of links: give --gold to score it against, and nothing to align.")
        usual = {"method": "argmax", "step": "output", "unit": "word"}
        unheard = {**settings, "output": out, "reverse": reverse}
        if given := [f"--{name}" for name, value in unheard.items() if value != usual.get(name)]:
            raise UsageError(
                f"{', '.join(given)}: {run} is a file of links, which are scored as they are. Leave it out."
            )
        _score_file(run, gold, one_based, swap, shape, gates)
        return
    if source is None:
        raise UsageError("SOURCE: there is nothing to align. Give a file of sources and one of targets, or of pairs.")
    check_stdin((source, target, gold))
    sources, targets = _pairs(source, target, swap)
    right = None if gold is None else read_gold_lines(gold, len(sources), source, one_based, swap)
    aligner = _aligner(run, reverse, device, settings)
    if target is None and aligner.engine.model.reads_parse:
        raise UsageError(
            f"{run}: reads dependency trees, behind a tab on each line: give SOURCE and TARGET, each a file."
        )
    found = _written(aligner, sources, targets, batch_tokens, out if out or right is None else Path(os.devnull), shape)
    if right is None:
        return
    from saccade.align import link_scores

    about = {"run": str(run), "reverse": None if reverse is None else str(reverse), "gold": str(gold)}
    scores = link_scores(found, right, place=str(gold))
    _tell(scores, shape, about | {"align": aligner.config.model_dump()}, gates)


def _written(
    aligner: "Aligner", sources: Lines, targets: Lines, batch_tokens: int, out: Path | None, shape: Format
) -> "list[Linked]":
    """Align, write every line as soon as it is found, and keep what is scored."""
    from saccade.align import Linked

    found: list[Linked] = []
    with output(out) as file:
        for each in aligner.each(sources, targets, batch_tokens):
            file.write((to_json(_as_dict(each)) if shape == "jsonl" else str(each)) + "\n")
            found.append(Linked.of(each))
    tell_cut(aligner, found)
    return found


def _format(asked: Format | None, *, scored: bool) -> Format:
    known: tuple[Format, ...] = ("text", "json", "tsv", "markdown", "latex") if scored else ("text", "jsonl")
    if asked is not None and asked not in known:
        what = "scores (--gold)" if scored else "links"
        raise UsageError(f"--format is {asked}; of {what} it must be one of {', '.join(known)}.")
    return asked or known[0]


def _aligner(run: Path, reverse: Path | None, device: str, settings: dict[str, Any]) -> "Aligner":
    from saccade import config
    from saccade.align import AlignConfig
    from saccade.api import load

    chosen = config.parse(AlignConfig, settings, "align")
    return load(run, device).aligner(chosen, None if reverse is None else load(reverse, device))


def _as_dict(each: "Alignment") -> dict[str, object]:
    return {"source": each.source, "target": each.target, "links": sorted(each.links), "cut": each.cut}


# ---- reading


def _pairs(source: Path, target: Path | None, swap: bool) -> tuple[Lines, Lines]:
    if target is not None:
        sources, targets = read_lines(source), read_lines(target)
        if len(sources) != len(targets):
            raise UsageError(
                f"{source} has {count(len(sources), 'line')} and {target} {len(targets):,}; they must pair up."
            )
        return sources, targets
    rows = [line.split("\t") for line in read_lines(source)]
    for number, row in enumerate(rows, start=1):
        if len(row) == 1 and row[0]:
            raise UsageError(
                f"{source} line {number}: has no tab. Without TARGET each line is a source, a tab and its target."
            )
    sides = [row[0] for row in rows], [row[1] if len(row) > 1 else "" for row in rows]
    return (sides[1], sides[0]) if swap else sides


# ---- scores


def _score_file(path: Path, gold: Path, one_based: bool, swap: bool, shape: Format, gates: Sequence[Gate]) -> None:
    from saccade.metrics.links import alignment_scores, read_links

    if str(path) == str(gold):
        raise UsageError(f"--gold {gold}: is the file that is to be scored against it.")
    found = [read_links(line, f"{path} line {number}") for number, line in enumerate(read_lines(path), start=1)]
    right = read_gold_lines(gold, len(found), path, one_based, swap)
    _tell(alignment_scores(found, right), shape, {"links": str(path), "gold": str(gold)}, gates)


def _tell(scores: "dict[str, Score]", shape: Format, about: dict[str, Any], gates: Sequence[Gate]) -> None:
    assert shape != "jsonl"  # which is for links
    say(shown(scores, shape, about))
    check_gates(scores, gates)
