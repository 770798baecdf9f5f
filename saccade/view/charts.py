"""Small charts as inline SVG that fills the width it is given: x in percent, y in pixels, text as large as any other.

Colours are names of classes, so that the page's style has one set of them by day and one by night; every system has a
shape of its own beside its colour.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

SHAPES = (
    '<circle r="4.6"/>',
    '<rect x="-4.2" y="-4.2" width="8.4" height="8.4"/>',
    '<path d="M0-6 6 0 0 6-6 0z"/>',
    '<path d="M0-5.6 5.4 4.2H-5.4z"/>',
    '<path d="M0 5.6 5.4-4.2H-5.4z"/>',
    '<path d="M-1.8-5.4h3.6v3.6h3.6v3.6h-3.6v3.6h-3.6v-3.6h-3.6v-3.6h3.6z"/>',
    '<path d="M-5-2.6 0-5.4 5-2.6V2.6L0 5.4-5 2.6z"/>',
    '<path d="M0-6 1.7-1.9 6-1.6 2.7 1.2 3.7 5.5 0 3.2-3.7 5.5-2.7 1.2-6-1.6-1.7-1.9z"/>',
)
COLOURS = 8


@dataclass(frozen=True)
class Mark:
    """How a system looks: the same in every chart."""

    place: int

    @property
    def colour(self) -> str:
        return f"c{self.place % COLOURS}"

    @property
    def shape(self) -> str:
        # Behind eight, the same colours with other shapes.
        return SHAPES[(self.place + self.place // COLOURS) % len(SHAPES)]

    def drawn(self, x: str = "50%", y: str = "50%", title: str = "") -> str:
        told = f"<title>{escape(title)}</title>" if title else ""
        return f'<svg x="{x}" y="{y}" overflow="visible" class="mark {self.colour}"><g>{told}{self.shape}</g></svg>'

    def key(self) -> str:
        """A mark by itself, for words."""
        return f'<svg class="key" width="14" height="14" aria-hidden="true">{self.drawn()}</svg>'


@dataclass(frozen=True)
class Scale:
    """Numbers → percent of the width."""

    low: float
    high: float
    logarithmic: bool = False

    @staticmethod
    def of(values: Sequence[float], *, zero: bool = False, logarithmic: bool = False) -> "Scale":
        known = [value for value in values if value is not None and math.isfinite(value)] or [0.0]
        known += [0.0] if zero else []
        low, high = min(known), max(known)
        if logarithmic and low > 0:
            room = 0.08 * max(math.log(high / low), 0.5)
            return Scale(low / math.exp(room), high * math.exp(room), True)
        room = 0.06 * (high - low) or max(0.5, abs(high) * 0.05)
        return Scale(low - room, high + room)

    def at(self, value: float) -> str:
        return f"{self.share(value) * 100:.2f}%"

    def share(self, value: float) -> float:
        low, high, here = (
            (math.log(self.low), math.log(self.high), math.log(max(value, self.low))) if self.logarithmic
            else (self.low, self.high, value)
        )  # fmt: skip
        return min(1.0, max(0.0, (here - low) / (high - low)))

    def ticks(self, most: int = 4) -> list[float]:
        """Round numbers within."""
        if self.logarithmic:
            return _log_ticks(self.low, self.high, most)
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        rounded = [round(step * n, 10) for n in range(first, math.floor(self.high / step + 1e-9) + 1)]
        return [min(self.high, max(self.low, tick)) for tick in rounded]  # an end may be a tick but for rounding


def _round_step(raw: float) -> float:
    size: float = 10.0 ** math.floor(math.log10(raw))
    # The nearest of 1, 2, 5, 10 by its factor: a little more or fewer ticks than asked for.
    return min((size * factor for factor in (1, 2, 5, 10)), key=lambda step: abs(math.log(step / raw)))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [
            factor * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(found) <= most + 1:
            return found
    return found[:: math.ceil(len(found) / most)]


def number(value: float) -> str:
    """A tick: 0.5, 20, 1,000, 2k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}".replace("-", "−")


def axis(scale: Scale) -> str:
    """The head of a column of charts: round numbers over their places."""
    ticks = scale.ticks()
    labels = "".join(f'<text x="{scale.at(tick)}" y="12" text-anchor="middle">{number(tick)}</text>' for tick in ticks)
    return f'<svg class="axis" height="18" aria-hidden="true">{labels}</svg>'


