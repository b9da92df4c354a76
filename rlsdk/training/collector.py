"""Collectors: they act in environments and return rollouts, for one group of environments, for several, or for none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NoReturn, TypeVar

import torch
from torch import Generator, Tensor

from rlsdk.errors import PluginError, SettingsError, UsageError
from rlsdk.interfaces import Policy, PolicyAbilities, State, VectorEnv, VectorEnvAbilities
from rlsdk.interfaces.abilities import ability, shortcut
from rlsdk.networks.normalizer import ObservationNormalizer
from rlsdk.preprocessing import RolloutNormalizer
from rlsdk.records import Act, ActingState, EnvStep, Observation, Rollout, StepData
from rlsdk.runtime.process import Streams
from rlsdk.spaces import Space
from rlsdk.training.stepwise import act_and_step, in_place_of
from rlsdk.tree import map_tensors

CarryT = TypeVar("CarryT")
ExtrasT = TypeVar("ExtrasT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
NodeT = TypeVar("NodeT")


AnyAct = Callable[[Observation, Any], Act[Any, Any]]
"""A function (observation, carry) -> act, of a policy whose carry and extras only the policy knows."""
AnyPolicy = Policy[Any, Any]


class LocalCollector:
    """Collects in environments that are all stepped together, in one group or several."""

    def __init__(
        self,
        env: VectorEnv,
        acting: tuple[ActingState[Any], ...] = (),
        generators: Sequence[Generator] = (),
        normalizer: RolloutNormalizer | None = None,
        space: Space | None = None,
    ) -> None:
        """Collect in `env`.

        Args:
            env: the environments.
            acting: the acting state of each group; empty if only whole episodes are played.
            generators: the generator of each group.
            normalizer: normalizes observations before the policy acts, and rollouts; None: nothing is normalized.
            space: the observation space of the agent, whose Dict keys may have another order than those of `env`; None: that
                of `env`.
        """
        # keys of a Dict may have another order in the environment than in a loaded agent
        self.observation_space = env.observation_space if space is None else space
        self.env, self.acting, self.generators, self.normalizer = env, acting, tuple(generators), normalizer
        self.num_envs = env.num_envs
        self._in_round = False
        # from the class, because `__getattr__` of a vector environment searches the single environments for what it lacks
        ends, report = (getattr(type(env), name, None) for name in ("rollout_ended", "report"))
        self._rollout_ended: Callable[[], object] | None = None if ends is None else partial(ends, env)
        self.report: Callable[[EnvStep], bool] | None = None if report is None else partial(report, env)
        """Calls the callbacks for a step that a plan has made itself, with `play`, and returns whether the training stops
        there. None if no callback watches steps. Steps have `infos` if `env.keeps_infos`."""
        self._policy: AnyPolicy | None = None
        """The policy that `_prepare` has seen."""

    def _prepare(self, policy: AnyPolicy) -> None:
        """Look up what a policy may do besides `Policy`, once per policy instead of in every round."""
        self._policy, normalizer, generator = policy, self.normalizer, self.generators[0]
        self._grouped: GroupedPolicy[Any, Any] | None = None
        acting = policy
        if len(self.acting) > 1:
            sizes = [len(state.observation.is_first) for state in self.acting]
            acting = self._grouped = GroupedPolicy(policy, sizes, self.generators)
        self._begin: Callable[[Any], Any] | None = getattr(policy, "begin_rollout", None)
        # asked of the policy: a grouped one has `estimates` always
        filling = ability(policy, PolicyAbilities, "estimates") and ability(acting, PolicyAbilities, "estimates")
        self._estimates: Callable[[StepData[Any]], Any] | None = None if filling is None else filling.estimates
        # extras are computed from normalized observations, so with a normalizer only after it has seen the rollout
        self._fill = self._estimates if normalizer is None else None
        self._in_place = in_place_of(acting, self.env, generator, normalizer)
        self._preparing = shortcut(acting, PolicyAbilities, "rollout_act", "act")
        self._act: AnyAct = partial(self._first_act, self._bound(acting.act))

    def _bound(self, act: Callable[..., Act[CarryT, ExtrasT]]) -> AnyAct:
        """The function (observation without normalization, carry) -> act."""
        bound, normalizer = partial(act, deterministic=False, generator=self.generators[0]), self.normalizer
        if normalizer is None:
            return bound
        return lambda observation, carry: bound(normalizer.observation(observation), carry)

    def _first_act(self, act_on: AnyAct, observation: Observation, carry: object) -> Act[Any, Any]:
        """Act for the first time and check the result. It is checked once, because it costs as much as a small network.

        Raises:
            PluginError: the policy returned no `Act`, or not one action per environment.
        """
        act = act_on(observation, carry)
        if (error := wrong_act(act, self._policy, len(observation.is_first))) is not None:
            raise error
        self._act = act_on
        return act

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> Rollout[CarryT, ExtrasT]:
        if policy is not self._policy:
            self._prepare(policy)
        states, grouped = self.acting, self._grouped
        if not self._in_round:
            self._in_round = True
            if self._begin is not None:  # gSDE draws new noise at the start of a round, which may have several calls
                states = tuple(replace(state, carry=self._begin(state.carry)) for state in states)
        if not hasattr(length, "__index__") or length < 1:
            raise wrong_length(length)
        state = states[0] if grouped is None else grouped.joined(states)
        with torch.no_grad():
            rollout: Rollout[Any, Any] | None = None
            if length > 1 and self._in_place is not None:  # for one step, preparing would take longer than its records
                rollout = self._in_place.collect(state, length, on_step, self._fill)
            if rollout is None:
                # layers do not change within a rollout, so policies may examine them once instead of at every step
                act = self._act if self._preparing is None else self._bound(self._preparing.rollout_act())
                rollout = act_and_step(self.env, act, state, length, on_step=on_step, fill=self._fill)
            if grouped is None:
                self.acting = (ActingState(rollout.last_observation, rollout.last_carry),)
            else:
                self.acting, rollout = grouped.split(rollout)
            if self.normalizer is not None:
                rollout = self.normalizer.rollout(rollout, self._estimates)
        if ends_round:
            self.end_round()
        return rollout

    def end_round(self) -> None:
        if self._in_round:
            self._in_round = False
            if self._rollout_ended is not None:
                self._rollout_ended()

    # --- for plans that play whole episodes (`PlanAbilities.plays_episodes`) -------------------------------------------

    @property
    def observation_normalizer(self) -> ObservationNormalizer | None:
        """The running statistics of observations, which such a plan applies and updates itself; None without `normalize`."""
        return None if self.normalizer is None else self.normalizer.normalizer.observations

    def play(
        self, work: Callable[[Sequence[object], Sequence[ItemT]], list[ResultT]], items: Sequence[ItemT]
    ) -> list[ResultT]:
        """Call `work(environments, items)` where the environments are, in this or in other processes, and return the results
        in the order of the items.

        The items may be divided over several calls. `work` and items must be picklable.

        Raises:
            UsageError: the environments cannot play whole episodes.
        """
        self._in_round = True
        player = ability(self.env, VectorEnvAbilities, "map")
        if player is None:
            raise UsageError(f"{type(self.env).__name__} plays no whole episodes, which this training loop needs")
        return player.map(work, items)


class NoCollector:
    """The collector of a training that collects no experience."""

    acting: tuple[ActingState[object], ...] = ()

    def __init__(self, num_envs: int = 0) -> None:
        """`num_envs`: the environments that the agent has, for updates that count as if steps were collected."""
        self.num_envs = num_envs

    def collect(
        self,
        policy: Policy[CarryT, ExtrasT],
        length: int,
        *,
        on_step: Callable[[int], object] | None = None,
        ends_round: bool = True,
    ) -> NoReturn:
        """Refuse to collect.

        Raises:
            UsageError: always.
        """
        raise UsageError("the training loop has needs_environment = False but collects; set it to True")

    def end_round(self) -> None:
        """Do nothing, because there are no rounds of collecting."""


def collect(
    env: VectorEnv,
    policy: Policy[CarryT, ExtrasT],
    acting: ActingState[CarryT],
    length: int,
    *,
    generator: Generator,
    on_step: Callable[[int], object] | None = None,
) -> Rollout[CarryT, ExtrasT]:
    """Collect one round of `length` steps of every environment, beginning with `acting`; see `LocalCollector.collect`."""
    return LocalCollector(env, (acting,), (generator,)).collect(policy, length, on_step=on_step)


def group_generators(streams: Streams, count: int) -> list[Generator]:
    """The generator of each of `count` groups. The first one is the generator that a single group would have."""
    # named streams: a group draws the same numbers whichever process steps it
    return [streams["action" if group == 0 else f"action {group}"] for group in range(count)]


def begin_acting(env: VectorEnv, policy: Policy[CarryT, ExtrasT], seed: int | None) -> ActingState[CarryT]:
    """Reset the environments; return the first observations with the initial carry of the policy."""
    return ActingState(env.reset(seed), policy.initial_carry(env.num_envs))


def split_acting(
    observation: Observation, policy: Policy[CarryT, ExtrasT], count: int
) -> tuple[ActingState[CarryT], ...]:
    """Divide the observations [B] into `count` groups of similar size, each with an initial carry."""
    sizes = [len(part) for part in torch.tensor_split(observation.is_first, count)]
    rows = [slice(sum(sizes[:group]), sum(sizes[: group + 1])) for group in range(count)]
    return tuple(
        ActingState(_rows(observation, at), policy.initial_carry(size)) for at, size in zip(rows, sizes, strict=True)
    )


def require_groups(num_envs: int, count: int) -> None:
    """Raises SettingsError if the environments cannot be divided into `count` groups of equal size."""
    if num_envs % count:
        raise SettingsError(f"env_groups = {count} does not divide the {num_envs} environments; choose a divisor")


class GroupedPolicy(Generic[CarryT, ExtrasT]):
    """A policy that acts for several groups of environments, each with its own carry and generator."""

    def __init__(self, policy: Policy[CarryT, ExtrasT], sizes: Sequence[int], generators: Sequence[Generator]) -> None:
        self.policy, self.generators = policy, generators
        ends = [sum(sizes[: group + 1]) for group in range(len(sizes))]
        self.rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._preparing = shortcut(policy, PolicyAbilities, "rollout_act", "act")
        self._filling = ability(policy, PolicyAbilities, "estimates")

    def joined(self, states: Sequence[ActingState[CarryT]]) -> ActingState[tuple[CarryT, ...]]:
        """Join the acting states of all groups into one; its carry is the tuple of the groups' carries."""
        return ActingState(joined([state.observation for state in states]), tuple(state.carry for state in states))

    def split(
        self, rollout: Rollout[tuple[CarryT, ...], ExtrasT]
    ) -> tuple[tuple[ActingState[CarryT], ...], Rollout[CarryT, ExtrasT]]:
        """Return (the acting state of each group after a rollout, the rollout with the groups' carries joined over
        environments)."""
        states = zip(self.rows, rollout.last_carry, strict=True)
        acting = tuple(ActingState(_rows(rollout.last_observation, at), carry) for at, carry in states)
        return acting, Rollout(
            rollout.steps,
            joined(rollout.initial_carry),
            rollout.last_observation,
            joined(rollout.last_carry),
            rollout.final_observations,
            rollout.episodes,
            rollout.stopped,
        )

    def initial_carry(self, batch: int) -> tuple[CarryT, ...]:
        """The initial carry of each group. `batch` is ignored: the sizes of the groups are known."""
        return tuple(self.policy.initial_carry(at.stop - at.start) for at in self.rows)

    def act(
        self, observation: Observation, carry: tuple[CarryT, ...], *, deterministic: bool, generator: Generator
    ) -> Act[tuple[CarryT, ...], ExtrasT]:
        """Act for all groups. `generator` is ignored: each group has its own."""
        return self._act(self.policy.act, observation, carry, deterministic)

    def rollout_act(self) -> Callable[..., Act[tuple[CarryT, ...], ExtrasT]]:
        """See `rlsdk.interfaces.PolicyAbilities`."""
        prepared = self.policy.act if self._preparing is None else self._preparing.rollout_act()

        def act(
            observation: Observation, carry: tuple[CarryT, ...], *, deterministic: bool, generator: Generator
        ) -> Act[tuple[CarryT, ...], ExtrasT]:
            return self._act(prepared, observation, carry, deterministic)

        return act

    def _act(
        self,
        act_on: Callable[..., Act[CarryT, ExtrasT]],
        observation: Observation,
        carry: tuple[CarryT, ...],
        deterministic: bool,
    ) -> Act[tuple[CarryT, ...], ExtrasT]:
        acts = [
            act_on(_rows(observation, at), own, deterministic=deterministic, generator=numbers)
            for at, own, numbers in zip(self.rows, carry, self.generators, strict=True)
        ]
        extras = joined([act.extras for act in acts])
        return Act(joined([act.action for act in acts]), tuple(act.carry for act in acts), extras)

    def estimates(self, steps: StepData[ExtrasT]) -> ExtrasT:
        """See `rlsdk.interfaces.PolicyAbilities`. If the policy does not implement it, return the extras unchanged."""
        if self._filling is None:
            return steps.extras
        # each group apart, because the policy's results may depend on the number of rows by rounding
        columns = [map_tensors(lambda leaf, at=at: leaf[:, at], steps) for at in self.rows]
        filled: list[ExtrasT] = [self._filling.estimates(part) for part in columns]
        return joined(filled, dim=1)

    def state_dict(self) -> State:
        return self.policy.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.policy.load_state_dict(state)


