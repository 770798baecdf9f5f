"""A comparison as a page: one static file without scripts, that opens from disk and asks nothing of any network.

The page is a pure function of the plain values of a comparison (`Comparison.to_dict`). Its order is that of a reader's
questions: what came out, how sure is it, do seeds say the same, what does it cost, where do systems differ, and how.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from saccade.view import charts
from saccade.view.amounts import amount, duration
from saccade.view.charts import Mark, Scale
from saccade.view.files import write_atomically
from saccade.view.numbers import lines_told, p_value, signed, span, speed
from saccade.view.page import filled, hash_of, part

Tree = Mapping[str, Any]
LARGEST = 5_000_000
"""Bytes of a page: where it would be more, fewer examples are shown, and then fewer n-grams."""
SURE, ENDS = 0.05, "95 % interval"
_TOKENS = re.compile(r"\w+|[^\w\s]|\s+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def save_html(found: Tree, path: Path | str) -> None:
    """The page of a comparison's plain values."""
    write_atomically(Path(path), render_html(found).encode("utf-8", "replace"))


def render_html(found: Tree) -> str:
    """The text of the page, at most 5 MB of it."""
    examples, ngrams = (
        max((len(each[side]) for each in found["differences"] for side in sides), default=0)
        for sides in (("better", "worse"), ("ngrams_better", "ngrams_worse"))
    )
    page = _rendered(found, examples, ngrams)
    while len(page.encode("utf-8", "replace")) > LARGEST and (examples or ngrams):
        examples, ngrams = (examples // 2, ngrams) if examples else (0, ngrams // 2)
        page = _rendered(found, examples, ngrams)
    return page


def _rendered(found: Tree, examples: int, ngrams: int) -> str:
    names = [system["name"] for system in found["systems"]]
    marks = _marks(found["systems"])
    style = part("compare.css")
    sections = [
        _scores(found, marks),
        _seeds(found, marks),
        _costs(found, marks),
        _buckets(found, marks),
        _differences(found, examples, ngrams),
        _settings(found),
        _about(found),
    ]
    count = len(names)
    return filled(
        part("compare.html"),
        {
            "title": _text(" and ".join(names) if count < 3 else f"{count} systems compared"),
            "about": _text(f"{lines_told(found['lines'])} of the {found['test_set']} data" if found["test_set"] in
                           ("test", "valid") else f"{lines_told(found['lines'])}: {found['test_set']}"),
            "verdict": _text(re.sub(r"p ([<=]) ", "p\u00a0\\1\u00a0", found["verdict"])),
            "legend": "".join(f"<li>{mark.key()}{_text(name)}</li>" for name, mark in zip(names, marks, strict=True)),
            "sections": "\n".join(filter(None, sections)),
            "style": style,
            "style_hash": hash_of(style),
        },
    )  # fmt: skip


def _marks(systems: Sequence[Tree]) -> list[Mark]:
    """One for each system; seeds of one recipe share theirs."""
    places: dict[str, int] = {}
    for system in systems:
        places.setdefault(_family(system), len(places))
    return [Mark(places[_family(system)]) for system in systems]


def _family(system: Tree) -> str:
    return f"group {system['group']}" if system["group"] else f"system {system['name']}"


# ---- scores


def _scores(found: Tree, marks: Sequence[Mark]) -> str:
    parts = [f'<section id="scores">{_head("Scores", _scores_note(found))}']
    for metric, cells in found["scores"].items():
        less = metric in found["less_is_better"]
        better = "less is better" if less else "more is better"
        parts.append(f'<h3>{_text(cells[0]["name"])}</h3><p class="note">{better}</p>')
        parts.append(_score_table(cells, marks, less, _kin(found["systems"])))
        if cells[0]["signature"]:
            parts.append(f'<p class="signature">{_text(cells[0]["signature"])}</p>')
    return "".join([*parts, "</section>"])


def _scores_note(found: Tree) -> str:
    tested = next((cell["paired"] for row in found["scores"].values() for cell in row if cell["paired"]), None)
    if tested is None:
        return "With intervals of 95 % over test lines."
    trials = "resamples" if tested["test"] == "bootstrap" else "trials"
    return (
        f"With intervals of 95 % over test lines. Differences are to {found['systems'][0]['name']}; p by paired "
        f"{tested['test']}, {tested['resamples']:,} {trials}. Neither covers other seeds of the same model."
    )


def _kin(systems: Sequence[Tree]) -> list[bool]:
    """Which systems are other seeds of the first: what is between them is no merit of either."""
    return [bool(system["group"]) and system["group"] == systems[0]["group"] for system in systems]


def _score_table(cells: Sequence[Tree], marks: Sequence[Mark], less: bool, kin: Sequence[bool]) -> str:
    scale = Scale.of([value for cell in cells for value in (cell["value"], cell["low"], cell["high"])])
    paired = [cell["paired"] for cell in cells if cell["paired"]]
    apart = Scale.of([each[key] for each in paired for key in ("difference", "low", "high")], zero=True)
    best = (min if less else max)(cell["value"] for cell in cells)
    heads = ["system", "score", ENDS, charts.axis(scale)]
    heads += ["difference", ENDS, charts.axis(apart), "p"] if paired else []
    rows = []
    for number, (cell, mark) in enumerate(zip(cells, marks, strict=True)):
        places, each = cell["places"], cell["paired"]
        row = [f'<th scope="row">{mark.key()}{_text(cell["system"])}</th>',
               _cell(f"{cell['value']:.{places}f}", "value"), _cell(span(cell["low"], cell["high"], places), "ends"),
               _cell(charts.interval(scale, cell["value"], cell["low"], cell["high"], mark), "chart")]  # fmt: skip
        if each:
            sure = each["p_holm"] is not None and each["p_holm"] < SURE and not kin[number]
            kind = ("good" if (each["difference"] < 0) == less else "bad") if sure else ""
            drawn = charts.interval(apart, each["difference"], each["low"], each["high"], mark, zero=True)
            row += [_cell(signed(each["difference"], places), f"{kind} {'sure' if sure else ''}".strip()),
                    _cell(span(each["low"], each["high"], places, sign=True), "ends"),
                    _cell(drawn, "chart"), _cell(_text(p_value(each["p"])))]  # fmt: skip
        elif paired:
            row += [_cell("")] * 4
        classes = [*(["baseline"] if number == 0 and paired else []), *(["best"] if cell["value"] == best else [])]
        rows.append((" ".join(classes), "".join(row)))
    return _table(heads, rows, charts_at=(3, 6))


# ---- seeds


def _seeds(found: Tree, marks: Sequence[Mark]) -> str:
    if not found["seeds"]:
        return ""
    of = {system["name"]: mark for system, mark in zip(found["systems"], marks, strict=True)}
    parts = [f'<section id="seeds">{_head("Seeds", "Each point is a training of its own; the tick is their mean.")}']
    for metric, cells in found["scores"].items():
        groups = [each for each in found["seeds"] if each["metric"] == metric]
        alone = [cell for cell in cells if not any(cell["system"] in each["systems"] for each in groups)]
        scale = Scale.of([v for each in groups for v in each["values"]] + [cell["value"] for cell in alone])
        places = cells[0]["places"]
        rows = []
        for each in groups:
            points = [(value, of[name], f"{name}: {value:.{places}f}")
                      for name, value in zip(each["systems"], each["values"], strict=True)]  # fmt: skip
            rows.append(_row(
                f"{of[each['systems'][0]].key()}{_text(each['group'])}",
                f"{len(points)}", f"{each['mean']:.{places}f} ± {each['deviation']:.{places}f}",
                span(min(each["values"]), max(each["values"]), places), charts.dots(scale, points, mean=each["mean"]),
            ))  # fmt: skip
        for cell in alone:
            mark = of[cell["system"]]
            dot = charts.dots(scale, [(cell["value"], mark, cell["system"])])
            rows.append(_row(f"{mark.key()}{_text(cell['system'])}", "1", f"{cell['value']:.{places}f}", "", dot))
        heads = [_text(cells[0]["name"]), "runs", "mean ± deviation", "range", charts.axis(scale)]
        parts.append(_table(heads, rows, charts_at=(4,)))
    return "".join([*parts, "</section>"])


# ---- quality and cost


def _costs(found: Tree, marks: Sequence[Mark]) -> str:
    systems = found["systems"]
    if all(system["parameters"] is None for system in systems):
        return ""
    metric = found["metrics"][0]
    cells = found["scores"][metric]
    panels = []
    for key, across in (
        ("lines_per_second", "lines a second"),
        ("parameters", "parameters"),
        ("trained_seconds", "seconds of training"),
    ):
        points = [
            (system[key], cell["value"], mark, f"{system['name']}: {system[key]:,.0f} {across}")
            for system, cell, mark in zip(systems, cells, marks, strict=True)
            if system[key]
        ]  # fmt: skip
        if points:
            wide = max(p[0] for p in points) > 20 * min(p[0] for p in points)
            drawn = charts.scatter(points, across=across, up=cells[0]["name"], logarithmic=wide)
            panels.append(f"<figure>{drawn}</figure>")
    heads = ["system", "model", "parameters", "trained for", "updates", "tokens", "lines/s", "tokens/s"]
    rows = [
        _row(
            f"{mark.key()}{_text(system['name'])}", _text(system["model"] or "–"),
            _known(system["parameters"], lambda n: f"{n:,.0f}"), _known(system["trained_seconds"], duration),
            _known(system["updates"], lambda n: f"{n:,.0f}"), _known(system["trained_tokens"], amount),
            _known(system["lines_per_second"], speed), _known(system["tokens_per_second"], speed),
        )
        for system, mark in zip(systems, marks, strict=True)
    ]  # fmt: skip
    note = "Speed was measured while the outputs were made, behind a warm-up, all in one process."
    title = _head("Quality and cost", note)
    return f'<section id="costs">{title}<div class="panels">{"".join(panels)}</div>{_table(heads, rows)}</section>'


# ---- groups of lines and words


def _buckets(found: Tree, marks: Sequence[Mark]) -> str:
    if not found["buckets"]:
        return ""
    names = [system["name"] for system in found["systems"]]
    parts = [f'<section id="buckets">{_head("By length, difficulty and frequency", "")}']
    for each in found["buckets"]:
        scale = Scale.of([value for row in each["values"] for value in row])
        rows = []
        for label, count, values in zip(each["labels"], each["counts"], each["values"], strict=True):
            points = [(value, mark, f"{name}: {value:.1f}")
                      for value, mark, name in zip(values, marks, names, strict=True)]  # fmt: skip
            rows.append(_row(_text(label), f"{count:,}", charts.dots(scale, points), *(f"{v:.1f}" for v in values)))
        heads = [_text(each["column"]), _text(each["unit"]), charts.axis(scale), *map(_text, names)]
        parts.append(f"<h3>{_text(each['metric'])} by {_text(each['title'])}</h3>{_table(heads, rows, charts_at=(2,))}")
    return "".join([*parts, "</section>"])


# ---- examples


def _differences(found: Tree, most: int, ngrams: int) -> str:
    if not found["differences"]:
        return ""
    first = found["systems"][0]["name"]
    note = "Words that the reference does not have are marked."
    parts = [f'<section id="differences">{_head(f"Where they differ from {first}", note)}']
    shown = next((number for number, kin in enumerate(_kin(found["systems"])[1:]) if not kin), 0)
    for number, each in enumerate(found["differences"]):
        wins, losses, ties = each["wins"], each["losses"], each["ties"]
        told = f"{wins:,} lines better, {losses:,} worse, {ties:,} alike by {each['metric']}"
        lines = charts.bar([(wins, "win", f"{wins:,} better"), (ties, "tie", f"{ties:,} alike"),
                            (losses, "loss", f"{losses:,} worse")])  # fmt: skip
        sides = "".join(
            f"<div><h3>{title}</h3>{''.join(_case(case, first, each['system']) for case in each[side][:most])}</div>"
            for side, title in (("better", "Much better"), ("worse", "Much worse"))
            if each[side][:most]
        )
        is_open = " open" if number == shown else ""
        parts.append(
            f"<details{is_open}><summary>{_text(each['system'])}<small>{told}</small></summary>{lines}"
            f'<div class="cases">{sides}</div>{_ngrams(each, first, ngrams)}</details>'
        )
    return "".join([*parts, "</section>"])


def _case(case: Tree, first: str, system: str) -> str:
    rows = [(f"line {case['line']:,}", _bdi(case["source"]), "")] if case["source"] else []
    rows += [("reference", _bdi(each), "") for each in case["references"]]
    if case["references"]:
        both = ((first, "baseline", "baseline_score"), (system, "output", "score"))
        rows += [(name, _marked(case[key], case["references"]), f"{case[score]:.1f}") for name, key, score in both]
    else:
        rows += [(name, "", f"{case[score]:.2f}") for name, score in ((first, "baseline_score"), (system, "score"))]
    cells = "".join(
        f'<dt>{_text(name)}</dt><dd>{shown}</dd><dd class="score">{score}</dd>' for name, shown, score in rows
    )
    return f'<dl class="case">{cells}</dl>'


def _marked(output: str, references: Sequence[str]) -> str:
    """The output with those of its words marked that the first reference has not, or not as often."""
    left = Counter(_TOKENS.findall(references[0]))
    shown = []
    for token in _TOKENS.findall(output):
        wrong = not token.isspace() and left[token] <= 0
        left[token] -= 1
        shown.append(f"<mark>{_text(token)}</mark>" if wrong else _text(token))
    return f'<bdi dir="auto">{"".join(shown)}</bdi>' if output else "<mark>∅</mark>"


def _ngrams(each: Tree, first: str, most: int) -> str:
    tables = []
    for key, title in (
        ("ngrams_better", "n-grams got right more often"),
        ("ngrams_worse", "n-grams got right less often"),
    ):
        rows = [_row(_bdi(gram), f"{ours:,}", f"{theirs:,}") for gram, ours, theirs in each[key][:most]]
        if rows:
            tables.append(f"<div><h3>{title}</h3>{_table(['n-gram', _text(each['system']), _text(first)], rows)}</div>")
    return f'<div class="cases">{"".join(tables)}</div>' if tables else ""


# ---- settings and the rest


def _settings(found: Tree) -> str:
    if not found["settings"]:
        return ""
    heads = ["setting", *(_text(system["name"]) for system in found["systems"])]
    rows = [_row(_text(name), *(_text("–" if value is None else str(value)) for value in values))
            for name, values in found["settings"].items()]  # fmt: skip
    title = _head("What the recipes have otherwise", "Everything else is the same in all of them.")
    return f'<section id="settings">{title}{_table(heads, rows)}</section>'


def _about(found: Tree) -> str:
    remarks = "".join(f"<li>{_text(each)}</li>" for each in found["remarks"])
    here = found["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in (here.get("packages") or {}).items() if version)
    facts = [
        ("saccade", here.get("saccade")), ("python", here.get("python")), ("packages", packages),
        ("machine", here.get("gpu") or f"{here.get('processor')}, {here.get('threads')} threads"),
        ("system", here.get("system")),
    ]  # fmt: skip
    facts += [(system["name"], system["origin"]) for system in found["systems"]]
    ways = {str(system["decode"]) for system in found["systems"] if system["decode"]}
    facts += [("decoding", " · ".join(sorted(ways)))] if ways else []
    told = "".join(f"<dt>{_text(name)}</dt><dd>{_text(str(value))}</dd>" for name, value in facts if value)
    again = f"<h3>The same again</h3><pre>{_text(found['command'])}</pre>" if found["command"] else ""
    title = _head("How to read this, and how to repeat it", "")
    return f'<section id="about">{title}<ul>{remarks}</ul><dl class="facts">{told}</dl>{again}</section>'


# ---- pieces


def _head(title: str, note: str) -> str:
    return f"<h2>{_text(title)}</h2>" + (f'<p class="note">{_text(note)}</p>' if note else "")


def _table(heads: Sequence[str], rows: Iterable[tuple[str, str]], *, charts_at: Sequence[int] = ()) -> str:
    told = "".join(
        f'<th scope="col" class="{"chart" if place in charts_at else "ends" if each == ENDS else ""}">{each}</th>'
        for place, each in enumerate(heads)
    )
    body = "".join(f'<tr class="{kind}">{row}</tr>' if kind else f"<tr>{row}</tr>" for kind, row in rows)
    return f'<div class="wide"><table><thead><tr>{told}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(head: str, *cells: str) -> tuple[str, str]:
    shown = "".join(_cell(each, "chart" if each.startswith("<svg") else "") for each in cells)
    return "", f'<th scope="row">{head}</th>{shown}'


def _cell(content: str, kind: str = "") -> str:
    return f'<td class="{kind}">{content}</td>' if kind else f"<td>{content}</td>"


def _known(value: float | None, told: Callable[[float], str]) -> str:
    return "–" if value is None else told(value)


def _bdi(text: str) -> str:
    """Text of either direction that does not turn what stands around it."""
    return f'<bdi dir="auto">{_text(text)}</bdi>'


def _text(text: str) -> str:
    """Text as text, whatever it holds."""
    return escape(_CONTROLS.sub("\ufffd", text))
