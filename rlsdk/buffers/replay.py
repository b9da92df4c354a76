"""The replay buffer: a preallocated ring buffer of transitions that are sampled uniformly."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self, TypedDict, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.buffers import replay_state
from rlsdk.buffers.columns import NAMED, PLAIN, Columns
from rlsdk.buffers.documented_members import explains_documented_members
from rlsdk.buffers.frame_history import FrameHistory
from rlsdk.buffers.row_storage import RowStorage
from rlsdk.errors import UsageError
from rlsdk.interfaces import BuildContext, State
from rlsdk.records import Observation, Rollout, Transitions

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
TRIES = 1000
"""The number of attempts to sample before a buffer of almost only unusable rows raises an error."""


class ReplayOptions(TypedDict, total=False):
    """The options of `ReplayBuffer` that buffers which contain one accept and pass to it."""

    shared_observations: bool
    directory: str | Path | None


class NStepOptions(ReplayOptions, total=False):
    """The options of `ReplayOptions`, and `n_steps` for buffers that support transitions of several steps."""

    n_steps: int


class HasGamma(Protocol):
    """Settings with a discount factor."""

    @property
    def gamma(self) -> float: ...


@explains_documented_members
class ReplayBuffer:
    """Stores the last `capacity` transitions of all environments together and samples them uniformly.

    With `shared_observations` an observation is stored once: the next observation of a row is the observation of the next row.
    Only the last observations of episodes are stored separately. The option does not change samples, not even at time limits.
    It also stores each frame of stacked observations once and stacks frames when it samples. The oldest rows are not sampled if
    their first frames have been overwritten.

    With `n_steps` a transition spans that many steps: its reward is their discounted sum, its next observation the one after
    them. It spans fewer steps where the episode ends or the newest row is reached. Source: Sutton, Barto 2018, section 7.1,
    without a correction for actions of older policies.

    With `directory` the rows are stored in memory-mapped files below it; the operating system caches parts of them.

    `with_columns` adds columns: named extras of the policy, which samples then contain, and the columns that
    `rlsdk.buffers.SequenceReplay` needs. Extras take memory, so none are stored by default.
    """

    def __init__(
        self,
        context: BuildContext,
        capacity: int,
        gamma: float,
        *,
        shared_observations: bool = False,
        n_steps: int = 1,
        directory: str | Path | None = None,
    ) -> None:
        """Raises SettingsError if `directory` cannot be written, and ResourceError if it has not enough free space."""
        self.context = context
        self.stored = RowStorage(
            context, capacity, gamma, shared=shared_observations, directory=directory, columns=PLAIN
        )
        self.n_steps = min(n_steps, self.stored.rows)
        self.history = FrameHistory(self.stored)

    def with_columns(self, columns: Columns) -> Self:
        """Store `columns` too, and return this buffer; call it before the first row is stored."""
        self.stored.columns = columns
        return self

    @property
    def gamma(self) -> float:
        """The discount factor."""
        return self.stored.gamma

    def reconfigure(self, config: HasGamma) -> None:
        """Use `gamma` and `n_steps` of new settings, also for rows that are already stored.

        Raises:
            UsageError: rows were stored with gamma = 0, so their discounts do not mark the ends of episodes.
        """
        replay_state.use_gamma(self.stored, float(config.gamma))
        self.n_steps = min(getattr(config, "n_steps", self.n_steps), self.stored.rows)

    def __len__(self) -> int:
        return len(self.stored)

    def bytes_required(self) -> int:
        return self.stored.bytes_required()

    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; they replace the oldest rows of a full buffer."""
        self.stored.extend(item)

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions with replacement; the tensors are copies.

        Raises:
            UsageError: the buffer is empty.
        """
        return self.at(self.draw(size, generator))

    def sample_several(self, count: int, size: int, generator: Generator) -> Transitions:
        """See `rlsdk.interfaces.SamplesSeveral`; raises like `sample`."""
        return self.at(torch.cat([self.draw(size, generator) for _ in range(count)]))

    def draw(self, size: int, generator: Generator) -> Tensor:
        """Draw the flat positions int64 [size] of transitions, each with equal probability; raises like `sample`."""
        if not self.stored.filled:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        index = self._draw(size, generator)
        if not self.stored.holes and self.stored.frames is None:
            return index
        return self._without_holes(index, generator)

    def _without_holes(self, index: Tensor, generator: Generator) -> Tensor:
        """The positions int64 [N], where those that cannot be sampled have been drawn again."""
        for _ in range(TRIES):
            usable = self.usable(index)
            if bool(usable.all()):
                return index
            index = torch.where(usable, index, self._draw(len(index), generator))
        raise UsageError("the replay buffer holds hardly anything that can be sampled; enlarge buffer_size")

    def _draw(self, size: int, generator: Generator) -> Tensor:
        """Draw flat positions int64 [size], which may be those of filler rows."""
        stored, envs = self.stored, self.context.num_envs
        index = torch.randint(len(stored), (size,), generator=generator, device=self.context.device)
        if stored.shared and stored.filled == stored.rows:  # skip the row that holds only the newest observation
            index = index + envs * (index >= stored.head * envs)
        return index

    def usable(self, index: Tensor) -> Tensor:
        """Whether each flat position int64 [N] can be sampled, bool [N]: not a filler row, and all its frames are stored."""
        valid: Tensor = self.stored.take("valid", index)
        return valid if self.stored.frames is None else valid & self.history.of(index)[1]

    def at(self, index: Tensor) -> Transitions:
        """The transitions at flat positions int64 [N] (row * num_envs + env)."""
        stored = self.stored
        reward, discount, last = stored.take("reward", index), stored.take("discount", index), index
        if self.n_steps > 1:
            columns = stored.flat("reward"), stored.flat("discount"), stored.flat("valid")
            newest = (stored.head - 1) % stored.ring
            reward, discount, last = stored.walk.ahead(index, self.n_steps, newest, columns)
        observation, following = self.observations(index, last)
        named = {name: stored.take(name, index) for name in NAMED if name in stored.storage}
        return Transitions(observation, stored.take("action", index), reward, discount, following, index, **named)

    def observations(self, index: Tensor, last: Tensor) -> tuple[Observation, Observation]:
        """(observations [N] at flat positions `index` int64 [N], next observations [N] of the steps at `last` int64 [N])."""
        if self.stored.frames is not None:
            return self.history.observations(index, last)
        return self.stored.take("observation", index), self.stored.successors(last)

    def state_dict(self) -> State:
        return replay_state.taken(self.stored)

    def load_state_dict(self, state: State) -> None:
        """Restore the state that `state_dict` returned; raises like `replay_state.put_back`."""
        replay_state.put_back(self.stored, state)
        self.history = FrameHistory(self.stored)
