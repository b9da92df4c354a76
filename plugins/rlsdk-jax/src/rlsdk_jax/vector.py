"""Vector environments of JAX environments: one compiled function makes the step of all rows.

Observations, rewards and flags reach torch by DLPack, so they stay where JAX wrote them.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rlsdk import tree
from rlsdk.environments import ConnectedEnv, connect, require_copies, to_space
from rlsdk.errors import DivergenceError, EnvironmentFault, SettingsError, UsageError, one_line, shown
from rlsdk.interfaces import State
from rlsdk.records import EnvStep, Episode, Features, Observation
from rlsdk.runtime import checked_seed, choose_device, stored_like
from rlsdk.settings import environment_id
from rlsdk.spaces import Box, Space, choices_of, dtype_of, leaf_spaces, map_leaves, shape_of
from rlsdk_jax.tasks import (
    UNLIMITED,
    Array,
    Moved,
    Task,
    Tree,
    called,
    imported,
    is_key,
    require_limit,
    restored,
    stored,
    task_of,
    traced,
)

IMPOSSIBLE = "gave an observation, a reward or an info that is not finite, or a choice that is not one of its space"


class Rows(NamedTuple):
    """What the next step continues from."""

    key: Array
    state: Tree  # leaves [B, ..]
    lengths: Array  # int32 [B]: steps of the running episodes


class Seen(NamedTuple):
    """What a step of B rows gives. Where an episode ended, `observation` is the first one of the next episode."""

    observation: Tree  # leaves [B, ..]
    last: Tree  # the observations before new episodes began
    reward: Array  # float32 [B]
    flags: Array  # bool [3, B]: terminated, truncated, ended
    lengths: Array  # int32 [B], before new episodes began
    info: Mapping[str, Array]  # the declared entries, float32 [B] each
    summary: Array  # bool [3]: an episode ended; actions are finite; observations, rewards and infos are finite


class JaxVectorEnv:
    """B rows of a `Task`. The step that ends an episode begins the next one."""

    checks_steps = True  # shapes before the first step, numbers in the compiled step

    def __init__(self, task: Task, count: int, device: str = "cpu") -> None:
        """`device` is a device of torch, on which JAX computes too; see `make_jax_vec_env`."""
        if not isinstance(task, Task):
            raise EnvironmentFault(
                f"{shown(task, 60)} is not a rlsdk_jax.Task; make_jax_vec_env(env, n) takes environments"
            )
        require_limit(task.limit)
        self.task, self.num_envs, self.device, self.name = task, require_copies(count), device, task.name
        self.observation_space: Space = to_space(task.observation_space, "observation")
        self.action_space: Space = to_space(task.action_space, "action")
        self._jax: Any = imported("jax")
        self._place = _jax_device(self._jax, device)
        self._first_state = self._checked()
        self._begun = self._jax.jit(self._begin)
        self._valid = torch.ones(count, dtype=torch.bool, device=device)
        self._returns = torch.zeros(count, dtype=torch.float64, device=device)
        self._rows: Rows | None = None
        self._key: Array | None = None
        self.select_info(())

    # --- programs, which JAX compiles ------------------------------------------------------------------------------

    def _begin(self, key: Array) -> tuple[Tree, Rows, Array]:
        """First observations and first states, and whether the observations are possible, bool []."""
        jax = self._jax
        key, own = jax.random.split(key)
        seen, state = jax.vmap(self.task.begin)(jax.random.split(own, self.num_envs))
        seen, state = self._as_first(seen, state)
        return seen, Rows(key, state, jax.numpy.zeros(self.num_envs, "int32")), self._are_possible(seen)

    def _advance(self, names: tuple[str, ...], rows: Rows, action: Tree) -> tuple[Seen, Rows]:
        """A step of all rows, and new episodes where one ended. `names`: the entries of `info` that it gives."""
        jax, jnp, count = self._jax, self._jax.numpy, self.num_envs
        key, one, two = jax.random.split(rows.key, 3)
        has_actions = _all_finite(jnp, action)
        action = map_leaves(self.action_space, self._accepted, action, path="action")
        moved: Moved = jax.vmap(self.task.advance)(jax.random.split(one, count), rows.state, action)
        reward, terminated = moved.reward.astype("float32"), moved.terminated.astype(bool)
        lengths = rows.lengths + 1
        truncated = moved.truncated.astype(bool) | (lengths >= (self.task.limit or UNLIMITED))
        ended = terminated | truncated
        last, later = self._as_first(moved.observation, moved.state)

        def renewed() -> tuple[Tree, Tree]:
            first, fresh = jax.vmap(self.task.begin)(jax.random.split(two, count))
            return jax.tree.map(partial(_where, jnp, ended), self._as_first(first, fresh), (last, later))  # type: ignore[no-any-return]

        # a branch, because first states can take longer than a step
        seen, state = jax.lax.cond(ended.any(), renewed, lambda: (last, later))
        info = {name: moved.info[name].astype("float32") for name in names}
        is_finite = _all_finite(jnp, (reward, info)) & self._are_possible(seen) & self._are_possible(last)
        flags, summary = jnp.stack([terminated, truncated, ended]), jnp.stack([ended.any(), has_actions, is_finite])
        after = Rows(key, state, jnp.where(ended, 0, lengths))
        return Seen(seen, last, reward, flags, lengths, info, summary), after

    def _are_possible(self, seen: Tree) -> Array:
        """Whether all observations [B, ..] are finite, and choices are some of their space, bool []."""
        jnp, found = self._jax.numpy, [_all_finite(self._jax.numpy, seen)]

        def leaf(_: str, space: Space, value: Array) -> None:
            if not isinstance(space, Box):
                start, sizes = (
                    np.asarray(getattr(space, "start", 0)),
                    np.asarray(choices_of(space)).reshape(shape_of(space)),
                )
                found.append(((value >= start) & (value < start + sizes)).all())

        map_leaves(self.observation_space, leaf, seen)
        return jnp.stack(found).all()

    def _as_first(self, seen: Tree, state: Tree) -> tuple[Tree, Tree]:
        """Observations in the dtypes of their space, and states in those of the first: one program then takes all states."""
        jax = self._jax
        seen = map_leaves(self.observation_space, lambda _, leaf, value: value.astype(_jax_dtype(leaf)), seen)
        return seen, jax.tree.map(partial(_as_dtype, jax), self._first_state, state)

    def _accepted(self, path: str, space: Space, action: Array) -> Array:
        """Actions [B, ..] in the shape and dtype of their space; those of a float Box are clipped."""
        jnp = self._jax.numpy
        action = action.reshape(self.num_envs, *shape_of(space))
        if isinstance(space, Box) and dtype_of(space) == "float32":
            return jnp.clip(action.astype(space.dtype), space.low, space.high)
        return action.astype("int32" if dtype_of(space) == "int64" else dtype_of(space))

    # --- checks ----------------------------------------------------------------------------------------------------

    def _checked(self) -> Tree:
        """The shapes and dtypes of the first state of one row, after checks of all functions.

        Raises:
            EnvironmentFault: JAX cannot trace the functions, an observation is not that of the space, or a step changes the
                structure of states.
        """
        jax, task = self._jax, self.task
        key = jax.eval_shape(jax.random.PRNGKey, 0)
        first = traced(lambda: jax.eval_shape(task.begin, key), self.name)
        if not isinstance(first, tuple) or len(first) != 2:
            raise EnvironmentFault(
                f"environment {self.name!r}: begin gave {shown(first, 100)}, not (observation, state)"
            )
        seen, state = first
        map_leaves(self.observation_space, self._require_leaf, _nested(self.observation_space, seen, self.name))
        action = map_leaves(self.action_space, lambda _, leaf: jax.ShapeDtypeStruct(shape_of(leaf), _jax_dtype(leaf)))
        moved = traced(lambda: jax.eval_shape(task.advance, key, state, action), self.name)
        if not isinstance(moved, Moved) or not isinstance(moved.info, Mapping):
            raise EnvironmentFault(
                f"environment {self.name!r}: advance gave {shown(moved, 100)}, not a rlsdk_jax.Moved whose info is a dict"
            )
        for what, before, after in (("observation", seen, moved.observation), ("state", state, moved.state)):
            self._require_same(what, before, after)
        flag = "bool, such as done > 0"
        rules = ("reward", "c", "a float"), ("terminated", "cf", flag), ("truncated", "cf", flag)
        for what, kinds, accepted in rules:
            value = getattr(moved, what)
            if (shape := tuple(np.shape(value))) != ():
                raise EnvironmentFault(f"environment {self.name!r}: {what} of one row has the shape {shape}, not ()")
            kind = np.dtype(value.dtype) if hasattr(value, "dtype") else None
            if kind is None or kind.kind in kinds:
                raise EnvironmentFault(f"environment {self.name!r}: {what} is of {kind}; give {accepted}")
        self._infos = {name: value for name, value in moved.info.items() if getattr(value, "shape", None) == ()}
        return state

    def _require_leaf(self, path: str, space: Space, value: Any) -> None:
        """Raises EnvironmentFault unless an observation has the shape of its space."""
        if tuple(value.shape) != shape_of(space):
            raise EnvironmentFault(
                f"environment {self.name!r}: {path} has the shape {tuple(value.shape)}, its space has {shape_of(space)}"
            )

    def _require_same(self, what: str, before: Tree, after: Tree) -> None:
        """Raises EnvironmentFault unless a step gives the structure and shapes of the first observation or state."""
        jax = self._jax
        if jax.tree.structure(before) != jax.tree.structure(after):
            raise EnvironmentFault(
                f"environment {self.name!r}: a step gives {what}s of another structure than reset: "
                + one_line(f"{jax.tree.structure(after)}, not {jax.tree.structure(before)}", 300)
            )
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
            if old.shape != new.shape:
                raise EnvironmentFault(
                    f"environment {self.name!r}: a step gives {what}s of shape {tuple(new.shape)}, reset {tuple(old.shape)}"
                )

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries that `EnvStep.info` has from now on.

        Raises:
            EnvironmentFault: the environment has no such entry with one number in each row.
        """
        for name in names:
            if name not in self._infos:
                known = ", ".join(sorted(self._infos)) or "none"
                raise EnvironmentFault(
                    f"environment {self.name!r} gives no info {name!r}, which the algorithm needs; it gives {known}"
                )
        self._stepped = self._jax.jit(partial(self._advance, tuple(names)))

    # --- steps -----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Observation:
        """Begin an episode in every row. Without a seed, random numbers continue; at the first reset they are random."""
        jax = self._jax
        if seed is not None or self._rows is None:
            # in two parts, because JAX takes 32 bits
            low, high = divmod(secrets.randbits(62) if seed is None else checked_seed(seed), 2**31)[::-1]
            key = jax.random.fold_in(jax.random.PRNGKey(low), high)
        else:
            key = self._rows.key
        seen, self._rows, is_possible = self._run(lambda: self._begun(jax.device_put(key, self._place)))
        if not bool(is_possible):
            raise EnvironmentFault(f"environment {self.name!r}: reset {IMPOSSIBLE}")
        self._returns.zero_()
        return Observation(self._features(seen), self._valid.clone())

    @torch.no_grad()
    def step(self, action: Features) -> EnvStep:
        rows = self._running()
        given = map_leaves(self.action_space, self._given, action, path="action")
        seen, self._rows = self._run(lambda: self._stepped(rows, given))
        ended, has_actions, is_finite = np.asarray(seen.summary).tolist()
        if not has_actions:
            raise DivergenceError("the policy chose an action that is not finite; its weights have diverged")
        if not is_finite:
            raise EnvironmentFault(f"environment {self.name!r}: step {IMPOSSIBLE}")
        reward, flags = from_dlpack(seen.reward), from_dlpack(seen.flags)
        self._returns += reward
        final, episodes = self._ended(flags[2], seen) if ended else (None, ())
        terminated, truncated, is_first = flags.unbind()
        observation = Observation(self._features(seen.observation), is_first)
        info = {name: from_dlpack(value) for name, value in seen.info.items()}
        return EnvStep(observation, reward, terminated, truncated, self._valid, final, episodes, info=info)

    def _run(self, call: Any) -> Any:
        return called(call, f"environment {self.name!r}")

    def _running(self) -> Rows:
        if self._rows is None:
            raise UsageError(f"environment {self.name!r} was never reset; call reset() before step()")
        return self._rows

    def _given(self, path: str, space: Space, action: Tensor) -> Any:
        """Actions [B, ..] as JAX takes them: memory of the CPU as numpy, which is faster there, otherwise by DLPack."""
        action = action.detach()
        if dtype_of(space) == "int64":
            action = action.to(torch.int32)
        return action.numpy() if action.is_cpu else self._jax.dlpack.from_dlpack(action.contiguous())

    def _ended(self, ended: Tensor, seen: Seen) -> tuple[Observation, tuple[Episode, ...]]:
        """The last observations of the F episodes that ended, and the episodes. `ended` is bool [B]."""
        rows = ended.nonzero().squeeze(-1)
        features = tree.map_tensors(lambda leaf: leaf[rows], self._features(seen.last))
        returns, lengths = self._returns[rows].tolist(), from_dlpack(seen.lengths)[rows].tolist()
        self._returns.masked_fill_(ended, 0.0)
        final = Observation(features, torch.zeros(len(rows), dtype=torch.bool, device=self.device))
        return final, tuple(map(Episode, rows.tolist(), returns, lengths))

    def _features(self, seen: Tree) -> Features:
        """Observations as tensors of the same memory; whole numbers of Discrete spaces are copied to int64."""
        return map_leaves(
            self.observation_space,
            lambda _, leaf, value: from_dlpack(value).to(getattr(torch, dtype_of(leaf))),
            _nested(self.observation_space, seen, self.name),
        )

    # --- state -----------------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """The states, lengths and returns of the running episodes, and the random key, on the CPU."""
        rows = (torch.from_numpy(stored(self._jax, leaf)) for leaf in self._jax.tree.leaves(self._running()))
        return {"rows": tree.number(tuple(rows)), "returns": self._returns.cpu().clone()}

    def set_state(self, state: State) -> None:
        """Restore a state from `get_state`.

        Raises:
            ValueError, KeyError, TypeError: it is not one of these environments.
        """
        if self._rows is None:
            self.reset(0)
        jax, rows = self._jax, self._running()
        example = jax.tree.leaves(rows)
        mine = tuple(torch.from_numpy(stored(jax, leaf)) for leaf in example)
        given = stored_like(mine, state["rows"])
        (returns,) = stored_like((self._returns,), {"0": state["returns"]})
        leaves = [restored(jax, old, new.numpy()) for old, new in zip(example, given, strict=True)]
        found: Rows = jax.tree.unflatten(jax.tree.structure(rows), leaves)
        if bool((found.lengths < 0).any()) or not bool(returns.isfinite().all()):
            raise ValueError("the lengths or returns of running episodes are not possible")
        self._rows = jax.device_put(found, self._place)
        self._returns.copy_(returns)

    def close(self) -> None:
        """Free the states of all rows."""
        self._rows = None


