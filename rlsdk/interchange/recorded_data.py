"""Recorded episodes of any origin: checked, and put into an agent's replay buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from rlsdk.buffers.episode_file import RecordedEpisode
from rlsdk.errors import ObservationError, SettingsError, UsageError
from rlsdk.records import Features, FinalObservations, Observation, Rollout, StepData
from rlsdk.spaces import Space, choices_of, dtype_of, map_leaves, shape_of
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
    count, room = 0, int(getattr(agent.config, "buffer_size", 0))
    for number, given in enumerate(episodes):
        episode = checked_episode(spaces, given, f"episode {number}")
        count += len(episode.rewards)
        if count > room:
            raise SettingsError(f"the recordings hold more than buffer_size = {room} transitions; raise it")
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


def checked_episode(spaces: tuple[Space, Space], episode: object, where: str) -> RecordedEpisode:
    """An episode of any origin, as `remember` takes them, in the dtypes of `spaces` (of observations, of actions).

    Raises:
        ObservationError: it does not fit the spaces or itself; the message begins with `where`.
    """
    rewards = np.asarray(_part(episode, "rewards", where), np.float32)
    steps = len(rewards)
    observations = _leaves(spaces[0], _part(episode, "observations", where), steps + 1, where)
    actions = _leaves(spaces[1], _part(episode, "actions", where), steps, where)
    if isinstance(episode, RecordedEpisode):
        terminated, masks = episode.terminated, episode.action_masks
    else:
        terminated, masks = _ends_terminated(episode, steps, where), _masks(spaces[1], episode, steps, where)
    if not steps or not np.isfinite(rewards).all():
        raise ObservationError(f"{where}: rewards must be finite numbers, and at least one")
    seed = getattr(episode, "seed", None)
    return RecordedEpisode(
        observations,
        actions,
        torch.from_numpy(rewards),
        terminated,
        masks,
        int(seed) if isinstance(seed, int | np.integer) else None,
    )


def _masks(space: Space, episode: object, steps: int, where: str) -> Tensor | None:
    """The action masks bool [T + 1, A] in the infos of an episode; None where it has none, or the action space no choices."""
    infos = episode.get("infos") if isinstance(episode, Mapping) else getattr(episode, "infos", None)
    found, width = infos.get(MASKS) if isinstance(infos, Mapping) else None, sum(choices_of(space))
    if found is None or not width:
        return None
    masks = torch.from_numpy(np.array(found, bool))
    if masks.shape != (steps + 1, width):
        raise ObservationError(
            f"{where}: infos[{MASKS!r}] has the shape {tuple(masks.shape)}, expected {(steps + 1, width)}: one row for each"
            " observation, one entry for each choice"
        )
    return masks


def _ends_terminated(episode: object, steps: int, where: str) -> bool:
    """Whether the last step ended the task; raises ObservationError when steps before it did, or ran out of time."""
    terminated, truncated = (
        _flags(_part(episode, name, where), steps, where) for name in ("terminations", "truncations")
    )
    if bool((terminated | truncated)[:-1].any()):
        raise ObservationError(f"{where} continues after its end; give each episode by itself")
    return bool(steps and terminated[-1])


def _part(episode: object, name: str, where: str) -> ArrayLike:
    found: ArrayLike | None = episode.get(name) if isinstance(episode, Mapping) else getattr(episode, name, None)
    if found is None:
        raise ObservationError(f"{where} has no {name!r}")
    return found


def _flags(value: ArrayLike, steps: int, where: str) -> Tensor:
    """bool [T]."""
    flags = torch.from_numpy(np.array(value, bool))
    if flags.shape != (steps,):
        raise ObservationError(f"{where}: {tuple(flags.shape)} flags of its end, but {steps} rewards")
    return flags


def _leaves(space: Space, values: object, rows: int, where: str) -> Features:
    """Arrays [rows, ..] as tensors in the dtypes of the space, nested as it is."""

    def convert(path: str, leaf: Space, value: ArrayLike) -> Tensor:
        """[rows, *shape]."""
        array = np.asarray(value)
        if array.shape != (rows, *shape_of(leaf)):
            raise ObservationError(
                f"{where}, {path}: an array of shape {array.shape}, expected {(rows, *shape_of(leaf))}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ObservationError(f"{where}, {path}: not all numbers are finite")
        return torch.from_numpy(array.astype(dtype_of(leaf)))

    try:
        return map_leaves(space, convert, values)
    except (KeyError, IndexError, TypeError) as error:
        raise ObservationError(f"{where} is not nested as the space {space}: {error}") from None
