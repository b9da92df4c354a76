"""Updates from the replay buffer without an environment (`Agent.train`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rlsdk.agent.arguments import positive
from rlsdk.agent.assembled import AssembledAgent
from rlsdk.agent.stored_replay import restore_replay
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import LearnsOffline
from rlsdk.records import Cursor
from rlsdk.runtime.threads import limited_threads
from rlsdk.training import Training
from rlsdk.training.no_collector import NoCollector


def update_from_memory(
    agent: AssembledAgent, gradient_steps: int | None, batch_size: int | None
) -> Mapping[str, float]:
    """See `Agent.train`."""
    if agent.parts.buffer is None:
        raise UsageError(
            f"{agent.spec.id} stores no experience to train from; learn(total_timesteps) collects and trains"
        )
    restore_replay(agent)
    if gradient_steps is None:
        raise SettingsError("train needs the number of updates, train(gradient_steps=100)")
    if not len(agent.parts.buffer):
        raise UsageError("train needs a filled replay buffer; call learn, or load_replay_buffer, first")
    plan = agent.parts.plan
    if not isinstance(plan, LearnsOffline):
        raise UsageError(f"{type(plan).__name__}, the plan of {agent.spec.id}, has no learn_offline; call learn")
    size = None if batch_size is None else positive(batch_size, "batch_size")
    count, steps = positive(gradient_steps, "gradient_steps"), agent.total_steps
    collector = NoCollector(agent.context.num_envs)
    training = Training(collector, agent.parts, agent.streams, steps, steps, agent.context.device)
    with limited_threads(1), torch.inference_mode(False), torch.enable_grad():
        metrics = plan.learn_offline(training, count, size)
    agent.counts = Cursor(agent.counts.env_steps, agent.counts.updates + count)
    return {name: float(value) for name, value in metrics.items()}
