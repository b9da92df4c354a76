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
    """Observations and their successors, stacked. Both may share memory: with one-step targets they have most frames in common.

    Args:
        frames: how.
        stored: every frame of the memory, [rows, *single].
        history: positions int64 [N, count] of the frames up to each row, and up to the last row before its successor.
        now: the newest frames, [N, *single].
        following: the successors' newest frames, [N, *single], which need not stand among the stored ones.
    """
    if history[0] is history[1]:  # one step apart: both are windows of the same count + 1 frames, copied once
        longer = _followed(stored, torch.cat([history[0], history[0][:, -1:]], 1), following.features)
        before = tree.map_tensors(lambda leaf: leaf[:, :-1], longer)
        after = tree.map_tensors(lambda leaf: leaf[:, 1:], longer)
    else:
        before = tree.map_tensors(lambda leaf: _select(leaf, history[0]), stored)
        after = _followed(stored, history[1].roll(-1, 1), following.features)
    return replace(now, features=frames.joined(before)), replace(following, features=frames.joined(after))


def _followed(stored: Features, positions: Tensor, newest: Features) -> Features:
    """The frames [N, count, *single] at `positions` int64 [N, count], with `newest` [N, *single] in place of the last one."""

    def followed(leaf: Tensor, last: Tensor) -> Tensor:
        found = _select(leaf, positions)
        found[:, -1] = last
        return found

    return tree.map_tensors(followed, stored, newest)


def _select(leaf: Tensor, positions: Tensor) -> Tensor:
    """Rows [N, count, ..] of `leaf` [rows, ..] at `positions` int64 [N, count]: faster than indexing with a matrix."""
    return leaf.index_select(0, positions.flatten()).view(*positions.shape, *leaf.shape[1:])
