"""Places in a dependency tree (Wang et al. 2019): how deep a word hangs, and where two words stand to each other.

Two things that the paper leaves open are settled so. "On one dependency edge" means parent and child, not any ancestor.
The sign for all other pairs is that of i − j, so that a later word counts its distance to an earlier one positive.
Shapes: B sentences, T words, P pieces of words, H heads, S keys, K head width, D width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.nn import masks
from saccade.nn.embedding import Sinusoidal
from saccade.nn.positions import Relative
from saccade.types import Layout

ROOT = 0
"""What stands for the head of a word that has none; heads are counted from 1, as in CoNLL-U."""


def check_heads(heads: Sequence[int]) -> None:
    """Refuse what is no tree: heads that are not there, no root, circles. Several roots are each an origin."""
    n = len(heads)
    outside = [word for word, head in enumerate(heads, start=1) if not 0 <= head <= n]
    if outside:
        raise UsageError(
            f"word {outside[0]} has the head {heads[outside[0] - 1]}; there are {n} words, and 0 is the root."
        )
    reached: set[int] = {ROOT}
    for word in range(1, n + 1):
        path = [word]
        while heads[path[-1] - 1] not in reached:
            path.append(heads[path[-1] - 1])
            if len(path) > n:
                raise UsageError(f"the heads go in a circle from word {word}: a dependency tree has none.")
        reached.update(path)


def depths(heads_BT: Tensor, layout: Layout) -> Tensor:
    """Edges from each word to its root, (B, T): 0 for a root; 0 on padding.

    By pointer jumping: after step s each word knows the way to its ancestor 2^s above.
    """
    own_T = torch.arange(heads_BT.shape[1], device=heads_BT.device)
    rooted = (heads_BT == ROOT) | ~masks.valid_BT(layout)
    above_BT = torch.where(rooted, own_T, heads_BT - 1)
    depth_BT = (~rooted).long()
    for _ in range(max(1, heads_BT.shape[1]).bit_length()):
        depth_BT = depth_BT + depth_BT.gather(1, above_BT)
        above_BT = above_BT.gather(1, above_BT)
    return depth_BT


def between(heads_BT: Tensor, layout: Layout) -> Tensor:
    """rel(i, j) of words i (queries) and j (keys), (B, T, T); 0 where one of them is padding.

    abs(i) − abs(j) for parent and child; sgn(i − j) · (abs(i) + abs(j)) for all other pairs.
    """
    depth_BT, valid_BT = depths(heads_BT, layout), masks.valid_BT(layout)
    own_T = torch.arange(heads_BT.shape[1], device=heads_BT.device)
    is_child_BTT = (heads_BT[:, :, None] - 1 == own_T) & (heads_BT[:, :, None] != ROOT)  # of j
    edge_BTT = is_child_BTT | is_child_BTT.mT
    order_TT = (own_T[:, None] - own_T).sign()
    apart_BTT = order_TT * (depth_BT[:, :, None] + depth_BT[:, None])
    rel_BTT = torch.where(edge_BTT, depth_BT[:, :, None] - depth_BT[:, None], apart_BTT)
    return rel_BTT * (valid_BT[:, :, None] & valid_BT[:, None])


def of_pieces(values: Tensor, word_BP: Tensor) -> Tensor:
    """Values of words, (B, T) or (B, T, T), given to their pieces: each piece has what its word has."""
    if values.ndim == 2:
        return values.gather(1, word_BP)
    rows_BPT = values.gather(1, word_BP[:, :, None].expand(-1, -1, values.shape[2]))
    return rows_BPT.gather(2, word_BP[:, None].expand(-1, word_BP.shape[1], -1))


class AbsoluteStructure(nn.Module):
    """PE = tanh(W [PE(place); PE(depth)] + b), both by sinusoids: what is added to the token vectors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sinusoid = Sinusoidal(width)
        self.fuse = nn.Linear(2 * width, width)

    def forward(self, place: Tensor, depth: Tensor) -> Tensor:
        """Depths of any shape, with the place broadcast to it: (…, D)."""
        parts = [self.sinusoid(place.expand_as(depth)), self.sinusoid(depth)]
        fused: Tensor = torch.tanh(self.fuse(torch.cat(parts, dim=-1)))
        return fused


class RelativeStructure(nn.Module):
    """Two tables beside each other, each as in Shaw et al. (2018): for distances on the line and in the tree."""

    def __init__(self, heads: int, head_width: int, *, distance: int, tree_distance: int, values: bool = True) -> None:
        super().__init__()
        self.on_line = Relative(heads, head_width, distance=distance, values=values)
        self.in_tree = Relative(heads, head_width, distance=tree_distance, values=values)

    def bias(self, q_BHTK: Tensor, distance_TS: Tensor, between_BTS: Tensor) -> Tensor:
        """What is added to q·k/√K."""
        return self.on_line.bias(q_BHTK, distance_TS) + self.in_tree.bias(q_BHTK, between_BTS[:, None])

    def of_values(self, weights_BHTS: Tensor, distance_TS: Tensor, between_BTS: Tensor) -> Tensor | None:
        """What is added to the mean of the values."""
        line = self.on_line.of_values(weights_BHTS, distance_TS)
        tree = self.in_tree.of_values(weights_BHTS, between_BTS[:, None])
        return None if line is None or tree is None else line + tree
