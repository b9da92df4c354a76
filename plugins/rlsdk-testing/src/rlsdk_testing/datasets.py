"""Makes data sets for checks: episodes with random or given actions in the environment of the check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from rlsdk.environments import connect
from rlsdk.exploration import random_actions
from rlsdk.interfaces import VectorEnv
from rlsdk.records import Features, Observation
from rlsdk.settings import data_settings
from rlsdk.tree import map_tensors
from rlsdk_datasets import Dataset, RecordedEpisode, write_episodes

EPISODES, LONGEST = 4, 20

Act = Callable[[VectorEnv, Observation, Generator], Features]
"""Function (environments, observation [B], generator) -> actions [B, ..], nested as the action space."""


@dataclass(slots=True)
class _Rows:
    """The steps of the current episode of one environment."""

    observations: list[Features]
    masks: list[Tensor]
    actions: list[Features]
    rewards: list[Tensor]


def recordable(config_type: type[object]) -> list[str]:
    """Return the settings of a config class for which `write_episodes` can write data, not those of another kind of data."""
    return [name for name, kind in data_settings(config_type).items() if issubclass(kind, Dataset)]


def random_dataset(env: object, path: Path) -> Path:
    """Write short episodes of random actions; see `recorded_dataset`."""
    return recorded_dataset(env, path, random_action, EPISODES)


def recorded_dataset(env: object, path: Path, act: Act, count: int) -> Path:
    """Write `count` short episodes of the first of the environments `env`, and return the path of the data set.

    `act` chooses the actions. The environments are reset afterwards.
    """
    envs = connect(env)
    generator = Generator().manual_seed(0)
    episodes = [_episode(envs, act, generator, number) for number in range(count)]
    envs.reset(0)
    return write_episodes(path, episodes, envs.observation_space, envs.action_space)


def _episode(envs: VectorEnv, act: Act, generator: Generator, seed: int) -> RecordedEpisode:
    observation, rows = envs.reset(seed), _Rows([], [], [], [])
    _see(rows, observation, 0)
    for _ in range(LONGEST):
        action = act(envs, observation, generator)
        step = envs.step(action)
        if not step.valid[0]:
            continue
        rows.actions.append(map_tensors(lambda leaf: leaf[0], action))
        rows.rewards.append(step.reward[0])
        if ended := bool(step.terminated[0] | step.truncated[0]):
            assert step.final_observation is not None
            _see(rows, step.final_observation, 0)
            break
        observation = step.observation
        _see(rows, observation, 0)
    return RecordedEpisode(
        observations=map_tensors(lambda *leaves: torch.stack(leaves), *rows.observations),
        actions=map_tensors(lambda *leaves: torch.stack(leaves), *rows.actions),
        rewards=torch.stack(rows.rewards),
        terminated=ended and bool(step.terminated[0]),
        action_masks=torch.stack(rows.masks) if rows.masks else None,
        seed=seed,
    )


def random_action(envs: VectorEnv, observation: Observation, generator: Generator) -> Features:
    """Return actions [B, ..], nested as the action space, sampled uniformly from the allowed ones."""
    return random_actions(envs.action_space, len(observation.is_first), observation.action_mask, generator)


def _see(rows: _Rows, observation: Observation, row: int) -> None:
    """Append one row of an observation [B] to `rows`."""
    rows.observations.append(map_tensors(lambda leaf: leaf[row].clone(), observation.features))
    if observation.action_mask is not None:
        rows.masks.append(observation.action_mask[row].clone())
