"""Where a training stands, as files hold it: counts, the carry and the running episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlsdk import tree
from rlsdk.buffers.space_checks import require_inside
from rlsdk.environments.executor_envs import ExecutorEnvs
from rlsdk.environments.on_device import OnDevice
from rlsdk.environments.standing import standing_of
from rlsdk.environments.states import OpaqueValue, read_state
from rlsdk.errors import EnvironmentFault, UsageError, fitting
from rlsdk.loops import Cursor
from rlsdk.math.stored import count_in, stored_like
from rlsdk.records import Observation
from rlsdk.seeding import derive
from rlsdk.spaces import Space, choices_of, dtype_of, map_leaves, shape_of

if TYPE_CHECKING:
    from rlsdk.agent import Agent
    from rlsdk.train import Run


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A cursor as files hold it: with `episodes`, in the middle of them; without, environments begin new episodes."""

    env_steps: int
    updates: int
    carry: Mapping[str, Tensor]
    episodes: Mapping[str, Any] | None = None
    """`environments`: their state; `features`, `is_first`, `mask`: the observation to act on next."""

    @staticmethod
    def of(cursor: Cursor, environments: Any = None) -> StoredCursor:
        episodes: dict[str, Any] | None = None
        if environments is not None:
            seen = cursor.observation
            mask = {} if seen.action_mask is None else {"mask": seen.action_mask}
            features = tree.number(seen.features)
            episodes = {"environments": environments, "features": features, "is_first": seen.is_first, **mask}
        return StoredCursor(cursor.env_steps, cursor.updates, tree.number(cursor.carry), episodes)

    @staticmethod
    def from_state(counts: Mapping[str, Any], state: Mapping[str, Any]) -> StoredCursor:
        """What `state_dict` and the counts hold. Raises ValueError when they are no such thing."""
        carry, episodes = state.get("carry", {}), state.get("episodes")
        if not isinstance(carry, Mapping) or not all(isinstance(leaf, Tensor) for leaf in carry.values()):
            raise ValueError("the carry is no table of tensors")
        if episodes is not None and not isinstance(episodes, Mapping):
            raise ValueError("the running episodes are no table")
        return StoredCursor(count_in(counts, "env_steps"), count_in(counts, "updates"), carry, episodes)

    def state_dict(self) -> dict[str, Any]:
        """All but the counts."""
        return {"carry": self.carry} if self.episodes is None else {"carry": self.carry, "episodes": self.episodes}

    def applied_to(self, cursor: Cursor) -> Cursor:
        """`cursor` with the counts and the carry of this one; a carry of another shape is left fresh.

        Raises:
            ArtifactError: the carry is of another dtype.
        """
        stored, fresh = tree.numbered(self.carry), tree.leaves(cursor.carry)
        fits = len(stored) == len(fresh) and all(a.shape == b.shape for a, b in zip(stored, fresh, strict=True))
        carry = cursor.carry
        if fits:
            with fitting("the file's carry does not fit the policy"):
                carry = stored_like(cursor.carry, self.carry)
        return replace(cursor, carry=carry, env_steps=self.env_steps, updates=self.updates)

    def observation(self, like: Any, space: Space, mask: Tensor | None) -> Observation:
        """The observation to act on next, its features as those of `like`, inside `space`, and its mask as `mask`.

        Raises:
            ArtifactError: it does not fit.
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


def training_env(agent: Agent) -> Any:
    """What the loop of the agent's family steps: its environment, on its device, with observations prepared.

    Raises:
        UsageError: the agent has no environment, or one that only plays whole episodes.
    """
    if agent.env is None:
        raise UsageError("the agent has no environment; call set_env(env), or load(path, env=env)")
    if agent.spec.family == "population":
        return agent.env  # its candidates act in numpy, wherever the networks are
    if isinstance(agent.env, ExecutorEnvs):
        agent.env.refuse_steps()
    env = agent.env if agent.facts.device == "cpu" else OnDevice(agent.env, agent.facts.device)
    return agent.preparation.environment(env, agent.parts)


def begin(agent: Agent, env: Any) -> Cursor:
    """The cursor a training of `agent` in `env` goes on from: a stored one's running episodes, or new ones.

    Raises:
        ArtifactError: the stored episodes are not of such environments.
    """
    stored, collector = agent._stored_cursor, agent.parts.collector
    if stored is not None and stored.episodes is not None:
        with fitting("the episodes in the file cannot be taken up"):
            env.set_state(stored.episodes["environments"])
            masks = _masks_of(env)
        space, count = agent.preparation.inner_facts.observation_space, env.num_envs
        width = sum(choices_of(agent.facts.action_space))
        mask = torch.ones(count, width, dtype=torch.bool, device=agent.device) if masks else None
        like = map_leaves(
            space,
            lambda _, leaf: torch.empty(
                count, *shape_of(leaf), dtype=getattr(torch, dtype_of(leaf)), device=agent.device
            ),
        )
        return stored.applied_to(Cursor(stored.observation(like, space, mask), collector.initial_carry(count)))
    steps = agent._total_steps
    own = agent.env.seeds.first if agent.config.seed is None and not steps else None
    seed = derive(agent.seed, "environments", steps) if own is None else own
    cursor = Cursor.begin(env, collector, seed)
    return cursor if stored is None else stored.applied_to(cursor)


def _masks_of(env: Any) -> bool:
    """Whether the environments, inside what prepares them, have action masks."""
    while not hasattr(env, "has_masks") and hasattr(env, "env"):
        env = env.env
    return bool(getattr(env, "has_masks", False))


def leave_episodes(agent: Agent) -> None:
    """Let training go on with new episodes, as after the environments were used for something else."""
    if agent.cursor is not None:
        agent._stored_cursor, agent.cursor, agent.in_round = StoredCursor.of(agent.cursor), None, False


def leave_moved_episodes(agent: Agent) -> None:
    """Let training go on with new episodes where the environments were stepped or reset since it ended: by hand, by another
    agent that shares them, or by a round that failed."""
    if agent.cursor is not None and (agent.in_round or _moved(agent)):
        leave_episodes(agent)


def _moved(agent: Agent) -> bool:
    return agent.run is None and agent.env is not None and agent.standing != standing_of(agent.env)


def stored_cursor(agent: Agent) -> StoredCursor | None:
    """Where the training of an agent stands, with its episodes where their state can be read; None before it began."""
    if agent.cursor is None:
        return agent._stored_cursor
    return StoredCursor.of(agent.cursor, episodes_of(agent))


def episodes_of(agent: Agent) -> Any:
    """The state of the environments an agent trains in; None where it cannot be read, as in the middle of a round."""
    if agent.env is None or agent.cursor is None or agent.in_round or _moved(agent):
        return None
    try:
        return read_state(training_env(agent))
    except (OpaqueValue, EnvironmentFault):  # unknown, closed or broken: what was learnt can be saved all the same
        return None


def restart_episodes(run: Run) -> None:
    """End the running episodes as truncations and begin new ones, as a training does that is resumed from a file without
    them."""
    agent = run.agent
    agent._stored_cursor, agent.cursor = StoredCursor.of(run.cursor), None
    run.cursor = agent.cursor = begin(agent, training_env(agent))
