"""Numbers as people read them."""


def duration(seconds: float) -> str:
    """3m12s, 1h05m, 42s."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def amount(number: float) -> str:
    """0.4M, 12.3k, 950."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e5, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / (1e6 if letter == 'M' else size):.1f}{letter}"
    return f"{number:.0f}"
