import base64
import builtins
import hashlib
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import MissingExtra, SaccadeError, UsageError
from saccade.types import Trace
from saccade.view import attention, sheet, table
from saccade.view.attention import draw_grid, draw_matrix, save_grid_png, save_png
from saccade.view.matrix import KINDS, attention_of, one_matrix, visible
from saccade.view.page import render_html, save_html
from saccade.view.palette import DARK, GOLD, LIGHT, ramp

Array = np.ndarray[Any, Any]


def weights(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1]).astype(np.float32)


def trace(target: int = 3, source: int = 4, layers: int = 2, heads: int = 2) -> Trace:
    return Trace(
        tuple(f"s{i}" for i in range(source)),
        tuple(f"t{i}" for i in range(target)),
        {
            "cross": weights(layers, heads, target, source),
            "encoder": weights(layers, heads, source, source, seed=1),
            "decoder": weights(layers, heads, target, target, seed=2),
        },
        title="A title",
    )


def pixels(png: Path) -> Array:
    from matplotlib.image import imread

    shown: Array = np.rint(np.delete(imread(png), 3, axis=-1) * 255).astype(int)
    return shown


def at(figure: Any, q: float, k: float) -> tuple[int, int]:
    """The pixel (row, column) of a place in the first axes of a figure."""
    figure.canvas.draw()
    x, y = figure.axes[0].transData.transform((k, q))
    return int(figure.bbox.height - y), int(x)


# Matrix


def test_rows_and_columns_are_named_by_kind() -> None:
    example = trace()
    chosen = {kind: attention_of(example, kind) for kind in KINDS if kind != "pooling"}  # of classifiers
    named = {kind: (found.rows, found.columns) for kind, found in chosen.items()}
    s, t = example.source, example.target
    assert named == {"cross": (t, s), "encoder": (s, s), "decoder": (t, ("<s>", "t0", "t1"))}


def test_layer_and_head_are_chosen() -> None:
    example = trace()
    found, cross = attention_of(example, "cross"), example.attention["cross"]
    np.testing.assert_array_equal(one_matrix(found, 0, 1)[0], cross[0, 1])
    np.testing.assert_array_equal(one_matrix(found, -1, -1)[0], cross[1, 1])
    np.testing.assert_allclose(one_matrix(found, -1, "mean")[0], cross[1].mean(0))
    assert one_matrix(found, -1, 0)[1] == "layer 2 of 2, head 1 of 2"
    assert one_matrix(found, 0, "mean")[1] == "layer 1 of 2, mean of 2 heads"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"layer": 2}, "layer: must lie between -2 and 1"),
        ({"head": 2}, "head: must be 'mean' or lie between -2 and 1"),
        ({"head": "max"}, "head: must be 'mean'"),
        ({"kind": "sideways"}, "kind: must be one of cross"),
        ({"gold": [[0]]}, "gold: needs one entry for each of the 3 target tokens"),
        ({"gold": [[0], [4], []]}, "target position 1 has 4"),
        ({"gold": [[0], [1], []], "kind": "encoder"}, "gold: an alignment belongs to cross-attention"),
    ],
)
def test_wrong_choices_are_told(options: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        save_png(trace(), tmp_path / "a.png", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (weights(1, 1, 2, 4), "must have shape"),
        (weights(1, 3, 4), "must have shape"),
        (np.full((1, 1, 3, 4), np.nan), "not finite"),
        (np.full((1, 1, 3, 4), 1.5), "between 0 and 1"),
    ],
)
def test_arrays_that_do_not_fit_the_tokens_are_told(array: Array, told: str) -> None:
    bad = Trace(trace().source, trace().target, {"cross": array})
    with pytest.raises(UsageError, match=told):
        draw_matrix(bad)
    with pytest.raises(UsageError, match=told):
        render_html([bad], title="x")


def test_a_kind_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match="no encoder self-attention; it has: cross"):
        attention_of(Trace(("a",), ("b",), {"cross": weights(1, 1, 1, 1)}), "encoder")


def test_blanks_are_made_visible() -> None:
    assert [visible(t) for t in ("", " ", "a b", "\n", "\x00", "\ud800", "東京", "é")] == [
        "∅", "␣", "a␣b", "↵", "\ufffd", "?", "東京", "é",
    ]  # fmt: skip


# Palette


def test_light_palette_is_the_published_one() -> None:
    from matplotlib import colormaps

    theirs = np.array([colormaps["Blues"](i)[:3] for i in range(256)]) * 255
    np.testing.assert_allclose(ramp(LIGHT), theirs, atol=1.01)


def test_palettes_go_one_way_only() -> None:
    luminance = np.array([0.299, 0.587, 0.114])
    for stops, direction in ((LIGHT, -1), (DARK, 1)):
        steps = np.diff(ramp(stops) @ luminance) * direction
        assert (steps > -0.7).all()  # whole-number colours leave a little unevenness
        assert steps.sum() > 150


# PNG


