"""The interfaces of rlsdk. Read this first.

They are Protocols: an object that has the methods implements them, without inheritance. Shapes use the letters of
`rlsdk.records`.
Every clause stated here is checked by `rlsdk.testing` (docs/contracts.md lists the clauses with their ids).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from torch import Generator, Tensor, nn

from rlsdk.records import (
    Act,
    ActingState,
    Cursor,
    EnvStep,
    Features,
    Metrics,
    Observation,
    Report,
    Rollout,
    StepData,
    Unit,
)
from rlsdk.spaces import Space

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
BatchT_co = TypeVar("BatchT_co", covariant=True)
BatchT_contra = TypeVar("BatchT_contra", contravariant=True)
TrainingT_contra = TypeVar("TrainingT_contra", contravariant=True)
PartsT_contra = TypeVar("PartsT_contra", contravariant=True)

State = Mapping[str, Any]
"""Nested mapping; leaves are tensors or JSON scalars. `state_dict` returns it, `load_state_dict` takes it."""


@runtime_checkable
class Stateful(Protocol):
    """Something whose whole state can be taken out and put back, to the bit."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: Any, /) -> object: ...


@runtime_checkable
class Policy(Stateful, Protocol[CarryT, ExtrasT]):
    """A function (observation, carry) -> Act. Its memory between steps is in the carry, never in the object."""

    def initial_carry(self, batch: int) -> CarryT:
        """The carry [batch, ..] of environments at the start of an episode."""
        ...

    def act(
        self, observation: Observation, carry: CarryT, *, deterministic: bool, generator: Generator
    ) -> Act[CarryT, ExtrasT]:
        """Actions [B] or [B, A] in the units of the action space, nested as it is; no gradient. They lie inside it, but for
        unsquashed Box actions: the adapter clips them, and `log_prob` is of the unclipped action.

        Rows are independent: acting on one row or on many gives the same deterministic action. Random numbers come
        from `generator` only. Where `observation.is_first`, the row's memory in the carry is ignored; only exploration
        noise that is sampled per rollout (gSDE) lasts longer.
        """
        ...


class TorchPolicy(Policy[Any, Any], Protocol):
    """`model.policy` as users see it: a policy that is a `torch.nn.Module`. Further members depend on the algorithm."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]: ...

    def __getattr__(self, name: str, /) -> Any: ...


@runtime_checkable
class ActsForRollouts(Protocol):
    """A policy that prepares acting once per rollout instead of once per step."""

    def rollout_act(self) -> Callable[..., Act[Any, Any]]:
        """A function with the arguments and results of `act`, valid while layers and hooks of the policy stay as they are."""
        ...


@runtime_checkable
class BeginsRollouts(Protocol[CarryT]):
    """A policy whose carry changes where a rollout begins, as gSDE samples new noise."""

    @property
    def begin_rollout(self) -> Callable[[CarryT], CarryT] | None:
        """A method or function (carry) -> carry, called before the first step of each rollout; None: nothing to do."""
        ...


@runtime_checkable
class FillsExtras(Protocol):
    """A policy that may leave out the extras of single steps, as computing those of a whole rollout at once is faster."""

    def estimates(self, steps: StepData[Any]) -> Any:
        """The complete extras of steps [T, B]; called while the policy still has the weights it acted with."""
        ...


@runtime_checkable
class Distribution(Protocol):
    """An immutable distribution over actions; the event axis is summed, results have the batch shape [N]."""

    def sample(self, generator: Generator) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor:
        """float [N]. Where no closed form exists, an estimate; the docstring names it."""
        ...

    def kl_divergence(self, other: Any) -> Tensor:
        """KL(self || other) >= 0, float [N]; 0 for other = self."""
        ...


@runtime_checkable
class ClosedForm(Distribution, Protocol):
    """A distribution with closed-form gradients. Its inputs are its fields, or the logits that these come from."""

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, ...]:
        """The gradient of a loss with respect to each input, float [N, ..], given that with respect to `log_prob(action)` and
        `entropy()`, float [N]; None where the loss has no entropy."""
        ...

    def fisher_product(self, *changes: Tensor) -> tuple[Tensor, ...]:
        """The Fisher information of each row times a change of each input, float [N, ..]."""
        ...


@runtime_checkable
class Algorithm(Stateful, Protocol[BatchT_contra]):
    """Turns a batch into better parameters. It never sees an environment, a policy's carry or a file."""

    def update(self, batch: BatchT_contra, *, progress: float) -> Metrics:
        """One update; `progress` runs from 0 at the start of training to 1 at its end (for schedules)."""
        ...


