"""Check recorded episodes of any origin, and add them to the replay buffer of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.errors import ObservationError, SettingsError, UsageError
from rlsdk.records import Features, FinalObservations, Observation, Rollout, StepData
from rlsdk.spaces import Space, choices_of
from rlsdk.tree import map_tensors
from rlsdk_datasets import RecordedEpisode, checked_episode

if TYPE_CHECKING:
    from rlsdk.agent import Agent

MASKS = "action_mask"
"""The entry of `infos` with action masks, as in gymnasium."""


def remember(agent: Agent, episodes: Iterable[object]) -> int:
    """Add recorded episodes to the replay buffer of an agent, and return the number of transitions.

    An episode can come from a data set (`rlsdk_datasets.open_episodes(path)`) or from Minari (`dataset.iterate_episodes()`). It
    can also be any object with the attributes or keys `observations` [T + 1, ..], nested like the space, `actions` [T, ..],
    `rewards` [T], `terminations` [T] and `truncations` [T]. Optional: `infos` with `action_mask` bool [T + 1, A]. If the last
    step is neither terminated nor truncated, the episode counts as truncated.

    Args:
        agent: an agent of an off-policy algorithm with one environment. If there is no environment,
            `rlsdk_datasets.RecordedOnly` provides its spaces. With `normalize`, the observations update the statistics.
        episodes: the recorded episodes.

    Raises:
        UsageError: the algorithm has no replay buffer, or the agent has several environments.
        SettingsError: there are more transitions than `buffer_size`.
        ObservationError: lengths or shapes do not fit, or numbers are not finite.
    """
    buffer = agent.parts.buffer
    if buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay buffer to fill")
    if agent.context.num_envs != 1:
        raise UsageError(f"recorded episodes need an agent with one environment, this one has {agent.context.num_envs}")
    spaces = agent.context.observation_space, agent.context.action_space
    normalizer = agent.preprocessing.rollouts(agent.parts)
    count, room, checked = 0, int(getattr(agent.config, "buffer_size", 0)), list[RecordedEpisode]()
    for number, given in enumerate(episodes):
        checked.append(episode_of(spaces, given, f"episode {number}"))
        count += len(checked[-1].rewards)
        if count > room:
            raise SettingsError(f"the recordings hold more than buffer_size = {room} transitions; raise it")
    for episode in checked:  # after all checks, so that either all episodes are added or none
        rollout = as_rollout(episode, str(agent.device), agent.parts.behavior_policy.initial_carry(1))
        buffer.extend(rollout if normalizer is None else normalizer.rollout(rollout))
    return count


def as_rollout(episode: RecordedEpisode, device: str, carry: Features = ()) -> Rollout[Features, tuple[()]]:
    """Return an episode as a rollout of one environment, with leaves [T, 1, ..]. The rollout ends with the episode."""
    steps = len(episode.rewards)
    first = torch.zeros(steps + 1, 1, dtype=torch.bool)
    first[0] = True
    masks = None if episode.action_masks is None else episode.action_masks.unsqueeze(1)
    seen = Observation(map_tensors(lambda leaf: leaf.unsqueeze(1), episode.observations), first, masks)
    before, last = (map_tensors(lambda leaf, at=at: leaf[at].to(device), seen) for at in (slice(0, -1), -1))
    ended = torch.zeros(steps, 1, dtype=torch.bool, device=device)
    ended[-1] = True
    data = StepData(
        observation=before,
        action=map_tensors(lambda leaf: leaf.unsqueeze(1).to(device), episode.actions),
        reward=episode.rewards.unsqueeze(1).to(device),
        terminated=ended & episode.terminated,
        truncated=ended & (not episode.terminated),
        valid=torch.ones_like(ended),
        extras=(),
    )
    end = torch.tensor([steps - 1], device=device)
    return Rollout(data, carry, last, carry, FinalObservations(end, torch.zeros_like(end), last))


def episode_of(spaces: tuple[Space, Space], given: object, where: str) -> RecordedEpisode:
    """Return an episode of any origin (see `remember`) in the dtypes of `spaces`: (observation space, action space).

    Raises:
        ObservationError: the episode does not fit the spaces, or its parts do not fit each other. The message begins with
            `where`.
    """
    if not isinstance(given, RecordedEpisode):
        rewards = np.asarray(_part(given, "rewards", where))
        seed = getattr(given, "seed", None)
        given = RecordedEpisode(
            _part(given, "observations", where),
            _part(given, "actions", where),
            _part(given, "rewards", where),
            _ends_terminated(given, rewards.shape, where),
            _masks(spaces[1], given),
            int(seed) if isinstance(seed, int | np.integer) else None,
        )
    return checked_episode(spaces, given, where)


def _masks(space: Space, given: object) -> Any:
    """Return the action masks in the infos of an episode; None if there are none, or if the action space has no choices."""
    infos = given.get("infos") if isinstance(given, Mapping) else getattr(given, "infos", None)
    return infos.get(MASKS) if isinstance(infos, Mapping) and choices_of(space) else None


def _ends_terminated(given: object, shape: tuple[int, ...], where: str) -> bool:
    """Return whether the last step is terminated. `shape` is that of the rewards.

    Raises:
        ObservationError: an earlier step is terminated or truncated.
    """
    terminated, truncated = (_flags(given, name, shape, where) for name in ("terminations", "truncations"))
    if bool((terminated | truncated)[:-1].any()):
        raise ObservationError(f"{where} continues after its end; give each episode by itself")
    return bool(terminated[-1:].any())


def _part(given: object, name: str, where: str) -> Any:
    found = given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)
    if found is None:
        raise ObservationError(
            f"{where} of type {type(given).__name__} has no {name!r}; an episode has observations, actions, rewards,"
            " terminations and truncations"
        )
    return found


def _flags(given: object, name: str, shape: tuple[int, ...], where: str) -> NDArray[np.bool_]:
    """Return the entry `name` as bool [T]."""
    flags = np.asarray(_part(given, name, where))
    if flags.shape != shape or flags.dtype.kind not in "biuf" or not np.isin(flags, (0, 1)).all():
        raise ObservationError(
            f"{where}: {name} of shape {flags.shape} must be True or False for each of the rewards, whose shape is {shape}"
        )
    return flags.astype(bool)
