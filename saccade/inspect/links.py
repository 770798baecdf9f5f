"""Attention weights → the links of a hard alignment: between tokens, or merged to words.

Shapes: T target units, S source units, t and s tokens. A link is (source, target), counted from 0.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[Any]
Links = frozenset[tuple[int, int]]
Method = Literal["argmax", "intersection", "union", "grow-diag", "threshold"]
# In the order of the published algorithm, which decides between neighbours that exclude each other: (target, source).
_AROUND = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def merged(weights_ts: Weights, target: Sequence[int], source: Sequence[int], words: tuple[int, int]) -> Weights:
    """Weights of tokens → of words (T, S): summed over the source's tokens, averaged over the target's.

    With T_j the tokens of target word j and S_i those of source word i, w[j, i] = 1/|T_j| Σ_{t ∈ T_j} Σ_{s ∈ S_i}
    a[t, s]: how much of its attention a piece of j gives to all of i, on average. `target` and `source` name the word
    of each token, `words` how many there are; a word without tokens has weight 0.
    """
    of_target_Tt, of_source_Ss = _belongs(target, words[0]), _belongs(source, words[1])
    pieces_T1 = np.maximum(of_target_Tt.sum(1, keepdims=True), 1.0)
    merged_TS: Weights = of_target_Tt @ weights_ts.astype(np.float64) @ of_source_Ss.T / pieces_T1
    return merged_TS


def _belongs(places: Sequence[int], words: int) -> Weights:
    """(words, tokens): 1 where the token is a part of the word."""
    table = np.zeros((words, len(places)))
    table[list(places), range(len(places))] = 1.0
    return table


def argmax(weights_TS: Weights) -> Links:
    """For each target unit the source unit with the most weight, of equals the first; without any weight, none."""
    if weights_TS.size == 0:
        return frozenset()
    best_T = weights_TS.argmax(1)
    return frozenset((int(i), j) for j, i in enumerate(best_T) if weights_TS[j, i] > 0)


def argmax_of_source(weights_TS: Weights) -> Links:
    """For each source unit the target unit that gives it the most weight, of equals the first."""
    return frozenset((i, j) for j, i in argmax(weights_TS.T))


def above(weights_TS: Weights, threshold: float) -> Links:
    """All links with at least this weight."""
    return frozenset((int(i), int(j)) for j, i in np.argwhere((weights_TS >= threshold) & (weights_TS > 0)))


def grow_diag(one: Links, other: Links) -> Links:
    """From the intersection on, links of the union that touch one and have a unit without a link (Koehn et al. 2003).

    Links touch where they are neighbours in a row, a column or a diagonal. Links are visited by target, then source
    unit, those just added included; again, until nothing is added.
    """
    links, union = set(one & other), one | other
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    in_order = sorted(union, key=lambda link: (link[1], link[0]))
    before = -1
    while before != len(links):
        before = len(links)
        for i, j in in_order:
            for down, right in _AROUND if (i, j) in links else ():
                near = (i + right, j + down)
                if near in union and (near[0] not in sources or near[1] not in targets):
                    links.add(near)
                    sources.add(near[0])
                    targets.add(near[1])
    return frozenset(links)


def joined(method: Method, one: Links, other: Links) -> Links:
    """Two alignments of the same pair as one: from target to source, and from source to target."""
    match method:
        case "intersection":
            return one & other
        case "union":
            return one | other
        case "grow-diag":
            return grow_diag(one, other)
        case _:
            raise ValueError(f"{method} joins no alignments")


def links_of(weights_TS: Weights, method: Method, threshold: float) -> Links:
    """The links of one matrix; where two alignments are joined, it is read by rows and by columns."""
    match method:
        case "argmax":
            return argmax(weights_TS)
        case "threshold":
            return above(weights_TS, threshold)
        case _:
            return joined(method, argmax(weights_TS), argmax_of_source(weights_TS))
