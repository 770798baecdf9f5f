"""What a recurrent network is asked for beside its task (Merity, McCann & Socher 2017).

Shapes: B texts, T tokens, D width.
"""

from torch import Tensor


def activation(h_BTD: Tensor, valid_BT: Tensor) -> Tensor:
    """AR: the mean square of all values at real tokens, so that they stay small."""
    square_BT = h_BTD.square().mean(-1) * valid_BT
    return square_BT.sum() / valid_BT.sum().clamp(min=1)


def change(h_BTD: Tensor, valid_BT: Tensor) -> Tensor:
    """TAR: the mean square of h_t − h_{t−1} over all neighbouring real tokens, so that they move slowly."""
    both_BT = valid_BT[:, 1:] & valid_BT[:, :-1]
    square_BT = (h_BTD[:, 1:] - h_BTD[:, :-1]).square().mean(-1) * both_BT
    return square_BT.sum() / both_BT.sum().clamp(min=1)
