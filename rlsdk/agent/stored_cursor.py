"""The cursor of a training in the form that files store: counts, the carry and the running episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.errors import fitting
from rlsdk.interfaces import State
from rlsdk.interfaces.require_inside import require_inside
from rlsdk.records import ActingState, Cursor, Features, Observation
from rlsdk.runtime.stored import count_in, stored_like
from rlsdk.spaces import Space
from rlsdk.training.groups import joined


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A cursor in the form that files store. With `episodes`, training continues the running episodes; without, it begins new
    ones.

    Observations and environments of all groups are joined in order, so that they fit any number of groups.
    """

    counts: Cursor
    carry: Mapping[str, Tensor]
    """The leaves of the carry of the first group, then those of the second, and so on."""
    episodes: Mapping[str, object] | None = None
    """The running episodes: `environments` is the state of the environments; `features`, `is_first` and `mask` are the
    observation to act on next."""

    @staticmethod
    def of(counts: Cursor, acting: tuple[ActingState[object], ...], environments: State | None = None) -> StoredCursor:
        episodes: dict[str, object] | None = None
        if environments is not None:
            seen = joined([state.observation for state in acting])
            mask = {} if seen.action_mask is None else {"mask": seen.action_mask}
            features = tree.number(seen.features)
            episodes = {"environments": environments, "features": features, "is_first": seen.is_first, **mask}
        return StoredCursor(counts, tree.number(tuple(state.carry for state in acting)), episodes)

    @staticmethod
    def from_state(counts: State, state: State) -> StoredCursor:
        """The cursor that `state_dict` returned, with its counts. Raises ValueError if the state is malformed."""
        carry, episodes = state.get("carry", {}), state.get("episodes")
        if not isinstance(carry, Mapping) or not all(isinstance(leaf, Tensor) for leaf in carry.values()):
            raise ValueError("the carry is not a table of tensors")
        if episodes is not None and not isinstance(episodes, Mapping):
            raise ValueError("the running episodes are not a table")
        return StoredCursor(Cursor(count_in(counts, "env_steps"), count_in(counts, "updates")), carry, episodes)

    def state_dict(self) -> dict[str, object]:
        """The carry and the running episodes, without the counts."""
        return {"carry": self.carry} if self.episodes is None else {"carry": self.carry, "episodes": self.episodes}

    def carried_to(self, acting: tuple[ActingState[object], ...]) -> tuple[ActingState[object], ...]:
        """The acting states, one per group, with the stored carry. If its shapes do not fit, `acting` is returned unchanged.

        Raises:
            ArtifactError: the stored carry has another dtype.
        """
        fresh = tuple(state.carry for state in acting)
        leaves = tree.leaves(fresh)
        with fitting("the file's carry does not fit the policy"):
            stored = self._regrouped(acting)
            if [leaf.shape for leaf in stored] != [leaf.shape for leaf in leaves]:
                return acting
            carries = stored_like(fresh, {f"{i:09d}": leaf for i, leaf in enumerate(stored)})
        return tuple(replace(state, carry=carry) for state, carry in zip(acting, carries, strict=True))

    def _regrouped(self, acting: tuple[ActingState[object], ...]) -> list[Tensor]:
        """The leaves of the stored carry, split into the groups of `acting` if it was written with another number of groups.

        All groups get the 0-d leaves of the first group.
        """
        stored, size = tree.numbered(self.carry), len(tree.leaves(acting[0].carry))
        if not size or not stored or len(stored) % size or len(stored) == size * len(acting):
            return stored
        whole = joined([tuple(stored[first : first + size]) for first in range(0, len(stored), size)])
        rows = [len(state.observation.is_first) for state in acting]
        parts = [torch.split(leaf, rows) if leaf.dim() else [leaf] * len(rows) for leaf in whole]
        return [part[group] for group in range(len(rows)) for part in parts]

    def observation(self, like: Features, space: Space, mask: Tensor | None) -> Observation:
        """The stored observation to act on next. Its features must have the form of `like` [B, ..] and be inside `space`; its
        mask must have the form of `mask`, bool [B, A].

        Raises:
            ArtifactError: the stored observation does not fit.
        """
        assert self.episodes is not None
        with fitting("the file's observations do not fit the environments"):
            features = stored_like(like, self.episodes["features"])
            require_inside(space, features, "the file's observations")
            one = tree.leaves(like)[0]
            first = torch.ones(one.shape[:1], dtype=torch.bool, device=one.device)
            first = stored_like(first, {"000": self.episodes["is_first"]})
            if (mask is None) != ("mask" not in self.episodes):
                raise ValueError("action masks are in one of them only")
            if mask is not None:
                mask = stored_like(mask, {"000": self.episodes["mask"]})
            return Observation(features, first, mask)
