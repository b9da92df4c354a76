"""Generalised state-dependent exploration (gSDE): noise that is a function of the state and changes only every few
steps.

Source: Raffin, Kober, Stulp 2020, arXiv:2005.05719, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class NoiseMatrices:
    """The carry of gSDE: the matrix of each environment, float32 [B, L, A], and the steps since the rollout began,
    int64 [B]."""

    matrix: Tensor
    age: Tensor


class StateDependentNoise(nn.Module):
    """Computes noise = latent @ matrix, where matrix ~ N(0, std^2) element by element; `log_std` [L, A] is learnt.

    The likelihood needs no matrix: given the latent, the noise is Gaussian with variance latent^2 @ std^2.
    """

    def __init__(
        self,
        latent: int,
        actions: int,
        log_std_init: float,
        use_expln: bool,
        *,
        full_std: bool = True,
        learn_features: bool = False,
    ) -> None:
        """With `full_std=False` all actions have the same deviations: `log_std` is [L, 1].

        `learn_features` sets whether the gradient of the deviation flows into the latent. It is True for soft
        actor-critic methods, whose actions are reparameterised samples: otherwise a part of the loss's gradient would
        be missing. It is False for on-policy algorithms, where exploration does not train the features.
        """
        super().__init__()
        self.learn_features = learn_features
        self.log_std = nn.Parameter(torch.full((latent, actions if full_std else 1), float(log_std_init)))
        self.actions, self.use_expln = actions, use_expln

    def std(self) -> Tensor:
        """Positive standard deviations [L, A]: exp(log_std). With `use_expln`, 1 + log1p(log_std) above 0, which grows
        slower."""
        wide = self.log_std.expand(-1, self.actions)
        if not self.use_expln:
            return wide.exp()
        return torch.where(wide > 0.0, wide.clamp(min=0.0).log1p() + 1.0, wide.clamp(max=0.0).exp())

    def log_std_of(self, latent: Tensor) -> Tensor:
        """The log standard deviation [N, A] of the noise, given `latent` [N, L]."""
        seen = latent if self.learn_features else latent.detach()
        return 0.5 * (seen.square() @ self.std().square() + EPSILON).log()

    def matrices(self, batch: int, generator: Generator) -> Tensor:
        """Sample a new noise matrix per environment, [B, L, A]."""
        shape = (batch, len(self.log_std), self.actions)
        return torch.randn(shape, generator=generator, device=self.log_std.device) * self.std().detach()

    def initial(self, batch: int) -> NoiseMatrices:
        """Return zero matrices. The first step samples new ones."""
        device = self.log_std.device
        matrix = torch.zeros(batch, len(self.log_std), self.actions, device=device)
        return NoiseMatrices(matrix, torch.zeros(batch, dtype=torch.int64, device=device))

    @staticmethod
    def begin_rollout(carry: NoiseMatrices) -> NoiseMatrices:
        """Return the same matrices with age 0, so that the next step samples new ones."""
        return NoiseMatrices(carry.matrix, torch.zeros_like(carry.age))

    def refreshed(self, carry: NoiseMatrices, resample_every: int | None, generator: Generator) -> NoiseMatrices:
        """Return the matrices for this step: new ones at age 0 and then every `resample_every` steps (None: only at age
        0).

        Starts and ends of episodes have no effect.
        """
        matrix, age = carry.matrix, carry.age
        stale = age == 0 if resample_every is None else age % resample_every == 0
        if bool(stale.any()):
            matrix = torch.where(stale[:, None, None], self.matrices(len(age), generator), matrix)
        return NoiseMatrices(matrix, age + 1)

    @staticmethod
    def noise(latent: Tensor, matrices: Tensor) -> Tensor:
        """Compute noise [B, A] from latent [B, L] and matrices [B, L, A]."""
        return torch.bmm(latent.unsqueeze(1), matrices).squeeze(1)
