"""Replay memory: a preallocated ring of transitions, sampled uniformly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.buffers import replay_state
from rlsdk.buffers.budget import require_disk
from rlsdk.buffers.frames import stacked, unstacked
from rlsdk.buffers.ring import Ring
from rlsdk.buffers.storage import Empty, FinalPool, OnDisk, allocate, in_memory
from rlsdk.errors import UsageError
from rlsdk.parts import Facts
from rlsdk.records import Observation, Rollout, Transitions
from rlsdk.spaces import choices_of, nbytes

TRIES = 1000
"""Draws before a memory that holds next to nothing but unusable rows is given up."""


class ReplayBuffer:
    """The last `capacity` transitions of all environments together.

    With `shared_observations` an observation is stored once: the successor of a row is the next row of the ring, and only
    the observations that episodes ended with are kept aside. Samples are the same either way, at time limits too. Where
    observations are stacked frames, each frame is stored once, and stacked again in what is sampled; the oldest rows, whose
    first frames are forgotten, are not drawn.

    With `n_steps` a row looks that many steps ahead: its reward is the discounted sum of theirs and its successor what they
    led to. Fewer where the episode ends before, or the newest row is reached. Source: Sutton, Barto 2018, section 7.1; what
    the policy of then did in between is not corrected for.

    With `directory` the rows lie in files below it, mapped into memory: the system keeps what fits and writes the rest.
    """

    def __init__(
        self,
        facts: Facts,
        capacity: int,
        gamma: float,
        *,
        shared_observations: bool = False,
        n_steps: int = 1,
        directory: str | Path | None = None,
    ) -> None:
        """Raises SettingsError or ResourceError: `directory` cannot be written, or has not enough space."""
        self.facts, self.gamma, self.shared = facts, gamma, shared_observations
        self.rows = max(capacity // facts.num_envs, 1)
        self.n_steps = min(n_steps, self.rows)
        self.ring = self.rows + shared_observations  # the shared ring also holds the newest observation
        self.frames = facts.frames if shared_observations else None
        self.space = facts.observation_space if self.frames is None else self.frames.single
        self.head = self.filled = self.written = 0
        self.holes = False
        self.storage: dict[str, Any] = {}
        self.finals: FinalPool | None = None
        self._empty: Empty = in_memory(facts.device) if directory is None else OnDisk(directory, facts.device)
        if directory is not None:
            require_disk(self._size(), directory, "the replay buffer", "lower buffer_size")

    reconfigure = replay_state.reconfigure

    def __len__(self) -> int:
        return self.filled * self.facts.num_envs

    def bytes_required(self) -> int:
        return self._size() if not isinstance(self._empty, OnDisk) else 0

    def _size(self) -> int:
        mask = sum(choices_of(self.facts.action_space)) if self.facts.masks else 0
        observation = nbytes(self.space) + 1 + mask  # features, is_first, a byte per mask entry
        copies = 1 if self.shared else 2
        scalars = 4 + 4 + 1 + (8 if self.shared else 0)  # reward, discount, valid, slot of a final observation
        row = observation * copies + nbytes(self.facts.action_space) + scalars
        return self.ring * self.facts.num_envs * row

    def allocate(self, masks: bool) -> None:
        if self.storage:
            return
        lead, empty = (self.ring, self.facts.num_envs), self._empty

        def observations() -> Observation:
            features = allocate(self.space, lead, empty)
            width = sum(choices_of(self.facts.action_space))
            mask = empty((*lead, width), torch.bool) if masks else None
            return Observation(features, empty(lead, torch.bool), mask)

        self.storage = {
            "observation": observations(),
            "action": allocate(self.facts.action_space, lead, empty),
            "reward": empty(lead, torch.float32),
            "discount": empty(lead, torch.float32),
            "valid": empty(lead, torch.bool),
        }
        if self.shared:
            self.storage["slot"] = empty(lead, torch.int64).fill_(-1)
            self.finals = FinalPool([leaf.flatten(0, 1) for leaf in tree.leaves(self.storage["observation"])])
        else:
            self.storage["next_observation"] = observations()

    @torch.no_grad()
    def extend(self, item: Rollout[Any, Any]) -> None:
        """Append T steps of every environment; the oldest rows make room."""
        if self.facts.ignores_masks and item.steps.observation.action_mask is not None:
            item = _without_masks(item)
        item = item if self.frames is None else unstacked(self.frames, item)
        self.allocate(masks=item.steps.observation.action_mask is not None)
        steps, store = item.steps, self.storage
        count = len(steps.reward)
        where = (self.head + torch.arange(count, device=self.facts.device)) % self.ring
        if self.shared and self.filled:
            self._keep_interrupted(steps.observation)
        _assign(store["observation"], where, steps.observation)
        store["action"][where] = steps.action.to(store["action"].dtype)
        store["reward"][where] = steps.reward
        store["discount"][where] = self.gamma * (~steps.terminated).to(torch.float32)
        store["valid"][where] = steps.valid
        self.holes = self.holes or not bool(steps.valid.all())
        self.head, self.written = (self.head + count) % self.ring, self.written + count
        if self.shared:
            self._remember_finals(where, item)
        else:
            _assign(store["next_observation"], where, _successors(item))
        self.filled = min(self.filled + count, self.rows)

    def _keep_interrupted(self, observation: Observation) -> None:
        """Where an environment was reset in mid-episode, keep what the newest transition led to before it is overwritten."""
        assert self.finals is not None
        held = [leaf[self.head] for leaf in tree.leaves(self.storage["observation"])]
        first = [leaf[0] for leaf in tree.leaves(observation)]
        pairs = zip(held, first, strict=True)
        differs = torch.stack(
            [(old != new).flatten(1).any(1) if old.dim() > 1 else old != new for old, new in pairs]
        ).any(0)
        newest = self.storage["slot"][self.head - 1]
        envs = (differs & (newest < 0)).nonzero().squeeze(-1)
        if len(envs):
            newest[envs] = self.finals.put([leaf[envs] for leaf in held])

    def _remember_finals(self, where: Tensor, item: Rollout[Any, Any]) -> None:
        assert self.finals is not None
        slot = self.storage["slot"]
        touched = torch.cat([where, where.new_tensor([self.head])])
        self.finals.release(slot[touched])
        slot[touched] = -1
        _assign(self.storage["observation"], where.new_tensor([self.head]), _unsqueeze(item.last_observation))
        if finals := item.final_observations:
            slot[where[finals.time], finals.env] = self.finals.put(tree.leaves(finals.observation))

    def sample(self, size: int, generator: Generator) -> Transitions:
        """`size` transitions drawn with replacement; rows are copies, the buffer keeps its own.

        Raises:
            UsageError: the buffer is empty.
        """
        return self.at(self.draw(size, generator))

    def draw(self, size: int, generator: Generator) -> Tensor:
        """Flat positions int64 [size] of transitions, each equally likely; raises as `sample`."""
        if not self.filled:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        index = self._draw(size, generator)
        if not self.holes and self.frames is None:
            return index
        for _ in range(TRIES):
            usable = self.usable(index)
            if bool(usable.all()):
                return index
            index = torch.where(usable, index, self._draw(size, generator))
        raise UsageError("the replay buffer holds hardly anything that can be sampled; enlarge buffer_size")

    def usable(self, index: Tensor) -> Tensor:
        """bool [N]: whether each of the flat positions int64 [N] is no filler row, and none of its frames is forgotten."""
        valid: Tensor = self._flat("valid")[index]
        return valid if self.frames is None else valid & self._history(index)[1]

    def _history(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """See `Ring.history`."""
        assert self.frames is not None
        return self._place.history(index, self.frames.count, self.oldest)

    @property
    def oldest(self) -> int:
        """The first row of those that are remembered, where observations are shared."""
        return (self.head + 1) % self.ring if self.filled == self.rows else 0

    @property
    def _place(self) -> Ring:
        return Ring(self.ring, self.facts.num_envs, self._flat("observation").is_first)

    def _draw(self, size: int, generator: Generator) -> Tensor:
        envs = self.facts.num_envs
        index = torch.randint(len(self), (size,), generator=generator, device=self.facts.device)
        if self.shared and self.filled == self.rows:  # skip the row that only holds the newest observation
            index = index + envs * (index >= self.head * envs)
        return index

    def _flat(self, name: str) -> Any:
        return tree.map_tensors(lambda leaf: leaf.flatten(0, 1), self.storage[name])

    def at(self, index: Tensor) -> Transitions:
        """The transitions at flat positions int64 [N] (row * num_envs + env)."""

        def take(name: str, at: Tensor) -> Any:
            return tree.map_tensors(lambda leaf: leaf.flatten(0, 1).index_select(0, at), self.storage[name])

        reward, discount, last = take("reward", index), take("discount", index), index
        if self.n_steps > 1:
            columns = self._flat("reward"), self._flat("discount"), self._flat("valid")
            newest = (self.head - 1) % self.ring
            reward, discount, last = self._place.ahead(index, self.n_steps, newest, columns)
        if self.shared:
            assert self.finals is not None
            following = take("observation", self._place.after(last))
            self.finals.patch(following, take("slot", last))
        else:
            following = take("next_observation", last)
        observation = take("observation", index)
        if self.frames is not None:
            history = self._history(index)[0], self._history(last)[0]
            stored = self._flat("observation").features
            observation, following = stacked(self.frames, stored, history, observation, following)
        return Transitions(observation, take("action", index), reward, discount, following, index)

    def state_dict(self) -> dict[str, Any]:
        return replay_state.taken(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` took out; raises as `replay_state.put_back`."""
        replay_state.put_back(self, state)


