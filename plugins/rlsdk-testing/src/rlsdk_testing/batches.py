"""Records the batches that an algorithm gets from its training loop, and makes updates with changed batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from rlsdk.agent import Agent
from rlsdk.environments import make_vec_env
from rlsdk.kernels import kernels_off
from rlsdk.records import Rollout, Sequences, Transitions
from rlsdk.runtime import limited_threads
from rlsdk.tree import leaves, map_tensors
from rlsdk_envs import AnySpaceEnv
from rlsdk_testing.equal_noise import EqualNoise
from rlsdk_testing.networks import Found, held
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import ACTIONS, Subject, differing, flat_state

if TYPE_CHECKING:
    from rlsdk_ars import PopulationPlan, Scored

EPISODE, ENVS, PATIENCE = 4, 3, 4000
"""The steps of an episode, the number of environments, and the steps (or updates) within which a first update must come."""
ROUNDING = 0.02
"""Two updates count as equal if they differ by at most this share of the update, where sums are formed in another order."""
ROUNDING_OF_ZEROS = 1e-4
"""The same share where the changed terms are multiplied by 0."""
ZERO = 1e-5
"""A gradient counts as zero if its norm is at most this share of the largest one in its layer: it is the rounding of sums."""

State = Mapping[str, Tensor]
Batch = Any
"""The type that an algorithm learns from: `Rollout`, `Transitions`, `Sequences`, `Scored`, or a record of the plugin."""
POPULATIONS = "rlsdk_ars"
"""The package with the loop of population methods and its records. The kit does not need it: a plugin that uses the loop has
imported it, so it is looked up among the imported modules."""
AnyRollout = Rollout[Any, Any]
AnySequences = Sequences[Any]
TreeT = TypeVar("TreeT")


def is_population(plan: object) -> TypeGuard[PopulationPlan]:
    """Return whether a plan is the loop of population methods."""
    package = sys.modules.get(POPULATIONS)
    return package is not None and isinstance(plan, package.PopulationPlan)


def is_scored(batch: object) -> TypeGuard[Scored]:
    """Return whether a batch holds candidates and their scores, from which a population method learns."""
    package = sys.modules.get(POPULATIONS)
    return package is not None and isinstance(batch, package.Scored)


@contextmanager
def wrapping(part: object, around: Callable[..., object], *names: str) -> Iterator[None]:
    """Inside the `with` statement, a call of the methods `names` of `part`, of those that it has, calls `around(method, ...)`.

    The class is changed, not the object, because objects with slots take no attributes. Other objects of it do not change.
    """
    kind = type(part)
    originals = {name: getattr(kind, name) for name in names if hasattr(part, name) and hasattr(kind, name)}
    own = originals.keys() & vars(kind).keys()

    def changed(original: Callable[..., object]) -> Callable[..., object]:
        def called(self: object, *args: object, **kwargs: object) -> object:
            method = partial(original, self)
            return around(method, *args, **kwargs) if self is part else method(*args, **kwargs)

        return called

    for name, original in originals.items():
        setattr(kind, name, changed(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            if name in own:
                setattr(kind, name, original)
            else:
                delattr(kind, name)


@contextmanager
def recording(algorithm: object, update: Callable[[Batch], object]) -> Iterator[None]:
    """Inside the `with` statement, call `update` with a copy of each batch after `algorithm` has learned from it."""

    def recorded(method: Callable[..., object], batch: Batch, *, progress: float) -> object:
        before = _copied(batch)
        metrics = method(batch, progress=progress)
        update(before)
        return metrics

    with wrapping(algorithm, recorded, "update"):
        yield


def _copied(batch: Batch) -> Batch:
    """Return a copy of a batch. `Rollout` and `Scored` also have fields that are not tensors; only tensors are copied."""
    if isinstance(batch, Rollout):
        parts = {name: _copied(getattr(batch, name)) for name in ROLLOUT}
        return replace(batch, **parts)
    if is_scored(batch):
        return replace(batch, parameters=batch.parameters.clone(), score=batch.score.clone())
    try:
        return map_tensors(torch.clone, batch)
    except TypeError:  # a record of the plugin
        return batch


ROLLOUT = ("steps", "initial_carry", "last_observation", "last_carry", "final_observations")
"""The fields of a rollout that are trees of tensors."""


def small_agent(subject: Subject, actions: str | None = None, **changes: Any) -> Agent:
    """Return an agent with `ENVS` environments, whose observations, rewards, masks and ends are random.

    Episodes have `EPISODE` steps. `actions` is the kind of the action space; None is the first that the manifest lists.
    `changes`: settings; those that the plugin does not have are left out.
    """
    chosen = ACTIONS[actions or subject.action_kind]
    envs = make_vec_env(lambda: subject.with_info(AnySpaceEnv(subject.seen, chosen, EPISODE)), ENVS)
    return subject.agent(envs, **changes)


class Learner:
    """An agent after a short training, which can make one update with any batch from the same state, again and again."""

    def __init__(self, subject: Subject, **changes: Any) -> None:
        """`changes`: settings. Raises NotApplicable if the algorithm makes no update in a short training."""
        self.agent = small_agent(subject, **changes)
        self.batch: Batch = None
        """The batch of the last update of the training."""
        self.batches = seen = list[Batch]()
        """The batches of all updates of the training."""
        steps = 2 * EPISODE * ENVS
        with recording(self.agent.parts.algorithm, seen.append):
            while len(seen) < 3 and steps < PATIENCE:
                self.agent.learn(steps, reset_num_timesteps=False)
                steps *= 2
        if not seen:
            raise NotApplicable(
                f"it makes no update within {steps} steps of training with the small settings{subject.large_settings()}"
            )
        self.batch = seen[-1]
        self._streams = self.agent.streams.state_dict()
        self._saved = _snapshot(self.agent.get_parameters())
        self.before = flat_state(self.agent)

    def restore(self) -> None:
        """Restore the state after the training, also that of the random streams."""
        self.agent.set_parameters(_snapshot(self._saved))
        self.agent.streams.load_state_dict(self._streams)

    def after(self, batch: object) -> State:
        """Restore the state, make one update with `batch`, and return every tensor of the agent's parameters."""
        self.restore()
        with limited_threads(1):
            self.agent.parts.algorithm.update(batch, progress=0.5)
        return flat_state(self.agent)

    def reads(self, one: object, two: object) -> bool:
        """Return whether updates with the two batches differ in a bit of any tensor."""
        return bool(differing(dict(self.after(one)), dict(self.after(two))))

    def distance(self, one: State, two: State) -> float:
        """Return the largest difference of a tensor between two states, as a share of how far the update moved it.

        Weights that move by rounding errors alone are left out, see `_moved_by_rounding`.
        """
        found = {name: _distance(self.before.get(name), one[name], two.get(name)) for name in one}
        if max(found.values(), default=0.0) > ROUNDING_OF_ZEROS:  # that function makes an update
            left_out = self._moved_by_rounding()
            found = {name: share for name, share in found.items() if not any(part in name for part in left_out)}
        return max(found.values(), default=0.0)

    def _moved_by_rounding(self) -> list[str]:
        """Return the names of weights whose gradient is zero but for rounding, compared with those of the same layer, and the
        beginnings of the names of what optimizers store for them.

        So is that of a bias in front of a normalization over the batch, which subtracts it again. Adam divides each gradient
        by its size, so the sign of a rounding error becomes a whole step, and no two updates agree about it.
        """
        self.restore()
        with kernels_off(), limited_threads(1):  # kernels leave no gradients behind
            self.agent.parts.algorithm.update(self.batch, progress=0.5)
        policy = self.agent.parts.policy
        named = dict(policy.named_parameters()) if isinstance(policy, nn.Module) else {}
        sizes = {name: float(weight.grad.norm()) for name, weight in named.items() if weight.grad is not None}
        of_layer = {name: name.rpartition(".")[0] for name in sizes}
        largest = {name: max(sizes[other] for other in sizes if of_layer[other] == of_layer[name]) for name in sizes}
        left_out = {name: named[name] for name, size in sizes.items() if size < ZERO * largest[name]}
        stored = [
            f"{path.rpartition('.')[2]}/state/{place}/"
            for path, optimizer in Found(self.agent).optimizers.items()
            for place, weight in enumerate(held(optimizer))
            if any(weight is each for each in left_out.values())
        ]
        return [*(f"policy/{name}" for name in left_out), *stored]


