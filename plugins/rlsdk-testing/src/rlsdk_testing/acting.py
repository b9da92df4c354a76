"""Helpers that call policies for checks and find errors in the actions they return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from rlsdk.agent import Agent
from rlsdk.interfaces import Policy
from rlsdk.records import Act, Observation, StepData
from rlsdk.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    choices_of,
    dtype_of,
    map_leaves,
    shape_of,
)
from rlsdk.tree import leaves, map_tensors
from rlsdk_testing.subject import ACTIONS, Subject

NestedT = TypeVar("NestedT")
GymSpace = spaces.Space[Any]
SHIFTED: dict[str, GymSpace] = {
    "Box": spaces.Box(np.array([[0.5, -4.0]], np.float32), np.array([[0.75, 0.0]], np.float32)),
    "Discrete": spaces.Discrete(5, start=-1),
    "MultiDiscrete": spaces.MultiDiscrete([4, 2], start=[2, -1]),
    "MultiBinary": spaces.MultiBinary((2, 2)),
    "Dict": spaces.Dict({"b": spaces.Discrete(3, start=1), "a": spaces.Box(1.0, 2.0, (1,), np.float32)}),
    "Tuple": spaces.Tuple([spaces.Box(-3.0, -1.0, (1,), np.float32), spaces.Discrete(2, start=7)]),
}
"""Action spaces whose bounds, starts and sizes all differ from each other, so that no value fits two of them by chance."""
SLACK = 1e-5
"""How far an action may exceed its bounds, as a share of the distance between them, because of float32 rounding."""


def observations(agent: Agent, count: int, seed: int, *, first: bool = True) -> Observation:
    """Return `count` random observations [count, ..] from the observation space of the agent."""
    space = agent.observation_space
    space.seed(seed)
    kind = agent.context.observation_space
    # one draw from the space of `count` rows: thousands of draws of one row take longer than what is checked with them
    features = map_leaves(kind, _as_tensor, batch_space(space, count).sample())
    return Observation(features, torch.full((count,), first))


def _as_tensor(_: str, leaf: Space, value: object) -> Tensor:
    return torch.from_numpy(np.array(value, dtype_of(leaf)))


def acting_policies(agent: Agent) -> Iterator[tuple[str, Policy[object, object]]]:
    """Yield (name for messages, policy): the policy that predicts, and the behavior policy if the agent has one."""
    yield "policy.act", agent.parts.policy
    if agent.parts.behavior is not None:
        yield "behavior.act", agent.parts.behavior


def act_on(
    policy: Policy[object, object], observation: Observation, carry: object, seed: int, *, deterministic: bool
) -> Act[object, object]:
    """Call `act` of a policy once, with a new generator that has the seed `seed`."""
    generator = torch.Generator().manual_seed(seed)
    return policy.act(observation, carry, deterministic=deterministic, generator=generator)


def action_spaces(subject: Subject) -> Iterator[GymSpace]:
    """Yield two action spaces of every kind that the manifest lists."""
    for kind in subject.manifest.actions:
        yield from (ACTIONS[kind], SHIFTED[kind])


def may_exceed(agent: Agent, act: Act[object, object]) -> bool:
    """Return whether Box actions of the agent may lie outside their bounds; see `Policy.act`."""
    replayed = agent.parts.buffer is not None and agent.parts.plan.needs_environment
    return not replayed or extra_of(act, "log_prob") is not None


def extra_of(act: Act[object, object] | StepData[object], name: str) -> Tensor | None:
    """Return an entry of the extras, such as `log_prob` [B] or `value` [B]; None if there is no such tensor."""
    extras = act.extras
    found = extras.get(name) if isinstance(extras, Mapping) else getattr(extras, name, None)
    return found if isinstance(found, Tensor) else None


def fault_of(space: Space, action: object, rows: int, *, exceeds: bool, path: str = "the action") -> str | None:
    """Return what is wrong with actions of `rows` rows, nested as `space`; None if they are correct.

    With `exceeds`, Box actions may lie outside their bounds. `path` is the name of the actions in messages.
    """
    if isinstance(space, Dict | Tuple):
        children = space.spaces if isinstance(space, Dict) else dict(enumerate(space.spaces))
        parts = dict(enumerate(action)) if isinstance(action, tuple) and isinstance(space, Tuple) else action
        if not isinstance(parts, Mapping) or set(parts) != set(children):
            found = sorted(map(str, parts)) if isinstance(parts, Mapping) else type(action).__name__
            return f"{path} of a {type(space).__name__} space has {found}, not the parts {sorted(map(str, children))}"
        faults = [
            fault_of(child, parts[key], rows, exceeds=exceeds, path=f"{path}[{key!r}]")
            for key, child in children.items()
        ]
        return next((fault for fault in faults if fault), None)
    if not isinstance(action, Tensor):
        return f"{path} is a {type(action).__name__}, not a tensor"
    return _leaf_fault(space, action, rows, exceeds, path)


def _leaf_fault(space: Space, action: Tensor, rows: int, exceeds: bool, path: str) -> str | None:
    """Return what is wrong with an action tensor [B, *shape] or [B, A]; None if it is correct. See `fault_of`."""
    size = int(np.prod(shape_of(space)))
    if action.requires_grad:
        return f"{path} has a graph; act without gradients"
    if action.shape[:1] != (rows,) or action.numel() != rows * size:
        return f"{path} has shape {tuple(action.shape)} for {rows} rows of shape {shape_of(space)}"
    floating = isinstance(space, Box) and np.dtype(space.dtype).kind == "f"
    if not isinstance(space, MultiBinary) and action.is_floating_point() != floating:
        return f"{path} of a {type(space).__name__} space has dtype {action.dtype}"
    values, (low, high) = action.detach().double().reshape(rows, size).numpy(), _bounds(space)
    if not np.isfinite(values).all():
        return f"{path} is not finite: {values[~np.isfinite(values).all(1)][0]}"
    slack = SLACK * (high - low) if floating else 0.0
    outside = ((values < low - slack) | (values > high + slack) | ((values != values.round()) & (not floating))).any(1)
    if outside.any() and not (exceeds and isinstance(space, Box)):
        return f"{path} {values[outside][0].tolist()} is outside {low.tolist()} .. {high.tolist()}"
    return None


def _bounds(space: Space) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the smallest and the largest value of each element of a space without subspaces."""
    if isinstance(space, Box):
        return space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    if isinstance(space, Discrete):
        return np.array([space.start], float), np.array([space.start + space.n - 1], float)
    if isinstance(space, MultiDiscrete):
        low = np.array(space.start, float)
        return low, low + np.array(space.nvec) - 1
    size = int(np.prod(shape_of(space)))
    return np.zeros(size), np.ones(size)


