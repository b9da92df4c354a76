"""Recorded episodes of any origin: checked, and put into an agent's replay buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.buffers.recorded_episode import RecordedEpisode, checked_episode
from rlsdk.errors import ObservationError, SettingsError, UsageError
from rlsdk.records import Features, FinalObservations, Observation, Rollout, StepData
from rlsdk.spaces import Space, choices_of
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.agent import Agent

MASKS = "action_mask"
"""The entry of `infos` that holds action masks, as in gymnasium."""


def remember(agent: Agent, episodes: Iterable[object]) -> int:
    """Put recorded episodes into the replay buffer of an agent; returns how many transitions that were.

    Args:
        agent: of an off-policy algorithm with one environment; `rlsdk.environments.RecordedOnly` stands in for it where there
            are only its spaces. With `normalize` its statistics take the observations in.
        episodes: those of a data set (`rlsdk.buffers.open_episodes(path)`), Minari's (`dataset.iterate_episodes()`), or
            anything with attributes or keys `observations` [T + 1, ..], nested as the space is, `actions` [T, ..], `rewards`
            [T], `terminations` [T], `truncations` [T], and perhaps `infos` with `action_mask` bool [T + 1, A]. An episode whose
            last step is neither counts as truncated.

    Raises:
        UsageError: the algorithm has no replay buffer, or several environments. SettingsError: more transitions than
        `buffer_size`. ObservationError: lengths or shapes that do not fit, or numbers that are not finite.
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
    for episode in checked:  # all of them, or none
        rollout = as_rollout(episode, str(agent.device), agent.parts.behavior_policy.initial_carry(1))
        buffer.extend(rollout if normalizer is None else normalizer.rollout(rollout))
    return count


def as_rollout(episode: RecordedEpisode, device: str, carry: Features = ()) -> Rollout[Features, tuple[()]]:
    """An episode as the loop would have collected it from one environment: leaves [T, 1, ..], which ends with it."""
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
    """An episode of any origin, as `remember` takes them, in the dtypes of `spaces` (of observations, of actions).

    Raises:
        ObservationError: it does not fit the spaces or itself; the message begins with `where`.
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
    """The action masks in the infos of an episode; None where it has none, or the action space no choices."""
    infos = given.get("infos") if isinstance(given, Mapping) else getattr(given, "infos", None)
    return infos.get(MASKS) if isinstance(infos, Mapping) and choices_of(space) else None


def _ends_terminated(given: object, shape: tuple[int, ...], where: str) -> bool:
    """Whether the last step ended the task; raises ObservationError when steps before it did, or ran out of time.

    `shape`: of the rewards.
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
    """bool [T]."""
    flags = np.asarray(_part(given, name, where))
    if flags.shape != shape or flags.dtype.kind not in "biuf" or not np.isin(flags, (0, 1)).all():
        raise ObservationError(
            f"{where}: {name} of shape {flags.shape} must be True or False for each of the rewards, whose shape is {shape}"
        )
    return flags.astype(bool)
