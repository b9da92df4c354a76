"""The replay buffer: transitions in a ring, sampled uniformly or by priority, and its state for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.buffers.columns import MEANINGLESS, NAMED, PLAIN, Columns
from rlsdk.buffers.rows import Rows
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import BuildContext, State, explain_names
from rlsdk.interfaces.abilities import require_inside
from rlsdk.records import Rollout, Transitions
from rlsdk.runtime.process import count_in
from rlsdk.settings.off_policy import OffPolicyConfig
from rlsdk.spaces import Space, leaf_spaces, map_leaves

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


@explain_names
class ReplayBuffer(Rows):
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
        super().__init__(context, capacity, gamma, shared=shared_observations, directory=directory, columns=PLAIN)
        # more steps than rows would reach around the ring
        self.n_steps = min(n_steps, self.rows)

    def with_columns(self, columns: Columns) -> Self:
        """Store `columns` too, and return this buffer; call it before the first row is stored."""
        self.columns = columns
        return self

    def reconfigure(self, config: OffPolicyConfig) -> None:
        """Use `gamma` and `n_steps` of new settings, also for rows that are already stored.

        Raises:
            UsageError: rows were stored with gamma = 0, so their discounts do not mark the ends of episodes.
        """
        # stored discounts hold gamma, so they change with it
        use_gamma(self, float(config.gamma))
        self.n_steps = min(getattr(config, "n_steps", self.n_steps), self.rows)

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions with replacement; the tensors are copies.

        Raises:
            UsageError: the buffer is empty.
        """
        return self.at(self.draw(size, generator))

    def sample_several(self, count: int, size: int, generator: Generator) -> Transitions:
        """See `rlsdk.interfaces.BufferAbilities`; raises like `sample`."""
        # drawn one batch after another, so that the random numbers are those of single samples
        return self.at(torch.cat([self.draw(size, generator) for _ in range(count)]))

    def draw(self, size: int, generator: Generator) -> Tensor:
        """Draw the flat positions int64 [size] of transitions, each with equal probability; raises like `sample`."""
        if not self.filled:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        envs = self.context.num_envs
        index: Tensor | None = None
        usable = torch.zeros(0)
        for _ in range(TRIES):
            drawn = torch.randint(self.filled * envs, (size,), generator=generator, device=self.context.device)
            if self.shared and self.filled == self.rows:  # skip the row that holds only the newest observation
                drawn = drawn + envs * (drawn >= self.head * envs)
            # unusable positions alone are drawn again, so that usable rows stay equally likely
            index = drawn if index is None else torch.where(usable, index, drawn)
            if not self.holes and self.frames is None:
                return index
            usable = self.usable(index)
            if bool(usable.all()):
                return index
        raise UsageError("almost no row of the replay buffer can be sampled; enlarge buffer_size")

    def usable(self, index: Tensor) -> Tensor:
        """Whether each flat position int64 [N] can be sampled, bool [N]: not a padding row, and all its frames are stored."""
        valid: Tensor = self.take("valid", index)
        return valid if self.frames is None else valid & self.history(index)[1]

    def at(self, index: Tensor) -> Transitions:
        """The transitions at flat positions int64 [N] (row * num_envs + env)."""
        reward, discount, last = self.take("reward", index), self.take("discount", index), index
        if self.n_steps > 1:
            columns = self.flat("reward"), self.flat("discount"), self.flat("valid")
            # later rows are not collected yet
            newest = (self.head - 1) % self.ring
            reward, discount, last = self.walk.ahead(index, self.n_steps, newest, columns)
        observation, following = self.pairs(index, last)
        named = {name: self.take(name, index) for name in NAMED if name in self.storage}
        return Transitions(observation, self.take("action", index), reward, discount, following, index, **named)

    def state_dict(self) -> State:
        return taken(self)

    def load_state_dict(self, state: State) -> None:
        """Restore the state that `state_dict` returned; raises like `replay_state.put_back`."""
        put_back(self, state)


MAX_NAMED = 1000
"""The largest number of names of extras, or of entries of `info`, in a file."""