@runtime_checkable
class Collected(Protocol):
    """An algorithm or memory that counts in environment steps. Algorithms are called after every vector step, memories after
    every round of collecting."""

    def collected(self, env_steps: int, progress: float, /) -> object:
        """`env_steps`: total so far; `progress`: 0 at the start of training ... 1 at its end."""
        ...


@runtime_checkable
class HasTdError(Protocol):
    """An algorithm that holds the errors of its last update, for prioritised memories."""

    @property
    def td_error(self) -> Tensor | None:
        """float32 [N], not negative: one per row of the last batch; None before the first update."""
        ...


@runtime_checkable
class CountsUpdates(Protocol):
    """An on-policy algorithm that counts its updates itself, as one `update` makes several."""

    @property
    def updates(self) -> int: ...


@runtime_checkable
class SeesDiscarded(Protocol):
    """An on-policy algorithm that also gets the rollouts that a callback cut short; it does not learn from them."""

    def discarded(self, rollout: Rollout[Any, Any], /) -> object: ...


@runtime_checkable
class Proposes(Protocol):
    """An algorithm that searches in a population."""

    def propose(self, *, progress: float) -> Tensor:
        """Candidates, float32 [P, D], to be played; `progress` as for `Algorithm.update`."""
        ...


@runtime_checkable
class Reconfigurable(Protocol):
    """A part that takes over settings that change after the agent is made."""

    def reconfigure(self, config: Any, /) -> object:
        """`config`: all settings, changed ones included."""
        ...


@runtime_checkable
class Buffer(Stateful, Protocol[ItemT_contra, BatchT_co]):
    """A memory of collected experience."""

    def extend(self, item: ItemT_contra) -> None: ...

    def sample(self, size: int, generator: Generator) -> BatchT_co: ...

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        ...

    def bytes_required(self) -> int:
        """Bytes of the full buffer, known before any of it is allocated."""
        ...


@runtime_checkable
class HasObservations(Protocol):
    """A memory that is filled before the training begins; running statistics read its observations."""

    def observations(self) -> Iterator[Features]:
        """All observations on which an action was taken, raw, in batches [N, ..]."""
        ...


@runtime_checkable
class Prioritized(Protocol):
    """A memory that samples rows by their last errors."""

    def prioritize(self, index: Tensor, error: Tensor, /) -> object:
        """`index`: int64 [N], of the batch; `error`: float32 [N], see `HasTdError`."""
        ...


