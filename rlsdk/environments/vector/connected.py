"""What the SDK needs of any vector environment: its members, its seeds, its device, and that all copies are equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import (
    TYPE_CHECKING,
    Any,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeGuard,
    TypeVar,
    cast,
    runtime_checkable,
)

import gymnasium
from gymnasium.wrappers import TimeLimit

from rlsdk.environments.adapters.checks import Environment, Indices, chosen, layers_of
from rlsdk.environments.adapters.masks import METHOD, mask_methods
from rlsdk.environments.adapters.observations import (
    ActionDecoder,
    distinct_texts,
    spaces_of,
)
from rlsdk.environments.states import OpaqueValue, masks_in, read_state, state_of, states_in
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError, shown
from rlsdk.interfaces import Collector, VectorEnv, VectorEnvAbilities
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.lazy import elsewhere
from rlsdk.runtime.process import checked_seed, derive, is_same_device
from rlsdk.spaces import Space
from rlsdk.tree import map_tensors

T = TypeVar("T")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

MEMBERS = ("num_envs", "observation_space", "action_space", "reset", "step", "close")
"""The members of `rlsdk.interfaces.VectorEnv`."""
Work: TypeAlias = Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]]
"""A function (environments, items) -> results in the order of the items. The environments are copies of one environment."""


@runtime_checkable
class ConnectedEnv(VectorEnv, VectorEnvAbilities, Protocol):
    """B environments with all members that agents, evaluations and callbacks use.

    A method that a kind of vector environment does not support raises `UsageError`.
    """

    name: str
    device: str
    """The torch device of the tensors in records. Actions may be on any device."""
    env_id: str | None
    """The id that makes the same environment again; None if no id does."""
    seeds: Seeds
    restarts: int
    """The number of processes that were replaced so far."""
    lag: int | None
    """The age of the policy that collected the last round, in rounds of the learner; None: it is always the newest."""

    @property
    def environments(self) -> Sequence[object]:
        """The environments; empty if they are in other processes."""
        ...

    def require_steps(self) -> None:
        """Raises UsageError if the environments can only play whole episodes."""
        ...

    def fingerprint(self) -> Hashable:
        """A value that changes when any code steps or resets the environments."""
        ...


class SteppedVector:
    """The base class of the vector environments in this package: spaces, name, seeds, and the selection of infos.

    A subclass defines where its environments are and how they are stepped.
    """

    num_envs: int
    environments: Sequence[object] = ()
    """The environments; empty if they are in other processes."""
    has_masks: Any = False
    """Whether observations have action masks, a bool."""
    device: str = "cpu"
    """The torch device of the tensors in records."""

    def __init__(self, observation_space: Space, action_space: Space, name: str, seed: int | None = None) -> None:
        self.observation_space, self.action_space, self.name = observation_space, action_space, name
        self.decode = ActionDecoder(action_space)
        """Converts actions [B, ..] to what the environments take."""
        self.seeds, self.restarts = Seeds(seed), 0
        self.lag: int | None = None
        self.reset_options = ResetOptions()
        self.reset_seeds: Sequence[int | None] = ()
        """The seed of each environment's last reset; empty if the seeds are unknown."""
        self.env_id: str | None = None
        """The id that makes the same environment again; None if no id does."""
        self.keeps_infos, self.info_names = False, tuple[str, ...]()

    if not TYPE_CHECKING:  # with a `__getattr__`, type checkers would accept unknown names
        __getattr__ = elsewhere

    def require_steps(self) -> None:
        """Do nothing, because these environments can be stepped."""

    def check_agent(self, agent: Any, *, new: bool) -> None:
        """Do nothing, because any agent can train here."""

    def collector(self, run: Any) -> Collector | None:
        """None: an agent collects here with its own policy."""
        return None

    def map(self, work: Any, items: Any) -> list[Any]:
        """Raises UsageError: all environments are stepped together, so none plays an episode of its own."""
        raise UsageError(
            f"{self.name!r} is a vector environment, and this algorithm needs single environments: make_vec_env(id, n,"
            " vectorization='sync' or 'async'), the name of an executor, or an object with a method `map`"
        )

    def set_options(self, options: object = None) -> None:
        """Set the options of the next reset; see `ResetOptions.set`. Resets at the end of episodes get none."""
        self.reset_options.set(options, self.num_envs)

    def keep_infos(self, keep: bool) -> None:
        """Set whether steps have `infos` from now on."""
        self.keeps_infos = keep

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries of `info` that steps have as tensors from now on."""
        self.info_names = tuple(names)

    def chosen(self, indices: Indices) -> list[int]:
        """The numbers of the selected environments, counted from 0; see `VectorEnvAbilities`.

        Raises:
            SettingsError: there is no environment of such a number.
        """
        return chosen(indices, self.num_envs)

    def get_state(self) -> Mapping[str, object]:
        """The state of the environments, as tensors and JSON scalars. Raises as `read_states`."""
        return state_of(self.read_states(), self.has_masks)

    def set_state(self, state: Any) -> None:
        """Restore a state from `get_state`. Raises as `write_states`; ArtifactError for another number of environments."""
        self.write_states(states_in(state, self.num_envs), masks_in(state))

    def read_states(self) -> list[dict[str, object]]:
        """The state of every environment, in order. Raises OpaqueValue, unless a subclass can read it."""
        raise OpaqueValue(f"the state of {self.name!r} cannot be read")

    def write_states(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore states from `read_states`; `has_masks`: whether the environments give action masks."""
        self.read_states()