def taken(rows: Rows) -> dict[str, object]:
    """The state of a buffer: its filled rows in the order of the ring, the final observations, and the position in the ring."""
    used = rows.ring if rows.filled == rows.rows else min(rows.filled + rows.shared, rows.ring)
    if rows.shared and rows.storage:
        for name in set(MEANINGLESS) & set(rows.storage):
            # these columns of the row with the newest observation are uninitialized memory; zeros give equal files
            tree.map_tensors(lambda leaf: leaf[rows.head].zero_(), rows.storage[name])
    leaves = {
        name: {key: leaf[:used] for key, leaf in (value if name in NAMED else tree.number(value)).items()}
        for name, value in rows.storage.items()
    }
    pool = tree.number(tuple(rows.finals.leaves)) if rows.finals else {}
    position = {"head": rows.head, "filled": rows.filled, "written": rows.written, "holes": rows.holes}
    return {**position, "leaves": leaves, "finals": pool}


def put_back(rows: Rows, state: State) -> None:
    """Restore the state that `taken` returned; the buffer must have the same size, columns and spaces.

    Raises:
        UsageError: the state does not fit the buffer, or is damaged. ValueError: a count or value in it is out of range.
    """
    counts = {name: count_in(state, name) for name in ("head", "filled", "written")}
    # counts are checked before anything of the buffer changes
    if type(state["holes"]) is not bool:
        raise UsageError(f"the stored replay buffer has holes = {state['holes']!r}")
    if not counts["filled"]:
        if counts["head"] or counts["written"]:
            raise UsageError("the stored replay buffer has no rows, but a position")
        rows.head = rows.filled = rows.written = 0
        return
    plain = len(list(leaf_spaces(rows.space))) + 1  # features and is_first
    rows.allocate(masks=len(state["leaves"]["observation"]) > plain)
    used = len(state["leaves"]["reward"]["000"])
    _require_position(rows, counts, used)
    for name in {"info", *(("extras",) if rows.columns.extras else ())} & set(state["leaves"]) - set(rows.storage):
        _allocate_named(rows, name, state["leaves"][name], used)
    if set(state["leaves"]) != set(rows.storage):
        raise UsageError(f"the stored replay buffer holds {sorted(state['leaves'])}, this one {sorted(rows.storage)}")
    _fill(rows, state["leaves"], used)
    rows.head, rows.filled, rows.written = counts["head"], counts["filled"], counts["written"]
    rows.holes = state["holes"]
    rows.last_history = None
    # encoders and losses use discrete values as indices
    _require_values(rows, used)
    discount = rows.storage["discount"][:used]
    if bool(((discount != 0.0) & (discount != rows.gamma)).any()):  # the rows were stored with another gamma
        discount.copy_((discount > 0.0).to(discount.dtype) * rows.gamma)
    if rows.finals is not None:
        _put_back_finals(rows, tree.numbered(state["finals"]), used)


def _fill(rows: Rows, stored_leaves: Mapping[str, Mapping[str, Tensor]], used: int) -> None:
    """Copy the stored leaves [used, B, ..] into the columns."""
    for name, stored in stored_leaves.items():
        for leaf, value in zip(tree.leaves(rows.storage[name]), tree.numbered(stored), strict=True):
            if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) != used:
                raise UsageError(
                    f"the stored replay buffer holds {name} of shape {tuple(value.shape)}, this agent's buffer"
                    f" {tuple(leaf.shape)}; build the agent with the same buffer_size, n_envs and optimize_memory_usage"
                )
            leaf[:used] = value


def use_gamma(rows: Rows, gamma: float) -> None:
    """Use another discount factor, also for rows that are already stored.

    Raises:
        UsageError: rows were stored with gamma = 0, so their discounts do not mark the ends of episodes.
    """
    if gamma != rows.gamma and rows.storage:
        # discounts of 0 would all count as terminations
        if rows.gamma == 0.0 and rows.filled:
            raise UsageError(
                "gamma cannot change from 0: the discounts in the replay buffer are all 0 and do not mark the ends of episodes"
            )
        discount = rows.storage["discount"]
        discount.copy_((discount > 0.0).to(discount.dtype) * gamma)
    rows.gamma = gamma


