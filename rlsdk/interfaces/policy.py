"""The `Policy` Protocol, the part that acts, and its optional abilities."""

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
    """A function (observation, carry) -> Act.

    The carry contains everything that the policy passes from one step to the next, such as the state of an LSTM. The
    object itself does not change while it acts.
    """

    def initial_carry(self, batch: int) -> CarryT:
        """Return the carry [batch, ..] of environments at the start of an episode."""
        ...

    def act(
        self, observation: Observation, carry: CarryT, *, deterministic: bool, generator: Generator
    ) -> Act[CarryT, ExtrasT]:
        """Return actions, the next carry and extras for the observations of B environments, without gradients.

        `Act.action` is [B] or [B, A], in the units of the action space and nested like it. `Act.extras` are further
        outputs that the algorithm needs, such as log-probabilities. With `deterministic`, the action is the most likely
        one instead of a sample.

        Actions lie inside the action space, except unsquashed Box actions: the environment adapter clips those, and
        their `log_prob` is that of the unclipped action. Buffers store the action that `act` returned. If a plan
        collects into `Parts.buffer`, Box actions must therefore lie inside the space unless the extras contain
        `log_prob`.

        Rows are independent: acting on one row or on many gives the same deterministic action. Random numbers come only
        from `generator`. In rows with `observation.is_first`, the policy ignores the recurrent state in the carry. Only
        exploration noise that is sampled per rollout (gSDE) remains.
        """
        ...


class TorchPolicy(Policy[Any, Any], Protocol):
    """The type of `model.policy` for users: a policy that is a `torch.nn.Module`. Further members depend on the algorithm."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, nn.Parameter]]: ...

    def __getattr__(self, name: str, /) -> Any: ...


@runtime_checkable
class ActsForRollouts(Protocol):
    """A policy that does preparatory work for acting once per rollout instead of once per step."""

    def rollout_act(self) -> Callable[..., Act[Any, Any]]:
        """Return a function with the arguments and results of `act`. It is valid while the policy's layers and hooks do
        not change."""
        ...


ActInPlace = Callable[[Observation, Any, Generator], tuple[Callable[[int], object], Tensor, Any] | None]
"""The method `ActsInPlace.act_in_place`."""


@runtime_checkable
class ActsInPlace(Protocol):
    """A policy that can write actions directly into the storage of a rollout. This saves the records of single steps, which
    take longer than small networks and environments.

    Actions, extras and the numbers taken from the generator are those that `act` would produce.
    """

    @property
    def act_in_place(self) -> ActInPlace | None:
        """A method that prepares acting for T steps of B environments, whose carry stays the same; None if there is none.

        Its arguments are the storage of observations, [T, B, ..] on the CPU, the carry and the generator of `act`. The rows
        of the storage are filled one after another. Features are a single tensor. Short rollouts share a storage: then the
        method is called before each of them with the same storage, and the first row is not always 0.

        It returns three objects: a function of t that reads row t of the storage and writes the actions of step t, the storage
        of actions [T, B, ..], and the extras of all steps. They are valid while layers and hooks do not change. The method
        returns None if `act` must be called for these steps.
        """
        ...


@runtime_checkable
class BeginsRollouts(Protocol[CarryT]):
    """A policy whose carry changes at the start of a rollout: gSDE samples new noise there."""

    @property
    def begin_rollout(self) -> Callable[[CarryT], CarryT] | None:
        """A method or function (carry) -> carry, called before the first step of each rollout; None if there is nothing
        to do."""
        ...


@runtime_checkable
class RemembersActions(Protocol[CarryT]):
    """A policy whose carry holds its last action, as recurrent world models need it."""

    @property
    def action_played(self) -> Callable[[CarryT, Any], CarryT] | None:
        """A method or function (carry, action) -> carry; None if there is nothing to do.

        It is called after `act` if exploration plays another action: `UniformWarmUp`, `NoisyPolicy`. `carry` is the one
        that `act` returned, `action` [B] or [B, A] is the action that is played and stored, nested and in the units of
        the action space.
        """
        ...


@runtime_checkable
class FillsExtras(Protocol):
    """A policy whose `act` may leave out some extras, because computing them once for a whole rollout is faster."""

    def estimates(self, steps: StepData[Any]) -> Any:
        """Return the complete extras of steps [T, B]. The policy still has the weights it acted with when this is called."""
        ...


@runtime_checkable
class Imitates(Protocol):
    """A policy that can be fitted to recorded actions, by `Agent.pretrain`."""

    def imitation_loss(self, observation: Observation, action: Any, starts: Tensor | None, /) -> Tensor:
        """Return the loss of N recorded steps, float [N], with its autograd graph.

        Args:
            observation: the observations of the steps, [N, ..], as the policy receives them.
            action: the actions [N, ..] in the units of the environment, nested like the action space.
            starts: bool [N], True where a sequence of consecutive rows begins, for recurrent policies; None: the rows
                belong to no sequence.
        """
        ...


@runtime_checkable
class EstimatesValues(Protocol):
    """A policy or an algorithm that estimates values of observations. `rlsdk check` compares them with known values."""

    def state_values(self, observation: Observation, /) -> Tensor:
        """Return V, float [N], of observations [N] that begin episodes: the expected discounted return."""
        ...
