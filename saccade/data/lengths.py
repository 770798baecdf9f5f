"""Rows of like length → batches: as many at once as a budget of tokens holds when they are padded to the longest."""

from collections.abc import Iterable, Iterator, Sequence


def alike(
    rows: Iterable[int],
    lengths: Sequence[int],
    budget: int,
    *,
    most: int | None = None,
    parts: Sequence[int] | None = None,
    multiple: int = 1,
) -> Iterator[list[int]]:
    """Rows of like length together, longest first, so that what does not fit in memory fails at once.

    Rows × the longest of a batch stay within the budget, a single row aside; at most `most` rows are together. `parts`:
    of how many sequences each row is, where they are read side by side. As many rows as fit are cut down to a
    `multiple` of rows, where there are as many: the rest comes with the next.
    """
    held: list[int] = []
    sequences = 0
    for row in sorted(rows, key=lambda i: (-lengths[i], -parts[i] if parts is not None else 0)):
        own = 1 if parts is None else parts[row]
        while held and (len(held) == most or (sequences + own) * lengths[held[0]] > budget):
            cut = len(held) - len(held) % multiple or len(held)
            yield held[:cut]
            held = held[cut:]
            sequences = len(held) if parts is None else sum(parts[each] for each in held)
        held.append(row)
        sequences += own
    if held:
        yield held
