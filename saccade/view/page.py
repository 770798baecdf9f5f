"""Attention as a page: one file that opens from disk, asks nothing of any network, and lets the reader look around."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from saccade.errors import UsageError
from saccade.types import Trace
from saccade.view.files import write_atomically
from saccade.view.matrix import Gold, attention_of, check_gold, kinds_of, visible
from saccade.view.palette import DARK, LIGHT, ramp

STEPS = 65535
"""Weights are stored as whole numbers from 0 to this: fine enough that a row's sum is still 1.000 when shown."""


def save_html(
    traces: Sequence[Trace],
    path: Path | str,
    *,
    title: str,
    note: str = "",
    gold: Sequence[Gold | None] | None = None,
) -> None:
    """One page with all the examples; `gold` is one alignment (or None) for each, outlined in cross-attention."""
    write_atomically(Path(path), render_html(traces, title=title, note=note, gold=gold).encode("utf-8", "replace"))


def render_html(
    traces: Sequence[Trace], *, title: str, note: str = "", gold: Sequence[Gold | None] | None = None
) -> str:
    """The text of the page."""
    script, style = part("page.js"), part("page.css")
    return filled(
        part("page.html"),
        {
            "title": html.escape(title),
            "note": html.escape(note),
            "data": _embedded(_content(traces, gold)),
            "script": script,
            "style": style,
            "script_hash": hash_of(script),
            "style_hash": hash_of(style),
        },
    )


def _content(traces: Sequence[Trace], gold: Sequence[Gold | None] | None) -> dict[str, Any]:
    if not traces:
        raise UsageError("traces: a page needs at least one example.")
    golds = [None] * len(traces) if gold is None else list(gold)
    if len(golds) != len(traces):
        raise UsageError(
            f"gold: needs one entry for each of the {len(traces)} traces (None for none); got {len(golds)}."
        )
    examples = [_example(trace, known) for trace, known in zip(traces, golds, strict=True)]
    palettes = {"light": _base64(ramp(LIGHT).tobytes()), "dark": _base64(ramp(DARK).tobytes())}
    return {"examples": examples, "palettes": palettes}


def _example(trace: Trace, gold: Gold | None) -> dict[str, Any]:
    kinds = kinds_of(trace)
    if not kinds:
        raise UsageError(f"traces: the example {trace.title!r} holds no attention to show.")
    if gold is not None:
        check_gold(gold, trace)
    maps = {}
    for kind in kinds:
        attention = attention_of(trace, kind)
        whole = np.rint(attention.weights_LHQK.astype(np.float64) * STEPS).astype("<u2")
        maps[kind] = {
            "shape": whole.shape,
            "rows": attention.rows,
            "columns": attention.columns,
            "data": _base64(whole.tobytes()),
        }
    known = None if gold is None else [sorted(set(positions)) for positions in gold]
    return {"title": visible_title(trace), "maps": maps, "gold": known}


def visible_title(trace: Trace) -> str:
    """A trace's title, or its source where it has none."""
    return trace.title or " ".join(visible(token) for token in trace.source)


def _embedded(content: dict[str, Any]) -> str:
    """JSON that no HTML parser takes for anything but text, whatever the tokens hold."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with a text in the place of each `{{name}}`."""
    # In one pass: what is put in is never itself searched for places to fill.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def part(name: str) -> str:
    """The text of a file beside this one."""
    return resources.files("saccade.view").joinpath(name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """The name by which the content security policy allows exactly this script or style, and no other."""
    return "sha256-" + _base64(hashlib.sha256(text.encode()).digest())


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")