def test_png_shows_the_weights_where_they_belong(tmp_path: Path) -> None:
    known = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]], dtype=np.float32)
    example = Trace(("a", "b", "c"), ("x", "y"), {"cross": known[None, None]})
    save_png(example, tmp_path / "a.png")
    figure, shown = draw_matrix(example), pixels(tmp_path / "a.png")
    for q, k in np.ndindex(2, 3):
        expected = ramp(LIGHT)[min(255, int(known[q, k] * 256))]
        np.testing.assert_allclose(shown[at(figure, q, k)], expected, atol=1, err_msg=f"cell {q},{k}")


def test_png_outlines_gold_and_only_gold(tmp_path: Path) -> None:
    example = Trace(("a", "b"), ("x", "y"), {"cross": np.full((1, 1, 2, 2), 0.5, np.float32)})
    save_png(example, tmp_path / "a.png", gold=[[1], []])
    figure, shown = draw_matrix(example, gold=[[1], []]), pixels(tmp_path / "a.png")
    orange = [int(GOLD[i : i + 2], 16) for i in (1, 3, 5)]
    outlined = {(q, k) for q, k in np.ndindex(2, 2) if np.abs(shown[at(figure, q - 0.45, k)] - orange).max() < 12}
    assert outlined == {(0, 1)}


@pytest.mark.parametrize(("target", "source"), [(1, 1), (120, 12), (12, 120), (1, 40)])
def test_png_grows_with_what_it_shows(target: int, source: int, tmp_path: Path) -> None:
    example = Trace(
        ("long-token",) * source, ("word",) * target, {"cross": weights(1, 1, target, source)}, title="t " * 40
    )
    figure = draw_matrix(example)
    (tmp_path / "a.png").write_bytes(sheet.encode(figure))
    height, width, _ = pixels(tmp_path / "a.png").shape
    assert (width, height) == (int(figure.bbox.width), int(figure.bbox.height))
    cells = figure.axes[0].get_window_extent()
    assert cells.height / target == pytest.approx(cells.width / source)
    assert cells.height / target >= 0.2 * figure.dpi - 1
    box = figure.get_tightbbox(figure.canvas.get_renderer()).bounds  # type: ignore[attr-defined]
    assert min(box[0], box[1]) >= 0
    assert box[0] + box[2] <= width / figure.dpi
    assert box[1] + box[3] <= height / figure.dpi


def test_png_takes_any_script_without_a_warning(tmp_path: Path) -> None:
    words = ("Ελλάδα", "Россия", "$x_{$", "東京", "नमस्ते", "مرحبا", "▁the", "\n", "🙂", "\x00", "\ud800", "x" * 99, "")
    example = Trace(words, ("$",), {"cross": weights(1, 2, 1, len(words))}, title="$東京")
    save_png(example, tmp_path / "a.png")  # warnings are errors in these tests
    save_grid_png(example, tmp_path / "b.png")
    labels = [label.get_text() for label in draw_matrix(example).axes[0].get_xticklabels()]
    assert labels[:3] == ["Ελλάδα", "Россия", "$x_{$"]
    assert labels[11] == "x" * 23 + "…"


def test_grid_holds_every_head_in_order(tmp_path: Path) -> None:
    example = trace(layers=2, heads=3)
    figure = draw_grid(example, kind="encoder")
    shown: list[Any] = [axes.images[0].get_array() for axes in figure.axes[:6]]
    np.testing.assert_array_equal(np.stack(shown), example.attention["encoder"].reshape(6, 4, 4))
    assert [axes.get_title() for axes in figure.axes[:3]] == ["head 1", "head 2", "head 3"]
    assert [figure.axes[i].get_ylabel() for i in (0, 3)] == ["layer 1", "layer 2"]
    left_of = [axes.get_position().x0 for axes in figure.axes[:3]]
    assert left_of == sorted(left_of)
    assert figure.axes[0].get_position().y0 > figure.axes[3].get_position().y1
    save_grid_png(example, tmp_path / "g.png", kind="encoder")
    assert pixels(tmp_path / "g.png").min() < 255


