"""Evaluates an actor-critic network without memory by calling its modules, without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

import torch
from torch import Generator, Tensor, nn

from rlsdk.interfaces import Distribution
from rlsdk.networks.action_heads import ActionHead
from rlsdk.records import Observation

NONE: tuple[tuple[()], tuple[()]] = ((), ())
"""The empty recurrent states of actor and critic."""


class Network(Protocol):
    """See `rlsdk.networks.ActorCritic`."""

    encoder: nn.Module
    body: nn.Module
    head: nn.Module
    use_masks: bool

    def evaluate(
        self, observation: Observation, memory: tuple[tuple[()], tuple[()]], starts: Tensor
    ) -> tuple[Distribution, Tensor]: ...

    def values_after(self, observation: Observation, memory: tuple[tuple[()], tuple[()]]) -> Tensor: ...


class ByModules:
    """See `rlsdk.kernels.protocol.PolicyActor`."""

    acts_in_place = False

    def __init__(self, network: Network) -> None:
        self.network = network

    @torch.no_grad()
    def act(self, observation: Observation, deterministic: bool, generator: Generator) -> Tensor:
        """Actions [B, ..] in environment units."""
        network = self.network
        mask = observation.action_mask if network.use_masks else None
        distribution = network.head(network.body(network.encoder(observation.features)), mask)
        action = distribution.mode() if deterministic else distribution.sample(generator)
        return cast("Tensor", cast("ActionHead", network.head).to_environment(action))

    def act_in_place(self, observation: Observation, generator: Generator) -> None:
        """Return None: modules return new tensors [B, ..]."""
        return

    @torch.no_grad()
    def forward(self, observation: Observation) -> tuple[Callable[[], Distribution], Tensor]:
        """Return (function that creates the distribution, values [N])."""
        distribution, value = self.network.evaluate(observation, NONE, observation.is_first)
        return lambda: distribution, value

    @torch.no_grad()
    def values(self, observation: Observation) -> Tensor:
        """The values [N]."""
        return self.network.values_after(observation, NONE)
