"""The interfaces of rlsdk. Read this first.

They are Protocols: whatever has the methods implements them, nobody inherits. Shapes use the letters of `rlsdk.records`.
Every clause stated here is checked by `rlsdk.testing` (docs/contracts.md lists the clauses with their ids).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Generator, Tensor

from rlsdk.records import Act, EnvStep, Metrics, Observation, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
BatchT_co = TypeVar("BatchT_co", covariant=True)
BatchT_contra = TypeVar("BatchT_contra", contravariant=True)

State = Mapping[str, Any]
"""Nested mapping; leaves are tensors or JSON scalars. What `state_dict` returns, `load_state_dict` takes."""


@runtime_checkable
class Stateful(Protocol):
    """Something whose whole state can be taken out and put back, to the bit."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: Any, /) -> object: ...


@runtime_checkable
class Policy(Stateful, Protocol[CarryT, ExtrasT]):
    """A function (observation, carry) -> Act. What it remembers between steps is in the carry, never in the object."""

    def initial_carry(self, batch: int) -> CarryT:
        """The carry of `batch` environments whose episodes are about to start."""
        ...

    def act(
        self, observation: Observation, carry: CarryT, *, deterministic: bool, generator: Generator
    ) -> Act[CarryT, ExtrasT]:
        """Actions [B] or [B, A] in the units of the action space, nested as it is; no gradient. They lie inside it, but for
        unsquashed Box actions, which the environment's door clips and whose likelihood is that of the unclipped ones.

        Rows are independent: acting on one row or on many gives the same deterministic action. Random numbers come
        from `generator` only. Where `observation.is_first`, what the carry remembers of that row is ignored; only exploration
        that is drawn per rollout (gSDE) lasts longer. A policy may have `begin_rollout`: None, or a function (carry) -> carry
        that loops call before the first step of each rollout.
        """
        ...


@runtime_checkable
class FillsExtras(Protocol):
    """A policy that may leave extras of single steps out, as finding those of a whole rollout at once is faster."""

    def estimates(self, steps: StepData[Any]) -> Any:
        """The extras of steps [T, B], whole; with the weights the steps were acted with."""
        ...


@runtime_checkable
class Distribution(Protocol):
    """An immutable distribution over actions; the event axis is summed, results have the batch shape [N]."""

    def sample(self, generator: Generator) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor:
        """Where no closed form exists: an estimate, and the docstring says which."""
        ...

    def kl_divergence(self, other: Any) -> Tensor:
        """KL(self || other) >= 0, and 0 for other = self."""
        ...


@runtime_checkable
class ClosedForm(Distribution, Protocol):
    """A distribution that can do without autograd: what it was made of are its fields, or the logits they come from."""

    def slope(self, action: Tensor, of_log_prob: Tensor, of_entropy: Tensor | None) -> tuple[Tensor, ...]:
        """The gradient of a loss with respect to each input, float [N, ..], given that with respect to `log_prob(action)` and
        `entropy()`, float [N]; None where the loss has no entropy."""
        ...

    def curvature(self, *changes: Tensor) -> tuple[Tensor, ...]:
        """The Fisher information of each row times a change of each input, float [N, ..]."""
        ...


@runtime_checkable
class Algorithm(Stateful, Protocol[BatchT_contra]):
    """Turns a batch into better parameters. It never sees an environment, a policy's carry or a file."""

    def update(self, batch: BatchT_contra, *, progress: float) -> Metrics:
        """One update; `progress` runs from 0 at the start of training to 1 at its end (for schedules)."""
        ...


@runtime_checkable
class Buffer(Stateful, Protocol[ItemT_contra, BatchT_co]):
    """Remembers what was collected."""

    def extend(self, item: ItemT_contra) -> None: ...

    def sample(self, size: int, generator: Generator) -> BatchT_co: ...

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        ...

    def bytes_required(self) -> int:
        """Memory the full buffer takes, known before any of it is allocated."""
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
    """Does independent pieces of work; where it does them changes nothing but the time they take."""

    def map(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """`work(item)` for every item, in the order of the items. `work` and items are picklable.

        A piece lost with the machine or process that did it is done again, once; what a piece raises is raised here.
        """
        ...

    def close(self) -> None:
        """End whatever was started; no `map` follows."""
        ...


class VectorEnv(Protocol):
    """B environments stepped together; what `rlsdk.environments` makes of gymnasium's.

    An agent takes any object with these members and `observation_space` and `action_space` (of gymnasium, or of
    `rlsdk.spaces`). Optional members: `has_masks` (known before the first reset), `get_state` and `set_state` for exact
    resuming, `keep_infos`, `get_attr`, `set_attr`, `env_method`, and `map` for population methods.
    """

    @property
    def num_envs(self) -> int: ...

    def reset(self, seed: int | None = None) -> Observation: ...

    def step(self, action: Tensor) -> EnvStep: ...

    def close(self) -> None: ...
