"""Episodes of an agent recorded to a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.episode_file import RecordedEpisode, write_episodes
from rlsdk.environments import connect
from rlsdk.errors import SettingsError
from rlsdk.interchange.bounds import within_bounds
from rlsdk.interfaces import VectorEnv
from rlsdk.records import EnvStep, Features, Observation
from rlsdk.runtime.threads import limited_threads

if TYPE_CHECKING:
    from rlsdk.agent import Agent, Session


@dataclass(slots=True)
class _Running:
    """The episode that one environment is in: rows [T, ..] of what happened."""

    observations: list[Features]
    masks: list[Tensor | None]
    actions: list[Features]
    rewards: list[Tensor]
    seed: int | None


def record_episodes(
    model: Agent,
    env: object,
    n_episodes: int,
    path: str | Path,
    *,
    deterministic: bool = False,
    seed: int | None = None,
) -> Path:
    """Play `n_episodes` episodes and write them to a data set; returns its path.

    What the environment gave is recorded raw: observations before any normalisation or stacking, true rewards, actions as the
    environment got them, action masks, terminations and time limits apart. The agent's random streams are not touched.

    Args:
        model: who acts.
        env: anything `learn` accepts, with the agent's spaces; not the training environment.
        n_episodes: over all environments, each of which plays its share.
        path: the file; `.safetensors` is appended to a name without suffix.
        deterministic: the policy's mode instead of samples.
        seed: of the first resets, and of the policy's samples.

    Raises:
        SettingsError: `n_episodes` is not positive. UnsupportedSpaceError: other spaces. ArtifactError: the place cannot be
        written.
    """
    if isinstance(n_episodes, bool) or not isinstance(n_episodes, int) or n_episodes < 1:
        raise SettingsError(f"n_episodes = {n_episodes!r} must be a positive whole number")
    envs = connect(env)
    model.require_same_spaces(envs, "the environment to record")
    session = model.session(envs.num_envs, deterministic=deterministic, seed=seed)
    with limited_threads(1):
        episodes = _played(session, envs, n_episodes, seed)
    name = env if isinstance(env, str) else envs.env_id
    spaces = model.context.observation_space, model.context.action_space
    return write_episodes(path, episodes, *spaces, name if isinstance(name, str) else None)


def _played(session: Session, envs: VectorEnv, count: int, seed: int | None) -> list[RecordedEpisode]:
    """`count` episodes, in the order they ended."""
    quota = [(count + i) // envs.num_envs for i in range(envs.num_envs)]
    observation, action_space = envs.reset(seed), session.context.action_space
    first_seed = seed if envs.num_envs == 1 else None  # several environments derive their seeds themselves
    running = [_begun(observation, row, first_seed) for row in range(envs.num_envs)]
    episodes: list[RecordedEpisode] = []
    while any(quota):
        action = session.action_on(observation)
        step = envs.step(action)
        ended = (step.terminated | step.truncated).nonzero().squeeze(-1).tolist()
        played = within_bounds(action_space, action)
        for row in step.valid.nonzero().squeeze(-1).tolist():
            running[row].actions.append(_row(played, row))
            running[row].rewards.append(step.reward[row])
            if row not in ended:
                _see(running[row], step.observation, row)
                continue
            assert step.final_observation is not None
            _see(running[row], step.final_observation, ended.index(row))
            if quota[row]:
                quota[row] -= 1
                episodes.append(_whole(running[row], bool(step.terminated[row])))
        for row in _starting(step, ended):
            running[row] = _begun(step.observation, row, None)
        observation = step.observation
    return episodes


def _starting(step: EnvStep, ended: list[int]) -> list[int]:
    """The environments whose episode begins with the observation of this step."""
    return sorted({*ended, *(~step.valid).nonzero().squeeze(-1).tolist()})


def _row(node: Features, row: int) -> Features:
    return tree.map_tensors(lambda leaf: leaf[row].clone(), node)


def _begun(observation: Observation, row: int, seed: int | None) -> _Running:
    running = _Running([], [], [], [], seed)
    _see(running, observation, row)
    return running


def _see(running: _Running, observation: Observation, row: int) -> None:
    """Take in the observation of one environment, row `row` of [B]."""
    running.observations.append(_row(observation.features, row))
    running.masks.append(None if observation.action_mask is None else observation.action_mask[row].clone())


def _whole(running: _Running, terminated: bool) -> RecordedEpisode:
    """The rows of an episode stacked."""

    def stacked(rows: list[Features]) -> Features:
        return tree.map_tensors(lambda *leaves: torch.stack(leaves), *rows)

    masks = [mask for mask in running.masks if mask is not None]
    return RecordedEpisode(
        observations=stacked(running.observations),
        actions=stacked(running.actions),
        rewards=torch.stack(running.rewards),
        terminated=terminated,
        action_masks=torch.stack(masks) if masks else None,
        seed=running.seed,
    )