class VectorWrapper:
    """The base class of vector environments around another one, `env`: calls are passed on to it.

    Its optional abilities are not passed on, because a shortcut of `env` would bypass the wrapper.
    """

    def __init__(self, env: VectorEnv) -> None:
        self.env = env

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    @property
    def observation_space(self) -> Space:
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    def reset(self, seed: int | None = None) -> Observation:
        return self.env.reset(seed)

    def close(self) -> None:
        self.env.close()


def missing_members(env: object) -> list[str]:
    """The members of `VectorEnv` that an object lacks."""
    return [name for name in MEMBERS if not hasattr(env, name)]


def has_members(env: object) -> TypeGuard[VectorEnv]:
    """Whether an object has the members of `VectorEnv`. Their types are not checked."""
    return not missing_members(env)


def require_members(env: object) -> None:
    """Raises EnvironmentFault when an object lacks a member of `VectorEnv`; the message names it."""
    if missing := missing_members(env):
        raise EnvironmentFault(
            f"{shown(env)} is not a vector environment: it lacks {', '.join(missing)} (rlsdk.interfaces.VectorEnv)"
        )


MOVED = ("observation", "reward", "terminated", "truncated", "valid", "final_observation", "info")
"""The fields of a step whose tensors `OnDevice` moves. Infos and episodes are Python objects, for callbacks."""


def device_of(env: object) -> str:
    """The device of the tensors of a vector environment; `cpu` for anything else."""
    return str(getattr(env, "device", "cpu")) if has_members(env) else "cpu"


def on_device(env: VectorEnv, device: str) -> VectorEnv:
    """The environment with its tensors on `device`; unchanged if they are there anyway."""
    own = device_of(env)
    return env if is_same_device(own, device) else OnDevice(env, own, device)