def _allocate_named(rows: Rows, column: str, stored: Mapping[str, Tensor], used: int) -> None:
    """Allocate a column that is a mapping of names to tensors, for the stored tensors [used, B, ..]."""
    lead = used, rows.context.num_envs
    wrong = [name for name, leaf in stored.items() if not isinstance(leaf, Tensor) or tuple(leaf.shape[:2]) != lead]
    # names come from the file, so their number has a limit
    if wrong or len(stored) > MAX_NAMED:  # none, if the policy that collected has no extras
        raise UsageError(f"the stored replay buffer has {column} that do not belong to its {used} rows: {wrong[:3]}")
    rows.allocate_named(column, stored)


def _require_position(rows: Rows, counts: Mapping[str, int], used: int) -> None:
    head, filled, written = counts["head"], counts["filled"], counts["written"]
    if written < filled or written % rows.ring != head:
        raise UsageError(
            f"the stored replay buffer stands at row {head} after {written} rows, which one of {rows.ring} rows cannot;"
            " build the agent with the same buffer_size, n_envs and optimize_memory_usage"
        )
    whole = rows.ring if filled == rows.rows else min(filled + rows.shared, rows.ring)
    if not (filled <= rows.rows and used == whole):
        raise UsageError(f"the stored replay buffer stands at row {head} with {filled} of {used} rows filled")


def _put_back_finals(rows: Rows, stored: list[Tensor], used: int) -> None:
    assert rows.finals is not None
    for leaf, value in zip(rows.finals.leaves, stored, strict=True):
        if leaf.shape[1:] != value.shape[1:] or leaf.dtype != value.dtype or len(value) != len(stored[0]):
            raise UsageError(f"the stored replay buffer holds final observations of shape {tuple(value.shape)}")
    slots = rows.storage["slot"][:used].flatten().tolist()
    taken = set(slots) - {-1}
    if len(taken) != len(slots) - slots.count(-1):
        raise UsageError("the stored replay buffer refers to a final observation twice")
    pool = range(len(stored[0]))
    if taken and not (min(taken) in pool and max(taken) in pool):
        raise UsageError(f"the stored replay buffer refers to observations it does not hold: {max(taken)}")
    held = iter([leaf[sorted(taken)] for leaf in stored])
    last = tree.map_tensors(lambda _: next(held), rows.storage["observation"])
    require_inside(rows.space, last.features, "the stored replay buffer's final observations")
    rows.finals.leaves = [leaf.clone() for leaf in stored]
    rows.finals.free = [slot for slot in pool if slot not in taken]


def _require_values(rows: Rows, used: int) -> None:
    """Check that stored actions and observations lie inside their spaces. The action of the row that holds only the newest
    observation is set to a valid one."""
    if rows.shared and rows.head < used:

        def reset(_: str, space: Space, leaf: Tensor) -> Tensor:
            # the action of this row is not known yet, and the check below reads it
            leaf[rows.head] = torch.as_tensor(getattr(space, "start", 0)).to(leaf)
            return leaf

        map_leaves(rows.context.action_space, reset, rows.storage["action"])
    what = "the stored replay buffer's"
    filled = {name: tree.map_tensors(lambda leaf: leaf[:used], value) for name, value in rows.storage.items()}
    require_inside(rows.context.action_space, filled["action"], f"{what} actions")
    for name in {"observation", "next_observation"} & set(filled):
        require_inside(rows.space, filled[name].features, f"{what} observations")


# Prioritized experience replay: a replay buffer that samples transitions in proportion to their last error.
#
# Source: Schaul et al. 2016, arXiv:1511.05952, proportional prioritization with importance weights (section 3.3,
# algorithm 1).