def chosen(space: Space, action: Any) -> Tensor:
    """Return the chosen values of all discrete choices in an action, counted from 0, int64 [B, number of choices]."""
    if isinstance(space, Dict | Tuple):
        children = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        return torch.cat([chosen(child, action[key]) for key, child in children], 1)
    rows = len(action)
    if isinstance(space, Box):
        return torch.empty(rows, 0, dtype=torch.int64)
    first = torch.from_numpy(_bounds(space)[0]).long()
    values: Tensor = action.reshape(rows, -1).long() - first
    return values


def allowed(space: Space, action: object, mask: Tensor) -> Tensor:
    """Return bool [B]: whether `mask`, bool [B, A], allows every choice of the action in that row."""
    sizes = choices_of(space)
    starts = torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()])
    return mask.gather(1, chosen(space, action) + starts).all(1)


def random_masks(space: Space, rows: int, seed: int) -> Tensor:
    """Return random masks, bool [rows, A]. Each choice has at least one allowed value, and in even rows exactly one."""
    generator, parts = torch.Generator().manual_seed(seed), []
    for size in choices_of(space):
        part = torch.rand(rows, size, generator=generator) < 0.5
        part[::2] = False
        part[torch.arange(rows), torch.randint(size, (rows,), generator=generator)] = True
        parts.append(part)
    return torch.cat(parts, 1)


def row_of(nested: NestedT, row: int) -> NestedT:
    """Return one row [1, ..] of each tensor [B, ..]; 0-d tensors are returned unchanged."""
    return map_tensors(lambda leaf: leaf[row : row + 1] if leaf.dim() else leaf, nested)


def rows_in(nested: object) -> tuple[Tensor, ...]:
    """Return the tensors that have rows, [B, ..], that is all except 0-d ones."""
    return tuple(leaf for leaf in leaves(nested) if leaf.dim())


def near(one: object, two: object) -> bool:
    """Return whether two nested values have equal tensors, up to 1e-5."""
    pairs = list(zip(leaves(one), leaves(two), strict=True))
    return all(a.shape == b.shape and torch.allclose(a.double(), b.double(), atol=1e-5) for a, b in pairs)
