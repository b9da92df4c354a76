"""Splits stacked observations into frames, so that each frame is stored once, and stacks frames again."""

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
    """The rollout with only the newest frame of every observation."""

    def newest(observation: Observation) -> Observation:
        return replace(observation, features=frames.newest(observation.features))

    finals = item.final_observations
    return replace(
        item,
        steps=replace(item.steps, observation=newest(item.steps.observation)),
        last_observation=newest(item.last_observation),
        final_observations=finals and replace(finals, observation=newest(finals.observation)),
    )


def stacks(stored: Features, history: tuple[Tensor, Tensor], following: Tensor) -> tuple[Features, Features]:
    """(frames of observations, frames of next observations), each [N, count, *single]. The two may share memory, because most
    frames are in both with one-step targets.

    Args:
        stored: every frame of the buffer, [rows, *single].
        history: two positions int64 [N, count]: of the frames up to each row, and up to the row before the next observation.
        following: positions int64 [N] of the newest frames of the next observations.
    """
    newest = following.unsqueeze(1)
    if history[0] is history[1]:  # one step apart: both are windows of the same count + 1 frames, which are copied once
        longer = _select(stored, torch.cat([history[0], newest], 1))
        return tree.map_tensors(lambda leaf: leaf[:, :-1], longer), tree.map_tensors(lambda leaf: leaf[:, 1:], longer)
    return _select(stored, history[0]), _select(stored, torch.cat([history[1][:, 1:], newest], 1))


def _select(stored: Features, positions: Tensor) -> Features:
    """The rows [N, count, ..] of leaves [rows, ..] at `positions` int64 [N, count]; faster than indexing with a matrix."""
    flat = positions.flatten()
    return tree.map_tensors(lambda leaf: leaf.index_select(0, flat).view(*positions.shape, *leaf.shape[1:]), stored)
