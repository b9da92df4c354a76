"""Vector environments that are written in torch, as functions of the states of many environments.

On a GPU, states, observations and rewards stay there. The step of all environments is one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import gymnasium
import torch
from torch import Generator, Tensor

from rlsdk import tree
from rlsdk.environments import ConnectedEnv, connect, require_copies, require_features, require_tensor, to_space
from rlsdk.errors import DivergenceError, EnvironmentFault, SettingsError, UsageError, shown
from rlsdk.interfaces import State
from rlsdk.kernels import graphed_transition
from rlsdk.records import EnvStep, Episode, Features, Observation
from rlsdk.runtime import choose_device, put_back, stored_like
from rlsdk.spaces import Box, Space, choices_of, dtype_of, leaf_spaces, map_leaves, shape_of

StateT = TypeVar("StateT")
State_contra = TypeVar("State_contra", contravariant=True)
MEMBERS = ("initial", "max_episode_steps", "observation", "reward", "terminal", "transition")
"""The members of `TorchEnv` besides its spaces."""


class TorchEnv(Protocol[StateT]):
    """An environment as functions of tensors, for `make_torch_vec_env`.

    The names are those of gymnasium's `FuncEnv`. A state is a tensor, or a tuple, named tuple, dict or dataclass of tensors,
    all [B, ..]: the states of B environments. Functions return new tensors and change nothing else: neither their arguments
    nor, for example, a list. They draw random numbers from `rng` only. A GPU can replay them as a CUDA graph if they do not
    read values of tensors in Python, as in `if float(state[0]) > 1`.
    """

    @property
    def observation_space(self) -> object: ...

    @property
    def action_space(self) -> object: ...

    @property
    def max_episode_steps(self) -> int | None:
        """The step that truncates an episode; None: no limit."""
        ...

    def initial(self, count: int, rng: Generator) -> StateT:
        """Return `count` first states, on the device of `rng`."""
        ...

    def transition(self, state: StateT, action: Features, rng: Generator) -> StateT:
        """Return the next states. `action` is [B, ..], nested like the action space; actions of a float Box are clipped."""
        ...

    def observation(self, state: StateT) -> Features:
        """Return the observations [B, ..], nested like the space, in the dtypes of `rlsdk.spaces.dtype_of`."""
        ...

    def reward(self, state: StateT, action: Features, next_state: StateT) -> Tensor:
        """Return the rewards, float32 [B]."""
        ...

    def terminal(self, state: StateT) -> Tensor:
        """Return whether the episodes end in these states, bool [B]."""
        ...


@runtime_checkable
class InformsOfSteps(Protocol[State_contra]):
    """Environments in torch with entries of `info`, for algorithms that declare some."""

    def info(self, state: State_contra, action: Features, next_state: State_contra) -> Mapping[str, Tensor]:
        """Return the entries of `EnvStep.info` by name, float32 [B] each. It is called only if some are declared."""
        ...


@runtime_checkable
class MasksStates(Protocol[State_contra]):
    """Environments in torch that allow some actions only."""

    def action_mask(self, state: State_contra) -> Tensor:
        """Return the masks of these states, bool [B, A], True where the action is allowed."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Now:
    """What a step of B environments returns. Where an episode ended, the observation is the first one of the next episode."""

    features: Features  # [B, ..]
    mask: Tensor | None  # bool [B, A]
    reward: Tensor  # float32 [B]
    flags: Tensor  # bool [3, B]: terminated, truncated, ended
    info: Mapping[str, Tensor]  # the declared entries, float32 [B] each


@dataclass(frozen=True, slots=True, eq=False)
class _Then:
    """The end of a step, before new episodes began. It is read before the next step."""

    features: Features  # [B, ..]
    mask: Tensor | None  # bool [B, A]
    totals: Tensor  # float64 [3, B]: returns and lengths of the episodes, and the number of the environment
    summary: Tensor  # bool [3]: an episode ended; actions are finite; observations and rewards are finite


