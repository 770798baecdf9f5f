"""The attention page in a real browser: what it asks for, what it draws, what it answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.types import Trace
from saccade.view.page import save_html
from saccade.view.palette import DARK, LIGHT, ramp

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=window.broken=1><b>"
SOURCE = ("the", "red", HOSTILE, "house")
TARGET = ("das", "rote", "Haus")
CROSS = np.array(
    [
        [  # layer 1: two heads
            [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]],
            [[0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 1.0, 0.0], [0.75, 0.25, 0.0, 0.0]],
        ],
        [  # layer 2, which is shown first
            [[0.6, 0.4, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.0]],
            [[0.0, 0.0, 0.4, 0.6], [0.4, 0.3, 0.2, 0.1], [1.0, 0.0, 0.0, 0.0]],
        ],
    ],
    dtype=np.float32,
)
DECODER = np.tile(np.tril(np.ones((3, 3))) / np.array([[1], [2], [3]]), (1, 1, 1, 1)).astype(np.float32)
LONG = Trace(
    tuple(f"wort{i}" for i in range(60)), ("a",) * 50, {"cross": np.full((1, 1, 50, 60), 1 / 60, np.float32)}, "Long"
)

Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page; afterwards nothing may have been asked of a network, and nothing said in the console."""
    path = tmp_path / "page.html"
    trace = Trace(SOURCE, TARGET, {"cross": CROSS, "decoder": DECODER}, title="Pair")
    save_html([trace, LONG], path, title=HOSTILE, note=HOSTILE, gold=[[[0], [1], [3]], None])
    requests: list[str] = []
    said: list[str] = []
    contexts: list[Any] = []

    def open_page(*, width: int = 1440, height: int = 900, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert set(requests) <= {path.as_uri(), "data:,"}
    assert said == []


def centre(page: Any, row: int, column: int, shape: tuple[int, int] = (3, 4)) -> dict[str, float]:
    size = page.locator("#heat").bounding_box()
    return {"x": (column + 0.5) * size["width"] / shape[1], "y": (row + 0.5) * size["height"] / shape[0]}


def colours(page: Any, rows: int = 3, columns: int = 4) -> np.ndarray[Any, Any]:
    script = """([rows, columns]) => {
      const canvas = document.getElementById("heat"), copy = document.createElement("canvas");
      Object.assign(copy, {width: canvas.width, height: canvas.height});
      const pen = copy.getContext("2d", {willReadFrequently: true});
      pen.drawImage(canvas, 0, 0);
      const at = (r, c) => pen.getImageData((c + 0.5) * canvas.width / columns, (r + 0.5) * canvas.height / rows, 1, 1);
      return Array.from({length: rows}, (_, r) => Array.from({length: columns}, (_, c) => [...at(r, c).data]));
    }"""
    shown: np.ndarray[Any, Any] = np.array(page.evaluate(script, [rows, columns]))
    assert (shown[..., 3] == 255).all()
    opaque: np.ndarray[Any, Any] = np.delete(shown, 3, axis=-1)
    return opaque


def expected(weights: np.ndarray[Any, Any], stops: tuple[str, ...] = LIGHT) -> np.ndarray[Any, Any]:
    shades: np.ndarray[Any, Any] = ramp(stops)[np.minimum(255, np.floor(weights * 256)).astype(int)].astype(int)
    return shades


def test_canvas_shows_the_array(opened: Open) -> None:
    page = opened()
    np.testing.assert_allclose(colours(page), expected(CROSS[1].mean(0)), atol=2)
    page.select_option("#head", "1")
    np.testing.assert_allclose(colours(page), expected(CROSS[1, 1]), atol=2)
    page.select_option("#layer", "0")
    np.testing.assert_allclose(colours(page), expected(CROSS[0, 1]), atol=2)
    page.select_option("#kind", "decoder")
    np.testing.assert_allclose(colours(page, 3, 3), expected(DECODER[0, 0]), atol=2)
    assert page.locator("#columns span").all_inner_texts() == ["<s>", "das", "rote"]


def test_night_has_its_own_colours_and_follows_the_system(opened: Open) -> None:
    page = opened(scheme="dark")
    np.testing.assert_allclose(colours(page), expected(CROSS[1].mean(0), DARK), atol=2)
    page.emulate_media(color_scheme="light")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    np.testing.assert_allclose(colours(page), expected(CROSS[1].mean(0)), atol=2)


def test_tokens_and_titles_are_never_markup(opened: Open) -> None:
    page = opened()
    assert page.evaluate("window.broken") is None
    assert page.locator("img, #note b, h1 b, #columns b, td b, th b").count() == 0
    shown = HOSTILE.replace(" ", "␣")
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("#columns span").nth(2).text_content() == shown
    page.hover("#heat", position=centre(page, 1, 2))
    assert shown in page.locator("#tip").inner_text()
    page.click("summary")
    assert page.locator("thead th").nth(3).inner_text() == shown
    assert page.evaluate("window.broken") is None


def test_a_script_from_outside_the_page_does_not_run(opened: Open, browser: Any, tmp_path: Path) -> None:
    opened().close()
    tampered = tmp_path / "tampered.html"
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    tampered.write_text(text.replace("</body>", "<script>window.broken = 1</script></body>"), encoding="utf-8")
    page = browser.new_page()
    page.goto(tampered.as_uri())
    assert page.evaluate("window.broken") is None
    assert page.locator("#columns span").count() == 4
    page.close()


def test_pointing_tells_the_value_and_both_tokens(opened: Open) -> None:
    page = opened()
    page.select_option("#head", "0")
    page.hover("#heat", position=centre(page, 1, 3))
    assert page.locator("#tip").inner_text() == "“rote” → “house” 0.400"
    assert page.locator("#readout").inner_text() == "“rote” → “house” 0.400"
    page.hover("#heat", position=centre(page, 2, 3))
    assert "1.000, known alignment" in page.locator("#tip").inner_text()
    assert "Haus (row 3 of 3), attention sums to 1.00" in page.locator("#row-title").inner_text()
    page.hover("h1")
    assert not page.locator("#tip").is_visible()


def test_a_clicked_row_stays_and_shades_the_source(opened: Open) -> None:
    page = opened()
    page.select_option("#head", "0")
    page.click("#heat", position=centre(page, 1, 0))
    page.hover("#heat", position=centre(page, 2, 0))
    assert "rote (row 2 of 3, kept)" in page.locator("#row-title").inner_text()
    chips = page.locator("#chips span")
    shades = [chip.evaluate("e => getComputedStyle(e).backgroundColor") for chip in chips.all()]
    assert shades == [f"rgb({r}, {g}, {b})" for r, g, b in expected(CROSS[1, 0, 1])]
    assert [chip.get_attribute("class") or "" for chip in chips.all()] == ["", "gold", "", ""]
    page.click("#heat", position=centre(page, 1, 0))
    assert "kept" not in page.locator("#row-title").inner_text()
    page.locator("#rows span").nth(2).click()
    assert "Haus (row 3 of 3, kept)" in page.locator("#row-title").inner_text()


def test_the_keyboard_does_what_the_pointer_does(opened: Open) -> None:
    page = opened()
    title = page.locator("#row-title")
    page.focus("#picture")
    page.keyboard.press("ArrowDown")
    assert "rote (row 2" in title.inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#readout").inner_text() == "“rote” → “the” 0.250"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "Haus (row 3 of 3, kept)" in title.inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("Home")
    assert "das (row 1 of 3)" in title.inner_text()
    page.keyboard.press("End")
    assert "Haus (row 3 of 3)" in title.inner_text()


def test_the_table_is_the_picture_in_numbers(opened: Open) -> None:
    page = opened()
    page.select_option("#head", "1")
    page.click("summary")
    page.wait_for_selector("tbody tr")
    lines = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    np.testing.assert_allclose(np.array(lines, dtype=float)[:, :4], CROSS[1, 1], atol=0.0006)
    assert [line[4] for line in lines] == ["1.000"] * 3


def test_a_small_picture_chooses_its_head(opened: Open) -> None:
    page = opened()
    assert page.locator("#thumbs button").count() == 4
    page.get_by_role("button", name="Layer 1, head 2").click()
    np.testing.assert_allclose(colours(page), expected(CROSS[0, 1]), atol=2)
    assert (page.input_value("#layer"), page.input_value("#head")) == ("0", "1")
    assert page.get_by_role("button", name="Layer 1, head 2").get_attribute("aria-pressed") == "true"


def test_gold_is_outlined_where_it_is_known(opened: Open) -> None:
    page = opened()
    script = """() => {
      const marks = document.getElementById("marks"), width = marks.width / 4, height = marks.height / 3, found = [];
      const {data} = marks.getContext("2d").getImageData(0, 0, marks.width, marks.height);
      for (let row = 0; row < 3; row++) for (let column = 0; column < 4; column++) {
        const at = 4 * ((row * height + 2) * marks.width + Math.floor((column + 0.5) * width));
        if (data[at] > 200 && data[at + 2] < 60 && data[at + 3] > 200) found.push([row, column]);
      }
      return found;
    }"""
    assert page.evaluate(script) == [[0, 0], [1, 1], [2, 3]]
    assert page.locator("#gold-key").is_visible()
    page.select_option("#example", "1")
    assert not page.locator("#gold-key").is_visible()


@pytest.mark.parametrize("width", [320, 1440])
def test_fits_the_window(width: int, opened: Open) -> None:
    page = opened(width=width)
    for example in ("0", "1"):
        page.select_option("#example", example)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("#heat").is_visible()
    page.click("summary")
    page.wait_for_selector("tbody tr")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    # Sixty columns do not fit on a phone: the picture scrolls inside its frame, the row labels stay.
    page.evaluate("document.getElementById('scroller').scrollTo(9999, 0)")
    assert page.locator("#rows").bounding_box()["x"] >= 0
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") == 700
