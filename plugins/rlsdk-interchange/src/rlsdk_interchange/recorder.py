"""Split the steps of vector environments into episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.records import EnvStep, Features, Observation
from rlsdk.spaces import Space
from rlsdk_datasets import RecordedEpisode
from rlsdk_interchange.bounds import within_bounds


@dataclass(slots=True)
class _Running:
    """The unfinished episode of one environment: a list with one entry per step for each part."""

    observations: list[Features]
    masks: list[Tensor | None]
    actions: list[Features]
    rewards: list[Tensor]
    seed: int | None


class Recorder:
    """Assembles the steps of B environments into episodes. The rows are copied to the CPU."""

    def __init__(self, observation: Observation, action_space: Space, seeds: Sequence[int | None] = ()) -> None:
        """
        Args:
            observation: the current observation of B environments. Environments in the middle of an episode are recorded from
                their next episode on.
            action_space: the space to whose bounds actions are clipped, as the environment does.
            seeds: the seed of the reset of each of the B environments; () if unknown.
        """
        self.action_space, count = action_space, len(observation.is_first)
        begins, first = observation.is_first.tolist(), [*seeds] if len(seeds) == count else [None] * count
        self._running = [_begun(observation, row, first[row]) if begins[row] else None for row in range(count)]

    def step(self, action: Features, step: EnvStep) -> list[tuple[int, RecordedEpisode]]:
        """Add the actions [B, ..] and the resulting step. Return (environment, episode) of each episode that ended."""
        ended = (step.terminated | step.truncated).nonzero().squeeze(-1).tolist()
        played = within_bounds(self.action_space, tree.map_tensors(lambda leaf: leaf.cpu(), action))
        whole: list[tuple[int, RecordedEpisode]] = []
        for row in step.valid.nonzero().squeeze(-1).tolist():
            if (running := self._running[row]) is None:
                continue
            running.actions.append(_row(played, row))
            running.rewards.append(step.reward[row].cpu())
            if row not in ended:
                _see(running, step.observation, row)
                continue
            assert step.final_observation is not None
            _see(running, step.final_observation, ended.index(row))
            whole.append((row, _whole(running, bool(step.terminated[row]))))
        for row in {*ended, *(~step.valid).nonzero().squeeze(-1).tolist()}:
            self._running[row] = _begun(step.observation, row, None)
        return whole


def _row(node: Features, row: int) -> Features:
    return tree.map_tensors(lambda leaf: leaf[row].cpu().clone(), node)


def _begun(observation: Observation, row: int, seed: int | None) -> _Running:
    running = _Running([], [], [], [], seed)
    _see(running, observation, row)
    return running


def _see(running: _Running, observation: Observation, row: int) -> None:
    """Append the observation of one environment, row `row` of [B]."""
    running.observations.append(_row(observation.features, row))
    mask = observation.action_mask
    running.masks.append(None if mask is None else mask[row].cpu().clone())


def _whole(running: _Running, terminated: bool) -> RecordedEpisode:
    """Return the episode with its rows stacked."""

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
