"""Converts recorded steps to the batches that the kernels of actor-critic networks take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlsdk.networks.actor_critic import ActorCritic
from rlsdk.networks.recorded_steps import as_recorded
from rlsdk.records import Features, Observation
from rlsdk.updates.minibatches import PolicyBatch


def recorded_batch(
    network: ActorCritic,
    observation: Observation,
    action: Features,
    target: Tensor | None = None,
    starts: Tensor | None = None,
) -> PolicyBatch:
    """Return a batch with all advantages 1. The loss of `policy_loss_of` without `clip` is then -log pi(a|s): behaviour
    cloning.

    Args:
        network: the policy and its values.
        observation: [N, ..], as the policy receives it.
        action: [N, ..], in environment units.
        target: float [N], the regression targets of the values; None: 0.
        starts: bool [N], True where a sequence of consecutive rows begins, with the initial recurrent state; None:
            every row is a sequence.
    """
    seen, memory, first = as_recorded(network, observation, starts)
    count, device = len(first), first.device
    nothing: Any = ()  # a placeholder: the log-probability of the recorded action is not known
    target = torch.zeros(count, device=device) if target is None else target
    return PolicyBatch(seen, action, nothing, target, torch.ones(count, device=device), target, memory, first)
