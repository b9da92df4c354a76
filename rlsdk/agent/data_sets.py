"""Agents that learn from a data set: their spaces, and the statistics of its observations."""

from __future__ import annotations

import attrs

from rlsdk.agent.assembled import AssembledAgent
from rlsdk.buffers.episode_file import read_header
from rlsdk.interfaces import HasObservations
from rlsdk.settings.agent_config import AgentConfig
from rlsdk.settings.dataset import Dataset
from rlsdk.spaces import Space


def recorded_spaces(config: AgentConfig) -> tuple[Space, Space] | None:
    """(observation space, action space) of the first data set among the settings; None where there is none.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    for field in attrs.fields(type(config)):
        value = getattr(config, field.name)
        if isinstance(value, Dataset) and value.path is not None:
            header = read_header(value.path)
            return header.observation_space, header.action_space
    return None


def observe_data_set(agent: AssembledAgent) -> None:
    """Give the running statistics of observations all those of a memory that is filled already, before the first update: no
    environment shows any. Rewards are not scaled."""
    normalizer, memory = agent.preprocessing.normalizer, agent.parts.buffer
    if normalizer is None or agent.parts.plan.needs_environment or agent.counts.updates:
        return
    if isinstance(memory, HasObservations):
        for features in memory.observations():
            normalizer.observations.update(features)
