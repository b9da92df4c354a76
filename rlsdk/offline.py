"""Recorded experience into an agent's replay memory: learning without an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rlsdk.errors import ObservationError, SettingsError, UsageError
from rlsdk.records import FinalObservations, Observation, Rollout, StepData
from rlsdk.spaces import Space, dtype_of, map_leaves, shape_of
from rlsdk.tree import map_tensors

if TYPE_CHECKING:
    from rlsdk.agent import Agent


def remember(agent: Agent, episodes: Iterable[Any]) -> int:
    """Put recorded episodes into the replay memory of an agent; returns how many transitions that were.

    Args:
        agent: of an off-policy algorithm with one environment; `rlsdk.environments.RecordedOnly` stands in for it where there
            are only its spaces. With `normalize` its statistics take the observations in.
        episodes: Minari's (`dataset.iterate_episodes()`), or anything with attributes or keys `observations` [T + 1, ..],
            nested as the space is, `actions` [T, ..], `rewards` [T], `terminations` [T] and `truncations` [T]. An episode whose
            last step is neither counts as truncated.

    Raises:
        UsageError: the algorithm has no replay memory, or several environments. SettingsError: more transitions than
        `buffer_size`. ObservationError: lengths or shapes that do not fit, or numbers that are not finite.
    """
    buffer = agent.parts.buffer
    if buffer is None:
        raise UsageError(f"{agent.spec.id} has no replay memory to fill")
    if agent.facts.num_envs != 1:
        raise UsageError(f"recorded episodes need an agent with one environment, this one has {agent.facts.num_envs}")
    count, room = 0, int(getattr(agent.config, "buffer_size", 0))
    for number, episode in enumerate(episodes):
        rollout = _rollout(agent, episode, f"episode {number}")
        count += len(rollout.steps.reward)
        if count > room:
            raise SettingsError(f"the recordings hold more than buffer_size = {room} transitions; raise it")
        normalizer = agent.preparation.normalizer
        if normalizer is not None:
            normalizer.observe(map_tensors(lambda leaf: leaf[:, 0], rollout.steps.observation.features))
        buffer.extend(rollout)
    return count


def _rollout(agent: Agent, episode: Any, where: str) -> Rollout[Any, Any]:
    """One episode as the loop would have collected it."""
    rewards = np.asarray(_part(episode, "rewards", where), np.float32)
    steps = len(rewards)
    features = _leaves(agent.facts.observation_space, _part(episode, "observations", where), steps + 1, where)
    action = _leaves(agent.facts.action_space, _part(episode, "actions", where), steps, where)
    terminated = _flags(_part(episode, "terminations", where), steps, where)
    truncated = _flags(_part(episode, "truncations", where), steps, where)
    if not steps or not np.isfinite(rewards).all():
        raise ObservationError(f"{where}: rewards must be finite numbers, and at least one")
    truncated[-1] |= ~terminated[-1]
    if bool((terminated | truncated)[:-1].any()):
        raise ObservationError(f"{where} goes on after its end; give each episode by itself")
    first = torch.zeros(steps + 1, 1, dtype=torch.bool)
    first[0] = True
    seen = Observation(map_tensors(lambda leaf: leaf.unsqueeze(1), features), first)
    moved = map_tensors(lambda leaf: leaf.to(agent.device), seen)
    before, last = (map_tensors(lambda leaf, at=at: leaf[at], moved) for at in (slice(0, -1), -1))
    end = torch.tensor([steps - 1], device=agent.device)
    data = StepData(
        before,
        map_tensors(lambda leaf: leaf.unsqueeze(1).to(agent.device), action),
        torch.from_numpy(rewards).unsqueeze(1).to(agent.device),
        terminated.unsqueeze(1).to(agent.device),
        truncated.unsqueeze(1).to(agent.device),
        torch.ones(steps, 1, dtype=torch.bool, device=agent.device),
        (),
    )
    finals = FinalObservations(end, torch.zeros_like(end), last)
    carry = agent.parts.collector.initial_carry(1)
    return Rollout(data, carry, last, carry, finals)


def _part(episode: Any, name: str, where: str) -> Any:
    found = episode.get(name) if isinstance(episode, Mapping) else getattr(episode, name, None)
    if found is None:
        raise ObservationError(f"{where} has no {name!r}")
    return found


def _flags(value: Any, steps: int, where: str) -> Tensor:
    flags = torch.from_numpy(np.array(value, bool))
    if flags.shape != (steps,):
        raise ObservationError(f"{where}: {tuple(flags.shape)} flags of its end, but {steps} rewards")
    return flags


def _leaves(space: Space, values: Any, rows: int, where: str) -> Any:
    """Arrays [rows, ..] as tensors in the dtypes of the space, nested as it is."""

    def convert(path: str, leaf: Space, value: Any) -> Tensor:
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
