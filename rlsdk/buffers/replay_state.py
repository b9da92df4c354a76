"""What a replay memory holds, taken out and put back; what comes from a file is looked at first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlsdk import tree
from rlsdk.errors import UsageError
from rlsdk.spaces import Discrete, MultiDiscrete, leaf_spaces

if TYPE_CHECKING:
    from rlsdk.buffers.replay import ReplayBuffer


def taken(buffer: ReplayBuffer) -> dict[str, Any]:
    """The filled rows, oldest position first as they stand in the ring, and the ring's position."""
    used = buffer.ring if buffer.filled == buffer.rows else min(buffer.filled + buffer.shared, buffer.ring)
    if buffer.shared and buffer.storage:
        for name in ("action", "reward", "discount", "valid"):  # of this row only the observation means anything
            tree.map_tensors(lambda leaf: leaf[buffer.head].zero_(), buffer.storage[name])
    leaves = {
        name: {key: leaf[:used] for key, leaf in tree.number(value).items()} for name, value in buffer.storage.items()
    }
    pool = tree.number(tuple(buffer.finals.leaves)) if buffer.finals else {}
    position = {"head": buffer.head, "filled": buffer.filled, "written": buffer.written, "holes": buffer.holes}
    return {**position, "leaves": leaves, "finals": pool}


def put_back(buffer: ReplayBuffer, state: Mapping[str, Any]) -> None:
    """Put back what `taken` took out; the buffer must have been built with the same size and spaces.

    Raises:
        UsageError: it was not.
    """
    if not state["filled"]:
        buffer.head = buffer.filled = buffer.written = 0
        return
    plain = len(list(leaf_spaces(buffer.facts.observation_space))) + 1  # features and is_first
    buffer.allocate(masks=len(state["leaves"]["observation"]) > plain)
    for name, stored in state["leaves"].items():
        for leaf, value in zip(tree.leaves(buffer.storage.get(name)), tree.numbered(stored), strict=True):
            if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) > len(leaf):
                raise UsageError(
                    f"the stored replay buffer holds {name} of shape {tuple(value.shape)}, this agent's buffer"
                    f" {tuple(leaf.shape)}; build the agent with the same buffer_size, n_envs and optimize_memory_usage"
                )
            leaf[: len(value)] = value
    buffer.head, buffer.filled, buffer.holes = int(state["head"]), int(state["filled"]), bool(state["holes"])
    buffer.written = int(state["written"])
    used = len(state["leaves"]["reward"]["000"])
    if buffer.written < buffer.filled or buffer.written % buffer.ring != buffer.head:
        raise UsageError(f"the stored replay buffer stands at row {buffer.head} after {buffer.written} rows")
    if not (0 <= buffer.head < buffer.ring and 0 < buffer.filled <= min(buffer.rows, used)):
        raise UsageError(
            f"the stored replay buffer stands at row {buffer.head} with {buffer.filled} of {used} rows filled"
        )
    _require_actions(buffer, used)
    discount = buffer.storage["discount"][:used]
    if bool(((discount != 0.0) & (discount != buffer.gamma)).any()):  # filled under another gamma
        discount.copy_((discount > 0.0).to(discount.dtype) * buffer.gamma)
    if buffer.finals is not None:
        buffer.finals.leaves = [leaf.clone() for leaf in tree.numbered(state["finals"])]
        slots = set(buffer.storage["slot"][:used].flatten().tolist()) - {-1}
        pool = range(len(buffer.finals.leaves[0]))
        if slots and not (min(slots) in pool and max(slots) in pool):
            raise UsageError(f"the stored replay buffer refers to observations it does not hold: {max(slots)}")
        buffer.finals.free = [slot for slot in pool if slot not in slots]


def reconfigure(buffer: ReplayBuffer, config: Any) -> None:
    """Take `gamma` and `n_steps` of new settings, for the rows that are stored too.

    Raises:
        UsageError: rows were stored with gamma = 0, which does not say which of them ended an episode.
    """
    gamma = float(config.gamma)
    if gamma != buffer.gamma and buffer.storage:
        if buffer.gamma == 0.0 and buffer.filled:
            raise UsageError(
                "gamma cannot change from 0: the rows of the replay memory do not say which of them ended an episode"
            )
        discount = buffer.storage["discount"]
        discount.copy_((discount > 0.0).to(discount.dtype) * gamma)
    buffer.gamma, buffer.n_steps = gamma, min(getattr(config, "n_steps", buffer.n_steps), buffer.rows)


def _require_actions(buffer: ReplayBuffer, used: int) -> None:
    """Losses pick by them: refuse those outside the space, which no environment could have been given."""
    spaces = [leaf for _, leaf in leaf_spaces(buffer.facts.action_space)]
    for space, stored in zip(spaces, tree.leaves(buffer.storage["action"]), strict=True):
        if isinstance(space, Discrete | MultiDiscrete):
            counts = torch.as_tensor(space.n if isinstance(space, Discrete) else space.nvec)
            value = stored[:used] - torch.as_tensor(space.start)
            value[buffer.head : buffer.head + buffer.shared] = 0  # a row that only holds the newest observation
            if bool(((value < 0) | (value >= counts)).any()):
                raise UsageError(f"the stored replay buffer holds actions outside {space}")
