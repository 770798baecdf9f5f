"""Gold alignments as `align` and `evaluate` read them: the options, the file, and what is told."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli.streams import count, read_lines, tell
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.align import Aligner, Linked
    from saccade.metrics.links import Gold

LINK_SCORES = ("aer", "precision", "recall")
_WRITTEN = "a line each: i-j sure, i?j or ipj possible. Of lines with tabs, what stands behind the last."
GoldFile = Annotated[Path | None, typer.Option(metavar="FILE", help=f"Score against these links, {_WRITTEN}")]
GoldBeside = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Of a translator: score also how its attention aligns SOURCE and REFERENCE, against these links, "
        f"{_WRITTEN}",
        show_default=False,
    ),
]
OneBased = Annotated[
    bool, typer.Option("--one-based", help="--gold counts words from 1; links to 0, no word, are left out.")
]


def check_stdin(files: Iterable[Path | None]) -> None:
    if [str(file) for file in files].count("-") > 1:
        raise UsageError("-: stdin can be read once; give files for the others.")


def read_gold_lines(path: Path, pairs: int, source: Path, one_based: bool, swap: bool = False) -> "list[Gold]":
    """Of every pair of lines its gold; `source` is the file that it must pair up with."""
    from saccade.metrics.links import read_gold

    lines = read_lines(path)
    if len(lines) != pairs:
        raise UsageError(f"{source} has {count(pairs, 'line')} and {path} {len(lines):,}; they must pair up.")
    first = 1 if one_based else 0
    found = [
        read_gold(line.rpartition("\t")[2], f"{path} line {number}", first=first)
        for number, line in enumerate(lines, start=1)
    ]
    if null := sum(each.null for each in found):
        tell(f"{path}: {count(null, 'link')} to no word (0, counting from 1), left out.")
    return [each.swapped() for each in found] if swap else found


def tell_cut(aligner: "Aligner", found: "Sequence[Linked]") -> None:
    if cut := sum(each.cut for each in found):
        tell(f"{count(cut, 'pair')} longer than {aligner.engine.max_source:,} tokens: the rest of each was not read.")