def refuse_import(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = builtins.__import__

    def guarded(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if any(full.startswith(package) for full in (name, *(f"{name}.{part}" for part in fromlist or ()))):
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", guarded)


def test_pictures_leave_pyplot_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refuse_import(monkeypatch, "matplotlib.pyplot")
    with pytest.raises(ImportError):
        from matplotlib import pyplot  # noqa: F401
    save_png(trace(), tmp_path / "a.png")
    save_grid_png(trace(), tmp_path / "b.png")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refuse_import(monkeypatch, "matplotlib")
    for save in (save_png, save_grid_png):
        with pytest.raises(MissingExtra, match=r"saccade\[plots\]"):
            save(trace(), tmp_path / "a.png")
    save_html([trace()], tmp_path / "a.html", title="needs none")
    for module in (attention, sheet):
        exec(Path(str(module.__file__)).read_text(encoding="utf-8"), {"__name__": "imported_anew"})  # noqa: S102


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(SaccadeError, match="taken: cannot be written"):
        save_html([trace()], tmp_path / "taken", title="x")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


# Page


class Parsed(html.parser.HTMLParser):
    """The elements of a page as a browser would find them, scripts as raw text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.tags[-1][0] if self.tags else "", data))

    def data(self) -> dict[str, Any]:
        [text] = [text for tag, text in self.texts if tag == "script" and text.startswith("{")]
        loaded: dict[str, Any] = json.loads(text)
        return loaded


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_embedded_weights_decode_to_the_array(layers: int, heads: int, target: int, source: int, seed: int) -> None:
    array = weights(layers, heads, target, source, seed=seed)
    example = Trace(("s",) * source, ("t",) * target, {"cross": array})
    held = Parsed(render_html([example], title="x")).data()["examples"][0]["maps"]["cross"]
    decoded = np.frombuffer(base64.b64decode(held["data"]), dtype="<u2").reshape(held["shape"]) / 65535
    assert decoded.shape == array.shape
    np.testing.assert_allclose(decoded, array, atol=1 / 65535)
    np.testing.assert_allclose(decoded.sum(-1), 1, atol=1e-3)


HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_hostile_tokens_stay_text() -> None:
    tokens = (HOSTILE, "<!--<script>", "&lt;", "\u2028\u2029", "{{script}}", "]]>", "\\u003c")
    example = Trace(tokens, tokens, {"encoder": weights(1, 1, 7, 7)}, title=HOSTILE)
    text = render_html([example], title=HOSTILE, note=HOSTILE + "{{data}}")
    plain = Parsed(render_html([trace()], title="x"))
    parsed = Parsed(text)
    assert [tag for tag, _ in parsed.tags] == [tag for tag, _ in plain.tags]
    [shown] = parsed.data()["examples"]
    assert shown["title"] == HOSTILE
    assert shown["maps"]["encoder"]["rows"] == [visible(token) for token in tokens]
    assert "\u2028" not in text
    assert "{{data}}" in text  # what is put in is not filled again


def test_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    text = render_html([trace()], title="x")
    parsed = Parsed(text)
    [policy] = [a["content"] for t, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        body = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert len(body) == 1
        digest = base64.b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    outside = [v for _, a in parsed.tags for k, v in a.items() if k in ("src", "href", "action", "srcset")]
    assert outside == ["data:,"]
    assert not [a for _, a in parsed.tags if any(k == "style" or k.startswith("on") for k in a)]
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|outerHTML|fetch\(|https?:", text)


def test_page_holds_gold_and_titles(tmp_path: Path) -> None:
    save_html([trace(), Trace(("a",), ("b",), {"cross": weights(1, 1, 1, 1)})], tmp_path / "p.html", title="A & B",
              note="n", gold=[[[1, 0, 1], [], [3]], None])  # fmt: skip
    parsed = Parsed((tmp_path / "p.html").read_text(encoding="utf-8"))
    examples = parsed.data()["examples"]
    assert [example["gold"] for example in examples] == [[[0, 1], [], [3]], None]
    assert [example["title"] for example in examples] == ["A title", "a"]
    assert ("title", "A & B") in parsed.texts


def test_page_refuses_what_it_cannot_show() -> None:
    for traces, gold, told in [
        ([], None, "at least one example"),
        ([Trace(("a",), ("b",), title="bare")], None, "'bare' holds no attention"),
        ([trace()], [], "gold: needs one entry for each of the 1 traces"),
        ([trace()], [[[9], [], []]], "target position 0 has 9"),
    ]:
        with pytest.raises(UsageError, match=told):
            render_html(traces, title="x", gold=gold)


# Table

ROWS = [
    {"model": "lstm", "BLEU": "27.3 [26, 28]", "params": "1,024"},
    {"model": "a|b 東京", "BLEU": "-", "params": "7"},
]


def test_plain_table() -> None:
    assert table.render(ROWS, ["model", "params", "BLEU"]) == (
        "model     params           BLEU\n"
        "────────  ──────  ─────────────\n"
        "lstm       1,024  27.3 [26, 28]\n"
        "a|b 東京       7              -"
    )


def test_markdown_table() -> None:
    assert table.markdown(ROWS, ["model", "params"]) == (
        "| model     | params |\n| --------- | -----: |\n| lstm      |  1,024 |\n| a\\|b 東京 |      7 |"
    )


def test_table_without_rows_or_values() -> None:
    assert table.render([], ["a", "bc"]) == "a  bc\n─  ──"
    assert table.render([{"a": "x"}], ["a", "b"]) == "a  b\n─  ─\nx"
    assert table.markdown([{"a": "two\nlines"}], ["a"]).endswith("| two lines |")
    with pytest.raises(UsageError, match="at least one column"):
        table.render([], [])
    with pytest.raises(UsageError, match="no row has any of b; the rows have a"):
        table.render([{"a": "x"}], ["b"])


def test_png_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("a.png", "folder/made/b.png"):
        save_png(trace(), tmp_path / name)
    first = (tmp_path / "a.png").read_bytes()
    assert first.startswith(b"\x89PNG\r\n\x1a\n")
    assert (tmp_path / "folder/made/b.png").read_bytes() == first
