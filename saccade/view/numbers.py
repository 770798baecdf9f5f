"""Differences, intervals, p-values and speeds as people write them."""

import math


def span(low: float | None, high: float | None, places: int, *, sign: bool = False) -> str:
    if low is None or high is None or math.isnan(low):
        return ""
    return f"{signed(low, places)} to {signed(high, places)}" if sign else f"{low:.{places}f} – {high:.{places}f}"


def signed(value: float, places: int) -> str:
    """+1.2, −0.3, 0.0."""
    shown = f"{value:.{places}f}"
    if float(shown) == 0:
        return shown.lstrip("-")
    return f"+{shown}" if value > 0 else shown.replace("-", "−")


def lines_told(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def p_value(p: float | None) -> str:
    if p is None or math.isnan(p):
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def speed(value: float) -> str:
    """Three digits are all that a measured speed is good for."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
