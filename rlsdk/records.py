"""The records that travel between environment, policy, buffer and algorithm.

Letters used in every shape: T time steps, B environments, N rows of a batch, A action dimensions, P candidates, D parameters.
Records are frozen: a function gets a record and returns a record. They are dataclasses, not attrs classes, because frozen
attrs classes cannot be built inside a `torch.compile(fullgraph=True)` region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from rlsdk import tree

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")

Features = Any
"""A tensor, or a nested dict/tuple of tensors, as the observation space is nested. dtypes are the space's own."""

Infos = Sequence[Mapping[str, Any]]
"""One `info` per environment, as gymnasium gave it; in the row of an episode that ended, that of its last step."""

Unit = Literal["steps", "updates"]
"""The unit of progress of a training."""

Metrics = Mapping[str, Tensor]
"""Name -> 0-d float tensor, on the device; the driver moves them to the host once per update."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """What a policy sees. `features` has leading shape [B] (or [T, B], [N]); `is_first` is bool of that shape."""

    features: Features
    is_first: Tensor
    action_mask: Tensor | None = None
    """bool [.., A], True where the action is allowed; None when the environment has no masks."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished episode as the environment gave it: true rewards, before any normalisation."""

    env: int
    episode_return: float
    length: int
    success: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EnvStep:
    """The result of one vector step.

    `observation` is already the first of the next episode in rows that ended; the true last observation of those
    rows, in row order, is in `final_observation` (None when no row ended).
    """

    observation: Observation
    reward: Tensor  # float32 [B]
    terminated: Tensor  # bool [B]
    truncated: Tensor  # bool [B]
    valid: Tensor  # bool [B]; False for the filler rows of next-step autoreset environments
    final_observation: Observation | None = None  # [number of rows that ended]
    episodes: tuple[Episode, ...] = ()
    infos: Infos | None = None
    """The `info` of each environment, B mappings; None unless a callback needs it."""
    action: Any = None
    """The actions that led here, [B] or [B, A], nested as the action space; set for callbacks."""
    stops: bool = False
    """Whether a callback ended the training with this step."""
    info: Mapping[str, Tensor] = field(default_factory=dict)
    """The entries of `info` that the algorithm declares (`Parts.info`, or `info` in the manifest), float32 [B] each. Rows that
    ended hold those of the last step, rows that are not `valid` 0. Empty where nothing is declared."""


@dataclass(frozen=True, slots=True, eq=False)
class ActingState(Generic[CarryT]):
    """The acting state of a group of B environments: the observation [B] to act on next, and the policy's carry."""

    observation: Observation
    carry: CarryT


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a training is: totals since the agent was made. A plan takes one and yields the next."""

    env_steps: int = 0
    updates: int = 0

    def count(self, unit: Unit) -> int:
        """What progress is counted in: environment steps, or updates."""
        return self.env_steps if unit == "steps" else self.updates


@dataclass(frozen=True, slots=True, eq=False)
class Act(Generic[CarryT, ExtrasT]):
    """The result of a policy. `action` is in the units of the environment's action space."""

    action: Tensor  # [B] or [B, A]
    carry: CarryT
    extras: ExtrasT


@dataclass(frozen=True, slots=True, eq=False)
class FinalObservations:
    """The observations episodes ended with, F of them, at row `time[f]`, column `env[f]` of a rollout."""

    time: Tensor  # int64 [F]
    env: Tensor  # int64 [F]
    observation: Observation  # [F]


@dataclass(frozen=True, slots=True, eq=False)
class StepData(Generic[ExtrasT]):
    """[T, B] steps as stored: the observation acted on, and what the action led to."""

    observation: Observation
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    extras: ExtrasT
    info: Mapping[str, Tensor] = field(default_factory=dict)
    """Declared entries of `info`, float32 [T, B] each, as `EnvStep.info`."""


@dataclass(frozen=True, slots=True, eq=False)
class Rollout(Generic[CarryT, ExtrasT]):
    """T steps of B environments, and the observation and carry after them."""

    steps: StepData[ExtrasT]
    initial_carry: CarryT
    last_observation: Observation
    last_carry: CarryT
    final_observations: FinalObservations | None = None
    episodes: tuple[Episode, ...] = ()
    stopped: bool = False
    """Whether a callback ended the training with the last of these steps; the rollout may then be shorter."""


@dataclass(frozen=True, slots=True, eq=False)
class Transitions:
    """N transitions. The target of a value is `reward + discount * value(next_observation)`.

    `discount` is gamma ** n, and 0 where the episode *terminated*; a time limit leaves it alone.
    """

    observation: Observation
    action: Tensor
    reward: Tensor  # float32 [N]
    discount: Tensor  # float32 [N]
    next_observation: Observation
    index: Tensor  # int64 [N]; where in the buffer the row came from
    weight: Tensor | None = None  # float32 [N]; importance weights of prioritised sampling
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """The extras of the acting policy that the memory stores, [N, ..] by name."""
    info: Mapping[str, Tensor] = field(default_factory=dict)
    """Declared entries of `info`, float32 [N] each, as `EnvStep.info`."""


@dataclass(frozen=True, slots=True, eq=False)
class Sequences(Generic[CarryT]):
    """N sequences of T consecutive steps, [T, N]. Episodes may end and begin within them.

    Where `steps.valid` is False the row is padding (the memory held fewer steps) or a filler row. `loss_mask` is False there,
    and in the burn-in: the first rows, which only bring a carry up to date.
    """

    steps: StepData[Mapping[str, Tensor]]
    """The extras are those that the memory stores, by name."""
    next_observation: Observation  # [T, N]; the last one of the episode where it ended
    discount: Tensor  # float32 [T, N]; gamma, and 0 where the episode terminated
    loss_mask: Tensor  # bool [T, N]
    initial_carry: CarryT | None  # [N, ..]; None where the memory stores no carries
    index: Tensor  # int64 [N]; where in the buffer the first row came from
    weight: Tensor | None = None  # float32 [N]; importance weights of prioritised sampling


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """P candidates and their scores."""

    parameters: Tensor  # [P, D]
    score: Tensor  # [P]
    env_steps: int


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a plan reports to the driver after each round; counts are totals since training began."""

    env_steps: int
    updates: int
    episodes: tuple[Episode, ...]
    metrics: Metrics | None
    """Means over the updates of this round; None when the round had none (warm-up)."""


def successors(rollout: Rollout[CarryT, ExtrasT]) -> Observation:
    """The observation [T, B] that each step led to: the next row, or the last observation of its episode."""
    following = tree.map_tensors(
        lambda rows, last: torch.cat([rows[1:], last.unsqueeze(0)]), rollout.steps.observation, rollout.last_observation
    )
    if finals := rollout.final_observations:
        for leaf, final in zip(tree.leaves(following), tree.leaves(finals.observation), strict=True):
            leaf[finals.time, finals.env] = final
    return following
