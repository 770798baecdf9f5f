"""Which continuations of a beam live on and which are finished, where nothing but their scores decides.

Shapes: B sentences, k beam, G groups, w = k / G prefixes of a group, V vocabulary, c = 2w candidates of a group.
"""

import torch
from torch import Tensor

from saccade.decode.control import Choice
from saccade.types import END


def survivors(total_BkV: Tensor, *, groups: int = 1, diversity: float = 0.0, every_end: bool = False) -> Choice:
    """For each group the first w of its 2w best continuations that do not end; what ends is closed among the first w.

    2w candidates are enough: at most w of them end. `every_end` closes all of them that end.
    Groups choose in turn (Vijayakumar et al. 2018, Hamming diversity): one ranks a continuation with the token v by
    log P − diversity × the number of survivors of the groups before it, at this step, whose token is v. What is ranked
    by is not kept: log P stays the model's.
    """
    B, k, V = total_BkV.shape
    w = k // groups
    taken_BV: Tensor | None = None
    parts = []
    for g in range(groups):
        ranked_BwV = total_BkV[:, g * w : (g + 1) * w]
        if taken_BV is not None:
            ranked_BwV = ranked_BwV - diversity * taken_BV[:, None]
        part = _of_group(ranked_BwV.reshape(B, w * V), V, w, every_end=every_end)
        parts.append((part.living_Bk + g * w * V, part.alive_Bk, part.ended_Bc + g * w * V, part.closed_Bc))
        if diversity and g + 1 < groups:
            taken_BV = total_BkV.new_zeros(B, V) if taken_BV is None else taken_BV
            taken_BV = taken_BV.scatter_add(1, part.living_Bk % V, part.alive_Bk.to(taken_BV.dtype))
    return Choice(*parts[0]) if groups == 1 else Choice(*(torch.cat(each, dim=1) for each in zip(*parts, strict=True)))


def _of_group(ranked_BC: Tensor, V: int, w: int, *, every_end: bool) -> Choice:
    value_Bc, place_Bc = ranked_BC.topk(min(2 * w, ranked_BC.shape[1]), dim=-1)
    ends_Bc, possible_Bc = place_Bc % V == END, value_Bc > -torch.inf
    closed_Bc = ends_Bc & possible_Bc
    if not every_end:
        closed_Bc[:, w:] = False
    # The first w that do not end, in order: a stable sort puts them in front. Where a vocabulary is too small to fill
    # the beam, what is left over can never win.
    order_Bw = ends_Bc.int().argsort(dim=1, stable=True)[:, :w]
    alive_Bw = (possible_Bc & ~ends_Bc).gather(1, order_Bw)
    return Choice(place_Bc.gather(1, order_Bw), alive_Bw, place_Bc, closed_Bc)
