"""Dynamic beam allocation: a beam's places are shared out among candidates that have come unlike far.

Post and Vilar (2018) put the hypotheses of a sentence into banks, by how many tokens of its constraints they have met;
Hu et al. (2019) fill all banks of all sentences at once. Shapes: B sentences, X candidates.
"""

import torch
from torch import Tensor


def allocate(score_BX: Tensor, left_BX: Tensor, late_BX: Tensor, count: int) -> Tensor:
    """The first `count` candidates of each sentence, in order, by their places.

    A bank is all candidates that have as many tokens left to meet. First comes the best of each bank, that with the
    fewest left first; then the second best of each; and so on. A bank that has no more leaves its places to the others.
    Behind all of them come those that are `late`: they cannot meet the rest before the limit; and at last what is not
    possible, with −inf. Without constraints there is one bank, and the order is that of the scores.
    """
    X = score_BX.shape[1]
    impossible_BX = score_BX == -torch.inf
    most = int(left_BX.max()) + 1 if left_BX.numel() else 1
    tier_BX = torch.where(impossible_BX, 2, late_BX.long())
    bank_BX = tier_BX * most + left_BX
    by_score_BX = score_BX.argsort(dim=1, descending=True, stable=True)
    by_bank_BX = by_score_BX.gather(1, bank_BX.gather(1, by_score_BX).argsort(dim=1, stable=True))
    bank_BX = bank_BX.gather(1, by_bank_BX)
    place_X = torch.arange(X, device=score_BX.device)
    begins_BX = torch.ones_like(bank_BX, dtype=torch.bool)
    begins_BX[:, 1:] = bank_BX[:, 1:] != bank_BX[:, :-1]
    rank_BX = place_X - torch.where(begins_BX, place_X, 0).cummax(1).values
    tier_BX, left_BX = bank_BX // most, bank_BX % most
    order_BX = ((tier_BX * X + rank_BX) * most + left_BX).argsort(dim=1, stable=True)
    return by_bank_BX.gather(1, order_BX[:, :count])
