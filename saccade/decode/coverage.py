"""The coverage penalty: outputs that leave parts of the source unread score lower (Wu et al. 2016, equation 14).

cp(X; Y) = β Σ_i log min(Σ_j a_ij, 1): i counts the source's tokens without END and PAD, j the output's tokens with END,
and a_ij is how much step j looked at token i. It is added to log P / lp(|Y|), and is never above 0.
Shapes: B sentences, N hypotheses, S source tokens, V vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.types import State, Step

LookingStep = Callable[[Tensor, State], tuple[Tensor, State, Tensor]]
"""(last_N, state) -> (logits_NV, state, weights_NS): a step that also tells where it looked."""
LEAST = 1e-6
"""A token that is looked at less than this in all counts as if by this: log 0 would make all such outputs equal."""


def covered(
    step: LookingStep, state: State, *, counts_BS: Tensor, beta: float
) -> tuple[Step, State, Callable[[State], Tensor]]:
    """The step and state of a search that sums what was looked at, and its penalty; `counts_BS`: which tokens count.

    The sums (N, S) are part of the state's hypotheses, so that every selection moves them along.
    """
    nothing_BS = torch.zeros(counts_BS.shape, device=counts_BS.device)

    def summing(last_N: Tensor, state: State) -> tuple[Tensor, State]:
        inner = State(state.source["model"], state.hypothesis["model"])
        logits_NV, inner, weights_NS = step(last_N, inner)
        seen_NS = state.hypothesis["seen"] + weights_NS
        source = state.source | {"model": inner.source}
        return logits_NV, State(source, {"model": inner.hypothesis, "seen": seen_NS})

    def penalty(state: State) -> Tensor:
        seen_NS, counts_BS = state.hypothesis["seen"], state.source["counts"]
        counts_NS = counts_BS.repeat_interleave(len(seen_NS) // max(len(counts_BS), 1), 0)
        penalty_N: Tensor = beta * (seen_NS.clamp(LEAST, 1.0).log() * counts_NS).sum(-1)
        return penalty_N

    begun = State({"model": state.source, "counts": counts_BS}, {"model": state.hypothesis, "seen": nothing_BS})
    return summing, begun, penalty
