"""Simulators with the interface of Isaac Lab's and Isaac Gym's trainers: torch tensors, groups of observations, time-outs.

Such an environment steps B robots together and resets those whose episode has ended inside the same step:

    obs, extras = env.reset()
    obs, rewards, dones, extras = env.step(actions)

`obs` is a tensor [B, ..], or groups by name: `policy` is what the actor may see, `critic` what only the value function may see.
Groups may also be in `extras["observations"]`. `dones` marks ended episodes, and `extras["time_outs"]` those that ended by
their time limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import gymnasium
import numpy as np
import torch
from torch import Tensor

from rlsdk import spaces, tree
from rlsdk.environments import ConnectedEnv, connect, require_copies, require_features, require_tensor, to_space
from rlsdk.errors import EnvironmentFault, UsageError, shown
from rlsdk.records import EnvStep, Episode, Features, Observation
from rlsdk.runtime import choose_device
from rlsdk.spaces import Space

Given: TypeAlias = Any
"""What a simulator returns. It is checked: simulators name groups and entries of `extras` as they like."""
Extras: TypeAlias = Mapping[str, Given]
POLICY = "policy"
"""The group that the actor sees. Observations without groups are of this one."""
FINAL = ("final_observation", "final_obs", "terminal_observations")
"""Entries of `extras` that may hold the last observations of episodes, in the form of `obs`."""


class IsaacEnv(Protocol):
    """The members of a simulator that `make_isaac_vec_env` uses. `num_actions` or `action_space` gives the actions."""

    num_envs: int
    device: object

    def reset(self) -> tuple[Given, Extras]: ...

    def step(self, actions: Tensor) -> tuple[Given, Tensor, Tensor, Extras]: ...


class IsaacVectorEnv:
    """A simulator with the interface `IsaacEnv` as a vector environment of rlsdk. Its tensors stay on its device."""

    def __init__(self, env: IsaacEnv, action_space: Space) -> None:
        """See `make_isaac_vec_env`."""
        self.env, self.action_space, self.name = env, action_space, type(env).__name__
        self.num_envs, self.device = require_copies(env.num_envs), choose_device(str(env.device), "")[0]
        self._last = self._groups(self._asked(env.reset(), "reset", 2))
        self.observation_space = _space_of(self._last, self.num_envs, self.name)
        self._names, self._valid = tuple[str, ...](), torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._returns, self._lengths = self._valid.double().zero_(), self._valid.long().zero_()

    def reset(self, seed: int | None = None) -> Observation:
        """Begin an episode in every environment. A seed is passed to the simulator's method `seed`, if it has one."""
        if seed is not None and callable(seeded := getattr(self.env, "seed", None)):
            seeded(seed % 2**31)
        self._last = self._groups(self._asked(self.env.reset(), "reset", 2))
        self._returns.zero_()
        self._lengths.zero_()
        return Observation(self._last, self._valid.clone())

    def step(self, action: Tensor) -> EnvStep:
        _, reward, done, extras = given = self._asked(self.env.step(action.to(self.device)), "step", 4)
        before, self._last = self._last, self._groups(given)
        reward, done = self._numbers(reward, "rewards"), self._flags(done, "dones")
        limit = extras.get("time_outs")
        late = torch.zeros_like(done) if limit is None else torch.as_tensor(limit, device=done.device)
        truncated = done & self._flags(late, "extras['time_outs']")
        self._returns += reward
        self._lengths += 1
        final, episodes = self._ended(done, extras, before) if bool(done.any()) else (None, ())
        what = "extras[{!r}], which the algorithm reads"
        info = {name: self._numbers(extras.get(name), what.format(name)) for name in self._names}
        seen = Observation(self._last, done.clone())
        return EnvStep(seen, reward, done & ~truncated, truncated, self._valid, final, episodes, info=info)

    def _ended(self, done: Tensor, extras: Extras, before: Features) -> tuple[Observation, tuple[Episode, ...]]:
        """The last observations of the F episodes that ended (`done` bool [B]), and the episodes. Their counts start from 0.

        `before`: the observations [B, ..] of the step before, which stand for last observations that the simulator does not
        give.
        """
        rows = done.nonzero().squeeze(-1)
        name = next((name for name in FINAL if extras.get(name) is not None), None)
        last = before if name is None else self._groups((extras[name], {}), like=before)
        features = tree.map_tensors(lambda leaf: leaf[rows] if leaf.shape[:1] == done.shape else leaf, last)
        where = f"environment {self.name!r}, {name}, "
        require_features(self.observation_space, features, len(rows), self.device, where)
        columns = rows.tolist(), self._returns[rows].tolist(), self._lengths[rows].tolist()
        self._returns.masked_fill_(done, 0.0)
        self._lengths.masked_fill_(done, 0)
        return Observation(features, torch.zeros_like(rows, dtype=torch.bool)), tuple(map(Episode, *columns))

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries of `extras`, [B] each, that steps have as `info` from now on."""
        self._names = tuple(names)

    def close(self) -> None:
        """Close the simulator, if it has a method `close`."""
        if callable(closes := getattr(self.env, "close", None)):
            closes()

    # --- checks ------------------------------------------------------------------------------------------------------

    def _asked(self, given: object, what: str, parts: int) -> Given:
        """What the simulator returned. Raises EnvironmentFault if it is not a tuple of `parts` that ends with a table."""
        if not isinstance(given, tuple) or len(given) != parts or not isinstance(given[-1], Mapping):
            form = "(obs, extras)" if parts == 2 else "(obs, rewards, dones, extras)"
            raise EnvironmentFault(f"environment {self.name!r}: {what} returned {shown(given, 100)}, not {form}")
        return given

    def _groups(self, given: Sequence[Given], like: Features = None) -> Features:
        """Copies of the groups of observations in (obs, .., extras): a tensor if there is only `policy`, else a table."""
        seen, more = given[0], given[-1].get("observations")
        groups = dict(seen.items()) if hasattr(seen, "items") else {POLICY: seen}
        groups |= dict(more.items()) if hasattr(more, "items") else {}
        if like is not None:
            groups = {name: groups.get(name) for name in (like if isinstance(like, Mapping) else (POLICY,))}
        for name, value in groups.items():
            if not isinstance(value, Tensor):
                raise EnvironmentFault(
                    f"environment {self.name!r}: the group {name!r} is {shown(value, 60)}, not a tensor; join its terms"
                )
        copies = {str(name): value.to(torch.float32, copy=True) for name, value in groups.items()}
        return copies[POLICY] if set(copies) == {POLICY} else copies

    def _numbers(self, value: Given, what: str) -> Tensor:
        """A copy of a tensor [B] as float32. Raises EnvironmentFault for anything else."""
        where, dtype = f"environment {self.name!r}, {what}", getattr(value, "dtype", torch.float32)
        require_tensor(value, (self.num_envs,), dtype, self.device, where)
        return value.to(torch.float32, copy=True)  # type: ignore[no-any-return]

    def _flags(self, value: Given, what: str) -> Tensor:
        """Flags [B] as bool. Raises EnvironmentFault for a float that is neither 0 nor 1, such as NaN."""
        numbers = self._numbers(value, what)
        if value.is_floating_point() and not bool(((numbers == 0) | (numbers == 1)).all()):
            raise EnvironmentFault(f"environment {self.name!r}, {what}: floats other than 0 and 1; give bool")
        return numbers.to(torch.bool)


def _space_of(groups: Features, count: int, name: str) -> Space:
    """The space of groups [B, ..]. Raises EnvironmentFault for tensors of another number of rows."""

    def box(value: Tensor) -> Space:
        if value.dim() < 2 or len(value) != count:
            raise EnvironmentFault(f"environment {name!r}: an observation is {tuple(value.shape)}, not [{count}, ..]")
        return to_space(gymnasium.spaces.Box(-np.inf, np.inf, tuple(value.shape[1:]), np.float32), "observation")

    if isinstance(groups, Tensor):
        return box(groups)
    if not groups:
        raise EnvironmentFault(f"environment {name!r}: reset gave no group of observations, such as {POLICY!r}")
    return spaces.Dict({key: box(value) for key, value in groups.items()})


def make_isaac_vec_env(env: IsaacEnv, action_space: gymnasium.Space[object] | None = None) -> ConnectedEnv:
    """A vector environment of a simulator with the interface of Isaac Lab's trainers; see `rlsdk_envs.isaac_vector`.

    The critic alone sees the group `critic` with `critic_class = "mlp"`, `actor_class = "mlp"` and
    `actor_kwargs = {"keys": ["policy"]}` in `policy_kwargs`; rlsdk-networks has `mlp`.

    If an episode ends by its time limit, the rest of its return is estimated from its last observation. Simulators reset inside
    the step, so it must be in `extras["final_observation"]` (or `final_obs`), for all rows or for those that ended. Without it,
    the observation before the step is taken.

    Args:
        env: the simulator. It has `num_envs`, `device`, `reset()` and `step(actions)`.
        action_space: the space of the actions of one environment; None: `env.single_action_space`, or a Box without bounds that
            has `env.num_actions` numbers.

    Rewards, `dones` and `time_outs` are tensors [B]. Flags are bool or integers, or floats 0 and 1. All numbers are finite.

    Raises:
        EnvironmentFault: a member is missing, or observations are not tensors [B, ..]. UsageError: there is no action space.
        SettingsError: `num_envs` is not a positive whole number, or this machine has no such device.
    """
    if missing := [name for name in ("num_envs", "device", "reset", "step") if not hasattr(env, name)]:
        raise EnvironmentFault(f"{shown(env)} lacks {', '.join(missing)} (rlsdk_envs.isaac_vector)")
    chosen = action_space if action_space is not None else getattr(env, "single_action_space", None)
    if chosen is None and isinstance(count := getattr(env, "num_actions", None), int) and count > 0:
        chosen = gymnasium.spaces.Box(-np.inf, np.inf, (count,), np.float32)
    if not isinstance(chosen, gymnasium.Space):
        raise UsageError(f"{type(env).__name__} has neither num_actions nor single_action_space; give action_space")
    return connect(IsaacVectorEnv(env, to_space(chosen, "action")))
