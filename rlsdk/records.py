"""The records that environments, policies, buffers and algorithms exchange.

Letters used in every shape: T time steps, B environments, N rows of a batch, A action dimensions, P candidates, D parameters.
Records are frozen: functions return new records instead of changing theirs. They are dataclasses, not attrs classes, because
frozen attrs classes cannot be built inside a `torch.compile(fullgraph=True)` region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from rlsdk import tree

__all__ = [
    "Act",
    "ActingState",
    "Cursor",
    "EnvStep",
    "Episode",
    "Features",
    "FinalObservations",
    "Metrics",
    "Observation",
    "Report",
    "Rollout",
    "Sequences",
    "StepData",
    "Transitions",
    "successors",
]

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")

Features = Any
"""A tensor, or a dict or tuple of tensors nested like the observation space. `rlsdk.spaces.dtype_of` gives the dtypes."""

Infos = Sequence[Mapping[str, Any]]
"""One `info` per environment, as gymnasium returned it. Where an episode ended, it is the `info` of the last step."""

Unit = Literal["steps", "updates"]
"""The unit in which the progress of a training is counted."""

Metrics = Mapping[str, Tensor]
"""Name -> 0-d float tensor, on the device. The training loop copies them to the host once per update."""


# Without `eq`, here and below: `==` of tensors is a tensor, which has no single truth value.
@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """The input of a policy. `features` has leading shape [B] (or [T, B], [N]). `is_first` is bool of that shape and marks the
    first observation of each episode."""

    features: Features
    is_first: Tensor
    action_mask: Tensor | None = None
    """bool [.., A], True where the action is allowed; None if the environment has no masks."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The result of one finished episode. `episode_return` is the sum of the environment's rewards before normalization."""

    env: int
    episode_return: float
    length: int
    success: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EnvStep:
    """The result of one vector step.

    Where an episode ended, `observation` already holds the first observation of the next episode. The last observations of the
    episodes that ended are in `final_observation`, in the order of the rows (None when no episode ended).
    """

    observation: Observation
    reward: Tensor  # float32 [B]
    terminated: Tensor  # bool [B]
    truncated: Tensor  # bool [B]
    valid: Tensor  # bool [B]; False for the padding rows of next-step autoreset environments
    final_observation: Observation | None = None  # [number of episodes that ended]
    episodes: tuple[Episode, ...] = ()
    infos: Infos | None = None
    """The `info` of each environment, B mappings; None unless a callback needs it."""
    action: Any = None
    """The actions of this step, [B] or [B, A], nested like the action space; set for callbacks."""
    stops: bool = False
    """Whether a callback ended the training with this step."""
    info: Mapping[str, Tensor] = field(default_factory=dict)
    """The entries of `info` that the algorithm declares (`Parts.info`, or `info` in the manifest), float32 [B] each. Where an
    episode ended, they are those of its last step; rows that are not `valid` hold 0. Empty if no entries are declared."""


@dataclass(frozen=True, slots=True, eq=False)
class ActingState(Generic[CarryT]):
    """The state in which a group of B environments waits for actions: the next observation [B] to act on, and the carry
    (recurrent state) of the policy."""

    observation: Observation
    carry: CarryT


@dataclass(frozen=True, slots=True)
class Cursor:
    """The progress of a training: totals since the agent was made. A plan takes a cursor and yields the next one."""

    env_steps: int = 0
    updates: int = 0

    def count(self, unit: Unit) -> int:
        """The progress in `unit`: the number of environment steps or of updates."""
        return self.env_steps if unit == "steps" else self.updates


@dataclass(frozen=True, slots=True, eq=False)
class Act(Generic[CarryT, ExtrasT]):
    """The output of a policy. `action` is in the units of the environment's action space."""

    action: Tensor  # [B] or [B, A]
    carry: CarryT
    extras: ExtrasT


@dataclass(frozen=True, slots=True, eq=False)
class FinalObservations:
    """The last observations of the F episodes that ended in a rollout; the f-th one ended at step `time[f]` of environment
    `env[f]`."""

    time: Tensor  # int64 [F]
    env: Tensor  # int64 [F]
    observation: Observation  # [F]


