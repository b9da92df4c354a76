"""Stacked observations taken apart for storing each frame once, and put together again."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.interfaces import Frames
from rlsdk.records import Features, Observation, Rollout

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


def newest_frames(frames: Frames, item: Rollout[CarryT, ExtrasT]) -> Rollout[CarryT, ExtrasT]:
    """The rollout with the newest frame of every observation only."""

    def newest(observation: Observation) -> Observation:
        return replace(observation, features=frames.newest(observation.features))

    finals = item.final_observations
    return replace(
        item,
        steps=replace(item.steps, observation=newest(item.steps.observation)),
        last_observation=newest(item.last_observation),
        final_observations=finals and replace(finals, observation=newest(finals.observation)),
    )


def stacked(
    frames: Frames, stored: Features, history: tuple[Tensor, Tensor], now: Observation, following: Observation
) -> tuple[Observation, Observation]:
    """Observations and their successors, stacked.

    Args:
        frames: how.
        stored: every frame of the memory, [rows, *single].
        history: positions int64 [N, count] of the frames up to each row, and up to the last row before its successor.
        now: the newest frames, [N, *single].
        following: the successors' newest frames, [N, *single], which need not stand among the stored ones.
    """
    before = tree.map_tensors(lambda leaf: _select(leaf, history[0]), stored)
    shifted = history[1].roll(-1, 1)  # the last frame is overwritten

    def append(leaf: Tensor, newest: Tensor) -> Tensor:
        """Frames [N, count, *single]."""
        frames = _select(leaf, shifted)
        frames[:, -1] = newest
        return frames

    after = tree.map_tensors(append, stored, following.features)
    return replace(now, features=frames.joined(before)), replace(following, features=frames.joined(after))


def _select(leaf: Tensor, positions: Tensor) -> Tensor:
    """Rows [N, count, ..] of `leaf` [rows, ..] at `positions` int64 [N, count]: faster than indexing with a matrix."""
    return leaf.index_select(0, positions.flatten()).unflatten(0, positions.shape)
