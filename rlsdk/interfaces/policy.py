"""The `Policy` Protocol, the part that acts, and its optional abilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Generator, Tensor, nn

from rlsdk.records import Act, Features, Metrics, Observation, Rollout, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
BatchT_contra = TypeVar("BatchT_contra", contravariant=True)
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
BatchT_co = TypeVar("BatchT_co", covariant=True)


State = Mapping[str, Any]
"""A nested mapping whose leaves are tensors or JSON scalars. `state_dict` returns it, `load_state_dict` takes it."""


@runtime_checkable
class Stateful(Protocol):
    """An object whose complete state can be saved and restored exactly, bit by bit."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: Any, /) -> object: ...


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


@runtime_checkable
class Algorithm(Stateful, Protocol[BatchT_contra]):
    """Updates parameters from batches. It accesses no environment and no file."""

    def update(self, batch: BatchT_contra, *, progress: float) -> Metrics:
        """Make one update and return its metrics. `progress` runs from 0 at the start of training to 1 at its end (for
        schedules)."""
        ...


@runtime_checkable
class UpdatesSeveral(Protocol[BatchT_contra]):
    """An algorithm that makes several updates faster together, for example because their targets do not change in between."""

    def update_several(self, batches: BatchT_contra, count: int, *, progress: float) -> Iterator[Metrics]:
        """Make the `count` updates that `update` would make one by one, and yield the metrics of each.

        `batches` holds `count` batches of equal size, concatenated. It is not called if the buffer is prioritised, or
        if the training loop has to call other code after each update.
        """
        ...


@runtime_checkable
class Collected(Protocol):
    """An algorithm or a buffer that uses the number of environment steps, for schedules for example."""

    def collected(self, env_steps: int, progress: float, /) -> object:
        """Receive the number of environment steps. Algorithms get this call after every vector step, buffers after
        every round.

        `env_steps`: the total so far; `progress`: 0 at the start of training, 1 at its end.
        """
        ...


@runtime_checkable
class HasTdError(Protocol):
    """An algorithm that exposes the temporal-difference errors of its last update, for prioritised buffers."""

    @property
    def td_error(self) -> Tensor | None:
        """float32 [N], not negative: one error per row of the last batch; None before the first update."""
        ...


@runtime_checkable
class CountsUpdates(Protocol):
    """An on-policy algorithm that counts its updates itself, because one call of `update` makes several."""

    @property
    def updates(self) -> int: ...


@runtime_checkable
class AllowsLag(Protocol):
    """An on-policy algorithm that can learn from rollouts of a policy that is some updates old.

    Importance weights correct for the difference between the two policies. Only for such algorithms may the
    environment's collectors run ahead of the learner (`max_lag` of `make_vec_env`).
    """

    @property
    def allows_lag(self) -> bool: ...


@runtime_checkable
class SeesDiscarded(Protocol):
    """An on-policy algorithm that also receives rollouts that a callback cut short. It must not learn from them."""

    def discarded(self, rollout: Rollout[Any, Any], /) -> object: ...


@runtime_checkable
class Proposes(Protocol):
    """An algorithm of a population method: it proposes candidate parameters and learns from their scores."""

    def propose(self, *, progress: float) -> Tensor:
        """Return the candidates, float32 [P, D], whose episodes are played next; `progress` as for `Algorithm.update`."""
        ...


@runtime_checkable
class FollowsPolicy(Protocol):
    """An algorithm that holds copies of the policy's parameters, such as a target network."""

    def policy_replaced(self) -> object:
        """Update the copies: `pretrain` or `load_policy` has replaced the parameters of the policy outside of a training."""
        ...


@runtime_checkable
class Reconfigurable(Protocol):
    """A part that accepts new settings after the agent is built."""

    def reconfigure(self, config: Any, /) -> object:
        """Apply `config`, which holds all settings, changed or not."""
        ...


