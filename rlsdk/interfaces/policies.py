"""What acts: policies, their optional abilities, and distributions over actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Generator, Tensor, nn

from rlsdk.interfaces.state import Stateful
from rlsdk.records import Act, Observation, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")


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
        unsquashed Box actions: the adapter clips them, and `log_prob` is of the unclipped action. What is replayed is what
        `act` returned: where a plan collects into `Parts.buffer`, Box actions without `log_prob` in the extras lie inside.

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
class Imitates(Protocol):
    """A policy that can be fitted to recorded actions, by `Agent.pretrain`."""

    def imitation_loss(self, observation: Observation, action: Any, starts: Tensor | None, /) -> Tensor:
        """The loss of N recorded steps, float [N], with graph.

        Args:
            observation: of the steps, [N, ..], as the policy sees them.
            action: [N, ..] in environment units, nested as the action space.
            starts: bool [N], True where a sequence of consecutive rows begins, for policies with a memory; None: the rows
                belong to no sequence.
        """
        ...


@runtime_checkable
class EstimatesValues(Protocol):
    """A policy, or an algorithm, that knows what observations are worth; the contract kit compares it with known values."""

    def state_values(self, observation: Observation, /) -> Tensor:
        """V of observations [N] that begin episodes, float [N]: the discounted return that is expected to follow."""
        ...
