"""Places in a dependency tree (Wang et al. 2019): how deep a word hangs, and where two words stand to each other.

Two things that the paper leaves open are settled so. "On one dependency edge" means parent and child, not any ancestor.
The sign for all other pairs is that of i − j, so that a later word counts its distance to an earlier one positive.
Each of several roots is an origin. All pieces of a word stand where the word stands: rel is 0 between them.
Shapes: B sentences, T tokens, H heads, S keys, K head width, D width.
"""

import torch
from torch import Tensor, nn

from saccade.nn import masks
from saccade.nn.embedding import Sinusoidal
from saccade.nn.positions import InAttentionKind, NoPlaces, Relative
from saccade.types import Layout, Parse

ROOT = 0
"""What stands for the head of a word that has none."""


def depths(parse: Parse, layout: Layout) -> Tensor:
    """Edges from each token's word to its root, (B, T), padded; 0 for a root; 0 on padding.

    By pointer jumping: after step s each word knows the way to its ancestor 2^s above.
    """
    heads_BT = masks.pad(parse.heads, layout)
    own_T = torch.arange(layout.longest, device=heads_BT.device)
    rooted = (heads_BT == ROOT) | ~masks.valid_BT(layout)
    above_BT = torch.where(rooted, own_T, heads_BT - 1)
    depth_BT = (~rooted).long()
    for _ in range(max(1, layout.longest).bit_length()):
        depth_BT = depth_BT + depth_BT.gather(1, above_BT)
        above_BT = above_BT.gather(1, above_BT)
    return depth_BT


def between(parse: Parse, layout: Layout) -> Tensor:
    """rel(i, j) of the words of tokens i (queries) and j (keys), (B, T, T), padded; 0 where one of them is padding.

    abs(i) − abs(j) for parent and child; sgn(i − j) · (abs(i) + abs(j)) for all other pairs.
    """
    words_BT, heads_BT = masks.pad(parse.words, layout), masks.pad(parse.heads, layout)
    depth_BT, valid_BT = depths(parse, layout), masks.valid_BT(layout)
    is_child_BTT = (heads_BT[:, :, None] - 1 == words_BT[:, None]) & (heads_BT[:, :, None] != ROOT)  # of j
    edge_BTT = is_child_BTT | is_child_BTT.mT
    order_BTT = (words_BT[:, :, None] - words_BT[:, None]).sign()
    apart_BTT = order_BTT * (depth_BT[:, :, None] + depth_BT[:, None])
    rel_BTT = torch.where(edge_BTT, depth_BT[:, :, None] - depth_BT[:, None], apart_BTT)
    return rel_BTT * (valid_BT[:, :, None] & valid_BT[:, None])


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


class RelativeStructure(NoPlaces):
    """Two tables beside each other, each as in Shaw et al. (2018): for distances on the line and in the tree."""

    kind: InAttentionKind = "tree"
    acts_on_scores = True

    def __init__(
        self,
        heads: int,
        head_width: int,
        *,
        distance: int,
        tree_distance: int,
        values: bool = True,
        per_head: bool = False,
    ) -> None:
        super().__init__()
        self.on_line = Relative(heads, head_width, distance=distance, values=values, per_head=per_head)
        self.in_tree = Relative(heads, head_width, distance=tree_distance, values=values, per_head=per_head)
        self.acts_on_values = values

    def bias(self, q_BHTK: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor:
        on_line = self.on_line.bias(q_BHTK, distance)
        return on_line if between_BTS is None else on_line + self.in_tree.bias(q_BHTK, between_BTS[:, None])

    def of_values(self, weights_BHTS: Tensor, distance: Tensor, between_BTS: Tensor | None = None) -> Tensor | None:
        line = self.on_line.of_values(weights_BHTS, distance)
        tree = None if between_BTS is None else self.in_tree.of_values(weights_BHTS, between_BTS[:, None])
        return line if line is None or tree is None else line + tree
