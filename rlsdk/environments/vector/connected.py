"""The interface of vector environments from `rlsdk.environments.connect`: all members that the rest of the SDK uses."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeGuard, runtime_checkable

from rlsdk.environments.adapters.attributes import Indices
from rlsdk.environments.vector.seeds import ResetOptions, Seeds
from rlsdk.errors import EnvironmentFault, UnknownAttributeError, UsageError, shown
from rlsdk.interfaces import CapturesState, HasMasks, HasSeparateEnvs, KeepsInfos, PlaysEpisodes, SelectsInfo, VectorEnv
from rlsdk.spaces import Space

MEMBERS = ("num_envs", "observation_space", "action_space", "reset", "step", "close")
"""The members of `rlsdk.interfaces.VectorEnv`."""
OF_LOOPS = ("envs", "env_is_wrapped", "get_images", "render", "seed", "step_async", "step_wait", "unwrapped")
"""Members of `rlsdk.environments.NumpyVectorEnv` that a `ConnectedEnv` lacks."""


@runtime_checkable
class GetsAttributes(Protocol):
    """A vector environment that can read attributes of its environments."""

    def get_attr(self, name: str, indices: Indices = None) -> Sequence[object]: ...


@runtime_checkable
class SetsAttributes(Protocol):
    """A vector environment that can set attributes of its environments."""

    def set_attr(self, name: str, value: object, indices: Indices = None) -> object: ...


@runtime_checkable
class CallsMethods(Protocol):
    """A vector environment that can call methods of its environments."""

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> Sequence[object]: ...


@runtime_checkable
class HasWrappers(Protocol):
    """A vector environment that can name the wrappers of its environments."""

    def wrappers(self, indices: Indices = None) -> Sequence[Sequence[str]]:
        """The class names of the wrappers of each environment; see `rlsdk.environments.adapters.attributes.wrappers_of`."""
        ...


@runtime_checkable
class HasResetInfos(Protocol):
    """A vector environment that gives the `info` of resets."""

    def reset_infos(self) -> Sequence[dict[str, object]]:
        """The `info` of each environment's last reset."""
        ...


@runtime_checkable
class SetsOptions(Protocol):
    """A vector environment that gives its environments options at a reset."""

    def set_options(self, options: object = None) -> None:
        """Set the options that `reset` of each environment gets next: a dict for all, or a list with one for each."""
        ...


@runtime_checkable
class ConnectedEnv(
    VectorEnv,
    HasMasks,
    CapturesState,
    SelectsInfo,
    KeepsInfos,
    HasSeparateEnvs,
    HasWrappers,
    HasResetInfos,
    SetsOptions,
    PlaysEpisodes,
    Protocol,
):
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
    collectors: int
    """The number of collectors that share the environments; 1 if the environments are stepped together."""
    max_lag: int
    """The number of rounds that collectors may be ahead of the learner."""
    lag: int
    """The age of the policy that collected the last round, in rounds of the learner."""

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
    device: str = "cpu"
    """The torch device of the tensors in records."""

    def __init__(self, observation_space: Space, action_space: Space, name: str, seed: int | None = None) -> None:
        self.observation_space, self.action_space, self.name = observation_space, action_space, name
        self.seeds, self.restarts, self.collectors = Seeds(seed), 0, 1
        self.reset_options = ResetOptions()
        self.reset_seeds: Sequence[int | None] = ()
        """The seed of each environment's last reset; empty if the seeds are unknown."""
        self.max_lag = self.lag = 0
        self.env_id: str | None = None
        """The id that makes the same environment again; None if no id does."""
        self.keeps_infos, self.info_names = False, tuple[str, ...]()

    if not TYPE_CHECKING:  # with a `__getattr__`, type checkers would accept unknown names

        def __getattr__(self, name: str) -> object:
            hint = "; rlsdk.environments.NumpyVectorEnv(env), or model.get_env(), has it" if name in OF_LOOPS else ""
            raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def require_steps(self) -> None:
        """Do nothing, because these environments can be stepped."""

    def set_options(self, options: object = None) -> None:
        """Set the options of the next reset; see `ResetOptions.set`. Resets at the end of episodes get none."""
        self.reset_options.set(options, self.num_envs)

    def keep_infos(self, keep: bool) -> None:
        """Set whether steps have `infos` from now on."""
        self.keeps_infos = keep

    def select_info(self, names: Sequence[str]) -> None:
        """Set the entries of `info` that steps have as tensors from now on."""
        self.info_names = tuple(names)


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
