"""The page of a comparison in a real browser: what it asks for, what it shows, and that it fits."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import saccade

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=window.broken=1><b>"
RIGHT = [f"the {a} {HOSTILE if b == 'cat' else b} sleeps {c}" for a in "xyz" for b in ("cat", "dog") for c in "12"]
WORSE = [line.replace("sleeps", "sits") for line in RIGHT]
Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page; afterwards nothing may have been asked of a network, and nothing said in the console."""
    path = tmp_path / "page.html"
    names = [HOSTILE, "right", "a-system-with-a-name-that-is-much-too-long-for-a-column-of-a-table"]
    groups = {"both": [names[1], names[2]]}
    saccade.compare(
        [WORSE, RIGHT, ["no" for _ in RIGHT]], source=RIGHT, reference=RIGHT, names=names, groups=groups,
    ).report(path)  # fmt: skip
    requests: list[str] = []
    said: list[str] = []
    contexts: list[Any] = []

    def open_page(*, width: int = 1200, height: int = 900, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
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


def test_text_is_never_markup(opened: Open) -> None:
    page = opened()
    assert page.evaluate("window.broken") is None
    assert page.locator("img, script, b").count() == 0
    assert HOSTILE in page.locator("#verdict").inner_text()
    assert HOSTILE in page.locator("#legend li").first.inner_text()
    assert page.locator("dl.case").first.inner_text()


def test_scores_stand_where_they_belong(opened: Open) -> None:
    page = opened()
    rows = page.locator("#scores table").first.locator("tbody tr")
    assert rows.count() == 3
    assert rows.nth(1).locator("td.value").inner_text() == "100.0"
    places = [rows.nth(i).locator("td.chart svg.mark").first.bounding_box()["x"] for i in range(3)]
    assert places[2] < places[0] < places[1]  # as the scores are


def test_night_has_its_own_colours(opened: Open) -> None:
    def colours(page: Any) -> tuple[str, str]:
        body = page.evaluate("getComputedStyle(document.body).backgroundColor")
        mark = page.evaluate("getComputedStyle(document.querySelector('#scores .mark g')).fill")
        return str(body), str(mark)

    day, night = colours(opened()), colours(opened(scheme="dark"))
    assert day == ("rgb(255, 255, 255)", "rgb(0, 114, 178)")
    assert night == ("rgb(13, 18, 25)", "rgb(74, 168, 224)")


@pytest.mark.parametrize("width", [320, 1200])
def test_fits_the_window(width: int, opened: Open) -> None:
    page = opened(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_everything_is_printed(opened: Open) -> None:
    page = opened()
    closed = page.locator("details:not([open]) dl.case").first
    assert not closed.is_visible()
    page.emulate_media(media="print")
    assert closed.bounding_box()["height"] > 0