@runtime_checkable
class Buffer(Stateful, Protocol[ItemT_contra, BatchT_co]):
    """Stores collected experience and samples batches of it. The type of the batches determines their contents:

    - `Transitions`: every row is a stored step with the action, mask, extras and info of that step and the next
      observation. Its discount is 0 only at terminations. With n-step returns, a row covers n steps of one episode, or
      fewer at the end of the episode and at the newest stored step. All rows are equally likely, unless the buffer is
      `Prioritized`.
    - `Sequences`: every column holds consecutive steps of one environment; after the end of an episode the next one
      follows. Padding and filler rows are not `valid`. `loss_mask` is False in them and in the burn-in, the first rows,
      which only update the carry. `initial_carry` is the carry of the policy when it acted on the first row.
    - A record type of the plugin: the plugin defines its meaning.

    For all types: filler rows (`StepData.valid` is False) and overwritten steps are never sampled; every other step can
    be. A second buffer that loads the state of the first samples the same batches, also after both receive the same
    further steps.
    """

    def extend(self, item: ItemT_contra) -> None:
        """Append a `Rollout` [T, B] of observations and rewards without normalisation. A full buffer overwrites its
        oldest steps."""
        ...

    def sample(self, size: int, generator: Generator) -> BatchT_co:
        """Return `size` rows or sequences as copies of the stored data. All random numbers come from `generator`."""
        ...

    def __len__(self) -> int:
        """The number of steps that can be sampled: at most the number of stored steps, and at most the capacity."""
        ...

    def bytes_required(self) -> int:
        """The size of the full buffer in bytes, known before it is allocated; at least the size of the `state_dict` of
        a full one."""
        ...


@runtime_checkable
class HasObservations(Protocol):
    """A buffer that is filled before the training begins. The normaliser computes its statistics from the buffer's
    observations."""

    def observations(self) -> Iterator[Features]:
        """Yield all observations in which an action was taken, without normalisation, in batches [N, ..]."""
        ...


@runtime_checkable
class HasEpisodeRewards(Protocol):
    """A buffer that is filled before the training begins. The scaling of rewards (`normalize`) uses the buffer's rewards."""

    def episode_rewards(self) -> Iterator[Tensor]:
        """Yield the rewards of each episode, without normalisation, float32 [T]."""
        ...


@runtime_checkable
class SamplesSeveral(Protocol[BatchT_co]):
    """A buffer that samples several batches together faster than one by one."""

    def sample_several(self, count: int, size: int, generator: Generator) -> BatchT_co:
        """Return `count` batches of `size` rows, concatenated: the same rows that `count` calls of `sample` would return."""
        ...


@runtime_checkable
class Prioritized(Protocol):
    """A buffer that samples rows according to their most recent errors (prioritised replay)."""

    def prioritize(self, index: Tensor, error: Tensor, /) -> object:
        """Set the priorities of the sampled rows `index`, int64 [N], from their errors, float32 [N]; see `HasTdError`.

        Errors are NaN or infinite if the training diverged. Leave the priorities of such rows unchanged, as the
        training may continue from earlier parameters.
        """
        ...


@runtime_checkable
class Distribution(Protocol):
    """An immutable distribution over actions, for N rows.

    Log-probabilities, entropies and divergences have the shape [N]: they are summed over the dimensions of an action.
    """

    def sample(self, generator: Generator) -> Tensor: ...

    def mode(self) -> Tensor: ...

    def log_prob(self, action: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor:
        """The entropy, float [N], or an estimate if there is no closed form; the docstring of the implementation names
        the estimate."""
        ...

    def kl_divergence(self, other: Any) -> Tensor:
        """The divergence KL(self || other) >= 0, float [N]; 0 if both are equal."""
        ...


@runtime_checkable
class ClosedForm(Distribution, Protocol):
    """A distribution with closed-form gradients with respect to its inputs: its fields, or the logits that define the
    fields."""

    def vjp(self, action: Tensor, grad_log_prob: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, ...]:
        """Return the gradient of a loss with respect to each input, float [N, ..].

        Args:
            action: the actions [N, ..] whose log-probability the loss uses.
            grad_log_prob: the gradient of the loss with respect to `log_prob(action)`, float [N].
            grad_entropy: the gradient with respect to `entropy()`, float [N]; None if the loss has no entropy term.
        """
        ...

    def fisher_product(self, *changes: Tensor) -> tuple[Tensor, ...]:
        """Multiply the Fisher information of each row with a change of each input, float [N, ..]."""
        ...