def _grid(scale: Scale, *, zero: bool) -> str:
    lines = "".join(
        f'<line class="grid" x1="{scale.at(tick)}" x2="{scale.at(tick)}" y1="0" y2="100%"/>' for tick in scale.ticks()
    )
    middle = f'<line class="zero" x1="{scale.at(0)}" x2="{scale.at(0)}" y1="0" y2="100%"/>' if zero else ""
    return lines + middle


def interval(
    scale: Scale, value: float, low: float | None, high: float | None, mark: Mark, *, zero: bool = False
) -> str:
    """A value and the range it may have, in one row of a table."""
    reach = ""
    if low is not None and high is not None:
        reach = f'<line class="reach {mark.colour}" x1="{scale.at(low)}" x2="{scale.at(high)}" y1="50%" y2="50%"/>'
    drawn = _grid(scale, zero=zero) + reach + mark.drawn(scale.at(value))
    return f'<svg class="row" height="26" aria-hidden="true">{drawn}</svg>'


def dots(scale: Scale, points: Sequence[tuple[float, Mark, str]], *, mean: float | None = None) -> str:
    """Several values in one row of a table; `mean` is a tick among them."""
    drawn = "".join(mark.drawn(scale.at(value), title=title) for value, mark, title in points)
    ends = [value for value, _, _ in points]
    reach = (
        f'<line class="span" x1="{scale.at(min(ends))}" x2="{scale.at(max(ends))}" y1="50%" y2="50%"/>' if ends else ""
    )
    tick = (
        "" if mean is None
        else f'<line class="mean" x1="{scale.at(mean)}" x2="{scale.at(mean)}" y1="15%" y2="85%"/>'
    )  # fmt: skip
    return f'<svg class="row" height="26" aria-hidden="true">{_grid(scale, zero=False)}{reach}{tick}{drawn}</svg>'


def bar(parts: Sequence[tuple[int, str, str]]) -> str:
    """Counts as parts of one bar: (count, class, what it is)."""
    whole, begin, drawn = sum(count for count, _, _ in parts) or 1, 0.0, []
    for count, kind, title in parts:
        share = 100 * count / whole
        told = f"<title>{escape(title)}</title>"
        drawn.append(f'<rect class="{kind}" x="{begin:.2f}%" width="{share:.2f}%" height="100%">{told}</rect>')
        begin += share
    return f'<svg class="bar" height="12" aria-hidden="true">{"".join(drawn)}</svg>'


def scatter(
    points: Sequence[tuple[float, float, Mark, str]], *, across: str, up: str, logarithmic: bool, height: int = 230
) -> str:
    """Points with two axes; the names of both stand at their ends."""
    x, y = Scale.of([p[0] for p in points], logarithmic=logarithmic), Scale.of([p[1] for p in points])
    top, bottom = 22, 34
    inner = height - top - bottom
    lines = []
    for tick in y.ticks(4):
        at = top + inner * (1 - y.share(tick))
        lines.append(f'<line class="grid" x1="0" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(f'<text x="0" y="{at - 3:.1f}">{number(tick)}</text>')
    for tick in x.ticks(4):
        place = _inside(x.share(tick))
        lines.append(f'<line class="grid" x1="{place}" x2="{place}" y1="{top}" y2="{top + inner}"/>')
        lines.append(f'<text x="{place}" y="{top + inner + 14}" text-anchor="middle">{number(tick)}</text>')
    marks = "".join(
        mark.drawn(_inside(x.share(a)), f"{top + inner * (1 - y.share(b)):.1f}", title) for a, b, mark, title in points
    )
    names = (
        f'<text class="name" x="0" y="11">{escape(up)}</text>'
        f'<text class="name" x="100%" y="{height - 4}" text-anchor="end">{escape(across)} →</text>'
    )
    told = escape(f"{up} against {across}")
    return f'<svg class="scatter" height="{height}" role="img" aria-label="{told}">{"".join(lines)}{marks}{names}</svg>'


def _inside(share: float) -> str:
    """Away from the left edge, where the numbers of the other axis stand."""
    return f"{9 + 88 * share:.2f}%"
