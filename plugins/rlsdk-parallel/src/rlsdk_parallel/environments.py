"""A vector environment whose environments are in several collectors. Each collector acts with a copy of the policy."""

from __future__ import annotations

import os
import threading
import uuid
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs
from torch import Tensor

from rlsdk.environments import ConnectedEnv, OpaqueValue, SteppedVector, make_vec_env
from rlsdk.errors import EnvironmentFault, SettingsError, UsageError
from rlsdk.executors import SerialExecutor, make_executor
from rlsdk.interfaces import AlgorithmAbilities, Collector, Executor, ability, plays_episodes
from rlsdk.records import EnvStep, Observation
from rlsdk.settings import evolve
from rlsdk.spaces import Space
from rlsdk.training import DrivenAgent, OffPolicyPlan
from rlsdk_parallel.collecting_worker import MOVES, Answer, CollectingWorker, MakesAttached, Packed, PackedRequest
from rlsdk_parallel.collector import Part, RemoteCollector, Shared
from rlsdk_parallel.environment_worker import Assignment, ByValue, EnvRequest, Maker, VectorWorker, Work, groups
from rlsdk_parallel.executors import Background, StatefulHere
from rlsdk_parallel.process_vector import InWorkers
from rlsdk_parallel.processes import HasStatefulWorkers
from rlsdk_parallel.workers import WorkerDied

if TYPE_CHECKING:
    from rlsdk.callbacks import Run

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Places = Sequence[Packed | None]
"""The state of the environments of each collector; None: unknown."""


def make_collectors(  # the arguments of make_vec_env that are about collectors
    makers: Sequence[Maker],
    inspected: Callable[[], tuple[tuple[Space, Space], str]],
    *,
    collectors: int | None,
    executor: str,
    max_lag: int,
    unused: Mapping[str, object],
) -> ConnectedEnv:
    """The vector environment whose copies are in collectors; `make_vec_env` calls this.

    If the executor works in this process and `max_lag` is 0, it is one that steps all copies together.

    Args:
        makers: the function that makes each copy.
        inspected: makes a copy, closes it, and returns its spaces and its name.
        collectors: see `make_vec_env`, also for `executor` and `max_lag`.
        unused: name -> value of the arguments that must have their defaults.

    Raises:
        SettingsError: an argument is invalid. EnvironmentFault: the environment cannot be made.
    """
    _require_rounds(max_lag, collectors)
    if collectors is None:
        raise SettingsError(f"executor = {executor!r} is where collectors are; give collectors too, or leave it out")
    require_collectors(collectors, len(makers), executor)
    for name, value in unused.items():
        if value not in (None, False, "auto"):
            raise SettingsError(f"collectors step their environments themselves; leave out {name} = {value!r}")
    if executor == "in-process" and not max_lag:
        here = make_vec_env(list(makers), vectorization="sync")
        check = partial(check_agent, collectors=collectors, max_lag=0, copies=False)
        # on this object alone: its class is that of environments without collectors
        setattr(here, "check_agent", check)  # noqa: B010
        return here
    elsewhere = make_executor(executor, collectors)
    try:
        spaces, name = inspected()
        return CollectorsVectorEnv(makers, spaces, elsewhere, collectors=collectors, max_lag=max_lag, name=name)
    # Ctrl-C must not leave the processes of the executor behind either
    except BaseException:
        elsewhere.close()
        raise


def _require_rounds(max_lag: object, collectors: int | None) -> None:
    """Check `max_lag`, the number of rounds that collectors may be ahead of the learner.

    Raises:
        SettingsError: it is not a whole number of 0 or more, or it is positive without collectors.
    """
    if not isinstance(max_lag, int) or isinstance(max_lag, bool) or max_lag < 0:
        raise SettingsError(f"max_lag = {max_lag!r} must be a whole number, 0 or more")
    if max_lag and collectors is None:
        raise SettingsError(
            f"max_lag = {max_lag} is for collectors, which act while the learner updates; give collectors = 1 or more"
            " (--collectors), or leave out max_lag"
        )