def _assign(storage: Any, where: Tensor, value: Any) -> None:
    for target, source in zip(tree.leaves(storage), tree.leaves(value), strict=True):
        target[where] = source


def _unsqueeze(value: Any) -> Any:
    return tree.map_tensors(lambda leaf: leaf.unsqueeze(0), value)


def _without_masks(item: Rollout[Any, Any]) -> Rollout[Any, Any]:
    """The same steps, as in an environment that has no masks."""

    def bare(observation: Observation) -> Observation:
        return replace(observation, action_mask=None)

    finals = item.final_observations
    return replace(
        item,
        steps=replace(item.steps, observation=bare(item.steps.observation)),
        last_observation=bare(item.last_observation),
        final_observations=None if finals is None else replace(finals, observation=bare(finals.observation)),
    )


def _successors(item: Rollout[Any, Any]) -> Observation:
    """[T, B] the observation each step led to: the next row, or the one its episode ended with."""
    following = tree.map_tensors(
        lambda rows, last: torch.cat([rows[1:], last.unsqueeze(0)]), item.steps.observation, item.last_observation
    )
    if finals := item.final_observations:
        for leaf, final in zip(tree.leaves(following), tree.leaves(finals.observation), strict=True):
            leaf[finals.time, finals.env] = final
    return following
