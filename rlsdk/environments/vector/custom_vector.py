"""An adapter that makes any object with the members of `rlsdk.interfaces.VectorEnv` a training environment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import gymnasium
import torch
from torch import Tensor

from rlsdk import spaces
from rlsdk.environments.adapters.checks import Indices
from rlsdk.environments.adapters.observations import to_space
from rlsdk.environments.states import read_state
from rlsdk.environments.vector.connected import (
    SPACES_OF_VECTORS,
    ItemT,
    ResultT,
    SteppedVector,
    Work,
    count_reset,
    device_of,
    no_separate,
    require_members,
    resets_of,
    seed_spaces,
)
from rlsdk.errors import EnvironmentFault, SettingsError, raise_fault, shown
from rlsdk.interfaces import Collector, State, VectorEnv, VectorEnvAbilities, ability
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.process import choose_device
from rlsdk.spaces import Space, dtype_of, map_leaves, shape_of
from rlsdk.tree import is_finite, map_tensors


class CustomVectorEnv(SteppedVector):
    """Wraps an object with the members of `VectorEnv`, and checks the records that it returns.

    The object may also have members of `VectorEnvAbilities`. Calls of these are passed on to the object.

    Records of steps are not checked if the object has an attribute `checks_steps` that is True: it checks them itself.
    """

    def __init__(self, env: VectorEnv) -> None:
        require_members(env)
        self.env, self.num_envs = env, int(env.num_envs)
        pair = checked_space(env.observation_space, "observation"), checked_space(env.action_space, "action")
        own = getattr(env, "name", None)
        super().__init__(*pair, own if isinstance(own, str) else type(env).__name__)
        self._moves, self.device = 0, _device(env)
        self._checks = getattr(env, "checks_steps", False) is not True
        self.has_masks = bool(getattr(env, "has_masks", False))
        self.environments = [env]

    def reset(self, seed: int | None = None) -> Observation:
        if seed is None:
            seed = self.seeds.first_pending()
        count_reset(self.env)
        seed_spaces(self.env, seed, SPACES_OF_VECTORS)
        observation = self._ask(lambda: self.env.reset(seed), Observation, "reset")
        self.has_masks = observation.action_mask is not None
        self._check(observation, self.num_envs, "reset")
        return observation

    def step(self, action: Tensor) -> EnvStep:
        self._moves += 1
        if self.device != "cpu":
            action = map_tensors(lambda leaf: leaf.to(self.device), action)
        step = self._ask(lambda: self.env.step(action), EnvStep, "step")
        if self._checks:
            self._check_step(step)
        self._check_info(step)
        return step

    def _check_step(self, step: EnvStep) -> None:
        """Raises EnvironmentFault when a record does not have the shapes and dtypes of the spaces, or holds NaN."""
        for field in ("terminated", "truncated", "valid", "reward"):
            dtype = torch.float32 if field == "reward" else torch.bool
            self._leaf(getattr(step, field), (self.num_envs,), dtype, f"step, {field}")
        self._check(step.observation, self.num_envs, "step", step.reward)
        ended = int((step.terminated | step.truncated).sum())
        if bool(ended) != (step.final_observation is not None):
            raise EnvironmentFault(
                f"environment {self.name!r}, step: {ended} episodes ended, final_observation is"
                f" {'missing' if ended else 'given'}; give the last observations of the episodes that ended, and None otherwise"
            )
        if step.final_observation is not None:
            self._check(step.final_observation, ended, "step, final_observation")

    def _check_info(self, step: EnvStep) -> None:
        """Raises EnvironmentFault when a declared entry of `info` is missing."""
        for name in self.info_names:
            if name not in step.info:
                raise EnvironmentFault(
                    f"environment {self.name!r}, step: info has no {name!r}, which the algorithm needs; give EnvStep.info"
                    f" the entry {name!r}, float32 [{self.num_envs}]"
                )
            self._leaf(step.info[name], (self.num_envs,), torch.float32, f"step, info[{name!r}]")

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries that `EnvStep.info` must have from now on, and pass them to `select_info` of the object, if any."""
        super().select_info(names)
        if (env := self._able("select_info")) is not None:
            env.select_info(self.info_names)

    def set_options(self, options: object = None) -> None:
        """The result of `set_options` of the object. Raises UsageError if it has no such method."""
        if (env := self._able("set_options")) is not None:
            env.set_options(options)
        elif options:
            no_separate(self.name, "set_options")

    def check_agent(self, agent: object, *, new: bool) -> None:
        """Call `check_agent` of the object, if it has it."""
        if (env := self._able("check_agent")) is not None:
            env.check_agent(agent, new=new)

    def collector(self, run: object) -> Collector | None:
        """The collector that the object makes; None if it has no method `collector`."""
        return None if (env := self._able("collector")) is None else env.collector(run)

    def keep_infos(self, keep: bool) -> None:
        """Set whether steps have `infos` from now on, if the object supports it."""
        super().keep_infos(keep)
        if (env := self._able("keep_infos")) is not None:
            env.keep_infos(keep)

    def get_state(self) -> State:
        """The state of the object. Raises OpaqueValue if it has no method `get_state`."""
        return read_state(self.env)

    def set_state(self, state: State) -> None:
        """Restore a state from `get_state`.

        Raises:
            UsageError: the object lacks `get_state` or `set_state`.
        """
        self._needed("set_state").set_state(state)

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The result of `get_attr` of the object. Raises UsageError if it has no such method.

        `set_attr`, `env_method` and `wrappers` work in the same way.
        """
        return list(self._needed("get_attr").get_attr(name, indices))

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        self._needed("set_attr").set_attr(name, value, indices)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        return list(self._needed("env_method").env_method(name, *args, indices=indices, **kwargs))

    def wrappers(self, indices: Indices = None) -> list[Sequence[str]]:
        return list(self._needed("wrappers").wrappers(indices))

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset; empty mappings if the object has no method `reset_infos`."""
        env = self._able("reset_infos")
        return [{} for _ in range(self.num_envs)] if env is None else list(env.reset_infos())

    def _able(self, name: str) -> VectorEnvAbilities | None:
        return ability(self.env, VectorEnvAbilities, name)

    def _needed(self, name: str) -> VectorEnvAbilities:
        """The object. Raises UsageError if it lacks the method `name`."""
        if (env := self._able(name)) is None:
            no_separate(self.name, name)
        return env

    def _ask(self, call: Callable[[], object], kind: type[ResultT], what: str) -> ResultT:
        """The result of `call`, which calls the object. Raises EnvironmentFault for its errors and for other classes."""
        try:
            given = call()
        except BaseException as error:
            raise_fault(error, f"environment {self.name!r}", what)
        if not isinstance(given, kind):
            raise EnvironmentFault(
                f"environment {self.name!r}: {what} gave {shown(given)}, not a rlsdk.records.{kind.__name__}"
            )
        return given

    def _check(self, observation: Observation, rows: int, what: str, reward: Tensor | None = None) -> None:
        """Raises EnvironmentFault for another shape or dtype than that of the space, and for numbers that are not finite."""
        self._leaf(observation.is_first, (rows,), torch.bool, f"{what}, is_first")
        where = f"environment {self.name!r}, {what}"
        require_features(self.observation_space, observation.features, rows, self.device, f"{where}, ")
        if not is_finite((observation.features, reward)):
            raise EnvironmentFault(f"{where}: an observation or a reward is NaN or infinite; numbers must be finite")

    def _leaf(self, value: object, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> None:
        require_tensor(value, shape, dtype, self.device, f"environment {self.name!r}, {what}")

    def fingerprint(self) -> Hashable:
        """A value that changes when the environment is stepped or reset."""
        return self._moves, resets_of(self.env)

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The result of `map` of the object, for plans that play whole episodes. Raises UsageError if it has no such method."""
        env = self._able("map")
        return super().map(work, items) if env is None else env.map(work, items)

    def close(self) -> None:
        self._ask(self.env.close, object, "close")


def _device(env: VectorEnv) -> str:
    """The device of the tensors of `env`. Raises EnvironmentFault if this machine has no such device."""
    try:
        return choose_device(device_of(env), "")[0]
    except SettingsError as error:
        raise EnvironmentFault(f"environment {shown(env)}: {error}") from None


def checked_space(space: object, path: str) -> Space:
    """A space of rlsdk, or of gymnasium, which is converted. Raises EnvironmentFault for other objects."""
    if isinstance(space, gymnasium.Space):
        return to_space(space, path)
    if not isinstance(space, Space):
        kinds = ", ".join(kind.__name__ for kind in (spaces.Box, spaces.Discrete, spaces.Dict))
        raise EnvironmentFault(
            f"the {path} space is {shown(space)}; give a gymnasium space, or one of rlsdk.spaces: {kinds}, ..."
        )
    return space


def require_tensor(value: object, shape: tuple[int, ...], dtype: torch.dtype, device: str, what: str) -> None:
    """Raises EnvironmentFault unless `value` is a tensor of this shape, dtype and kind of device."""
    kind = device.partition(":")[0]
    if isinstance(value, Tensor) and value.shape == shape and value.dtype == dtype and value.device.type == kind:
        return
    where = "" if kind == "cpu" else f" on {device}"
    if not isinstance(value, Tensor):
        got = shown(value)
    elif value.device.type == kind:
        got = f"{value.dtype} {tuple(value.shape)}"
    else:
        got, where = f"{value.dtype} {tuple(value.shape)} on {value.device}", f" on {device}"
    raise EnvironmentFault(f"{what}: got {got}, not a tensor {dtype} {shape}{where}")


def require_features(space: Space, features: object, rows: int, device: str, what: str) -> None:
    """Raises EnvironmentFault unless `features` are tensors [rows, ..] with the shapes and dtypes of the space. Messages begin
    with `what`."""

    def check(path: str, leaf: Space, value: object) -> None:
        require_tensor(value, (rows, *shape_of(leaf)), getattr(torch, dtype_of(leaf)), device, f"{what}{path}")

    try:
        map_leaves(space, check, features)
    except (KeyError, IndexError, TypeError, AttributeError):
        raise EnvironmentFault(f"{what}features {shown(features)} are not nested as the space") from None
