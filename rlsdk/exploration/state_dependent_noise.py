"""Generalised state-dependent exploration (gSDE): noise that is a function of the state, the same for some steps.

Source: Raffin, Kober, Stulp 2020, arXiv:2005.05719, section 3.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

EPSILON = 1e-6


class StateDependentNoise(nn.Module):
    """noise = latent @ matrix with matrix ~ N(0, std^2) element by element; `log_std` [L, A] is learnt.

    The likelihood needs no matrix: given the latent, the noise is Gaussian with variance latent^2 @ std^2. The latent is
    treated as fixed there, so that the exploration does not train the features.
    """

    def __init__(self, latent: int, actions: int, log_std_init: float, use_expln: bool) -> None:
        super().__init__()
        self.log_std = nn.Parameter(torch.full((latent, actions), float(log_std_init)))
        self.use_expln = use_expln

    def std(self) -> Tensor:
        """Positive standard deviations [L, A]: exp, or with `use_expln` exp below 0 and 1 + log1p above (grows slower)."""
        if not self.use_expln:
            return self.log_std.exp()
        below = self.log_std.clamp(max=0.0).exp()
        return torch.where(self.log_std > 0.0, self.log_std.clamp(min=0.0).log1p() + 1.0, below)

    def log_std_of(self, latent: Tensor) -> Tensor:
        """Log standard deviation [N, A] of the noise given `latent` [N, L]."""
        return 0.5 * (latent.detach().square() @ self.std().square() + EPSILON).log()

    def matrices(self, batch: int, generator: Generator) -> Tensor:
        """One fresh noise matrix per environment [B, L, A]."""
        shape = (batch, *self.log_std.shape)
        return torch.randn(shape, generator=generator, device=self.log_std.device) * self.std().detach()

    @staticmethod
    def noise(latent: Tensor, matrices: Tensor) -> Tensor:
        """latent [B, L], matrices [B, L, A] -> noise [B, A]."""
        return torch.bmm(latent.unsqueeze(1), matrices).squeeze(1)