def require_collectors(count: object, num_envs: int, executor: str) -> None:
    """Check the number of collectors that share `num_envs` environments. Warns when there are more than cores.

    Raises:
        SettingsError: `count` is not a positive divisor of the number of environments.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SettingsError(f"collectors = {count!r} must be a positive whole number")
    if count > num_envs:
        raise SettingsError(
            f"collectors = {count} for {num_envs} environment{'s' * (num_envs > 1)}: each collector needs one or more; give"
            f" {count} environments (--n-envs, n_envs) or a multiple, or fewer collectors"
        )
    if num_envs % count:
        raise SettingsError(f"collectors = {count} does not divide the {num_envs} environments; choose a divisor")
    cores = os.cpu_count() or count
    if executor == "processes" and count > cores:
        warnings.warn(
            f"{count} collectors on a machine with {cores} cores: more than {cores} pay only where environments wait, as for a"
            " simulator in another program",
            RuntimeWarning,
            stacklevel=5,
        )


def check_agent(agent: DrivenAgent, *, new: bool, collectors: int, max_lag: int, copies: bool) -> None:
    """Check that an agent can train in collectors. A new one gets a group of environments for each, unless it has groups.

    `copies`: whether collectors act with copies of the policy, on the CPU.

    Raises:
        SettingsError: its algorithm, number of groups or device does not allow it.
    """
    if new and agent.config.env_groups == 1:
        agent.config = evolve(agent.config, {"env_groups": collectors})
    groups, plan, name = agent.config.env_groups, agent.parts.plan, agent.context.algorithm
    reason = None
    if plays_episodes(plan):
        reason = "plays whole episodes, which executors do: use --vectorization processes"
    elif not plan.needs_environment:
        reason = "learns without an environment"
    if reason is not None:
        raise SettingsError(f"{name} cannot use collectors: it {reason}; leave out collectors = {collectors}")
    if max_lag:
        _require_lag(agent, max_lag)
    if groups % collectors:
        raise SettingsError(
            f"env_groups = {groups} cannot be shared by {collectors} collectors; choose env_groups = {collectors} or a"
            " multiple, or another number of collectors"
        )
    if copies and agent.context.device != "cpu":
        raise SettingsError(
            f"collectors act on the cpu, the agent is on {agent.context.device}; choose device = 'cpu', or leave out collectors"
        )


def _require_lag(agent: DrivenAgent, max_lag: int) -> None:
    """Raise SettingsError if the algorithm cannot learn from steps that an older policy collected."""
    plan, allowing = agent.parts.plan, ability(agent.parts.algorithm, AlgorithmAbilities, "allows_lag")
    if isinstance(plan, OffPolicyPlan):
        if plan.episodes:
            raise SettingsError(
                f"max_lag = {max_lag} needs rounds of a length that is known before; give train_freq in steps, or leave out"
                " max_lag"
            )
    elif allowing is None or not allowing.allows_lag:
        raise SettingsError(
            f"{agent.context.algorithm} learns only from rollouts of its current policy, without importance weights that"
            f" correct for an older one; leave out max_lag = {max_lag}"
        )


class CollectorsVectorEnv(InWorkers, SteppedVector):
    """B environments, distributed evenly over several stateful workers, the collectors.

    `collect` makes all collectors collect a rollout at the same time. A worker that dies is replaced: its environments continue
    from their last known state, and its request is repeated. `restarts` is the number of replaced workers. A worker that dies
    during `step` raises EnvironmentFault instead.
    """

    def __init__(
        self,
        makers: Sequence[Maker],
        spaces: tuple[Space, Space],
        executor: Executor,
        *,
        collectors: int,
        max_lag: int = 0,
        name: str,
    ) -> None:
        """Raises SettingsError when the executor has no stateful workers."""
        super().__init__(*spaces, name)
        able = ability(executor, HasStatefulWorkers, "stateful_workers")
        here = isinstance(executor, SerialExecutor)
        if able is None and not here:
            raise SettingsError(
                f"executor {type(executor).__name__} has no workers that hold environments"
                " (rlsdk_parallel.HasStatefulWorkers), so it has no collectors; use 'processes', or leave them out"
            )
        self.collectors, self.max_lag = collectors, max_lag
        # reported only where the policy can be older than the learner's
        self.lag = 0 if max_lag else None
        # work in this process would not run beside the learner, but only switch between two threads
        self._background = None if here else Background()
        self.standing: Places | None = None
        """The states that the learner has processed, while collectors are ahead of it; None: the collectors' states."""
        self._attached: ByValue[MakesAttached] | None = None
        self._states: list[Packed | None] = [None] * collectors
        """The last known state of the environments of each collector; None: unknown."""
        self._contents: dict[int, Any] = {}
        self._fingerprints: dict[int, Hashable] = {}
        self._replaced: dict[int, tuple[Hashable, Hashable]] = {}
        """Collector -> (fingerprint of a new worker in the state of the old one, fingerprint of the old one)."""
        # without shared memory: the workers of an executor may be on other machines
        parts = [partial(CollectingWorker, part) for part in self.assign(makers, spaces, collectors)]
        self._executor = executor
        self.workers = StatefulHere(parts) if able is None else able.stateful_workers(parts)
        self.require_masks_alike()

    def check_agent(self, agent: DrivenAgent, *, new: bool) -> None:
        """See `check_agent` of this module."""
        check_agent(agent, new=new, collectors=self.collectors, max_lag=self.max_lag, copies=True)

    def collector(self, run: Run) -> Collector | None:
        """The collector of a training; None if a callback follows every step: then the environments are stepped from here.

        Raises:
            SettingsError: that is so, and collectors are ahead of the learner.
        """
        following = [type(callback).__name__ for callback in run.callbacks if callback.watches_steps]
        if not following:
            return RemoteCollector(self, run)
        if self.max_lag:
            raise SettingsError(
                f"{following[0]} follows every step, which collectors that are ahead of the learner (max_lag ="
                f" {self.max_lag}) do not report; leave out max_lag, or the callback's on_step (_on_step)"
            )
        warnings.warn(
            f"{following[0]} follows every step, so the environments in collectors are stepped from here, one step at a time;"
            " a callback without on_step (_on_step) lets them collect on their own",
            RuntimeWarning,
            stacklevel=2,
        )
        return None

    # --- collecting --------------------------------------------------------------------------------------------------

    def attach(self, make: MakesAttached) -> None:
        """Make every collector call `make` with its environments. `collect` then calls the resulting function."""
        self._attached = ByValue(make)
        self.ask("attach", [(self._attached,)] * self.collectors)

    def collect(self, shared: Shared, own: Sequence[Part]) -> list[Part]:
        """Collect in all collectors, and return their results in order.

        Args:
            shared: data for the attached functions of all collectors.
            own: data for each collector.
        """
        # packed once: all requests refer to the same array, which shared memory holds once
        common = Packed.of(shared)
        requests = {i: self._packed_request("collect", common, Packed.of(part)) for i, part in enumerate(own)}
        return [answer.value() for answer in self.exchange(requests).values()]

    # --- ahead of the learner ----------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[Packed | None, ...]:
        """The state of the environments of each collector; None: unknown."""
        return tuple(self._states)

    def begin(self, work: Callable[[], ResultT]) -> Future[ResultT]:
        """Run `work()`, a function that collects, in the background. Other requests wait until it is done.

        If the environments are in this process, it runs immediately instead.
        """
        if self._background is None:
            return SerialExecutor().submit(lambda _: work(), None)
        return self._background.submit(work)

    def rewind(self) -> bool:
        """Restore the states in `standing`, so that no environment is ahead of the learner.

        Returns:
            False if a state is unknown or the environments are closed, else True.
        """
        standing, self.standing = self.standing, None
        if standing is None or self.closed:
            return standing is None
        known = [state for state in standing if state is not None]
        if len(known) < len(standing):
            return False
        self.exchange({i: self._packed_request("write_states", state) for i, state in enumerate(known)})
        return True

    def read_states(self) -> list[dict[str, object]]:
        """The states of the environments that the learner has processed."""
        if self.standing is None:
            return super().read_states()
        known = [state for state in self.standing if state is not None]
        if len(known) < len(self.standing):
            raise OpaqueValue(f"the state of {self.name!r} cannot be read")
        return list(chain.from_iterable(state.value()[0] for state in known))

    def write_states(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore states from `read_states`. Raises as `SyncVectorEnv.write_states`."""
        super().write_states(states, has_masks)
        self.standing = None

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        observation = super().reset(seed)
        self.standing = None
        return observation

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset, but not when a worker is replaced."""
        if self.closed:
            return None
        for index, found in enumerate(self.ask_all("fingerprint")):
            new, old = self._replaced.get(index, (None, None))
            self._fingerprints[index] = old if found == new and new is not None else found
        return tuple(self._fingerprints[index] for index in range(self.collectors))

    # --- requests ----------------------------------------------------------------------------------------------------

    def _packed_request(self, name: str, *values: Packed) -> Any:
        """A request whose large arrays go through shared memory, where there is some. Workers unpack it."""
        request = self.request(name, *(value.nest for value in values))
        return PackedRequest(name, request, *(value.data for value in values))

    def accept(self, index: int, request: EnvRequest, answer: Answer) -> object:
        """Store the state and the contents in the answer of a worker, and return its result."""
        if request.name in MOVES:
            self._states[index] = answer.state
        if answer.contents is not None:
            self._contents[index] = answer.contents
            if len(self._contents) == self.collectors:
                for i, rows in enumerate(self.rows):
                    self.arrays.part(rows).take(self._contents[i])
                self._contents = {}
        return answer.result

    def exchange(self, requests: Mapping[int, EnvRequest]) -> dict[int, Any]:
        if self._background is not None:
            self._background.settle()  # a worker answers one request at a time, in the order of the pipe
        try:
            return super().exchange(requests)
        except Exception as error:
            if self.closed:  # another thread closed it while this one waited for the workers
                raise EnvironmentFault(f"environment {self.name!r} is closed") from error
            raise

    def answer_again(self, index: int, request: EnvRequest, death: WorkerDied) -> object:
        where = f"environment {self.name!r}: the collector of {self.numbers(index)}"
        if request.name == "step":  # its actions were chosen for observations that new episodes would not have
            raise EnvironmentFault(f"{where} {death}, in the middle of an episode")
        if self.closed:  # `close` ended the workers while they collected in the background
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        if self.deaths[index]:
            raise EnvironmentFault(f"{where} died twice in the same piece of work; the second time it {death}")
        self.deaths[index] += 1
        try:
            return super().answer_again(index, request, death)
        finally:
            del self.deaths[index]

    def restore(self, index: int) -> None:
        """Restore the last known state in a new worker, or begin new episodes if it is unknown."""
        state = self._states[index]
        if self._attached is not None:
            self.exchange({index: self.request("attach", self._attached)})
        if state is None:
            return super().restore(index)
        self.exchange({index: self._packed_request("write_states", state)})
        if index in self._fingerprints:
            # the new fingerprint stands for the old one: `learn` must not take this for a step that other code made
            (new,) = self.exchange({index: self.request("fingerprint")}).values()
            self._replaced[index] = new, self._fingerprints[index]
        return None

    def close(self) -> None:
        """Close the environments and end the workers."""
        if not self.closed:
            self.closed = True
            self.workers.close()
            self._executor.close()
            if self._background is not None:
                self._background.close()


_WORKERS: dict[tuple[str, int], VectorWorker] = {}
"""The environments made in this process of an executor: (token of the vector environment, thread) -> their worker."""


@attrs.frozen
class GroupWork(Generic[ItemT, ResultT]):
    """`work(environments, items)` as a function of `items`. The environments are made at the first call in a process."""

    token: str
    make: Callable[[], VectorWorker]
    work: ByValue[Work[ItemT, ResultT]]

    def __call__(self, items: Sequence[ItemT]) -> list[ResultT]:
        # for each thread, as an executor may run several items in one process at the same time
        place = self.token, threading.get_ident()
        if place not in _WORKERS:
            _WORKERS[place] = self.make()
        return _WORKERS[place].apply(self.work, items)


class ExecutorVectorEnv(SteppedVector):
    """A vector environment whose `map` plays episodes on `num_envs` copies, distributed over the workers of an executor.

    One copy in this process, `here`, gives spaces and attributes.
    """

    def __init__(
        self,
        here: ConnectedEnv,
        maker: Maker,
        executor: Executor,
        num_envs: int,
        workers: int,
    ) -> None:
        """`maker`: makes one copy, where it is played. The copies are distributed over `workers` workers."""
        super().__init__(here.observation_space, here.action_space, here.name)
        self.here, self.executor, self.num_envs, self.workers = here, executor, num_envs, workers
        self.seeds, self.has_masks = here.seeds, here.has_masks
        # rounded up
        self._size = -(-num_envs // workers)
        pair = here.observation_space, here.action_space
        self._make = Assignment(ByValue([maker] * self._size), pair, here.name, range(self._size), total=1)
        self._token = uuid.uuid4().hex
        # what can be answered without an episode is answered by the copy in this process
        self.reset, self.reset_infos, self.fingerprint = here.reset, here.reset_infos, here.fingerprint
        self.get_attr, self.env_method, self.wrappers = here.get_attr, here.env_method, here.wrappers

    def set_options(self, options: object = None) -> None:
        """Raises UsageError, because the copies are reset in the workers of the executor, with a seed only."""
        if options:
            raise self._no_separate("set_options")

    def step(self, action: Tensor) -> EnvStep:
        """Raises UsageError; see `require_steps`."""
        self.require_steps()

    def require_steps(self) -> NoReturn:
        """Raises UsageError, because an executor plays whole episodes only. The message names other vectorizations."""
        raise UsageError(
            f"environment {self.name!r} is played by an executor, which plays whole episodes, for population methods such"
            " as ARS; other algorithms step their environments: use vectorization='sync' or 'async'"
        )

    def set_attr(self, name: str, value: object, indices: object = None) -> NoReturn:
        """Raises UsageError, because the copies are made in the workers of the executor."""
        raise self._no_separate("set_attr")

    def _no_separate(self, member: str) -> UsageError:
        return UsageError(
            f"environment {self.name!r} has no {member!r}: it has no separate environments;"
            " use make_vec_env(..., vectorization='sync' or 'async')"
        )

    def read_states(self) -> NoReturn:
        """Raises OpaqueValue, because only whole episodes are played and none is unfinished."""
        raise OpaqueValue("an executor has no environments between episodes")

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, which the executor's workers do for groups of items, in order."""
        played = GroupWork(self._token, self._make, ByValue(work))
        return list(chain.from_iterable(self.executor.map(played, groups(items, self._size, self.workers))))

    def close(self) -> None:
        """Close the copy in this process and the executor."""
        self.here.close()
        self.executor.close()
