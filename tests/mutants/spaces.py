"""Bugs in the units of actions, in distributions of some kinds of action, and in encoders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rlsdk.distributions import Bernoulli, Gaussian, SquashedGaussian
from rlsdk.math import values
from rlsdk.networks import ActionScale
from rlsdk.networks.encoders import NatureEncoder
from rlsdk_ars import search_policy
from tests.mutants.catalog import Patch, mutant


@mutant("population.plays-the-policy", "ars", alone=True)
def candidates_have_another_activation(patch: Patch) -> None:
    patch.setitem(search_policy.ACTIVATIONS, "relu", np.abs)


@mutant("learns.bandit", alone=True)
def critics_see_actions_in_units_of_the_environment(patch: Patch) -> None:
    patch.setattr(ActionScale, "to_unit", lambda self, action: action.flatten(1))


@mutant("training.parameters-move", "qrdqn")
def encoders_of_images_are_not_trained(patch: Patch) -> None:
    forward = NatureEncoder.forward
    patch.setattr(NatureEncoder, "forward", lambda self, features: forward(self, features).detach())


@mutant("distribution.entropy-is-mean-surprise", "maskable-ppo")
def bits_have_the_probabilities_of_their_opposites(patch: Patch) -> None:
    log_prob = Bernoulli.log_prob
    patch.setattr(Bernoulli, "log_prob", lambda self, action: log_prob(self, 1 - action))


@mutant("distribution.entropy-is-mean-surprise", "maskable-ppo", alone=True)
def the_entropy_of_bits_is_that_of_one(patch: Patch) -> None:
    entropy = Bernoulli.entropy
    patch.setattr(Bernoulli, "entropy", lambda self: entropy(self) / self.logits.shape[-1])


@mutant("learns.bandit", "qrdqn")
def the_columns_of_several_choices_are_mixed(patch: Patch) -> None:
    index = values.flat_index

    def broken(action: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return torch.cat([index(column.unsqueeze(-1), (sum(sizes),)) for column in action.unbind(-1)])

    patch.setattr(values, "flat_index", broken)
    patch.setattr(values, "action_values", lambda *_: None)


@mutant("distribution.kl", "trpo")
def the_deviations_in_a_divergence_are_exchanged(patch: Patch) -> None:
    divergence = Gaussian.kl_divergence

    def broken(self: Gaussian, other: Gaussian) -> Any:
        return divergence(Gaussian(self.mean, other.log_std), Gaussian(other.mean, self.log_std))

    patch.setattr(Gaussian, "kl_divergence", broken)


@mutant("distribution.transform", "trpo", alone=True)
def made_samples_are_too_far_away(patch: Patch) -> None:
    transform = Gaussian.transform
    patch.setattr(Gaussian, "sample", lambda self, generator: _sampled(transform, self, generator))
    patch.setattr(Gaussian, "transform", lambda self, noise: transform(self, 1.5 * noise))


def _sampled(transform: Callable[[Gaussian, Tensor], Tensor], of: Gaussian, generator: Generator) -> Tensor:
    return transform(of, torch.randn(of.mean.shape, generator=generator))


@mutant("distribution.transform", "tqc")
def sampled_densities_are_not_those_of_squashed_actions(patch: Patch) -> None:
    def broken(self: SquashedGaussian, noise: Tensor) -> tuple[Tensor, Tensor]:
        raw = self._before_tanh.transform(noise)
        return raw.tanh(), self._before_tanh.log_prob(raw)

    patch.setattr(SquashedGaussian, "transform", broken)
