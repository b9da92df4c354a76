"""A vector environment for loops in the style of stable-baselines3, with numpy arrays and an info per environment."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from rlsdk.environments import ConnectedEnv, connect, to_gymnasium
from rlsdk.errors import MaskError, UsageError, message_of, shown
from rlsdk.interfaces import VectorEnv, VectorEnvAbilities, ability
from rlsdk.records import EnvStep, Features
from rlsdk.spaces import Box, Dict, Space, Tuple, dtype_of, shape_of
from rlsdk_sb3.steps import Array, Arrays, documented_infos

Indices: TypeAlias = int | Sequence[int] | None
"""The numbers of environments; None: all of them."""
Stepped: TypeAlias = tuple[Arrays, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]
"""The result of `step`: (observations [B, ..], rewards [B], dones [B], B infos)."""
STEPPING = ("reset", "step")
"""Methods that change the state of an environment."""


class NumpyVectorEnv:
    """B environments that are stepped with numpy arrays. `model.get_env()` returns such an object.

    A step that ends an episode also resets its environment. Observations are those of the environment, neither normalized nor
    stacked, and `model.predict` accepts them in this form. Constructors, `set_env` and `evaluate_policy` accept this object.
    If it is stepped or reset, the next `learn` begins new episodes.
    """

    def __init__(self, env: VectorEnv, moved: Callable[[], None] | None = None) -> None:
        """`moved`: a function that is called before the environments are stepped or reset."""
        self.env: ConnectedEnv = env if isinstance(env, ConnectedEnv) else connect(env)
        self._moved = moved
        self.num_envs: int = self.env.num_envs
        self.observation_space = to_gymnasium(self.env.observation_space)
        self.action_space = to_gymnasium(self.env.action_space)
        self._seed: int | None = None
        self._pending: Features | None = None
        self._began = time.time()

    # --- the loop ------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: object = None) -> Arrays:
        """Start an episode in every environment, and return the observations [B, ..], nested as the space.

        `seed` and `options` replace those of `seed` and `set_options`.
        """
        self._move()
        if options is not None:
            self.set_options(options)
        seed, self._seed, self._pending = self._seed if seed is None else seed, None, None
        return to_arrays(self.env.observation_space, self.env.reset(seed).features)

    def step(self, actions: object) -> Stepped:
        """Step every environment, and return (observations [B, ..], rewards float32 [B], dones bool [B], B infos).

        Every info has the entry `TimeLimit.truncated` in addition to those of the environment. Where an episode ended, the
        observation is the first one of the next episode. The info then has `terminal_observation` and `episode` (`r` return,
        `l` number of steps, `t` seconds since this object was made).

        Args:
            actions: actions from `predict`: an array [B, ..], or B dicts or tuples for a Dict or Tuple space.

        Raises:
            UsageError: the actions have another shape. EnvironmentFault: an environment raised an error or is invalid.
        """
        return self._step(to_actions(self.env.action_space, actions, self.num_envs))

    def _step(self, action: Features) -> Stepped:
        self._move()
        self.env.keep_infos(True)
        try:
            return self._answer(self.env.step(action))
        finally:
            self.env.keep_infos(False)

    def step_async(self, actions: object) -> None:
        """Store the actions for the next call of `step_wait`."""
        self._pending = to_actions(self.env.action_space, actions, self.num_envs)

    def step_wait(self) -> Stepped:
        """The result of `step` for the actions that `step_async` stored.

        Raises:
            UsageError: there are no stored actions.
        """
        if self._pending is None:
            raise UsageError("step_wait needs actions; call step_async(actions) first")
        actions, self._pending = self._pending, None
        return self._step(actions)

    def _move(self) -> None:
        self.env.require_steps()
        if self._moved is not None:
            self._moved()

    def _answer(self, step: EnvStep) -> Stepped:
        final, space = step.final_observation, self.env.observation_space
        finals = None if final is None else to_arrays(space, final.features)
        infos = documented_infos(step, finals, time.time() - self._began)
        ended = (step.terminated | step.truncated).numpy(force=True)
        return to_arrays(space, step.observation.features), step.reward.numpy(force=True), ended, infos

    # --- seeds, attributes, methods ------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Set the seed of the next `reset`. Each environment gets its own seed, derived from it."""
        self._seed = seed
        return [seed] * self.num_envs

    def set_options(self, options: object = None) -> None:
        """Set the options that the next `reset` passes to the environments, once: a dict for all, or a list with one for each.

        Raises:
            SettingsError: the options are something else, or their number is wrong.
            UsageError: this kind of environment is reset without options.
        """
        self.env.set_options(options)

    @property
    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return list(self.env.reset_infos())

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """The values of an attribute of the environments or of their wrappers."""
        return list(self.env.get_attr(attr_name, indices))

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the wrapper that has it, or of the environment."""
        self.env.set_attr(attr_name, value, indices)

    def env_method(self, method_name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[Any]:
        """Call a method of the environments, and return the results in the order of `indices`."""
        if method_name in STEPPING:
            self._move()
        return list(self.env.env_method(method_name, *args, indices=indices, **kwargs))

    def has_attr(self, attr_name: str) -> bool:
        """Whether all environments have the attribute, in the environment or in a wrapper."""
        return all(self.env_method("has_wrapper_attr", attr_name))

    def env_is_wrapped(self, wrapper_class: type[object] | str, indices: Indices = None) -> list[bool]:
        """Whether each environment is inside a wrapper of the class `wrapper_class`, given as a class or its name."""
        kind = wrapper_class
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
        return [name in names or name in (n.rpartition(".")[2] for n in names) for names in self.env.wrappers(indices)]

    def action_masks(self) -> NDArray[np.bool_]:
        """The current action masks, bool [B, A].

        Raises:
            MaskError: the environments have no method `action_masks`.
        """
        return get_action_masks(self)

    @property
    def envs(self) -> list[Any]:
        """The environments themselves.

        Raises:
            UsageError: they are not in this process; use `get_attr` and `env_method`.
        """
        if not self.env.environments:
            raise UsageError(
                f"environment {self.env.name!r} is not in this process; use get_attr, set_attr, env_method"
            )
        return list(self.env.environments)

    @property
    def unwrapped(self) -> NumpyVectorEnv:
        """This object. Normalization and frame stacking are done by the agent, so there is no wrapper around it."""
        return self

    @property
    def venv(self) -> ConnectedEnv:
        """The `rlsdk.interfaces.VectorEnv` that algorithms step."""
        return self.env

    # --- pictures ------------------------------------------------------------------------------------------------

    @property
    def render_mode(self) -> str | None:
        """The render mode with which the environments were made; None if they have none or it is unknown."""
        try:
            mode = self.env.get_attr("render_mode")[0]
        except UsageError:  # no separate environments
            return None
        return mode if isinstance(mode, str) else None

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """An image of each environment, uint8 [height, width, 3]; None for an environment that cannot render images."""
        return pictures_of(self.env)

    def render(self, mode: str | None = None) -> NDArray[np.uint8] | None:
        """Show the environments in windows (`human`, the default), or return one image of all of them (`rgb_array`).

        Another mode, such as `ansi`, calls `render` of environments that were made with it. Warns if no window can be opened.

        Raises:
            UsageError: the environments were made with another mode.
        """
        if mode == "rgb_array" or (mode is None and self.render_mode == "rgb_array"):
            return tiled(self.get_images())
        if (mode or self.render_mode) not in (None, "human"):
            if mode not in (None, self.render_mode):
                made = f"the environments were made with render_mode={self.render_mode!r}"
                raise UsageError(
                    f"render mode {mode!r} is not theirs: {made}; accepted: 'human', 'rgb_array', and that one"
                )
            self.env.env_method("render")
            return None
        if (problem := show_windows(self.env)) is not None:
            warnings.warn(f"nothing is shown: {problem}; get_images() gives pictures", UserWarning, stacklevel=2)
        return None

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def to_arrays(space: Space, features: Features) -> Arrays:
    """The tensors [B, ..] `features`, nested as the space, as numpy arrays in the dtypes of the space."""
    if isinstance(space, Dict):
        return {key: to_arrays(child, features[key]) for key, child in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(to_arrays(child, part) for child, part in zip(space.spaces, features, strict=True))
    array: Array = features.numpy(force=True)
    return array.astype(space.dtype if isinstance(space, Box) else dtype_of(space), copy=False)


def to_actions(space: Space, actions: object, count: int, path: str = "actions") -> Features:
    """The actions of `count` environments as tensors [B, ..], nested as the space.

    Raises:
        UsageError: the actions have another number or shape, or are not numbers.
    """
    if parts := _parts(space):
        columns = _columns(space, actions, count, path)
        found = {
            str(key): to_actions(child, column, count, f"{path}[{key!r}]")
            for (key, child), column in zip(parts, columns, strict=True)
        }
        return found if isinstance(space, Dict) else tuple(found.values())
    if isinstance(actions, torch.Tensor):
        actions = actions.numpy(force=True)
    shape = (count, *shape_of(space))
    try:
        array = np.asarray(actions)
    except ValueError:
        array = np.empty(0, object)
    kinds = "biuf" if isinstance(space, Box) else "biu"
    if array.dtype.kind not in kinds or array.size != math.prod(shape) or array.shape[:1] != (count,):
        raise UsageError(f"{path} are {shown(actions)}; this environment takes an array of shape {shape}")
    return torch.from_numpy(np.array(array.reshape(shape), dtype=array.dtype if isinstance(space, Box) else np.int64))


def _columns(space: Space, actions: Any, count: int, path: str) -> list[object]:
    """The actions of each part of a Dict or Tuple space, for all environments."""
    keys = [key for key, _ in _parts(space)]
    try:
        # a mapping (or a tuple for a Tuple space) has an entry for each part; a list has an entry for each environment
        by_part = isinstance(actions, Mapping) if isinstance(space, Dict) else isinstance(actions, tuple)
        if by_part:
            return [actions[key] for key in keys]
        return [[action[key] for action in actions] for key in keys]
    except (KeyError, IndexError, TypeError):
        raise UsageError(f"{path} are {shown(actions)}; give {count} actions with the parts {keys}") from None


def _parts(space: Space) -> list[tuple[str | int, Space]]:
    """(key or position, space) of each part of a Dict or Tuple; an empty list for a leaf."""
    if isinstance(space, Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces)) if isinstance(space, Tuple) else []


def pictures_of(env: ConnectedEnv) -> list[NDArray[np.uint8] | None]:
    """An image of each environment, uint8 [height, width, 3]; None for an environment that cannot render images."""
    found: list[NDArray[np.uint8] | None] = []
    for i in range(env.num_envs):
        picture = None
        if "rgb_array" in _modes(env, i) or env.get_attr("render_mode", i)[0] == "rgb_array":
            with _rendering(env, i, "rgb_array"):
                picture = env.env_method("render", indices=i)[0]
        found.append(picture if isinstance(picture, np.ndarray) else None)
    return found


def show_windows(env: ConnectedEnv) -> str | None:
    """Render each environment in its own window. Returns None, or the reason why windows cannot be shown."""
    own = set(env.get_attr("render_mode"))
    if own != {"human"} and not env.environments:
        return "the environments are in other processes; make them with render_mode='human'"
    for i in range(env.num_envs):
        if "human" not in _modes(env, i):
            return "the environment has no render mode 'human'"
        try:
            with _rendering(env, i, "human"):
                env.env_method("render", indices=i)
        except Exception as error:  # without a screen, window libraries raise many types of errors
            return f"{type(error).__name__}: {message_of(error)}"
    return None


def tiled(pictures: Sequence[NDArray[np.uint8] | None]) -> NDArray[np.uint8] | None:
    """Images of equal size, uint8 [height, width, 3], as one image with a square grid of tiles; None without images."""
    some = [picture for picture in pictures if picture is not None]
    if not some:
        return None
    columns = math.ceil(math.sqrt(len(some)))
    empty = [np.zeros_like(some[0])] * (-len(some) % columns)
    rows = [np.concatenate((some + empty)[i : i + columns], axis=1) for i in range(0, len(some), columns)]
    return np.concatenate(rows, axis=0)


def _modes(env: ConnectedEnv, index: int) -> Sequence[str]:
    metadata = env.get_attr("metadata", index)[0]
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, Sequence) else []


@contextmanager
def _rendering(env: ConnectedEnv, index: int, mode: str) -> Iterator[None]:
    """A context in which environment `index` has the render mode `mode`.

    The mode is changed only if the environment supports it, and was made without a mode or `mode` is `human`.
    """
    made = env.get_attr("render_mode", index)[0]
    changes = made != mode and (made is None or mode == "human") and mode in _modes(env, index)
    if changes:
        env.set_attr("render_mode", mode, index)
    try:
        yield
    finally:
        if changes:
            env.set_attr("render_mode", made, index)


METHOD = "action_masks"


def is_masking_supported(env: object) -> bool:
    """Whether an environment gives action masks.

    `env` is a gymnasium environment or a vector environment such as that of `model.get_env()`. A gymnasium environment or one
    of its wrappers must have a method `action_masks`, and so must all environments of a vector environment.
    """
    if (separate := ability(env, VectorEnvAbilities, "env_method")) is not None:
        return getattr(env, "has_masks", False) or all(separate.env_method("has_wrapper_attr", METHOD))
    has_attribute = getattr(env, "has_wrapper_attr", None)  # of gymnasium; other objects have no masks
    return callable(has_attribute) and bool(has_attribute(METHOD))


def get_action_masks(env: object) -> NDArray[np.bool_]:
    """The current action masks: bool [A] of a gymnasium environment, bool [B, A] of a vector environment.

    Raises:
        MaskError: an environment has no method `action_masks`.
    """
    if (separate := ability(env, VectorEnvAbilities, "env_method")) is not None:
        if not all(separate.env_method("has_wrapper_attr", METHOD)):
            raise MaskError(f"environments have no method {METHOD!r}; rlsdk_envs.ActionMasker adds one")
        return np.stack([np.asarray(mask, dtype=bool) for mask in separate.env_method(METHOD)])
    find = getattr(env, "get_wrapper_attr", None)
    found = find(METHOD) if callable(find) and is_masking_supported(env) else None
    if not callable(found):
        raise MaskError(f"{type(env).__name__} has no method {METHOD!r}; rlsdk_envs.ActionMasker adds one")
    return np.asarray(found(), dtype=bool)
