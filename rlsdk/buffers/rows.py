"""The rows of a replay buffer: one ring buffer for each leaf of the collected steps."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.columns import NAMED, PLAIN, Columns, named_extras, stacks
from rlsdk.errors import SettingsError, UsageError, require_file_name
from rlsdk.interfaces import BuildContext
from rlsdk.records import Features, Observation, Rollout, successors, with_observations
from rlsdk.runtime.memory import require_disk, require_memory
from rlsdk.spaces import Dict, Space, Tuple, choices_of, dtype_of, nbytes, shape_of

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class Rows:
    """A ring buffer of the last rows [rows, B] of all environments. It is read at flat positions, row * B + environment.

    With `shared` an observation is stored once: the next observation of a row is the observation of the next row in the ring.
    Only the last observations of episodes are stored separately. `gamma` is the value of the column `discount`, which is 0 at
    terminations.
    """

    def __init__(  # each argument is an independent option of a buffer
        self,
        context: BuildContext,
        capacity: int,
        gamma: float,
        *,
        shared: bool,
        directory: str | Path | None,
        columns: Columns,
    ) -> None:
        self.context, self.gamma, self.shared, self.columns = context, gamma, shared, columns
        # the capacity counts transitions of all environments together, as in the peers
        self.rows = max(capacity // context.num_envs, 1)
        self.ring = self.rows + shared  # the shared ring also holds the newest observation
        # stacking at sampling needs the rows before, which are in the ring only with shared observations
        self.frames = context.frames if shared else None
        self.space = context.observation_space if self.frames is None else self.frames.single
        self.head = self.filled = self.written = 0
        self.holes = False
        self.storage: dict[str, Features] = {}
        self._pick: Callable[[object], Iterable[Tensor]] = tree.leaves
        """Returns the leaves of an observation. Their layout is looked up once, not at every step."""
        self.finals: FinalPool | None = None
        self.last_history: tuple[Tensor, tuple[int, int], tuple[Tensor, Tensor]] | None = None
        """(index, its version and `written`, result) of the last call of `history`."""
        self.empty: Empty = in_memory(context.device) if directory is None else OnDisk(directory, context.device)
        if directory is not None:
            # before the first row: a full disk would otherwise end a training after hours
            require_disk(self._bytes(), directory, "the replay buffer", "lower buffer_size")

    def bytes_required(self) -> int:
        """The bytes of memory of the full ring; 0 with `directory`. Extras without an example count once they are stored."""
        return self._bytes() if not isinstance(self.empty, OnDisk) else 0

    def _bytes(self) -> int:
        """The bytes of the full ring, in memory or on disk."""
        mask = sum(choices_of(self.context.action_space)) if self.context.masks else 0
        observation = nbytes(self.space) + 1 + mask  # features, is_first, a byte per mask entry
        copies = 1 if self.shared else 2
        scalars = 4 + 4 + 1 + (8 if self.shared else 0)  # reward, discount, valid, slot of a final observation
        scalars += 2 if self.columns.ends else 0
        row = observation * copies + nbytes(self.context.action_space) + scalars
        optional = [leaf[0].numel() * leaf.element_size() for leaf in tree.leaves(self.columns.carry)]
        optional += [1] if self.columns.carry is not None else []
        named = [leaf for name in NAMED for leaf in tree.leaves(self.storage.get(name))]
        # extras count by their examples until the first rows show their true shapes
        if "extras" not in self.storage:
            optional += [leaf.nbytes for leaf in self.columns.like.values()]
        optional += [leaf[0, 0].numel() * leaf.element_size() for leaf in named]
        return self.ring * self.context.num_envs * (row + sum(optional))

    def allocate(self, masks: bool) -> None:
        """Allocate every column except extras and infos, whose shapes the first rows determine. `masks`: with action masks."""
        # the first row decides whether there are masks; a restored state may have allocated already
        if self.storage:
            return
        lead, empty = (self.ring, self.context.num_envs), self.empty

        def observations() -> Observation:
            features = allocate(self.space, lead, empty)
            width = sum(choices_of(self.context.action_space))
            mask = empty((*lead, width), torch.bool) if masks else None
            return Observation(features, empty(lead, torch.bool), mask)

        self.storage = {
            "observation": observations(),
            "action": allocate(self.context.action_space, lead, empty),
            "reward": empty(lead, torch.float32),
            "discount": empty(lead, torch.float32),
            "valid": empty(lead, torch.bool),
        }
        if self.columns.ends:
            self.storage |= {name: empty(lead, torch.bool) for name in ("terminated", "truncated")}
        if self.columns.carry is not None:
            self.storage["carry"] = tree.map_tensors(
                lambda leaf: empty((*lead, *leaf.shape[1:]), leaf.dtype).zero_(), self.columns.carry
            )
            self.storage["has_carry"] = empty(lead, torch.bool).zero_()
        self._pick = tree.layout(self.storage["observation"]).pick
        if self.shared:
            self.storage["slot"] = empty(lead, torch.int64).fill_(-1)
            self.finals = FinalPool([leaf.flatten(0, 1) for leaf in tree.leaves(self.storage["observation"])])
        else:
            self.storage["next_observation"] = observations()

    def allocate_named(self, column: str, like: Mapping[str, Tensor]) -> None:
        """Allocate a column that is a mapping of names to tensors, such as the extras; `like` has examples [T, B, ..].

        Raises:
            ResourceError: the column does not fit into memory.
        """
        lead = self.ring, self.context.num_envs
        if not isinstance(self.empty, OnDisk):
            needed = sum(leaf[0, 0].numel() * leaf.element_size() for leaf in like.values()) * lead[0] * lead[1]
            require_memory(needed, f"the {column} in the replay buffer", "lower buffer_size, or name what to keep")
        self.storage[column] = {
            name: self.empty((*lead, *leaf.shape[2:]), leaf.dtype).zero_() for name, leaf in like.items()
        }

    def __len__(self) -> int:
        return self.filled * self.context.num_envs

    @torch.no_grad()
    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; they replace the oldest rows of a full buffer.

        Raises:
            UsageError: the extras, infos or carry differ from those of earlier rows in name, shape or dtype.
        """
        if self.context.ignores_masks and item.steps.observation.action_mask is not None:
            # masks that the algorithm ignores may take more memory than the observations
            item = with_observations(item, lambda seen: replace(seen, action_mask=None))
        if (frames := self.frames) is not None:
            # each frame once: stacked again when it is sampled
            item = with_observations(item, lambda seen: replace(seen, features=frames.newest(seen.features)))
        if not self.storage:
            self.allocate(masks=item.steps.observation.action_mask is not None)
        steps, store, count = item.steps, self.storage, len(item.steps.reward)
        end = self.head + count  # writing to a slice is faster than to an index
        where = slice(self.head, end) if end <= self.ring else self._places(self.head, count)
        # before the rows are overwritten
        if self.shared and self.filled:
            self._keep_interrupted(steps.observation)
        pick = self._pick
        for column, value in zip(pick(store["observation"]), pick(steps.observation), strict=True):
            column[where] = value
        store["action"][where] = steps.action.to(store["action"].dtype)
        store["reward"][where] = steps.reward
        # 0 at terminations only: at a time limit the value of the next observation still counts
        store["discount"][where] = torch.full_like(steps.reward, self.gamma).masked_fill_(steps.terminated, 0.0)
        store["valid"][where] = steps.valid
        if self.columns is not PLAIN or steps.info or "info" in store:
            self._extend_optional(self._places(self.head, count), item)
        # never reset: a check of all rows would cost more than drawing a few again
        self.holes = self.holes or not bool(steps.valid.all())
        self.head, self.written = (self.head + count) % self.ring, self.written + count
        if self.shared:
            self._store_finals(self._places(self.head - count, count), item)
        else:
            # one step without an end: the last observation [B, ..] fills the row without the copies of `successors`
            single = count == 1 and item.final_observations is None
            following = item.last_observation if single else successors(item)
            for column, value in zip(pick(store["next_observation"]), pick(following), strict=True):
                column[where] = value
        self.filled = min(self.filled + count, self.rows)

    def _places(self, first: int, count: int) -> Tensor:
        """The `count` rows from `first` on, int64 [count]."""
        return (first + torch.arange(count, device=self.context.device)) % self.ring

    @property
    def oldest(self) -> int:
        """The oldest stored row."""
        # the row at `head` holds only the newest observation if observations are shared
        return (self.head + self.shared) % self.ring if self.filled == self.rows else 0

    @property
    def walk(self) -> Ring:
        """The `Ring` that finds earlier and later steps of episodes."""
        return Ring(self.ring, self.context.num_envs, self.storage["observation"].is_first.flatten())

    def flat(self, name: str) -> Features:
        """Views of a column with rows and environments in one dimension, [rows * B, ..]."""
        return tree.map_tensors(lambda leaf: leaf.flatten(0, 1), self.storage[name])

    def take(self, name: str, index: Tensor) -> Features:
        """Copies [N, ..] of a column at flat positions int64 [N] (row * B + environment)."""
        column = self.storage[name]
        if type(column) is Tensor:  # the most frequent case
            return column.flatten(0, 1).index_select(0, index)
        return tree.map_tensors(lambda leaf: leaf.flatten(0, 1).index_select(0, index), column)

    def _take_flags(self, index: Tensor, features: Features) -> Observation:
        """The observations [N] at flat positions int64 [N], with `features` [N, ..] instead of the stored ones."""
        column: Observation = self.storage["observation"]
        mask = column.action_mask
        return Observation(
            features,
            column.is_first.flatten().index_select(0, index),
            None if mask is None else mask.flatten(0, 1).index_select(0, index),
        )

    def _put_finals(self, following: Observation, index: Tensor) -> None:
        """Overwrite the next observations [N] of those steps (flat positions int64 [N]) that ended an episode."""
        assert self.finals is not None
        self.finals.patch(following, self.take("slot", index))

    def history(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """(positions of the frames int64 [N, count], whether all exist bool [N]) of the rows at flat positions int64 [N]; see
        `Ring.history`."""
        assert self.frames is not None
        # sampling asks twice: to check that the rows may be sampled, and to read their frames
        now = index._version, self.written
        if self.last_history is None or self.last_history[0] is not index or self.last_history[1] != now:
            self.last_history = index, now, self.walk.history(index, self.frames.count, self.oldest)
        return self.last_history[2]

    def pairs(self, index: Tensor, last: Tensor) -> tuple[Observation, Observation]:
        """(observations [N] at flat positions `index` int64 [N], next observations [N] of the steps at `last` int64 [N])."""
        if self.frames is None:
            seen = self.take("observation", index)
            if not self.shared:
                return seen, self.take("next_observation", last)
            following: Observation = self.take("observation", self.walk.after(last))
            self._put_finals(following, last)
            return seen, following
        first = self.history(index)[0]
        history, after = (first, first if last is index else self.history(last)[0]), self.walk.after(last)
        now, then = stacks(self.flat("observation").features, history, after)
        following = self._take_flags(after, tree.map_tensors(lambda leaf: leaf[:, -1], then))
        # the next row is the first of another episode where one ended
        self._put_finals(following, last)  # changes `then` too: the features of `following` are views of it
        joined = self.frames.joined
        whole = Observation(joined(then), following.is_first, following.action_mask)
        return self._take_flags(index, joined(now)), whole

    def _extend_optional(self, where: Tensor, item: Rollout[CarryT, ExtrasT]) -> None:
        """Write the steps of a rollout into the additional columns (`columns`, and `info`) at the rows `where` int64 [T]."""
        store = self.storage
        if self.columns.ends:
            store["terminated"][where], store["truncated"][where] = item.steps.terminated, item.steps.truncated
        if self.columns.carry is not None:
            carry, given = tree.leaves(store["carry"]), tree.leaves(item.initial_carry)
            if [leaf.shape[1:] for leaf in carry] != [leaf.shape for leaf in given]:
                raise UsageError(
                    f"the replay buffer stores recurrent states of shapes {[list(leaf.shape[1:]) for leaf in carry]},"
                    f" the policy that collects gives {[list(leaf.shape) for leaf in given]}; build the buffer with its"
                    " initial_carry"
                )
            for target, source in zip(carry, given, strict=True):
                # a carry is stored at the first row of a rollout: sequences can begin only there
                target[where[0]] = source
            store["has_carry"][where] = False
            store["has_carry"][where[0]] = True
        if self.columns.extras:
            self._extend_named("extras", where, named_extras(item.steps.extras, self.columns.extras))
        if item.steps.info or "info" in store:
            self._extend_named("info", where, item.steps.info)

    def _extend_named(self, column: str, where: Tensor, given: Mapping[str, Tensor]) -> None:
        """Write named tensors [T, B, ..] into the rows `where` int64 [T] of a column that is a mapping of names to tensors."""
        if column not in self.storage:
            # rows before have no such entries, and a sample would mix both
            if self.filled:
                raise UsageError(
                    f"the replay buffer holds rows without {column}; clear it before steps have {sorted(given)}"
                )
            self.allocate_named(column, given)
        stored: Mapping[str, Tensor] = self.storage[column]
        _require_same(column, stored, given)
        for name, leaf in stored.items():
            leaf[where] = given[name]

    def _keep_interrupted(self, observation: Observation) -> None:
        """Store the newest observation as a final one where an environment was reset before its episode ended: the first row of
        the new episode, `observation` [T, B, ..], will overwrite it."""
        assert self.finals is not None
        held = [leaf[self.head] for leaf in tree.leaves(self.storage["observation"])]
        first = [leaf[0] for leaf in tree.leaves(observation)]
        pairs = zip(held, first, strict=True)
        differs = torch.stack(
            [(old != new).flatten(1).any(1) if old.dim() > 1 else old != new for old, new in pairs]
        ).any(0)
        # where no final observation is stored although the next row does not follow, the environment was reset
        newest = self.storage["slot"][self.head - 1]
        envs = (differs & (newest < 0)).nonzero().squeeze(-1)
        if len(envs):
            newest[envs] = self.finals.put([leaf[envs] for leaf in held])

    def _store_finals(self, where: Tensor, item: Rollout[CarryT, ExtrasT]) -> None:
        """Store the last observations of episodes, and the newest observation; `where` int64 [T] are the rows of `item`."""
        assert self.finals is not None
        slot = self.storage["slot"]
        touched = torch.cat([where, where.new_tensor([self.head])])
        # the rows are overwritten, so their final observations are never needed again
        self.finals.release(slot[touched])
        slot[touched] = -1
        newest = tree.leaves(item.last_observation)
        for target, source in zip(tree.leaves(self.storage["observation"]), newest, strict=True):
            target[self.head] = source
        if finals := item.final_observations:
            slot[where[finals.time], finals.env] = self.finals.put(tree.leaves(finals.observation))


def _require_same(column: str, stored: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise UsageError unless `given` [T, B, ..] has the names, shapes and dtypes of `stored` [rows, B, ..]."""
    mine = {name: (leaf.shape[2:], leaf.dtype) for name, leaf in stored.items()}
    theirs = {name: (leaf.shape[2:], leaf.dtype) for name, leaf in given.items()}
    if mine != theirs:
        wrong = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        raise UsageError(
            f"the {column} {wrong} of these steps are not those of the rows before, in name, shape or dtype; give the same at"
            " every step, or name the extras that the buffer stores"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """A ring buffer of `rows` rows for `envs` environments. A flat position is row * envs + environment; `first`
    bool [rows * envs] is True where an episode begins."""

    rows: int
    envs: int
    first: Tensor

    def after(self, index: Tensor) -> Tensor:
        """Positions int64 [N] one step after `index` int64 [N]."""
        return (index + self.envs) % (self.rows * self.envs)

    def before(self, index: Tensor) -> Tensor:
        """Positions int64 [N] one step before `index` int64 [N]."""
        return (index - self.envs) % (self.rows * self.envs)

    def history(self, index: Tensor, count: int, oldest: int) -> tuple[Tensor, Tensor]:
        """(positions [N, count] of the last `count` steps up to each of `index` [N], whether all of them are stored, bool [N]).

        If the episode has fewer steps so far, its first step is repeated. `oldest` is the row of the oldest stored steps.
        """
        # a loop over a few numbers: calls of torch would take three times as long
        at, first = _array(index), _array(self.first)
        steps, stays = [at], first[at] & False
        for _ in range(count - 1):
            # frames before the start of an episode do not exist, and those before the oldest row were overwritten
            stays = first[at] | (at // self.envs == oldest)
            at = (at - self.envs * ~stays) % (self.rows * self.envs)
            steps.append(at)
        whole = first[at] | ~stays  # the history begins at the start of an episode, or was not cut at the oldest row
        if isinstance(at, Tensor):
            return torch.stack(steps[::-1], 1), whole
        positions = np.empty((len(index), count), np.int64)
        for column, found in enumerate(reversed(steps)):
            positions[:, column] = found
        return torch.from_numpy(positions), torch.from_numpy(whole)

    def ahead(
        self, index: Tensor, n_steps: int, newest: int, columns: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(sum of discounted rewards, discount after the last step, position of the last step), each [N], of `n_steps` steps
        from `index` [N] on. There are fewer steps if the episode ends earlier or the row `newest` is reached.

        `columns` are the rewards, the discounts and `valid`, each [rows * envs].
        """
        rewards, discounts, valid = columns
        reward, discount, last = rewards[index], discounts[index], index
        going = torch.ones_like(index, dtype=torch.bool)
        for _ in range(n_steps - 1):
            following = self.after(last)
            # rewards of another episode, or of rows not yet collected, do not belong to the return
            going = going & (last // self.envs != newest) & ~self.first[following] & valid[following]
            reward = torch.where(going, reward + discount * rewards[following], reward)
            discount = torch.where(going, discount * discounts[following], discount)
            last = torch.where(going, following, last)
        return reward, discount, last


def _array(values: Tensor) -> Any:
    """On the CPU a numpy view [..] of the tensor: numpy takes a third of torch's time for a few numbers; else the tensor."""
    return values.numpy() if values.device.type == "cpu" else values


Empty = Callable[[tuple[int, ...], torch.dtype], Tensor]
"""A function that makes an uninitialized tensor of a shape and dtype."""


def in_memory(device: str) -> Empty:
    """A function that allocates tensors in the memory of `device`."""
    return lambda shape, dtype: torch.empty(shape, dtype=dtype, device=device)


class OnDisk:
    """Allocates tensors that are memory-mapped files, in a new folder below `directory` that is deleted with this object."""

    def __init__(self, directory: str | Path, device: str) -> None:
        # memory-mapped files are in the memory of the processor
        if device != "cpu":
            raise SettingsError(f"a replay buffer on disk needs device = 'cpu', not {device!r}")
        require_file_name(directory)
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self.folder = tempfile.TemporaryDirectory(prefix="replay-", dir=directory)
        except OSError as error:
            raise SettingsError(
                f"the replay buffer's directory {str(directory)!r} cannot be used: {error.strerror or error}; choose a"
                " writable folder"
            ) from None
        self.files = 0

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        # torch cannot map an empty file
        size, self.files = math.prod(shape), self.files + 1
        if not size:
            return torch.empty(shape, dtype=dtype)
        path = Path(self.folder.name) / f"{self.files:03d}"
        return torch.from_file(str(path), shared=True, size=size, dtype=dtype).view(shape)


def allocate(space: Space, lead: tuple[int, ...], empty: Empty) -> Features:
    """Uninitialized tensors [*lead, ...] for every leaf of a space, nested like the space."""
    if isinstance(space, Dict):
        return {key: allocate(child, lead, empty) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(allocate(child, lead, empty) for child in space.spaces)
    return empty((*lead, *shape_of(space)), getattr(torch, dtype_of(space)))


class FinalPool:
    """Stores the last observations of episodes in numbered slots. It grows if needed and reuses slots of overwritten rows."""

    def __init__(self, like: list[Tensor], capacity: int = 64) -> None:
        """`like`: one tensor [.., *shape] per leaf; leaf i of the pool has the dtype and shape of `like[i][0]`."""
        self.leaves = [leaf.new_zeros((capacity, *leaf.shape[1:])) for leaf in like]
        self.free = list(range(capacity))  # a heap, so that the next slot depends only on the slots in use

    def put(self, observation: list[Tensor]) -> Tensor:
        """Store F observations, given by leaf, and return their slots int64 [F]."""
        count = len(observation[0])
        while len(self.free) < count:
            size = len(self.leaves[0])
            self.leaves = [torch.cat([leaf, torch.zeros_like(leaf)]) for leaf in self.leaves]
            self.free += range(size, 2 * size)  # larger than all others, so the list is still a heap
        slots = torch.tensor(
            [heappop(self.free) for _ in range(count)], dtype=torch.int64, device=self.leaves[0].device
        )
        for target, source in zip(self.leaves, observation, strict=True):
            target[slots] = source
        return slots

    def release(self, slots: Tensor) -> None:
        """Free the slots int64 [..]; entries of -1 are ignored."""
        for slot in slots.flatten().tolist():
            if slot >= 0:
                heappush(self.free, slot)

    def patch(self, target: Observation, slots: Tensor) -> None:
        """Overwrite the rows of `target` (leaves [N, ..]) whose slot (int64 [N]) is not -1."""
        rows = (slots >= 0).nonzero().squeeze(-1)
        if len(rows):
            chosen = slots.index_select(0, rows)
            for leaf, final in zip(tree.leaves(target), self.leaves, strict=True):
                leaf.index_copy_(0, rows, final.index_select(0, chosen))