def joined(parts: Sequence[NodeT], dim: int = 0) -> NodeT:
    """Join the values of several groups along `dim`. Leaves without this dimension are taken from the first group."""
    if len(parts) == 1:
        return parts[0]
    return map_tensors(lambda *leaves: torch.cat(leaves, dim) if leaves[0].dim() > dim else leaves[0], *parts)


def _rows(observation: Observation, at: slice) -> Observation:
    return map_tensors(lambda leaf: leaf[at], observation)


def wrong_act(act: object, policy: object, num_envs: int) -> PluginError | None:
    """The error for an invalid result of `policy.act` for `num_envs` observations; None if the result is valid."""
    kind, wanted = type(policy).__name__, "return rlsdk.records.Act(action, carry, extras)"
    if not isinstance(act, Act):
        return PluginError(f"act of its policy, {kind}, returned {type(act).__name__}; {wanted}")
    for leaf in leaves_of(act.action):
        if not isinstance(leaf, Tensor) or not leaf.dim() or len(leaf) != num_envs:
            found = f"of shape {list(leaf.shape)}" if isinstance(leaf, Tensor) else type(leaf).__name__
            return PluginError(
                f"act of its policy, {kind}, returned an action {found} for {num_envs} environments; give tensors [B] or"
                f" [B, A] with B = {num_envs}, nested as the action space is"
            )
    return None


def leaves_of(action: object) -> list[object]:
    """The leaves of nested actions, of any type."""
    if isinstance(action, Mapping):
        return [leaf for value in action.values() for leaf in leaves_of(value)]
    return [leaf for value in action for leaf in leaves_of(value)] if isinstance(action, tuple) else [action]


def wrong_length(length: object) -> PluginError:
    """The error for a number of steps that cannot be collected."""
    return PluginError(
        f"its training loop called collect(policy, {length!r}); the length is a whole number of at least 1"
    )