def make_jax_vec_env(
    env: object,
    n_envs: int,
    seed: int | None = None,
    *,
    device: str = "auto",
    max_episode_steps: int | None = None,
    **settings: object,
) -> ConnectedEnv:
    """A vector environment of an environment that is written in JAX.

    Args:
        env: an id such as `gymnax/CartPole-v1` or `brax/reacher`, also with arguments; an environment with the interface of
            gymnax or brax (MuJoCo Playground has the latter); or a class or function that makes one.
        n_envs: number of environments.
        seed: seed of the first reset that gets no seed.
        device: the torch device of all tensors, where JAX computes too; `auto` is a GPU if torch and JAX both have one.
        max_episode_steps: the step that truncates an episode. None: the environment's own limit, with brax's interface 1000.
        settings: arguments of the environment, or fields of the parameters of one of gymnax.

    Raises:
        EnvironmentFault: JAX or the package is missing, there is no such environment, or it cannot be traced.
        SettingsError: `n_envs`, `seed` or a setting is wrong, or there is no such device. UnsupportedSpaceError: of a space.
    """
    require_copies(n_envs)
    if isinstance(env, str):
        chosen = environment_id(env)
        if chosen.wrappers:
            raise SettingsError("vectorization='jax' takes no wrappers")
        settings = {**chosen.kwargs, **settings}
        own = settings.pop("max_episode_steps", None)
        task = task_of(chosen.name, settings, own if max_episode_steps is None else max_episode_steps)  # type: ignore[arg-type]
    else:
        task = task_of(env, settings, max_episode_steps)
    made = connect(JaxVectorEnv(task, n_envs, _torch_device(imported("jax"), device)), seed=seed)
    made.env_id = env if isinstance(env, str) else None
    return made


