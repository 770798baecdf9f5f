"""A comparison in tables: for the terminal, for Markdown and LaTeX, and as tab-separated values."""

import math
from collections.abc import Callable, Mapping, Sequence

from saccade.compare.result import Comparison, System
from saccade.compare.verdict import tested_by
from saccade.metrics.score import digits
from saccade.view import table
from saccade.view.amounts import amount, duration
from saccade.view.numbers import lines_told, p_value, span, speed

Draw = Callable[[Sequence[Mapping[str, str]], Sequence[str]], str]
_SHORTEST, _LONGEST = 12, 40


def as_text(found: Comparison) -> str:
    parts = [found.verdict, *_sections(found, table.render, lambda title: title)]
    return "\n\n".join([*parts, "\n".join(found.remarks)])


def as_markdown(found: Comparison) -> str:
    parts = [found.verdict, *_sections(found, table.markdown, lambda title: f"**{title}**")]
    return "\n\n".join([*parts, "\n".join(f"- {each}" for each in found.remarks)])


def as_tsv(found: Comparison) -> str:
    """A row for each metric and system; numbers as they are, with six digits behind the point."""
    heads = ("metric", "system", "value", "low", "high", "difference", "difference_low", "difference_high",
             "better", "p", "p_sacrebleu", "p_holm", "lines", "signature")  # fmt: skip
    rows = [heads]
    for metric, cells in zip(found.metrics, found.cells, strict=True):
        for system, cell in zip(found.systems, cells, strict=True):
            paired = cell.paired
            apart = (math.nan,) * 6 if paired is None else (
                paired.difference, paired.low, paired.high, paired.better, paired.p,
                math.nan if paired.p_sacrebleu is None else paired.p_sacrebleu,
            )  # fmt: skip
            numbers = [cell.score.value, cell.score.low, cell.score.high, *apart, cell.p_holm]
            name = " ".join(system.name.split())
            told = ["" if math.isnan(number) else f"{number:.6f}" for number in numbers]
            rows.append((metric, name, *told, str(cell.score.count), cell.score.signature or ""))  # type: ignore[arg-type]
    return "\n".join("\t".join(row) for row in rows)


def as_latex(found: Comparison) -> str:
    """A row for each system, a column for each metric: the score, and p in brackets behind it."""
    rows = []
    for number, system in enumerate(found.systems):
        row = {"system": system.name}
        for cells in found.cells:
            cell = cells[number]
            p = "" if cell.paired is None else p_value(cell.paired.p)
            row[cells[0].score.name] = f"{digits(cell.score)} ({p})" if p else digits(cell.score)
        rows.append(row)
    if not rows:
        return ""
    signatures = "; ".join(
        f"{cells[0].score.name}: {cells[0].score.signature}" for cells in found.cells if cells[0].score.signature
    )
    paired = next((cell.paired for row in found.cells for cell in row if cell.paired is not None), None)
    tested = "" if paired is None else f" In brackets p against {found.systems[0].name} ({tested_by(paired)})."
    caption = f"{lines_told(found.lines)}.{tested} {signatures}"
    return table.latex(rows, list(rows[0]), caption=caption.strip())


# ---- sections


def _sections(found: Comparison, draw: Draw, headed: Callable[[str], str]) -> list[str]:
    parts = []
    for row in found.cells:
        title = f"{row[0].score.name} on {lines_told(found.lines)}"
        title += f" ({row[0].score.signature})" if row[0].score.signature else ""
        parts.append(f"{headed(title)}\n\n{_scores(found, row, draw)}")
    for title, rows in (("Seeds", _seeds(found)), ("Costs", _costs(found))):
        if rows:
            parts.append(f"{headed(title)}\n\n{draw(rows, list(rows[0]))}")
    parts += [f"{headed(title)}\n\n{draw(rows, list(rows[0]))}" for title, rows in _buckets(found)]
    if found.settings:
        rows = [
            {"setting": name, **dict(zip(_names(found.systems), map(_setting, values), strict=True))}
            for name, values in found.settings.items()
        ]
        parts.append(f"{headed('What the recipes have otherwise')}\n\n{draw(rows, list(rows[0]))}")
    return parts


def _scores(found: Comparison, row: Sequence[object], draw: Draw) -> str:
    place = next(i for i, each in enumerate(found.cells) if each is row)
    size = len(found.systems)
    rows = found.rows()[place * size : (place + 1) * size]
    columns = [key for key in ("system", "value", "95 % interval", "difference", "its interval", "p")
               if any(each.get(key) for each in rows)]  # fmt: skip
    return draw([{key: each.get(key, "") for key in columns} for each in rows], columns)


def _seeds(found: Comparison) -> list[dict[str, str]]:
    rows = []
    for each in found.seeds:
        score = found.cell(each.systems[0], each.metric).score
        rows.append({
            "seeds of": each.group, "runs": str(len(each.values)), "metric": score.name,
            "mean": f"{each.mean:.{score.places}f} ± {each.deviation:.{score.places}f}",
            "range": span(min(each.values), max(each.values), score.places),
        })  # fmt: skip
    return rows


def _costs(found: Comparison) -> list[dict[str, str]]:
    if all(system.parameters is None for system in found.systems):
        return []
    rows = [
        {
            "system": system.name,
            "model": system.model or "",
            "parameters": _known(system.parameters, lambda n: f"{n:,.0f}"),
            "trained": _known(system.trained_seconds, duration),
            "updates": _known(system.updates, lambda n: f"{n:,.0f}"),
            "tokens": _known(system.trained_tokens, amount),
            "lines/s": _known(system.lines_per_second, speed),
            "tokens/s": _known(system.tokens_per_second, speed),
        }
        for system in found.systems
    ]
    kept = [key for key in rows[0] if any(row[key] for row in rows)]
    return [{key: row[key] for key in kept} for row in rows]


def _known(value: float | None, told: Callable[[float], str]) -> str:
    return "" if value is None else told(value)


def _buckets(found: Comparison) -> list[tuple[str, list[dict[str, str]]]]:
    names, tables = _names(found.systems), []
    for each in found.buckets:
        rows = [
            {each.column: label, each.unit: f"{count:,}", **dict(zip(names, [f"{v:.1f}" for v in values], strict=True))}
            for label, count, values in zip(each.labels, each.counts, each.values, strict=True)
        ]
        tables.append((f"{each.metric} by {each.title}", rows))
    return tables


def _names(systems: Sequence[System]) -> list[str]:
    """As heads of columns: cut short, but no two alike."""
    length = _SHORTEST
    names = [system.name for system in systems]
    while length < _LONGEST and len({_cut(name, length) for name in names}) < len(names):
        length += 4
    cut = [_cut(name, length) for name in names]
    return cut if len(set(cut)) == len(cut) else [f"{number}. {name}" for number, name in enumerate(cut, start=1)]


def _cut(name: str, length: int) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _setting(value: object) -> str:
    shown = "–" if value is None else str(value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
