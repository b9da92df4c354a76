"""Functions for agents that learn from a data set: reading its spaces, and computing statistics for `normalize`."""

from __future__ import annotations

import attrs
import torch

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.buffers.episode_file import read_header
from rlsdk.interfaces import HasEpisodeRewards, HasObservations
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.dataset import Dataset
from rlsdk.spaces import Space


def recorded_spaces(config: AgentConfig) -> tuple[Space, Space] | None:
    """(observation space, action space) of the first data set in the settings; None if there is none.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, Dataset) and value.path is not None:
            return recorded_in(value.path)[1]
    return None


def recorded_in(path: str) -> tuple[str | None, tuple[Space, Space]]:
    """(environment id or None, (observation space, action space)) of the data set at `path`; raises like `read_header`."""
    header = read_header(path)
    return header.environment, (header.observation_space, header.action_space)


def observe_data_set(agent: AssembledAgent) -> None:
    """Update the statistics of `normalize` with all observations and rewards of a data set, once before the first update. An
    agent that learns from an environment computes them from its steps instead."""
    normalizer, memory = agent.preprocessing.normalizer, agent.parts.buffer
    if normalizer is None or agent.parts.plan.needs_environment or agent.counts.updates:
        return
    if isinstance(memory, HasObservations):
        for features in memory.observations():
            normalizer.observations.update(features)
    if isinstance(memory, HasEpisodeRewards) and normalizer.settings.norm_reward:
        for rewards in memory.episode_rewards():
            ended = torch.zeros(len(rewards), 1, dtype=torch.bool)
            ended[-1] = True
            never = torch.zeros_like(ended)
            normalizer.rewards.observe(rewards.unsqueeze(1), ended, never, torch.ones_like(ended))