# --- devices and arrays -----------------------------------------------------------------------------------------------


def _torch_device(jax: Any, device: object) -> str:
    """The name of a device that torch and JAX both have. Raises SettingsError for others."""
    if device == "auto":
        has_both = torch.cuda.is_available() and any(each.platform == "gpu" for each in jax.devices())
        return "cuda" if has_both else "cpu"
    if not isinstance(device, str):
        raise SettingsError(f"device = {shown(device, 60)} must be text, such as 'auto', 'cpu' or 'cuda'")
    chosen = choose_device(device, "")[0]
    _jax_device(jax, chosen)
    return chosen


def _jax_device(jax: Any, device: str) -> Any:
    """The device of JAX for a device of torch. Raises SettingsError when JAX lacks it."""
    kind, _, number = device.partition(":")
    try:
        # by the text of the number: -1 would be the last device of a list, and is none of torch
        found = {str(i): each for i, each in enumerate(jax.devices({"cuda": "gpu"}.get(kind, kind)))}
        return found[number or "0"]
    except (RuntimeError, KeyError):
        has = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise SettingsError(
            f"device {device!r} is not a device of JAX, which has {has}; install JAX for it, or choose 'auto' or 'cpu'"
        ) from None


def _jax_dtype(space: Space) -> str:
    """The dtype in which JAX computes with a leaf: by default, JAX has no 64-bit numbers."""
    return {"int64": "int32"}.get(dtype_of(space), dtype_of(space))


def _nested(space: Space, value: Any, name: str) -> Any:
    """Observations, after a check that they are nested as their space. Raises EnvironmentFault otherwise."""
    try:
        return map_leaves(space, lambda _, leaf, each: (each.shape, each)[1], value)
    except (KeyError, IndexError, TypeError, AttributeError):
        paths = ", ".join(path for path, _ in leaf_spaces(space))
        raise EnvironmentFault(
            f"environment {name!r}: the observation {shown(value, 100)} is not nested as its space: {paths}"
        ) from None


def _as_dtype(jax: Any, example: Any, value: Any) -> Any:
    return value if is_key(jax, example) else jax.lax.convert_element_type(value, example.dtype)


def _where(jnp: Any, ended: Array, fresh: Array, later: Array) -> Array:
    """Rows of `fresh` where `ended` bool [B], else of `later`, both [B, ..]."""
    return jnp.where(ended.reshape(-1, *(1,) * (fresh.ndim - 1)), fresh, later)


def _all_finite(jnp: Any, node: Tree) -> Array:
    """Whether all numbers of a tree are finite, bool []."""
    leaves = sys.modules["jax"].tree.leaves(node)
    found = [jnp.isfinite(leaf).all() for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.stack(found).all() if found else jnp.asarray(True)
