"""What `rlsdk.environments.connect` returns: every member that the rest of the SDK uses of an environment."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeGuard, runtime_checkable

from rlsdk.environments.adapters.attributes import Indices
from rlsdk.environments.vector.seeds import Seeds
from rlsdk.errors import EnvironmentFault, UnknownAttributeError, UsageError, shown
from rlsdk.interfaces import CapturesState, HasMasks, HasSeparateEnvs, KeepsInfos, PlaysEpisodes, SelectsInfo, VectorEnv
from rlsdk.spaces import Space

MEMBERS = ("num_envs", "observation_space", "action_space", "reset", "step", "close")
"""The members of `rlsdk.interfaces.VectorEnv`."""
OF_LOOPS = ("envs", "env_is_wrapped", "get_images", "render", "seed", "step_async", "step_wait", "unwrapped")
"""What `rlsdk.environments.NumpyVectorEnv` has besides."""


@runtime_checkable
class GetsAttributes(Protocol):
    """Environments whose attributes can be read one by one."""

    def get_attr(self, name: str, indices: Indices = None) -> Sequence[object]: ...


@runtime_checkable
class SetsAttributes(Protocol):
    """Environments whose attributes can be set one by one."""

    def set_attr(self, name: str, value: object, indices: Indices = None) -> object: ...


@runtime_checkable
class CallsMethods(Protocol):
    """Environments whose methods can be called one by one."""

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> Sequence[object]: ...


@runtime_checkable
class HasWrappers(Protocol):
    """Environments that name their wrappers."""

    def wrappers(self, indices: Indices = None) -> Sequence[Sequence[str]]:
        """The classes of the wrappers of each environment; see `rlsdk.environments.adapters.attributes.wrappers_of`."""
        ...


@runtime_checkable
class HasResetInfos(Protocol):
    """Environments that give the `info` of a reset."""

    def reset_infos(self) -> Sequence[dict[str, object]]:
        """The `info` of each environment's last reset."""
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
    PlaysEpisodes,
    Protocol,
):
    """B environments with everything that agents, evaluations and callbacks use; what one cannot do raises `UsageError`."""

    name: str
    env_id: str | None
    """The id that makes such an environment again; None where an id alone does not."""
    seeds: Seeds
    restarts: int
    """Processes that were replaced so far."""
    collectors: int
    """Collectors that share the environments; 1 where they are stepped together."""
    max_lag: int
    """Rounds that collectors may be ahead of the learner."""
    lag: int
    """Rounds of the learner that the policy of the last round had not seen."""

    @property
    def environments(self) -> Sequence[object]:
        """The environments in this process; none where they are elsewhere."""
        ...

    def require_steps(self) -> None:
        """Raises UsageError where only whole episodes can be played."""
        ...

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset, by whomever."""
        ...


class SteppedVector:
    """What the vector environments of this room share: spaces, name, seeds, and which infos steps carry.

    A subclass defines where its environments are and how they are stepped.
    """

    environments: Sequence[object] = ()
    """The environments in this process; none where they are elsewhere."""

    def __init__(self, observation_space: Space, action_space: Space, name: str, seed: int | None = None) -> None:
        self.observation_space, self.action_space, self.name = observation_space, action_space, name
        self.seeds, self.restarts, self.collectors = Seeds(seed), 0, 1
        self.reset_seeds: Sequence[int | None] = ()
        """What each environment was reset with last, where that is known."""
        self.max_lag = self.lag = 0
        self.env_id: str | None = None
        """The id that makes such an environment again, None where an id alone does not."""
        self.keeps_infos, self.info_names = False, tuple[str, ...]()

    if not TYPE_CHECKING:  # type checkers find unknown names themselves

        def __getattr__(self, name: str) -> object:
            hint = "; rlsdk.environments.NumpyVectorEnv(env), or model.get_env(), has it" if name in OF_LOOPS else ""
            raise UnknownAttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")

    def require_steps(self) -> None:
        """They can be stepped."""

    def keep_infos(self, keep: bool) -> None:
        """Whether steps carry `infos` from now on."""
        self.keeps_infos = keep

    def select_info(self, names: Sequence[str]) -> None:
        """Which entries of infos steps carry from now on, as tensors."""
        self.info_names = tuple(names)


def missing_members(env: object) -> list[str]:
    """The members of `VectorEnv` that an object lacks."""
    return [name for name in MEMBERS if not hasattr(env, name)]


def has_members(env: object) -> TypeGuard[VectorEnv]:
    """Whether an object has the members of `VectorEnv`; what they give is checked where it is used."""
    return not missing_members(env)


def require_members(env: object) -> None:
    """Raises EnvironmentFault when an object lacks a member of `VectorEnv`; the message names it."""
    if missing := missing_members(env):
        raise EnvironmentFault(
            f"{shown(env)} is not a vector environment: it lacks {', '.join(missing)} (rlsdk.interfaces.VectorEnv)"
        )


def no_separate(name: str, member: str) -> NoReturn:
    """Raises the UsageError of environments that cannot be reached one by one."""
    raise UsageError(
        f"environment {name!r} has no {member!r}: it has no separate environments;"
        " use make_vec_env(..., vectorization='sync' or 'async')"
    )


def fingerprint_of(env: ConnectedEnv) -> Hashable:
    """`env.fingerprint()`; None where the environments are closed, or their process is gone."""
    try:
        return env.fingerprint()
    except Exception:  # any error of a closed environment
        return None
