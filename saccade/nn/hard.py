"""Hard attention (Xu et al. 2015, section 4.1): one source token is read, drawn from the weights, trained by REINFORCE.

With log p(y | s) the likelihood under the drawn places s, what is minimised is −E[log p(y | s)], which is no less than
−log p(y). Its gradient is the mean over draws of

    −∂ log p(y | s) − Σ_t (R_t − b_t) ∂ log a_t(s_t)

R_t is the log-likelihood of all that the draw at t can change: of y_t alone, or of y_t and what follows it where the
context enters the recurrence. (The paper takes the whole sentence's: the same mean, a larger variance.) b_t is the
baseline, a moving average of a token's log-likelihood, times the tokens that R_t sums over; it changes no mean.
With `soft` above 0 that share of the looks reads the mean of all places instead, as soft attention does, and is no
draw (the paper has it at 0.5, to make the estimate less noisy; there it is decided once for a picture).
Shapes: N hypotheses, T target tokens, S source tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Choice:
    """What was drawn by each query."""

    weights: Tensor
    """(…, S): 1 at the place, 0 elsewhere; zeros where there is nothing to look at; a soft look's own weights."""
    log_probability: Tensor
    """(…) of the drawn place; 0 of a soft look."""
    entropy: Tensor
    """(…) of the weights it was drawn from."""


class Hard(nn.Module):
    """Draws in training; takes the most probable place else."""

    def __init__(self, *, decay: float, reward: float, entropy: float, soft: float = 0.0) -> None:
        super().__init__()
        self.decay, self.reward, self.entropy, self.soft = decay, reward, entropy, soft
        self.register_buffer("baseline", torch.zeros(()))
        self.baseline: Tensor

    def draw(self, weights: Tensor) -> Tensor:
        """(…, S) -> (…). The least of exponential times with these rates comes from each place by its weight."""
        return (weights / torch.empty_like(weights).exponential_()).argmax(-1)

    def soften(self, weights: Tensor) -> Tensor:
        """(…, S) -> (…): which looks read the mean."""
        return torch.rand(weights.shape[:-1], device=weights.device) < self.soft

    def choose(self, weights: Tensor) -> Choice:
        chosen = (self.draw(weights.detach()) if self.training else weights.argmax(-1))[..., None]
        one_hot = torch.zeros_like(weights).scatter_(-1, chosen, 1.0)
        logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
        read = one_hot * (weights.detach().sum(-1, keepdim=True) > 0)
        log_probability = logs.gather(-1, chosen)
        if self.training and self.soft:
            is_soft = self.soften(weights)[..., None]
            read, log_probability = torch.where(is_soft, weights, read), log_probability.masked_fill(is_soft, 0.0)
        return Choice(read, log_probability.squeeze(-1), entropy=-(weights * logs).sum(-1))

    def terms(
        self, nll_NT: Tensor, log_probability_NT: Tensor, entropy_NT: Tensor, counted_NT: Tensor, *, onward: bool
    ) -> dict[str, Tensor]:
        """What is added to the loss so that its gradient is that of the mean; `onward`: a draw changes what follows."""
        gain_NT = torch.where(counted_NT, -nll_NT.detach(), 0.0)
        tokens_NT = counted_NT.to(gain_NT.dtype)
        better_NT = gain_NT - self.baseline * tokens_NT
        if onward:
            better_NT = better_NT.flip(1).cumsum(1).flip(1)
        drawn_NT = torch.where(counted_NT, log_probability_NT, 0.0)
        spread_NT = torch.where(counted_NT, entropy_NT, 0.0)
        if self.training:
            self._follow(gain_NT.sum() / tokens_NT.sum().clamp(min=1))
        return {"reinforce": -self.reward * (better_NT * drawn_NT).sum(), "entropy": -self.entropy * spread_NT.sum()}

    @torch.no_grad()
    def _follow(self, gain: Tensor) -> None:
        self.baseline.lerp_(gain.to(self.baseline.dtype), 1 - self.decay)