class OnDevice(VectorWrapper):
    """Wraps a vector environment on the device `own`: moves the tensors of its records to `device`, and actions back."""

    def __init__(self, env: VectorEnv, own: str, device: str) -> None:
        super().__init__(env)
        self.own, self.device = own, device

    def _move(self, value: T) -> T:
        return map_tensors(lambda leaf: leaf.to(self.device), value)

    def reset(self, seed: int | None = None) -> Observation:
        return self._move(self.env.reset(seed))

    def step(self, action: Any) -> EnvStep:
        step = self.env.step(map_tensors(lambda leaf: leaf.to(self.own), action))
        moved: dict[str, Any] = {name: self._move(getattr(step, name)) for name in MOVED}
        return replace(step, **moved)

    def get_state(self) -> object:
        """The state of the environments. Raises OpaqueValue if it cannot be read."""
        return read_state(self.env)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`."""
        cast("Any", self.env).set_state(state)


def no_separate(name: str, member: str) -> NoReturn:
    """Raises UsageError for a member that needs separate environments, which the vector environment `name` lacks."""
    raise UsageError(
        f"environment {name!r} has no {member!r}: it has no separate environments;"
        " use make_vec_env(..., vectorization='sync' or 'async')"
    )


def fingerprint_of(env: ConnectedEnv) -> Hashable:
    """A value that changes when the environments are stepped or reset; None if they are closed or their process ended."""
    try:
        return env.fingerprint()
    except Exception:  # a closed environment may raise any error
        return None


Options: TypeAlias = "dict[str, Any] | None"
"""The argument `options` of an environment's `reset`; None: it is not given."""
SPACES = ("action_space", "observation_space")
SPACES_OF_VECTORS = (*SPACES, "single_action_space", "single_observation_space")
APART = 0x5EED5
"""Separates the numbers that a space draws from those of the environment, whose generator gets the seed itself."""


def seed_of(seed: int, index: int) -> int:
    """The seed of environment number `index`, derived from `seed`."""
    return derive(seed, "environment", index) % 2**31


def seed_spaces(environment: object, seed: int | None, names: Sequence[str] = SPACES) -> None:
    """Seed the spaces of an environment and of its wrappers, which `reset(seed=)` does not do; None: do nothing.

    Environments may draw from them, as in `self.action_space.sample()`. A space that several layers share is seeded once.
    """
    if seed is None:
        return
    seeded = list[object]()
    for layer in layers_of(environment):
        for name in names:
            space = getattr(layer, name, None)
            if isinstance(space, gymnasium.Space) and not any(space is other for other in seeded):
                space.seed((seed ^ APART) + len(seeded))
                seeded.append(space)


class Seeds:
    """Derives the seeds of a reset from its seed, or from the seed with which the environments were made.

    The latter is used once, for the first reset, and only if this reset has no seed.
    """

    def __init__(self, first: int | None = None) -> None:
        """Raises SettingsError when the seed is not a whole number that torch's generators accept."""
        if first is not None:
            checked_seed(first)
        self.first, self._pending = first, first is not None

    def first_pending(self) -> int | None:
        """The seed with which the environments were made, at the first call; None at later calls."""
        seed = self.first if self._pending else None
        self._pending = False
        return seed

    @staticmethod
    def derived(seed: int, index: int) -> int:
        """The seed of environment number `index`, derived from `seed`."""
        return seed_of(seed, index)

    def of(self, seed: int | None, count: int) -> list[int | None]:
        """The seed of each of `count` environments at a reset with `seed`; None: without a seed."""
        pending = self.first_pending()
        seed = pending if seed is None else seed
        return [None if seed is None else seed_of(seed, i) for i in range(count)]


class ResetOptions:
    """The options that the environments get at their next reset, one mapping for each. They are used once."""

    def __init__(self) -> None:
        self._pending: list[Options] = []

    def set(self, options: object, count: int) -> None:
        """Keep a copy of `options`: a mapping for all `count` environments, a list with one for each, or None for none.

        Raises:
            SettingsError: it is something else, or a list of another length.
        """
        each = [options] * count if options is None or isinstance(options, Mapping) else options
        if not isinstance(each, list | tuple) or not all(own is None or isinstance(own, Mapping) for own in each):
            raise SettingsError(f"options are {shown(options)}; give a dict, a list of {count} dicts, or None")
        if len(each) != count:
            raise SettingsError(f"there are {len(each)} options for {count} environments; give one dict, or {count}")
        self._pending = [dict(deepcopy(own)) if own else None for own in each] if any(each) else []

    def take(self) -> list[Options]:
        """The options of each environment, once; empty if there are none."""
        pending, self._pending = self._pending, []
        return pending


_RESETS: dict[int, int] = {}
"""`id` of an environment -> number of resets by vector environments. If Python reuses an id, its count continues."""


def count_reset(environment: object) -> None:
    """Count a reset of all environments by the vector environment that contains `environment`."""
    inner = id(getattr(environment, "unwrapped", environment))
    _RESETS[inner] = _RESETS.get(inner, 0) + 1


def resets_of(environment: object) -> int:
    """The number of resets that `count_reset` has counted for `environment`."""
    return _RESETS.get(id(getattr(environment, "unwrapped", environment)), 0)


def fingerprint(environment: object) -> tuple[Hashable, ...]:
    """A value that changes when a gymnasium environment is stepped or reset.

    It consists of the number of counted resets, the steps of its time limits, and the state of its random generator.
    """
    *wrappers, inner = layers_of(environment)
    found: list[Hashable] = [resets_of(environment)]
    found += [layer._elapsed_steps for layer in wrappers if isinstance(layer, TimeLimit)]
    generator = vars(inner).get("_np_random")
    if generator is not None:
        found.append(str(generator.bit_generator.state))
    return tuple(found)


def require_separate(environments: Sequence[Environment], name: str) -> None:
    """Raises EnvironmentFault when `environments` contains the same environment twice, possibly inside wrappers."""
    inner = [id(environment.unwrapped) for environment in environments]
    if len(set(inner)) < len(inner):
        first = next(i for i, own in enumerate(inner) if own in inner[:i])
        raise EnvironmentFault(
            f"environment {name!r}: numbers {inner.index(inner[first])} and {first} are one and the same instance, so both"
            " would step it; give a function that makes a new environment at each call, such as lambda: gymnasium.make(id)"
        )


def masks_of_all(
    environments: Sequence[Environment], name: str, numbers: Sequence[int]
) -> list[Callable[[], object]] | None:
    """The methods `action_masks` of all environments; None if none has one.

    Raises:
        EnvironmentFault: some environments have the method, and others do not.
    """
    if (methods := mask_methods(environments)) is not None:
        return methods
    have = [mask_methods([environment]) is not None for environment in environments]
    if any(have) and not all(have):
        with_one, without = (numbers[have.index(kind)] for kind in (True, False))
        raise EnvironmentFault(
            f"environment {name!r}: number {with_one} has a method {METHOD}, number {without} has none; give one to all"
            " environments that are stepped together"
        )
    return None


def require_alike(environments: Sequence[Environment], pair: tuple[Space, Space], name: str) -> None:
    """Raises EnvironmentFault when an environment has other spaces than `pair`."""
    for i, environment in enumerate(environments):
        own = spaces_of(environment)
        for kind, mine, theirs in zip(("observation", "action"), own, pair, strict=True):
            if mine != theirs:
                own_text, first_text = distinct_texts(mine, theirs)
                raise EnvironmentFault(
                    f"environment {name!r}: number {i} has the {kind} space {own_text}, number 0 has {first_text};"
                    " environments that are stepped together must have the same spaces"
                )


MOST_COPIES = 2**24
"""The largest number of environments. More would not even have room for their names."""


def require_copies(count: object) -> int:
    """The number of environments `n_envs`, unchanged.

    Raises:
        SettingsError: it is not a positive whole number, or more than `MOST_COPIES`.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SettingsError(f"n_envs = {count!r} must be a positive whole number")
    if count > MOST_COPIES:
        raise SettingsError(f"n_envs = {shown(count, 60)} must be at most {MOST_COPIES:,}; give fewer environments")
    return count
