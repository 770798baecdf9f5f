"""Rows of text as a LaTeX table (booktabs)."""

from collections.abc import Mapping, Sequence

from saccade.view.table import _cells, _to_the_right

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--", "−": "$-$", "±": r"$\pm$", "≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\rightarrow$", "…": r"\ldots{}",
}  # fmt: skip


def latex(rows: Sequence[Mapping[str, str]], columns: Sequence[str], *, caption: str = "") -> str:
    r"""A `tabular` between `\toprule` and `\bottomrule`, numbers to the right; in a `table` where it has a caption."""
    cells = _cells(rows, columns)
    right = _to_the_right(cells, len(columns))
    lines = [
        rf"\begin{{tabular}}{{{''.join('r' if each else 'l' for each in right)}}}",
        r"\toprule",
        " & ".join(map(escaped, columns)) + r" \\",
        r"\midrule",
        *(" & ".join(map(escaped, row)) + r" \\" for row in cells),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if caption:
        lines = [r"\begin{table}", r"\centering", *lines, rf"\caption{{{escaped(caption)}}}", r"\end{table}"]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """What LaTeX sets as the text says."""
    return "".join(_SIGNS.get(sign, sign) for sign in text)
