"""Batches filled up to one of a few sizes: what is made for a size, a captured graph, then serves many batches.

What fills them are sentences of PAD, which no loss counts and no other sentence sees.
"""

from dataclasses import dataclass, replace

import torch

from saccade.types import PAD, Batch, Layout, Parse, Tokens

TILES = (16, 32, 64)
"""Longest lengths at which attention's kernels change; above the last, its multiples."""


@dataclass(frozen=True)
class Size:
    """Everything of a packed batch that a captured graph has fixed."""

    rows: int
    source_tokens: int
    target_tokens: int
    source_longest: int
    target_longest: int
    inside: tuple[int, int] = (0, 0)
    """How many tokens those of the source are made of, and how many the longest."""


def size_of(batch: Batch) -> Size:
    """The size that a packed batch has, without filling it up."""
    source, target = batch.source, batch.target
    inside = (0, 0) if source.inside is None else (len(source.inside.ids), source.inside.layout.longest)
    longest = (source.layout.longest, target.layout.longest)
    return Size(len(batch), len(source.ids), len(target.ids), *longest, inside)


def size_for(batch: Batch, *, tight: bool) -> Size:
    """The size that a packed batch is filled up to: a pure function of it, so that a resumed run finds the same.

    Tokens grow by at most a 32nd, or to a multiple of 16; rows by up to a half, since empty ones cost next to nothing.
    `tight`: they do cost, so that longest lengths stay and rows grow by at most a 32nd, or to a multiple of 4.
    What tokens are made of grows by at most an eighth, or to a multiple of 64, with tokens of PAD to be made of what is
    more; the longest of it grows to a multiple of 8.
    """
    sides = (batch.source, batch.target)
    inside, made_of = _inside_for(batch.source)
    tokens = [_up(len(side.ids) + made_of, parts=32, least=16) for side in sides]
    longest = [max(1, side.layout.longest) for side in sides]
    if not tight:
        longest = [_tile(max(longest))] * 2
    spare = [-(-(wanted - len(side.ids)) // most) for wanted, side, most in zip(tokens, sides, longest, strict=True)]
    rows = _up(len(batch) + max(spare), parts=32 if tight else 2, least=4)
    return Size(rows, tokens[0], tokens[1], longest[0], longest[1], inside)


def _inside_for(source: Tokens) -> tuple[tuple[int, int], int]:
    """As `Size.inside` has it, and how many further tokens are to be made of what is more."""
    if source.inside is None:
        return (0, 0), 0
    real, longest = len(source.inside.ids), _up(max(1, source.inside.layout.longest), parts=8, least=8)
    wanted = _up(real, parts=8, least=64)
    return (wanted, longest), -(-(wanted - real) // longest)


def filled(batch: Batch, size: Size) -> Batch:
    """The same pairs, and behind them sentences of PAD up to the size."""
    source = _filled(batch.source, size.rows, size.source_tokens, size.source_longest)
    if batch.source.inside is not None:
        source = replace(source, inside=_filled(batch.source.inside, size.source_tokens, *size.inside))
    return replace(
        batch, source=source, target=_filled(batch.target, size.rows, size.target_tokens, size.target_longest)
    )


def _filled(side: Tokens, rows: int, tokens: int, longest: int) -> Tokens:
    missing, spare = tokens - len(side.ids), rows - len(side.layout.lengths_B)
    ends = torch.full((spare,), longest).cumsum(0).clamp(max=missing)
    more = ends.diff(prepend=torch.zeros(1, dtype=torch.long))
    lengths_B = torch.cat([side.layout.lengths_B, more])
    ids_N = torch.cat([side.ids, side.ids.new_full((missing,), PAD)])
    layout = Layout.padded(lengths_B, longest).packed()
    return Tokens(ids_N, layout, None if side.parse is None else _filled_parse(side.parse, layout))


def _filled_parse(parse: Parse, layout: Layout) -> Parse:
    """Each PAD is a word by itself, and a root."""
    assert layout.slots_N is not None
    place_N = layout.slots_N % max(1, layout.longest)
    real = len(parse.words)
    return Parse(torch.cat([parse.words, place_N[real:]]), torch.cat([parse.heads, torch.zeros_like(place_N[real:])]))


def _up(count: int, *, parts: int, least: int) -> int:
    """Up to a multiple of a power of two: `least`, or at most one of so many parts of the count."""
    step = max(least, (1 << max(0, count.bit_length() - 1)) // parts)
    return -(-count // step) * step


def _tile(longest: int) -> int:
    return next((tile for tile in TILES if longest <= tile), -(-longest // TILES[-1]) * TILES[-1])