class TorchVectorEnv(Generic[StateT]):
    """B environments of a `TorchEnv`. The step that ends an episode begins the next one."""

    checks_steps = True  # on the device, without waiting for it

    def __init__(self, env: TorchEnv[StateT], count: int, spaces: tuple[Space, Space], device: str) -> None:
        self.env, self.num_envs, self.device = env, count, device
        self.observation_space, self.action_space = spaces
        self.name = type(env).__name__
        self.has_masks = isinstance(env, MasksStates)
        self._generator = Generator(device)
        self._bounds = {
            path: _bounds(leaf, device)
            for path, leaf in leaf_spaces(spaces[1], "action")
            if isinstance(leaf, Box) and dtype_of(leaf) == "float32"
        }
        self._valid = torch.ones(count, dtype=torch.bool, device=device)
        self._numbers = torch.arange(count, dtype=torch.float64, device=device)
        self._lengths = torch.zeros(count, dtype=torch.int64, device=device)
        self._returns = torch.zeros(count, dtype=torch.float64, device=device)
        self._kept: StateT | None = None  # its tensors keep their memory
        self._info_names = tuple[str, ...]()
        self._replayed = graphed_transition(self._transition, env, self._generator)

    @torch.no_grad()
    def reset(self, seed: int | None = None) -> Observation:
        _ = self._generator.seed() if seed is None else self._generator.manual_seed(seed)
        self._begin()
        if self._replayed is not None:
            self._replayed.forget()
        return Observation(self._observed(self._state), self._valid.clone(), self._mask(self._state))

    def _begin(self) -> None:
        """Set first states and empty episodes."""
        with torch.inference_mode(False):  # so that the memory of the states may be changed in any mode
            state = self.env.initial(self.num_envs, self._generator)
            if self._kept is None:
                self._kept = self._first(state)
            self._put(state, "initial")
        self._lengths.zero_()
        self._returns.zero_()

    @property
    def _state(self) -> StateT:
        """The current states.

        Raises:
            UsageError: the environments were never reset.
        """
        if self._kept is None:
            raise UsageError(f"environment {self.name!r} was never reset; call reset() before step()")
        return self._kept

    def _first(self, state: StateT) -> StateT:
        """A copy of the first states. Raises EnvironmentFault when they are anything else than tensors [B, ..]."""
        try:
            leaves = tree.leaves(state)
        except TypeError as error:
            raise EnvironmentFault(f"environment {self.name!r}, initial: {error}") from None
        if not leaves:
            raise EnvironmentFault(f"environment {self.name!r}, initial: got {shown(state)}, which has no tensors")
        for leaf in leaves:
            self._leaf(leaf, leaf.dtype, "initial", *leaf.shape[1:])
        return tree.map_tensors(Tensor.clone, state)

    def _put(self, state: StateT, what: str) -> None:
        for mine, new in zip(tree.leaves(self._state), self._leaves(state, what), strict=True):
            mine.copy_(new)

    @torch.no_grad()
    def step(self, action: Features) -> EnvStep:
        replayed = self._replayed
        now, then = self._transition(action, self._generator) if replayed is None else replayed(action)
        ended, has_actions, is_finite = then.summary.tolist()
        if not has_actions:
            raise DivergenceError("the policy chose an action that is not finite; its weights have diverged")
        if not is_finite:
            raise EnvironmentFault(
                f"environment {self.name!r} gave an observation, a reward or an info that is not finite"
            )
        terminated, truncated, is_first = now.flags.unbind()
        final, episodes = self._ended(is_first, then) if ended else (None, ())
        observation = Observation(now.features, is_first, now.mask)
        return EnvStep(observation, now.reward, terminated, truncated, self._valid, final, episodes, info=now.info)

    def _transition(self, action: Features, generator: Generator) -> tuple[_Now, _Then]:
        """Make a step; a GPU replays it. It changes the tensors of the state, the lengths and the returns in place."""
        env, state = self.env, self._state
        has_actions = _all_finite(action, self._valid)
        action = map_leaves(self.action_space, self._accepted, action, path="action")
        after = env.transition(state, action, generator)
        later = self._leaves(after, "transition")
        reward, terminated = env.reward(state, action, after), env.terminal(after)
        self._leaf(reward, torch.float32, "reward")
        self._leaf(terminated, torch.bool, "terminal")
        self._lengths += 1
        self._returns += reward
        limit = env.max_episode_steps
        truncated = torch.zeros_like(terminated) if limit is None else self._lengths >= limit
        ended = terminated | truncated
        flags, reward, info = torch.stack([terminated, truncated, ended]), reward.clone(), self._info(action, after)
        last, last_mask = self._observed(after), self._mask(after)
        totals = torch.stack([self._returns, self._lengths.double(), self._numbers])
        self._renew(later, ended, generator)
        now = _Now(self._observed(self._state), self._mask(self._state), reward, flags, info)
        is_finite = _all_finite((now.features, last, reward, info), self._valid)
        return now, _Then(last, last_mask, totals, torch.stack([ended.any(), has_actions, is_finite]))

    def _renew(self, later: list[Tensor], ended: Tensor, generator: Generator) -> None:
        """Continue with the states whose leaves [B, ..] are `later`, and with first states where `ended` bool [B]."""
        fresh = self._leaves(self.env.initial(self.num_envs, generator), "initial")
        rows = [ended.view(-1, *(1,) * (leaf.dim() - 1)) for leaf in fresh]
        # all before the first copy, as `later` may contain the memory of the current states
        found = [torch.where(*leaves) for leaves in zip(rows, fresh, later, strict=True)]
        for mine, new in zip(tree.leaves(self._state), found, strict=True):
            mine.copy_(new)
        self._lengths.masked_fill_(ended, 0)
        self._returns.masked_fill_(ended, 0.0)

    def _ended(self, ended: Tensor, then: _Then) -> tuple[Observation, tuple[Episode, ...]]:
        """The last observations of the F episodes that ended, and the episodes. `ended` is bool [B]."""
        rows = ended.nonzero().squeeze(-1)
        features = tree.map_tensors(lambda leaf: leaf[rows], then.features)
        mask = None if then.mask is None else then.mask[rows]
        returns, lengths, numbers = then.totals[:, rows].tolist()
        final = Observation(features, torch.zeros(len(rows), dtype=torch.bool, device=self.device), mask)
        return final, tuple(map(Episode, map(int, numbers), returns, map(int, lengths)))

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries that `EnvStep.info` has from now on. Raises EnvironmentFault if the environment has none."""
        if names and not isinstance(self.env, InformsOfSteps):
            raise EnvironmentFault(
                f"environment {self.name!r} has no info, but the algorithm needs {', '.join(map(repr, names))};"
                " write info(self, state, action, next_state), which returns them by name"
            )
        before, self._info_names = self._info_names, tuple(names)
        if self._replayed is not None and before != self._info_names:
            self._replayed.forget()

    def _info(self, action: Features, after: StateT) -> dict[str, Tensor]:
        """Copies of the declared entries, float32 [B] each."""
        if not self._info_names or not isinstance(self.env, InformsOfSteps):
            return {}
        given = self.env.info(self._state, action, after)
        for name in self._info_names:
            self._leaf(given.get(name), torch.float32, f"info, {name!r}")
        return {name: given[name].clone() for name in self._info_names}

    # --- checks ----------------------------------------------------------------------------------------------------

    def _accepted(self, path: str, space: Space, action: Tensor) -> Tensor:
        """Actions [B, ..] in the shape and dtype of their space; those of a float Box are clipped."""
        action = action.to(self.device).reshape(self.num_envs, *shape_of(space))
        bounds = self._bounds.get(path)
        return action if bounds is None else action.clamp(*bounds)

    def _observed(self, state: StateT) -> Features:
        """The observations [B, ..] of states. They are copied, because they may be the memory of the states."""
        features = self.env.observation(state)
        require_features(self.observation_space, features, self.num_envs, self.device, f"environment {self.name!r}, ")
        return tree.map_tensors(Tensor.clone, features)

    def _mask(self, state: StateT) -> Tensor | None:
        if not isinstance(self.env, MasksStates):
            return None
        mask = self.env.action_mask(state)
        self._leaf(mask, torch.bool, "action_mask", sum(choices_of(self.action_space)))
        return mask.clone()

    def _leaf(self, value: object, dtype: torch.dtype, what: str, *shape: int) -> None:
        require_tensor(value, (self.num_envs, *shape), dtype, self.device, f"environment {self.name!r}, {what}")

    def _leaves(self, state: StateT, what: str) -> list[Tensor]:
        """The leaves [B, ..] of states, in the order of those of the current states.

        Raises:
            EnvironmentFault: they have another structure, shape or dtype.
        """
        mine = tree.leaves(self._state)
        try:
            given = list(tree.layout(self._state).pick(state))
            same = len(tree.leaves(state)) == len(mine)
        except (AttributeError, KeyError, IndexError, TypeError):
            same = False
        if not same:
            raise EnvironmentFault(
                f"environment {self.name!r}, {what}: got {shown(state)}, not states with the structure of the first ones"
            )
        for leaf, new in zip(mine, given, strict=True):
            self._leaf(new, leaf.dtype, what, *leaf.shape[1:])
        return given

    # --- state -----------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """The states, lengths and returns of the running episodes, and the random generator, on the CPU."""
        counts = {name: count.cpu() for name, count in self._counts.items()}
        states = {name: leaf.cpu() for name, leaf in tree.number(self._state).items()}
        return {"states": states, "counts": counts, "generator": self._generator.get_state()}

    @torch.no_grad()
    def set_state(self, state: State) -> None:
        """Restore a state from `get_state`.

        Raises:
            ValueError, KeyError, TypeError: it is not one of these environments.
        """
        self._begin()
        states, counts = stored_like(self._state, state["states"]), stored_like(self._counts, state["counts"])
        if bool((counts["lengths"] < 0).any()) or not bool(counts["returns"].isfinite().all()):
            raise ValueError("the lengths or returns of running episodes are not possible")
        put_back(self._generator, state["generator"])
        self._put(states, "set_state")
        for name, count in self._counts.items():
            count.copy_(counts[name])

    @property
    def _counts(self) -> dict[str, Tensor]:
        """The lengths and returns [B] of the running episodes, in place."""
        return {"lengths": self._lengths, "returns": self._returns}

    def close(self) -> None:
        """Do nothing; the memory is freed with the object."""


def make_torch_vec_env(
    env: TorchEnv[StateT], n_envs: int, seed: int | None = None, *, device: str = "auto"
) -> ConnectedEnv:
    """A vector environment of an environment that is written in torch.

    Args:
        env: functions of states; see `rlsdk_envs.TorchEnv`. With a method `action_mask(state)` it has action masks.
        n_envs: number of environments.
        seed: seed of the first reset that gets no seed.
        device: the torch device of all tensors; `auto` is a GPU if there is one.

    Raises:
        EnvironmentFault: `env` lacks a member. SettingsError: `n_envs` or `seed` is out of range, or there is no such device.
        UnsupportedSpaceError: a space is of an unknown kind.
    """
    require_copies(n_envs)
    if missing := [name for name in ("observation_space", "action_space", *MEMBERS) if not hasattr(env, name)]:
        raise EnvironmentFault(f"{shown(env)} lacks {', '.join(missing)} (rlsdk_envs.TorchEnv)")
    limit = env.max_episode_steps
    if limit is not None and (type(limit) is not int or limit < 1):
        raise SettingsError(f"max_episode_steps = {limit!r} must be a positive whole number, or None")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    spaces = _space(env.observation_space, "observation"), _space(env.action_space, "action")
    return connect(TorchVectorEnv(env, n_envs, spaces, choose_device(device, "")[0]), seed=seed)


def _space(space: object, what: str) -> Space:
    if isinstance(space, Space):
        return space
    if not isinstance(space, gymnasium.Space):
        raise EnvironmentFault(f"the {what} space is {shown(space)}; give a gymnasium space, or one of rlsdk.spaces")
    return to_space(space, what)


def _bounds(box: Box, device: str) -> tuple[Tensor, Tensor]:
    low, high = (torch.as_tensor(bound, dtype=torch.float32, device=device) for bound in (box.low, box.high))
    return low, high


def _all_finite(node: object, true: Tensor) -> Tensor:
    """Whether all numbers of the leaves [B, ..] of a tree are finite, bool []. `true` is bool [B]."""
    found = [leaf.isfinite().all() for leaf in tree.leaves(node) if leaf.is_floating_point()]
    return torch.stack([leaf.to(true.device) for leaf in found]).all() if found else true.all()