@runtime_checkable
class Serializer(Protocol):
    """Writes and reads tensors with a JSON document. Loading runs no code from the file."""

    def save(self, path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None: ...

    def load(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]: ...

    def inspect(self, path: Path) -> dict[str, Any]:
        """The document and the names, dtypes and shapes of the tensors, without reading the tensors."""
        ...


class Executor(Protocol):
    """Runs independent items of work, here or elsewhere; results do not depend on where."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """`work(item)` for every item, in the order of the items. `work` and items are picklable.

        An item is run again, once, if its machine or process dies; an exception of an item is raised here.
        """
        ...

    def close(self) -> None:
        """End all workers; no `map` follows."""
        ...


class VectorEnv(Protocol):
    """B environments stepped together.

    An agent takes any object with these members; its spaces may be gymnasium's. Optional abilities are the Protocols
    that follow: `HasMasks`, `CapturesState`, `SelectsInfo`, `KeepsInfos`, `HasSeparateEnvs`, `PlaysEpisodes`.
    """

    @property
    def num_envs(self) -> int: ...

    @property
    def observation_space(self) -> Space: ...

    @property
    def action_space(self) -> Space: ...

    def reset(self, seed: int | None = None) -> Observation: ...

    def step(self, action: Tensor) -> EnvStep: ...

    def close(self) -> None: ...


class Collector(Protocol):
    """Collects experience. It holds environments, here or elsewhere, and their acting states.

    Environments come in groups. Random numbers for acting are sampled per group, so the data depend on the number of
    groups and never on where a group is stepped.
    """

    @property
    def num_envs(self) -> int:
        """Environments of all groups, B."""
        ...

    @property
    def acting(self) -> tuple[ActingState[Any], ...]:
        """The acting state of each group; `collect` replaces them and changes none in place."""
        ...

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        """`length` steps [T] of every environment [B]; fewer where a callback ends the training in between.

        Args:
            policy: acts; a first `collect` of a round calls its `begin_rollout` before the first step.
            length: T.
            on_step: called after every vector step with the number of environment steps of this call so far.
            ends_round: False where the round goes on with further calls; `end_round` ends it then.
        """
        ...

    def end_round(self) -> None:
        """End the round of collecting: callbacks get `on_rollout_end`. Without a round nothing happens."""
        ...


@runtime_checkable
class EpisodePlayer(Protocol):
    """A collector that plays whole episodes, wherever its environments are."""

    @property
    def observation_space(self) -> Space: ...

    def play(
        self, work: Callable[[Sequence[Any], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """`work(environments, items)` for all items, in parts wherever environments are; results in the order of the items.

        `work` and items are picklable. There are fewer results where a callback ends the training in between.
        """
        ...


@runtime_checkable
class Plan(Protocol[TrainingT_contra]):
    """The training loop of an algorithm. `TrainingT` is `rlsdk.training.Training` everywhere.

    `OnPolicyPlan`, `OffPolicyPlan`, `PopulationPlan` and `OfflinePlan` of `rlsdk.training` are plans; a plugin's own is any
    object with these members.
    """

    @property
    def needs_environment(self) -> bool:
        """Whether `rounds` collects. If False, an agent trains without an environment."""
        ...

    @property
    def unit(self) -> Unit:
        """What `learn(total_timesteps)` and progress count: environment steps, or updates."""
        ...

    @property
    def log_every(self) -> Literal["episodes", "rounds"]:
        """What `learn(log_interval)` counts: finished episodes (default interval 4), or rounds (default 1)."""
        ...

    def rounds(self, training: TrainingT_contra, cursor: Cursor) -> Iterator[tuple[Cursor, Report]]:
        """Train from `cursor` until `training.end` of the unit; yields after every round.

        The loop may be left after any round, and begun again from the cursor it yielded last. Counts never fall.
        """
        ...


@runtime_checkable
class ChecksParts(Protocol[PartsT_contra]):
    """A plan that needs more of the other parts than each must have."""

    def check_parts(self, parts: PartsT_contra, /) -> object:
        """Called when `Parts` are assembled.

        Raises:
            PluginError: a part lacks what the plan calls.
        """
        ...


@runtime_checkable
class HasRolloutLength(Protocol):
    """A plan whose rounds each collect one rollout of `n_steps` vector steps and update with it."""

    @property
    def n_steps(self) -> int: ...


@runtime_checkable
class NormalizesEpisodes(Protocol):
    """A plan that plays whole episodes with `EpisodePlayer`, and normalises their observations by itself."""

    def with_normalizer(self, normalizer: Any) -> Any:
        """The plan with statistics of observations, an `rlsdk.preprocessing.Normalizer`."""
        ...


@runtime_checkable
class FollowsSettings(Protocol):
    """A plan that settings of a finished agent change."""

    def with_settings(self, config: Any, context: Any) -> Any:
        """The plan with the settings of `config`; `context` is the `BuildContext`. Settings that it lacks stay as they are.

        Raises:
            SettingsError: the settings do not fit each other.
        """
        ...


@runtime_checkable
class LearnsOffline(Protocol[TrainingT_contra]):
    """A plan that can update from the memory alone (`Agent.train`)."""

    def learn_offline(self, training: TrainingT_contra, count: int, batch_size: int | None) -> Metrics:
        """`count` updates without collecting; their mean metrics. `batch_size` None: the plan's own."""
        ...
