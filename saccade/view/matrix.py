"""Which matrix of a trace is drawn, and what its rows and columns stand for.

Shapes: L layers, H heads, Q rows (who looks), K columns (where to), T target length, S source length.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from saccade.errors import UsageError
from saccade.types import SPECIALS, START, Trace

Kind = Literal["cross", "pooling", "encoder", "decoder"]
Head = int | Literal["mean"]
Gold = Sequence[Sequence[int]]
"""For each target position, the source positions it comes from."""

KINDS: tuple[Kind, ...] = get_args(Kind)
_NAMES = {
    "cross": "cross-attention",
    "pooling": "attention pooling",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
}
_SHOWN_BLANKS = {"\n": "↵", "\r": "↵", "\t": "⇥", " ": "␣"}


@dataclass(frozen=True)
class Attention:
    """All attention of one kind in one example, checked, with the words beside it."""

    kind: Kind
    weights_LHQK: np.ndarray[Any, np.dtype[np.float32]]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return _NAMES[self.kind]


def kinds_of(trace: Trace) -> list[Kind]:
    """The kinds of attention a trace holds, in the order they are shown."""
    return [kind for kind in KINDS if kind in trace.attention]


def attention_of(trace: Trace, kind: Kind) -> Attention:
    """One kind of attention, checked. A decoder writing target t looks back at START and the targets before t."""
    if kind not in KINDS:
        raise UsageError(f"kind: must be one of {', '.join(KINDS)}; got {kind!r}.")
    if kind not in trace.attention:
        held = ", ".join(kinds_of(trace)) or "none"
        raise UsageError(f"kind: this example has no {_NAMES[kind]}; it has: {held}.")
    weights = np.asarray(trace.attention[kind], dtype=np.float32)
    match kind:
        case "cross" | "pooling":
            rows, columns = trace.target, trace.source
        case "encoder":
            rows, columns = trace.source, trace.source
        case "decoder":
            rows, columns = trace.target, (SPECIALS[START], *trace.target[:-1])
    if weights.ndim != 4 or 0 in weights.shape or weights.shape[2:] != (len(rows), len(columns)):
        raise UsageError(
            f"trace.attention[{kind!r}]: must have shape (layer, head, {len(rows)}, {len(columns)}), "
            f"one row and column a token; got {weights.shape}."
        )
    if not np.isfinite(weights).all() or weights.min() < -1e-6 or weights.max() > 1 + 1e-3:
        raise UsageError(f"trace.attention[{kind!r}]: weights must lie between 0 and 1; got {_range(weights)}.")
    return Attention(kind, weights.clip(0, 1), tuple(map(visible, rows)), tuple(map(visible, columns)))


def one_matrix(attention: Attention, layer: int, head: Head) -> tuple[np.ndarray[Any, np.dtype[np.float32]], str]:
    """The matrix (Q, K) of one head, or the mean over a layer's heads, and where it stands in words."""
    layers, heads = attention.weights_LHQK.shape[:2]
    if not -layers <= layer < layers:
        raise UsageError(
            f"layer: must lie between {-layers} and {layers - 1} (negative counts from the top); got {layer}."
        )
    place = f"layer {layer % layers + 1} of {layers}"
    weights_HQK = attention.weights_LHQK[layer]
    if head == "mean":
        return weights_HQK.mean(0), place if heads == 1 else f"{place}, mean of {heads} heads"
    if not isinstance(head, int) or not -heads <= head < heads:
        raise UsageError(f"head: must be 'mean' or lie between {-heads} and {heads - 1}; got {head!r}.")
    return weights_HQK[head], f"{place}, head {head % heads + 1} of {heads}"


def check_gold(gold: Gold, trace: Trace) -> None:
    if len(gold) != len(trace.target):
        raise UsageError(f"gold: needs one entry for each of the {len(trace.target)} target tokens; got {len(gold)}.")
    for t, positions in enumerate(gold):
        for s in positions:
            if not 0 <= s < len(trace.source):
                raise UsageError(
                    f"gold: source positions run from 0 to {len(trace.source) - 1}; target position {t} has {s}."
                )


def visible(token: str) -> str:
    """A token as it can be seen: blanks by their signs, what cannot be written by the replacement sign."""
    if token == "":
        return "∅"
    shown = "".join(_SHOWN_BLANKS.get(c, c if c.isprintable() or ord(c) > 0x9F else "\ufffd") for c in token)
    return shown.encode("utf-8", "replace").decode("utf-8")


def _range(weights: np.ndarray[Any, Any]) -> str:
    if not np.isfinite(weights).all():
        return "values that are not finite"
    return f"{weights.min():.3g} to {weights.max():.3g}"
