"""A replay buffer of sequences, for recurrent policies and for targets over several steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.buffers.columns import ALL, NAMED, Columns, Names
from rlsdk.buffers.replay import ReplayBuffer
from rlsdk.errors import SettingsError, UsageError
from rlsdk.interfaces import State
from rlsdk.records import Rollout, Sequences, StepData
from rlsdk.settings.off_policy import OffPolicyConfig

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


class SequenceReplay(Generic[CarryT]):
    """Samples the steps of a `ReplayBuffer` as sequences of `length` consecutive steps.

    Every stored sequence of `length` steps has equal probability; none extends beyond the newest row. If the buffer holds fewer
    rows, a sequence begins at the oldest one and is padded after the newest. Sequences continue after the end of an episode:
    `is_first`, `terminated`, `truncated` and `next_observation` mark the end.

    With `carry`, the policy's carry at the first row of every collected rollout is stored too. Sequences then begin only at
    such rows, which are all rows if rollouts have one step. Source of stored carries and burn-in: Kapturowski et al. 2019
    (R2D2), section 2.3.
    """

    def __init__(
        self,
        rows: ReplayBuffer,
        *,
        length: int,
        burn_in: int = 0,
        extras: bool | Sequence[str] | Mapping[str, Tensor] | None = True,
        carry: CarryT | None = None,
    ) -> None:
        """
        Args:
            rows: an empty replay buffer, which stores the steps.
            length: the number of rows T of a sequence, with the burn-in.
            burn_in: the number of rows at the start of each sequence whose `loss_mask` is False.
            extras: the names of the policy's extras to store, True for all, False or None for none. With an example of each for
                one row, such as `{"log_prob": torch.zeros(())}`, the size of the buffer is known before the first row.
            carry: `collecting_policy.initial_carry(context.num_envs)` to store carries; None stores none.

        Raises:
            SettingsError: `length` is not more than `burn_in`, or is more than the number of rows of the buffer.
        """
        if not 0 <= burn_in < length:
            raise SettingsError(
                f"sequences of length = {length} with burn_in = {burn_in} leave no row to learn from;"
                " 0 <= burn_in < length"
            )
        # a mapping gives its names
        names: Names = ALL if extras is True else tuple(extras or ())
        like = extras if isinstance(extras, Mapping) else {}
        self.length, self.burn_in = length, burn_in
        self.inner = rows.with_columns(Columns(names, like, ends=True, carry=carry))
        self._begins: Tensor | None = None  # what `_beginnings` returns; None after the buffer has changed
        # no sequence would ever be whole
        if length > rows.rows:
            raise SettingsError(
                f"sequences of length = {length} do not fit a buffer of {rows.rows} rows for each of"
                f" {rows.context.num_envs} environments; enlarge buffer_size"
            )

    def reconfigure(self, config: OffPolicyConfig) -> None:
        """Use `gamma` of new settings, also for rows that are already stored; raises like `ReplayBuffer.reconfigure`."""
        self.inner.reconfigure(config)

    def __len__(self) -> int:
        return len(self.inner)

    def bytes_required(self) -> int:
        return self.inner.bytes_required()

    def extend(self, item: Rollout[CarryT, ExtrasT]) -> None:
        """Append T steps of every environment; they replace the oldest rows of a full buffer."""
        self._begins = None
        self.inner.extend(item)

    def sample(self, size: int, generator: Generator) -> Sequences[CarryT]:
        """Draw `size` sequences with replacement; the tensors are copies.

        Raises:
            UsageError: the buffer is empty, or no sequence begins with a stored carry.
        """
        return self.at(self.draw(size, generator))

    def draw(self, size: int, generator: Generator) -> Tensor:
        """Draw the flat positions int64 [size] (row * num_envs + env) of the first rows of sequences; raises like `sample`."""
        stored, device = self.inner, self.inner.context.device
        if not stored.filled:
            raise UsageError("the replay buffer is empty; collect transitions before sampling")
        # every whole sequence once; with fewer rows, the one that begins at the oldest row
        starts, envs = max(stored.filled - self.length, 0) + 1, self.inner.context.num_envs
        if stored.columns.carry is None:
            first = torch.randint(starts * envs, (size,), generator=generator, device=device)
            return (stored.oldest * envs + first) % (stored.ring * envs)
        known = self._begins = self._beginnings(starts) if self._begins is None else self._begins
        if not len(known):
            raise UsageError(
                f"no sequence of {self.length} rows in the replay buffer begins with a stored recurrent state; collect shorter"
                " rollouts, or store no recurrent states"
            )
        chosen = known[torch.randint(len(known), (size,), generator=generator, device=device)]
        index: Tensor = (stored.oldest * envs + chosen) % (stored.ring * envs)
        return index

    def _beginnings(self, starts: int) -> Tensor:
        """The rows with a stored carry among the `starts` oldest ones, as int64 [K], age of the row * num_envs + env."""
        stored = self.inner
        rows = (stored.oldest + torch.arange(starts, device=self.inner.context.device)) % stored.ring
        begins: Tensor = stored.storage["has_carry"][rows]
        return begins.flatten().nonzero().squeeze(-1)

    def at(self, index: Tensor) -> Sequences[CarryT]:
        """The sequences whose first rows are at the flat positions int64 [N]."""
        stored, envs = self.inner, self.inner.context.num_envs
        age = (index // envs - stored.oldest) % stored.ring  # the number of older rows
        ahead = torch.arange(self.length, device=index.device).unsqueeze(1)
        # rows after the newest one are padding, and are masked out of the loss
        held = age + ahead < stored.filled  # [T, N]
        # padding repeats the newest row, because every position has to hold finite numbers
        steps = torch.minimum(ahead, stored.filled - 1 - age)
        at = ((index + steps * envs) % (stored.ring * envs)).flatten()
        shape = self.length, len(index)
        observation, following = stored.pairs(at, at)
        columns = {name: stored.take(name, at) for name in ("action", "reward", "terminated", "truncated", "discount")}
        named = {name: stored.take(name, at) if name in stored.storage else {} for name in NAMED}
        valid = self.inner.usable(at)
        whole = observation, following, columns, named, valid
        observation, following, columns, named, valid = tree.map_tensors(lambda leaf: leaf.unflatten(0, shape), whole)
        valid = valid & held
        discount = columns.pop("discount")
        carry: CarryT | None = None if stored.columns.carry is None else stored.take("carry", index)
        return Sequences(
            StepData(observation=observation, valid=valid, **columns, **named),
            following,
            discount,
            valid & (ahead >= self.burn_in),
            carry,
            index,
        )

    def state_dict(self) -> State:
        return self.inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore the state that `state_dict` returned; raises like `ReplayBuffer.load_state_dict`."""
        self._begins = None
        self.inner.load_state_dict(state)


def rows_in_order(batch: Sequences[CarryT]) -> tuple[StepData[Mapping[str, Tensor]], Tensor, Tensor]:
    """(steps [N], starts: bool [N], loss mask: bool [N]) of sequences [T, S], without the padding. `starts` is True at the
    first row of a sequence."""
    starts = torch.zeros_like(batch.steps.valid)
    starts[0] = True
    valid = batch.steps.valid.T.flatten()
    found: tuple[StepData[Mapping[str, Tensor]], Tensor, Tensor] = tree.map_tensors(
        lambda leaf: leaf.transpose(0, 1).flatten(0, 1)[valid], (batch.steps, starts, batch.loss_mask)
    )
    return found