@dataclass(frozen=True, slots=True, eq=False)
class StepData(Generic[ExtrasT]):
    """[T, B] steps: the observation that the policy acted on, its action, and the reward and flags that followed."""

    observation: Observation
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    extras: ExtrasT
    info: Mapping[str, Tensor] = field(default_factory=dict)
    """The declared entries of `info`, float32 [T, B] each; see `EnvStep.info`."""


@dataclass(frozen=True, slots=True, eq=False)
class Rollout(Generic[CarryT, ExtrasT]):
    """T steps of B environments, the carry before them, and the observation and carry after them."""

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

    `discount` is gamma ** n for n steps, and 0 where the episode *terminated*. A time limit does not make it 0.
    """

    observation: Observation
    action: Tensor
    reward: Tensor  # float32 [N]
    discount: Tensor  # float32 [N]
    next_observation: Observation
    index: Tensor  # int64 [N]; the position of each row in the buffer
    weight: Tensor | None = None  # float32 [N]; importance weights of prioritized sampling
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """The extras of the acting policy that the buffer stores, [N, ..] by name."""
    info: Mapping[str, Tensor] = field(default_factory=dict)
    """The declared entries of `info`, float32 [N] each; see `EnvStep.info`."""


@dataclass(frozen=True, slots=True, eq=False)
class Sequences(Generic[CarryT]):
    """N sequences of T consecutive steps, [T, N]. Episodes may end and begin within them.

    Where `steps.valid` is False the row is padding: the buffer held fewer steps, or an environment was reset there. `loss_mask`
    is False there.
    It is also False in the burn-in: the first rows, which only compute the carry for the rows after them.
    """

    steps: StepData[Mapping[str, Tensor]]
    """The steps [T, N]. Their extras are those that the buffer stores, by name."""
    next_observation: Observation  # [T, N]; the last observation of the episode where it ended
    discount: Tensor  # float32 [T, N]; gamma, and 0 where the episode terminated
    loss_mask: Tensor  # bool [T, N]
    initial_carry: CarryT | None  # [N, ..]; None if the buffer stores no carries
    index: Tensor  # int64 [N]; the position in the buffer of the first row of each sequence
    weight: Tensor | None = None  # float32 [N]; importance weights of prioritized sampling

    @property
    def continues(self) -> Tensor:
        """Whether the next row is the next step of the same episode, bool [T, N]; False in the last row.

        Besides its end, an episode is also cut where the environment was reset before, as after a stopped training.
        """
        steps = self.steps
        inside = ~steps.terminated & ~steps.truncated & steps.valid
        inside[:-1] &= steps.valid[1:] & ~steps.observation.is_first[1:]
        inside[-1] = False
        return inside


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What a plan reports to the training loop after each round; counts are totals since training began."""

    env_steps: int
    updates: int
    episodes: tuple[Episode, ...]
    metrics: Metrics | None
    """Means over the updates of this round; None if the round had no updates (warm-up)."""


def successors(rollout: Rollout[CarryT, ExtrasT] | Sequences[CarryT]) -> Observation:
    """The next observation [T, B] of each step: that of the next row, or the last observation of the episode if it ended.

    Sequences [T, N] already hold them, so code around the update of another algorithm takes both kinds of record.
    """
    if isinstance(rollout, Sequences):
        return rollout.next_observation
    following = tree.map_tensors(
        lambda rows, last: torch.cat([rows[1:], last.unsqueeze(0)]), rollout.steps.observation, rollout.last_observation
    )
    if finals := rollout.final_observations:
        # `torch.cat` has copied the rows, so writing here does not change the rollout.
        for leaf, final in zip(tree.leaves(following), tree.leaves(finals.observation), strict=True):
            leaf[finals.time, finals.env] = final
    return following


def with_observations(
    rollout: Rollout[CarryT, ExtrasT], change: Callable[[Observation], Observation]
) -> Rollout[CarryT, ExtrasT]:
    """The rollout with `change(observation)` in place of all its observations, [T, B], [B] and [F]."""
    finals = rollout.final_observations
    return replace(
        rollout,
        steps=replace(rollout.steps, observation=change(rollout.steps.observation)),
        last_observation=change(rollout.last_observation),
        final_observations=finals and replace(finals, observation=change(finals.observation)),
    )
