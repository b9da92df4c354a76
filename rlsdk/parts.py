"""What `build` is told and what it returns: the facts of the problem, and the parts that solve it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from torch import Tensor

from rlsdk.errors import PluginError, SettingsError, UnsupportedSpaceError
from rlsdk.interfaces import Algorithm, Buffer, Policy
from rlsdk.seeding import Streams
from rlsdk.settings.frequency import TrainFrequency
from rlsdk.spaces import Space, leaf_spaces


class GoalJudge(Protocol):
    """What a goal environment says of goals it was not given."""

    def judge(self, achieved: Tensor, goal: Tensor) -> tuple[Tensor, Tensor | None]:
        """(reward float32 [M], terminated bool [M] or None) where `achieved` [M, ..] was reached and `goal` [M, ..] wanted."""
        ...


class Frames(Protocol):
    """How observations of the algorithm are put together from the environment's last ones."""

    single: Space
    count: int

    def newest(self, features: Any) -> Any:
        """The last frame [.., *single] of stacked observations [.., *stacked]."""
        ...

    def joined(self, frames: Any) -> Any:
        """Frames [N, count, *single], the newest last, as stacked observations [N, *stacked]."""
        ...


def as_it_is(values: Any) -> Any:
    """The values themselves, where nothing is normalised."""
    return values


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the environment and the machine when the parts are built."""

    observation_space: Space
    action_space: Space
    num_envs: int
    device: str
    streams: Streams
    masks: bool = False
    """Whether observations carry action masks the algorithm uses, as far as is known when the parts are built."""
    ignores_masks: bool = False
    """Whether the algorithm makes nothing of masks; memories need not keep them."""
    goals: GoalJudge | None = None
    """Tells what reaching a goal is worth, for memories that change goals afterwards."""
    frames: Frames | None = None
    """Where observations are stacked frames: how, for memories that keep each frame once."""
    to_gymnasium: Callable[[Space], Any] | None = None
    """Makes the gymnasium space of one of ours, for users' features extractors."""
    observation_normalizer: Callable[[Any], Any] = as_it_is
    """Observations [.., *shape] per leaf as the environment gives them (frames stacked) -> as networks see them, with the
    statistics of now. For algorithms that sample a memory of their own or bring their own data: only rollouts on-policy, and
    the `Transitions` that `Parts.buffer` samples, are normalised already. Statistics do not change."""
    reward_normalizer: Callable[[Tensor], Tensor] = as_it_is
    """Rewards of any shape as the environment gives them -> as the algorithm learns from them; see `observation_normalizer`."""


