"""Rows of text as an aligned table: for the terminal, for Markdown and for LaTeX."""

import re
from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from saccade.errors import UsageError

_NUMBER = re.compile(r"[-+−±<>≤≥~]?\s*\d[\d,.]*(e[-+]?\d+)?\s*(%|[kKMG]|s|ms)?(\s*[±\[(].*)?")


def render(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> str:
    """Plain text, two spaces between columns, numbers to the right; a value that a row lacks stays blank."""
    cells = _cells(rows, columns)
    widths = [max(cell_len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    right = _to_the_right(cells, len(columns))
    lines = [columns, ["─" * width for width in widths], *cells]
    return "\n".join("  ".join(map(_padded, line, widths, right)).rstrip() for line in lines)


def markdown(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> str:
    """A Markdown table that is also aligned as text."""
    cells = [[_escaped(cell) for cell in row] for row in _cells(rows, columns)]
    heads = [_escaped(column) for column in columns]
    widths = [max(3, *(cell_len(cell) for cell in column)) for column in zip(heads, *cells, strict=True)]
    right = _to_the_right(cells, len(columns))
    rule = [
        ("-" * (width - 1) + ":") if to_right else "-" * width for width, to_right in zip(widths, right, strict=True)
    ]
    return "\n".join("| " + " | ".join(map(_padded, line, widths, right)) + " |" for line in [heads, rule, *cells])


def latex(rows: Sequence[Mapping[str, str]], columns: Sequence[str], *, caption: str = "") -> str:
    """A tabular with the rules of the package booktabs, in a table where it has a caption.

    Every character that LaTeX would act on is escaped.
    """
    cells = _cells(rows, columns)
    right = _to_the_right(cells, len(columns))
    heads, *lines = ([_latex(cell) for cell in row] for row in (columns, *cells))
    widths = [max(map(cell_len, column)) for column in zip(heads, *lines, strict=True)]
    head, *body = (" & ".join(map(_padded, line, widths, right)).rstrip() + r" \\" for line in (heads, *lines))
    places = "".join("r" if to_right else "l" for to_right in right)
    made = [rf"\begin{{tabular}}{{{places}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    if caption:
        made = [r"\begin{table}", r"\centering", *made, rf"\caption{{{_latex(caption)}}}", r"\end{table}"]
    return "\n".join(made)


def _cells(rows: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[list[str]]:
    if not columns:
        raise UsageError("columns: a table needs at least one column.")
    unknown = {key for row in rows for key in row} - set(columns)
    if unknown and not any(key in row for row in rows for key in columns):
        raise UsageError(
            f"columns: no row has any of {', '.join(columns)}; the rows have {', '.join(sorted(unknown))}."
        )
    return [[" ".join(row.get(column, "").split()) for column in columns] for row in rows]


def _to_the_right(cells: Sequence[Sequence[str]], count: int) -> list[bool]:
    """Which columns hold numbers only (blanks and dashes aside)."""
    filled = [[row[c] for row in cells if row[c] not in ("", "-", "–", "—")] for c in range(count)]
    return [bool(column) and all(_NUMBER.fullmatch(cell) for cell in column) for column in filled]


def _padded(cell: str, width: int, to_right: bool) -> str:
    space = " " * (width - cell_len(cell))
    return space + cell if to_right else cell + space


def _escaped(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|")


_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "|": r"\textbar{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "–": "--",
        "—": "---",
        "−": "$-$",
        "±": r"$\pm$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "→": r"$\rightarrow$",
        "…": r"\ldots{}",
    }
)


def _latex(cell: str) -> str:
    return cell.translate(_LATEX)
