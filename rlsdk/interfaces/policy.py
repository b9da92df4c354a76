"""The Protocols of policies, algorithms, buffers and distributions, and what each may do in addition."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Generator, Tensor, nn

from rlsdk.records import Act, Features, Metrics, Observation, Rollout, StepData

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
BatchT_contra = TypeVar("BatchT_contra", contravariant=True)
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
BatchT_co = TypeVar("BatchT_co", covariant=True)
KindT = TypeVar("KindT", bound=type)


State = Mapping[str, Any]
"""A nested mapping whose leaves are tensors or JSON scalars. `state_dict` returns it, `load_state_dict` takes it."""


class Absent:
    """A member that a base class describes and a part may have. Where a class leaves it as it is, reading it raises
    AttributeError, so `hasattr` is True only for parts that have it, also through wrappers that pass attributes on."""

    def __init__(self, name: str, declared: object) -> None:
        self.name, self.declared = name, declared

    def __get__(self, part: object, kind: type[object]) -> object:
        if part is None:
            return self.declared  # the checks of parts compare signatures with it
        raise AttributeError(f"{type(part).__name__} has no {self.name}")


def optional(kind: KindT) -> KindT:
    """Make all members of a base class optional: a class that derives from it has those that it defines itself.

    Name such a class after other bases: as with any base class, what comes first decides.
    """
    for name, declared in list(vars(kind).items()):
        if not name.startswith("_") and (inspect.isfunction(declared) or isinstance(declared, property)):
            setattr(kind, name, Absent(name, declared))
    return kind


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


ActInPlace = Callable[[Observation, Any, Generator], tuple[Callable[[int], object], Tensor, Any] | None]
"""The method `PolicyAbilities.act_in_place`."""


@optional
class PolicyAbilities:
    """What a policy may do in addition to `Policy`. Derive from it or not: only the names count."""

    def rollout_act(self) -> Callable[..., Act[Any, Any]]:
        """Do the preparatory work for acting once per rollout instead of once per step.

        Return a function with the arguments and results of `act`. It is valid while the policy's layers and hooks do
        not change.
        """
        raise NotImplementedError

    @property
    def act_in_place(self) -> ActInPlace | None:
        """A method that writes the actions of T steps of B environments, whose carry stays the same, directly into the
        storage of a rollout; None if there is none. This saves the records of single steps, which take longer than small
        networks and environments.

        Its arguments are the storage of observations, [T, B, ..] on the CPU, the carry and the generator of `act`. The rows
        of the storage are filled one after another. Features are a single tensor. Short rollouts share a storage: then the
        method is called before each of them with the same storage, and the first row is not always 0.

        It returns three objects: a function of t that reads row t of the storage and writes the actions of step t, the storage
        of actions [T, B, ..], and the extras of all steps. They are valid while layers and hooks do not change. Actions,
        extras and the numbers taken from the generator are those that `act` would produce. The method returns None if `act`
        must be called for these steps.
        """
        raise NotImplementedError

    @property
    def begin_rollout(self) -> Callable[[CarryT], CarryT] | None:
        """A function (carry) -> carry, called before the first step of each rollout, as gSDE samples new noise there; None
        if there is nothing to do."""
        raise NotImplementedError

    @property
    def action_played(self) -> Callable[[CarryT, Any], CarryT] | None:
        """A function (carry, action) -> carry, for a carry that holds the last action; None if there is nothing to do.

        It is called after `act` if exploration plays another action: `UniformWarmUp`, `NoisyPolicy`. `carry` is the one
        that `act` returned, `action` [B] or [B, A] is the action that is played and stored, nested and in the units of
        the action space.
        """
        raise NotImplementedError

    def estimates(self, steps: StepData[Any]) -> Any:
        """Return the complete extras of steps [T, B]; `act` may then leave out some, because computing them once for a whole
        rollout is faster. The policy still has the weights it acted with when this is called."""
        raise NotImplementedError

    def imitation_loss(self, observation: Observation, action: Any, starts: Tensor | None, /) -> Tensor:
        """Return the loss of N recorded steps, float [N], with its autograd graph, for `Agent.pretrain`.

        Args:
            observation: the observations of the steps, [N, ..], as the policy receives them.
            action: the actions [N, ..] in the units of the environment, nested like the action space.
            starts: bool [N], True where a sequence of consecutive rows begins, for recurrent policies; None: the rows
                belong to no sequence.
        """
        raise NotImplementedError

    def state_values(self, observation: Observation, /) -> Tensor:
        """Return V, float [N], of observations [N] that begin episodes: the expected discounted return. `rlsdk check`
        compares them with known values."""
        raise NotImplementedError

    def reconfigure(self, config: Any, /) -> object:
        """Apply `config`, which holds all settings, changed or not, after the agent is built."""
        raise NotImplementedError


@runtime_checkable
class Algorithm(Stateful, Protocol[BatchT_contra]):
    """Updates parameters from batches. It accesses no environment and no file."""

    def update(self, batch: BatchT_contra, *, progress: float) -> Metrics:
        """Make one update and return its metrics. `progress` runs from 0 at the start of training to 1 at its end (for
        schedules)."""
        ...


@optional
class AlgorithmAbilities:
    """What an algorithm may do in addition to `Algorithm`. Derive from it or not: only the names count."""

    def update_several(self, batches: Any, count: int, *, progress: float) -> Iterator[Metrics]:
        """Make the `count` updates that `update` would make one by one, faster, and yield the metrics of each.

        `batches` holds `count` batches of equal size, concatenated. It is not called if the buffer is prioritized, or
        if the training loop has to call other code after each update.
        """
        raise NotImplementedError

    def collected(self, env_steps: int, progress: float, /) -> object:
        """Receive the number of environment steps after every vector step, for schedules for example.

        `env_steps`: the total so far; `progress`: 0 at the start of training, 1 at its end.
        """
        raise NotImplementedError

    @property
    def td_error(self) -> Tensor | None:
        """The temporal-difference errors of the last update, for buffers with `prioritize`: float32 [N], not negative, one
        per row of the batch; None before the first update."""
        raise NotImplementedError

    @property
    def updates(self) -> int:
        """On-policy: the number of updates, if one call of `update` makes several."""
        raise NotImplementedError

    @property
    def allows_lag(self) -> bool:
        """On-policy: whether the algorithm can learn from rollouts of a policy that is some updates old, because importance
        weights correct for the difference. Only then may collectors run ahead of the learner (`max_lag` of
        `make_vec_env`)."""
        raise NotImplementedError

    def discarded(self, rollout: Rollout[Any, Any], /) -> object:
        """On-policy: receive a rollout that a callback cut short. The algorithm must not learn from it."""
        raise NotImplementedError

    def policy_replaced(self) -> object:
        """Update copies of the policy's parameters, such as a target network: `pretrain` or `load_policy` has replaced the
        parameters of the policy outside of a training."""
        raise NotImplementedError

    def state_values(self, observation: Observation, /) -> Tensor:
        """Values [N]; see `PolicyAbilities.state_values`."""
        raise NotImplementedError

    def reconfigure(self, config: Any, /) -> object:
        """See `PolicyAbilities.reconfigure`."""
        raise NotImplementedError


@runtime_checkable
class Buffer(Stateful, Protocol[ItemT_contra, BatchT_co]):
    """Stores collected experience and samples batches of it. The type of the batches determines their contents:

    - `Transitions`: every row is a stored step with the action, mask, extras and info of that step and the next
      observation. Its discount is 0 only at terminations. With n-step returns, a row covers n steps of one episode, or
      fewer at the end of the episode and at the newest stored step. All rows are equally likely, unless the buffer has
      `prioritize`.
    - `Sequences`: every column holds consecutive steps of one environment; after the end of an episode the next one
      follows. Padding rows are not `valid`. `loss_mask` is False in them and in the burn-in, the first rows,
      which only update the carry. `initial_carry` is the carry of the policy when it acted on the first row.
    - A record type of the plugin: the plugin defines its meaning.

    For all types: padding rows (`StepData.valid` is False) and overwritten steps are never sampled; every other step can
    be. A second buffer that loads the state of the first samples the same batches, also after both receive the same
    further steps.
    """

    def extend(self, item: ItemT_contra) -> None:
        """Append a `Rollout` [T, B] of observations and rewards without normalization. A full buffer overwrites its
        oldest steps."""

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


@optional
class BufferAbilities:
    """What a buffer may do in addition to `Buffer`. Derive from it or not: only the names count."""

    def observations(self) -> Iterator[Features]:
        """Yield all observations in which an action was taken, without normalization, in batches [N, ..].

        For buffers that are filled before the training begins: the normalizer computes its statistics from them.
        """
        raise NotImplementedError

    def episode_rewards(self) -> Iterator[Tensor]:
        """Yield the rewards of each episode, without normalization, float32 [T], for the scaling of rewards
        (`normalize`) with a buffer that is filled before the training begins."""
        raise NotImplementedError

    def sample_several(self, count: int, size: int, generator: Generator) -> Any:
        """Return `count` batches of `size` rows, concatenated, faster than one by one: the same rows that `count` calls of
        `sample` would return."""
        raise NotImplementedError

    def prioritize(self, index: Tensor, error: Tensor, /) -> object:
        """Set the priorities of the sampled rows `index`, int64 [N], from their errors, float32 [N], the algorithm's
        `td_error` (prioritized replay).

        Errors are NaN or infinite if the training diverged. Leave the priorities of such rows unchanged, as the
        training may continue from earlier parameters.
        """
        raise NotImplementedError

    def collected(self, env_steps: int, progress: float, /) -> object:
        """Receive the number of environment steps after every round; see `AlgorithmAbilities.collected`."""
        raise NotImplementedError

    def reconfigure(self, config: Any, /) -> object:
        """See `PolicyAbilities.reconfigure`."""
        raise NotImplementedError


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