class OffPolicySettings(Protocol):
    """The hyper-parameters an off-policy algorithm shares with its loop."""

    @property
    def train_freq(self) -> TrainFrequency: ...
    @property
    def gradient_steps(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_starts(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OffPolicyPlan:
    """How the off-policy loop alternates between acting and learning.

    Collect until `train_every` vector steps (or, with `episodes`, finished episodes) are reached, then update
    `gradient_steps` times; -1 means as often as environment steps were collected.
    """

    train_every: int
    gradient_steps: int
    batch_size: int
    learning_starts: int
    episodes: bool = False

    @staticmethod
    def of(config: OffPolicySettings) -> OffPolicyPlan:
        """The plan in an algorithm's hyper-parameters."""
        frequency = config.train_freq
        by_episode = frequency.unit == "episode"
        return OffPolicyPlan(
            frequency.count, config.gradient_steps, config.batch_size, config.learning_starts, by_episode
        )


class OnPolicySettings(Protocol):
    """The hyper-parameters an on-policy algorithm shares with its loop."""

    @property
    def n_steps(self) -> int: ...
    @property
    def normalize_advantage(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class OnPolicyPlan:
    """How the on-policy loop alternates: `n_steps` vector steps, then one `update` with the rollout."""

    n_steps: int

    @staticmethod
    def of(config: OnPolicySettings, facts: Facts) -> OnPolicyPlan:
        """The plan in an algorithm's hyper-parameters.

        Raises:
            SettingsError: advantages of a single step cannot be normalised.
        """
        if config.normalize_advantage and config.n_steps * facts.num_envs < 2:
            raise SettingsError(
                f"n_steps = {config.n_steps} with {facts.num_envs} environment gives one step per rollout, whose advantage"
                " cannot be normalised; raise n_steps, or set normalize_advantage = false"
            )
        return OnPolicyPlan(config.n_steps)


@dataclass(frozen=True, slots=True)
class PopulationPlan:
    """How the population loop plays candidates: `episodes` of each, several side by side.

    `make_act(parameters [P, D])` gives a function of encoded observations [P, F] that answers with P actions, each of
    which must depend on its own row alone. It travels to other processes; it and what it returns work in numpy.
    """

    make_act: Callable[[Any], Callable[[Any], Any]]
    episodes: int
    alive_bonus_offset: float = 0.0
    """Added to the reward of every step when candidates are scored."""
    normalizer: Any = None
    """Statistics of observations, from `rlsdk.preparation`; None leaves observations as they are."""


Plan = OffPolicyPlan | OnPolicyPlan | PopulationPlan
"""Which loop trains the agent, and how."""


@dataclass(frozen=True, slots=True)
class Parts:
    """One assembled agent. `behavior` acts during training (exploration included), `policy` everywhere else."""

    policy: Policy[Any, Any]
    algorithm: Algorithm[Any]
    plan: Plan
    buffer: Buffer[Any, Any] | None = None
    behavior: Policy[Any, Any] | None = None

    @property
    def collector(self) -> Policy[Any, Any]:
        """The policy that collects experience."""
        return self.policy if self.behavior is None else self.behavior


METHODS = {
    "policy": ("initial_carry", "act", "state_dict", "load_state_dict"),
    "behavior": ("initial_carry", "act", "state_dict", "load_state_dict"),
    "algorithm": ("update", "state_dict", "load_state_dict"),
    "buffer": ("extend", "sample", "__len__", "bytes_required", "state_dict", "load_state_dict"),
}
"""What the loops and files call of each part."""


def require_parts(built: object, algorithm: str) -> Parts:
    """What a plugin's `build` returned, if it is what it has to be.

    Raises:
        PluginError: it is something else, has no plan, or a part lacks a method.
    """
    if not isinstance(built, Parts):
        kind = type(built).__name__
        raise PluginError(
            f"build of {algorithm!r} returned {kind}, not rlsdk.parts.Parts; end it with `return Parts(...)`"
        )
    if not isinstance(built.plan, Plan):
        accepted = ", ".join(kind.__name__ for kind in get_args(Plan))
        raise PluginError(f"build of {algorithm!r} gave the plan {built.plan!r}; accepted: {accepted}")
    for name, methods in METHODS.items():
        part = getattr(built, name)
        if part is None and name in ("buffer", "behavior"):
            continue
        if missing := [method for method in methods if not callable(getattr(part, method, None))]:
            raise PluginError(
                f"{algorithm!r}: its {name}, {type(part).__name__}, has no {', '.join(missing)}; see rlsdk.interfaces for what"
                " each part does"
            )
    return built


def require_spaces(facts: Facts, algorithm: str, *, actions: tuple[str, ...], observations: tuple[str, ...]) -> None:
    """Refuse spaces an algorithm cannot handle.

    Raises:
        UnsupportedSpaceError: names the space and lists what is supported.
    """
    kind = type(facts.action_space).__name__
    if kind not in actions:
        raise UnsupportedSpaceError(
            f"{algorithm} cannot act in a {kind} action space; supported action spaces: {', '.join(actions)}"
        )
    top = type(facts.observation_space).__name__
    for path, leaf in (("observation", facts.observation_space), *leaf_spaces(facts.observation_space)):
        if type(leaf).__name__ not in observations:
            raise UnsupportedSpaceError(
                f"{algorithm} cannot read {path}, a {type(leaf).__name__} space (of a {top} observation);"
                f" supported observation spaces: {', '.join(observations)}"
            )
