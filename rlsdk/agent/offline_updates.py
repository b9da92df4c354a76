"""Updates from the replay memory alone, without an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rlsdk.agent.arguments import positive
from rlsdk.agent.stored_replay import restore_replay
from rlsdk.errors import SettingsError, UsageError
from rlsdk.loops import learn_offline
from rlsdk.parts import OffPolicyPlan
from rlsdk.threads import limited_threads

if TYPE_CHECKING:
    from rlsdk.agent import Agent


def update_from_memory(agent: Agent, gradient_steps: int | None, batch_size: int | None) -> Mapping[str, float]:
    """See `Agent.train`."""
    if agent.parts.buffer is None:
        raise UsageError(
            f"{agent.spec.id} keeps no experience to train from; learn(total_timesteps) collects and trains"
        )
    restore_replay(agent)
    if gradient_steps is None:
        raise SettingsError("train needs the number of updates, train(gradient_steps=100)")
    if not len(agent.parts.buffer):
        raise UsageError("train needs a filled replay buffer; call learn, or load_replay_buffer, first")
    assert isinstance(agent.parts.plan, OffPolicyPlan)
    plan = agent.parts.plan
    if batch_size is not None:
        plan = replace(plan, batch_size=positive(batch_size, "batch_size"))
    parts = replace(agent.parts, plan=plan)
    count = positive(gradient_steps, "gradient_steps")
    with limited_threads(1), torch.inference_mode(False), torch.enable_grad():
        metrics = learn_offline(parts, agent.streams, count, agent._total_steps)
    return {name: float(value) for name, value in metrics.items()}