@explain_names
class PrioritizedReplay:
    """A `ReplayBuffer` that samples a row with probability P = p^alpha / sum p^alpha, where p is the last error of the row.

    Batches contain importance weights (N P)^-beta, scaled so that the largest in a batch is 1. Algorithms multiply losses by
    these weights. `beta` grows linearly to 1 over the training.
    """

    def __init__(
        self,
        context: BuildContext,
        capacity: int,
        gamma: float,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        epsilon: float = 1e-6,
        **storage: Unpack[NStepOptions],
    ) -> None:
        """
        Args:
            context: the spaces, device and number of environments that the buffer is built for.
            capacity: the number of transitions, over all environments.
            gamma: the discount factor.
            alpha: the exponent of priorities; 0 samples uniformly.
            beta: the exponent of importance weights at the start of training.
            epsilon: a constant that is added to the absolute errors.
            storage: options of `ReplayBuffer`.
        """
        for name, value in (("alpha", alpha), ("beta", beta), ("epsilon", epsilon)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                raise SettingsError(f"prioritized replay: {name} = {value!r} must be a number between 0 and 1")
        self.inner = ReplayBuffer(context, capacity, gamma, **storage)
        self.alpha, self.beta, self.epsilon, self.beta_now = alpha, beta, epsilon, beta
        # positions of the ring, so that a flat position of the buffer is one of the tree
        self.tree = SumTree(self.inner.ring * context.num_envs)
        self.largest = 1.0

    def reconfigure(self, config: OffPolicyConfig) -> None:
        """See `ReplayBuffer.reconfigure`."""
        self.inner.reconfigure(config)

    def __len__(self) -> int:
        return len(self.inner)

    def bytes_required(self) -> int:
        return self.inner.bytes_required() + self.tree.nodes.nbytes

    def collected(self, env_steps: int, progress: float) -> None:
        """Update beta for the `progress` of the training, from 0 to 1; the training loop calls this after collecting."""
        self.beta_now = self.beta + (1.0 - self.beta) * progress

    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; new rows get the largest priority so far."""
        inner, start = self.inner, self.inner.head
        inner.extend(item)
        valid = item.steps.valid.cpu().numpy()
        rows = (start + np.arange(len(valid))) % inner.ring
        # the largest priority: every new row is learned from at least once (arXiv:1511.05952, algorithm 1)
        self._set_rows(rows, np.where(valid, self.largest**self.alpha, 0.0))
        if inner.shared:  # this row holds only the newest observation
            self._set_rows(np.array([inner.head]), np.zeros((1, inner.context.num_envs)))
        self._forget_cut_stacks()

    def _forget_cut_stacks(self) -> None:
        """Set the priority of rows to 0 if some of their stacked frames were overwritten, so that they are not sampled."""
        inner, envs, device = self.inner, self.inner.context.num_envs, self.inner.context.device
        if inner.frames is None or not inner.filled:
            return
        rows = (inner.oldest + torch.arange(min(inner.frames.count - 1, inner.filled), device=device)) % inner.ring
        index = (rows[:, None] * envs + torch.arange(envs, device=device)).flatten()
        gone = index[~inner.usable(index)].cpu().numpy()
        if len(gone):
            self.tree.set(gone, np.zeros(len(gone)))

    def _set_rows(self, rows: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Set the priorities of the rows [T] to `values` [T, B]."""
        envs = self.inner.context.num_envs
        self.tree.set((rows[:, None] * envs + np.arange(envs)).reshape(-1), values.reshape(-1))

    def sample(self, size: int, generator: Generator) -> Transitions:
        """Draw `size` transitions: one from each of `size` equal intervals of the summed priorities (stratified sampling).

        Raises:
            UsageError: the buffer is empty.
        """
        if not self.tree.total > 0.0:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        device = self.inner.context.device
        # float64: float32 has fewer numbers than a large buffer has rows
        within = torch.rand(size, generator=generator, device=device, dtype=torch.float64).cpu().numpy()
        places = self.tree.find((np.arange(size) + within) * (self.tree.total / size))
        weight = (self.tree.values[places] * (len(self) / self.tree.total)) ** -self.beta_now
        # weights only scale down, which bounds the size of a step (section 3.4)
        scaled = torch.as_tensor(weight / weight.max(), dtype=torch.float32, device=device)
        return replace(self.inner.at(torch.as_tensor(places, device=device)), weight=scaled)

    def prioritize(self, index: Tensor, error: Tensor) -> None:
        """Set the priorities of the rows at `index` int64 [N] from their errors [N]; NaN and infinite errors are ignored."""
        size = error.detach().abs().double().cpu().numpy() + self.epsilon
        places = index.cpu().numpy()
        if not np.isfinite(size.max()):  # with a NaN in the tree, no row could be sampled
            known = np.isfinite(size)
            size, places = size[known], places[known]
            if not len(size):
                return
        self.largest = max(self.largest, float(size.max()))
        drawable = self.tree.values[places] > 0.0  # rows that cannot be sampled keep priority 0
        self.tree.set(places, np.where(drawable, size**self.alpha, 0.0))

    def state_dict(self) -> State:
        """The state of the buffer, and the priorities of its rows."""
        priorities = torch.from_numpy(self.tree.values.copy())
        return {
            "memory": self.inner.state_dict(),
            "priorities": priorities,
            "largest": self.largest,
            "beta": self.beta_now,
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the state that `state_dict` returned.

        Raises:
            UsageError: the state does not fit this buffer; see also `replay_state.put_back`.
        """
        self.inner.load_state_dict(state["memory"])
        priorities = torch.as_tensor(state["priorities"]).double().numpy()
        if priorities.shape != self.tree.values.shape:
            raise UsageError(f"{len(priorities)} stored priorities for a buffer of {len(self.tree.values)} rows")
        if not np.isfinite(priorities).all() or (priorities < 0.0).any() or not np.isfinite(priorities.sum()):
            raise UsageError("stored priorities must be finite and not negative")
        # a priority at an empty position would sample uninitialized memory
        if priorities[self._without_transition()].any() or (len(self) > 0) != bool(priorities.any()):
            raise UsageError("stored priorities do not belong to the stored rows")
        largest, beta = float(state["largest"]), float(state["beta"])
        if not (0.0 < largest < float("inf") and 0.0 <= beta <= 1.0):
            raise UsageError(f"stored priorities have largest = {largest} and beta = {beta}")
        self.tree.set(np.arange(len(priorities)), priorities)
        self.largest, self.beta_now = largest, beta
        self._forget_cut_stacks()

    def _without_transition(self) -> NDArray[np.bool_]:
        """Whether a position of the ring has no transition, bool [positions]."""
        inner = self.inner
        empty = np.ones((inner.ring, inner.context.num_envs), bool)
        if inner.filled:
            rows = (inner.head - 1 - np.arange(inner.filled)) % inner.ring
            empty[rows] = ~inner.storage["valid"].cpu().numpy()[rows]
        return empty.reshape(-1)


class SumTree:
    """`size` values >= 0 with a binary tree of their sums. All are 0 at first, and methods take batches.

    Numbers are float64, so that sums of a million values are accurate.
    """

    def __init__(self, size: int) -> None:
        self.size, self.leaves = size, 1 << max(0, size - 1).bit_length()
        self.nodes: NDArray[np.float64] = np.zeros(2 * self.leaves)  # node i has the children 2 i and 2 i + 1

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self.nodes[1])

    @property
    def values(self) -> NDArray[np.float64]:
        """The values [size], as a view."""
        return self.nodes[self.leaves : self.leaves + self.size]

    def set(self, index: NDArray[np.int64], values: ArrayLike) -> None:
        """Set the values at `index`; if an index occurs twice, the last value counts."""
        nodes = index + self.leaves
        self.nodes[nodes] = values
        while nodes[0] > 1:
            # each parent once: positions that share a path are summed together
            nodes = np.unique(nodes >> 1)
            self.nodes[nodes] = self.nodes[2 * nodes] + self.nodes[2 * nodes + 1]

    def find(self, mass: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each mass in [0, total), the first index whose cumulative sum exceeds it. Its value is never 0."""
        node = np.ones(len(mass), np.int64)
        rest = mass.copy()
        for _ in range(self.leaves.bit_length() - 1):
            left = self.nodes[2 * node]
            # rounding may leave a rest at the very end, where an empty right branch must not be entered
            right = (rest >= left) & (self.nodes[2 * node + 1] > 0.0)
            rest = np.where(right, rest - left, rest)
            node = 2 * node + right
        return node - self.leaves