def _snapshot(state: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of nested mappings of tensors and numbers."""
    found = dict[str, object]()
    for name, value in state.items():
        copied = _snapshot(value) if isinstance(value, Mapping) else value
        found[name] = copied.clone() if isinstance(copied, Tensor) else copied
    return found


def _distance(before: Tensor | None, one: Tensor, two: Tensor | None) -> float:
    if two is None or one.shape != two.shape:
        return 1.0
    if not one.numel() or not one.is_floating_point():
        return 0.0
    start = torch.zeros_like(one) if before is None or before.shape != one.shape else before
    moved = float(torch.maximum((one - start).abs(), (two - start).abs()).max())
    least = 1e-5 * float(start.abs().max()) + 1e-9
    found = float((one - two).abs().max()) / (moved + least)
    return found if found == found else float("inf")


def permuted_distance(learner: Learner, batch: object, permuted: object, order: Tensor) -> float:
    """Return how far the updates with a batch and with its permuted rows differ (see `Learner.distance`).

    `order`, int64 [N], is the original row at each place of the permuted batch.

    Raises:
        NotApplicable: the updates differ, but they draw random numbers that the kit cannot fix.
    """
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    states, unsure = list[State](), False
    for rows, where in ((batch, torch.arange(len(order))), (permuted, place)):
        generator = torch.get_rng_state()
        with EqualNoise(where) as noise:
            states.append(learner.after(rows))
        unsure = unsure or noise.indices or not torch.equal(generator, torch.get_rng_state())
    distance = learner.distance(*states)
    if unsure and distance > ROUNDING:
        raise NotApplicable("its update chooses rows, or draws noise, by itself")
    return distance


def other_rows(values: TreeT, dim: int = 0) -> TreeT:
    """Return a tree of tensors in which each row along `dim` is replaced by the one before it."""
    return map_tensors(lambda leaf: leaf.roll(1, dim), values)


def rows_where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Return a tensor [.., *shape]: `yes` where `rows`, bool [..], is True, else `no`."""
    return torch.where(rows.view(*rows.shape, *[1] * (yes.dim() - rows.dim())), yes, no)


def transitions_of(learner: Learner) -> Transitions | AnySequences:
    """Return the last batch of the learner's training, which came from a replay buffer.

    Raises:
        NotApplicable: the algorithm does not learn from Transitions or Sequences.
    """
    if not isinstance(learner.batch, Transitions | Sequences):
        raise NotApplicable(f"it learns from {type(learner.batch).__name__}, not from Transitions or Sequences")
    return learner.batch


def with_rewards(batch: Batch, reward: Tensor) -> Batch:
    """Return the batch with the rewards `reward`, float [N] or [T, N]."""
    if isinstance(batch, Transitions):
        return replace(batch, reward=reward)
    return replace(batch, steps=replace(batch.steps, reward=reward))


def reward_of(batch: Batch) -> Tensor:
    """Return the rewards of a batch, float [N] or [T, N]."""
    rewards: Tensor = batch.reward if isinstance(batch, Transitions) else batch.steps.reward
    return rewards


def require_rewards(learner: Learner, batch: Batch) -> None:
    """Raise NotApplicable if the update does not read rewards, as in imitation learning."""
    if not learner.reads(batch, with_rewards(batch, reward_of(batch) + 1.0 + reward_of(batch).roll(1, 0))):
        raise NotApplicable("its update does not read rewards")


def rows_in_batch(batch: Batch) -> int:
    """Return the number of rows, or sequences, of a batch."""
    if isinstance(batch, Sequences):
        return len(batch.index)
    try:
        sizes = {len(leaf) if leaf.dim() else 0 for leaf in leaves(batch)}
    except TypeError:
        sizes = set()
    if len(sizes) != 1:
        raise NotApplicable(f"{type(batch).__name__} is a record of the plugin's own whose rows the kit does not know")
    return sizes.pop()
