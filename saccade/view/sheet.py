"""A figure measured in inches: the cells are given their size first; labels, colour bar and title go around them."""

import io
import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from saccade.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT = "#1f2933", "#5f6c78"
_DOTS_PER_INCH = 150
_MARGIN = 0.22
_NARROWEST = 3.4
_BAR_GAP, _BAR_WIDTH, _BAR_LABELS = 0.26, 0.13, 0.55
_TITLE_SIZE, _DETAIL_SIZE = 12.0, 9.0
_LINE = 1.4 / 72  # the height of a line of text, for each point of its size
# Tried in this order, as far as they are installed, for signs that DejaVu lacks.
_FALLBACK_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Micro Hei", "PingFang SC", "Hiragino Sans", "Microsoft YaHei",
    "Yu Gothic", "Malgun Gothic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Emoji",
)  # fmt: skip


class Box(NamedTuple):
    """Where some cells lie, from the top left corner of all cells."""

    left: float
    top: float
    width: float
    height: float


class Room(NamedTuple):
    """How far the labels reach beyond the cells."""

    left: float
    top: float
    right: float


def new_figure() -> "Figure":
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("pictures", "matplotlib", "plots") from None
    figure = Figure(dpi=_DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def fonts() -> list[str]:
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FALLBACK_FONTS if name in installed)]


def room_for_labels(figure: "Figure", axes: "Axes", width: float, height: float) -> Room:
    """Measured, not guessed: how far the labels of cells of this size reach."""
    figure.set_size_inches(width, height)
    with warnings.catch_warnings():
        _ignore_missing_glyphs()
        box: Any = axes.get_tightbbox(figure.canvas.get_renderer())  # type: ignore[attr-defined]
    left, top, right = -box.x0 / figure.dpi, box.y1 / figure.dpi - height, box.x1 / figure.dpi - width
    return Room(max(0.0, left), max(0.0, top), max(0.0, right))


def compose(
    figure: "Figure", placed: Sequence[tuple["Axes", Box]], room: Room, image: Any, *, title: str, detail: str
) -> None:
    """Give the figure its size, each axes its place, and add the colour bar of `image` and the title."""
    cells_width = max(box.left + box.width for _, box in placed)
    cells_height = max(box.top + box.height for _, box in placed)
    bar_height = float(np.clip(cells_height, 1.1, 2.6))
    content = max(_NARROWEST, room.left + cells_width + max(room.right, _BAR_GAP + _BAR_WIDTH + _BAR_LABELS))
    heading = [(line, _TITLE_SIZE, "bold", INK) for line in _wrapped(title, content, _TITLE_SIZE * 1.1)]
    heading += [(line, _DETAIL_SIZE, "normal", FAINT) for line in _wrapped(detail, content, _DETAIL_SIZE)]
    heading_height = sum(size * _LINE for _, size, _, _ in heading) + 0.14

    width = content + 2 * _MARGIN
    from_top = _MARGIN + heading_height + room.top
    height = from_top + max(cells_height, bar_height) + _MARGIN
    figure.set_size_inches(width, height)

    def place(axes: "Axes", box: Box) -> None:
        left, bottom = _MARGIN + room.left + box.left, height - from_top - box.top - box.height
        axes.set_position((left / width, bottom / height, box.width / width, box.height / height))

    for axes, box in placed:
        place(axes, box)
    y = height - _MARGIN
    for line, size, weight, colour in heading:
        figure.text(
            _MARGIN / width, y / height, line, fontsize=size, fontweight=weight, color=colour, va="top",
            family=fonts(), parse_math=False,
        )  # fmt: skip
        y -= size * _LINE
    bar = figure.add_axes((0, 0, 1, 1), label="colour bar")
    place(bar, Box(cells_width + _BAR_GAP, 0.0, _BAR_WIDTH, bar_height))
    colour_bar = figure.colorbar(image, cax=bar, ticks=[0, 0.5, 1])
    colour_bar.outline.set_visible(False)
    bar.tick_params(labelsize=8, length=0, labelcolor=FAINT, labelfontfamily="DejaVu Sans", pad=3)
    bar.set_ylabel("attention", fontsize=8, color=FAINT, family="DejaVu Sans", labelpad=2)


def encode(figure: "Figure") -> bytes:
    """The figure as PNG; a sign that no font has is drawn as a box, without a word."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        _ignore_missing_glyphs()
        figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def _ignore_missing_glyphs() -> None:
    warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
    warnings.filterwarnings(
        "ignore", message=r"Matplotlib currently does not support .* natively", category=UserWarning
    )


def _wrapped(text: str, width: float, font_size: float) -> list[str]:
    """Lines of about this width; a letter is a little wider than half its height."""
    return textwrap.wrap(text, max(20, int(width * 72 / (0.56 * font_size))))
