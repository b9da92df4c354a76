"""Evaluates a squashed Gaussian policy by calling its modules, without a kernel."""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator, Tensor

from rlsdk.distributions import SquashedGaussian
from rlsdk.kernels.reference import AutogradPair


class ByModules:
    """See `rlsdk.kernels.protocol.SquashedPolicy`."""

    def __init__(self, distribution: Callable[[Tensor], SquashedGaussian]) -> None:
        """`distribution` returns the distribution over unit actions [N, A] for features [N, F]."""
        self.distribution = distribution
        sampled = AutogradPair(self._sampled)
        self.name, self.evaluate = sampled.name, sampled.evaluate

    def act(self, features: Tensor, deterministic: bool, generator: Generator) -> Tensor:
        """Unit actions [N, A] for features [N, F]."""
        distribution = self.distribution(features)
        return distribution.mode() if deterministic else distribution.sample(generator)

    def _sampled(self, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        features, noise = inputs
        return self.distribution(features).transform(noise)
