"""Vector environments whose environments are stepped in other processes. Observations are sent through shared memory.

An error in a process is raised in this process, too. A process that dies or hangs raises an EnvironmentFault with its cause, or
is replaced with `restart=True`. So training never hangs.
"""

from __future__ import annotations

import multiprocessing
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NoReturn

import attrs
import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.adapters.checks import Environment, Indices, chosen
from rlsdk.environments.adapters.observations import ActionDecoder, concatenated
from rlsdk.environments.states import OpaqueValue, masks_in, state_of, states_in
from rlsdk.environments.vector.connected import SteppedVector, no_separate, seed_of
from rlsdk.environments.vector.stepping import (
    Ended,
    EnvironmentGroup,
    ItemT,
    ResultT,
    StepArrays,
    StepRecords,
    Work,
    as_tensors,
    groups,
)
from rlsdk.environments.vector.sync_vector import SyncVectorEnv
from rlsdk.environments.vector.worker import Assignment, ByValue, WithInfos, arrays_in, bytes_for, numbers_in
from rlsdk.errors import EnvironmentFault, UsageError, WorkError, raised
from rlsdk.executors.futures import traced
from rlsdk.executors.processes import Answers, StatefulProcesses
from rlsdk.executors.workers import Failure, RepeatedFailure, Worker, WorkerDied, spread
from rlsdk.interfaces import Executor
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.process import fresh_seed
from rlsdk.spaces import Space


def even_ranges(count: int, parts: int) -> list[range]:
    """The numbers from 0 to `count` in `parts` consecutive ranges of similar length."""
    return [range(int(own[0]), int(own[-1]) + 1) for own in np.array_split(np.arange(count), parts)]


class SpreadRequests:
    """B environments in several workers, which answer the requests in `rlsdk.environments.vector.worker.REQUESTS`."""

    num_envs: int
    has_masks: bool
    rows: list[range]
    """The numbers of the environments in each worker."""
    _closed: bool

    @abstractmethod
    def _ask(self, request: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send a request to every worker, with its own arguments, and return the answers in order."""

    def _ask_all(self, request: str) -> list[Any]:
        return self._ask(request, [()] * len(self.rows))

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset; None if they are closed."""
        return None if self._closed else tuple(self._ask_all("fingerprint"))

    def get_state(self) -> dict[str, object]:
        """The state of the environments, as tensors and JSON scalars. Raises as `EnvironmentGroup.get_state`."""
        answers = self._ask_all("get_state")
        for answer in answers:
            if isinstance(answer, OpaqueValue):
                raise answer
        return state_of([state for answer in answers for state in answer], self.has_masks)

    def set_state(self, state: object) -> None:
        """Restore a state from `get_state`. Raises as `EnvironmentGroup.set_state`."""
        states, self.has_masks = states_in(state, self.num_envs), masks_in(state)
        self._ask("set_state", [(states[rows.start : rows.stop], self.has_masks) for rows in self.rows])

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return list(chain.from_iterable(self._ask_all("reset_infos")))

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of each environment; see `wrappers_of`."""
        return self._of("wrappers", (), indices)

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The values of the attribute `name` of the environments or of their wrappers."""
        return self._of("get", (name,), indices)

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the wrapper that has it, or of the environment."""
        self._of("set", (name, value), indices)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the environments, and return the results in the order of `indices`."""
        return self._of("call", (name, args, kwargs), indices)

    def _of(self, request: str, arguments: tuple[object, ...], indices: Indices) -> list[Any]:
        wanted, places, found = chosen(indices, self.num_envs), self.rows, dict[int, object]()
        own = [[i for i in wanted if i in place] for place in places]
        sent = [(*arguments, [i - place.start for i in rows]) for place, rows in zip(places, own, strict=True)]
        for rows, answer in zip(own, self._ask(request, sent), strict=True):
            found |= dict(zip(rows, answer or [None] * len(rows), strict=True))
        return [found[i] for i in wanted]


MAX_RESTARTS_IN_A_ROW = 3
"""The number of replacements of a process without a completed episode in between. At its next failure an error is raised."""


@attrs.frozen
class ProcessOptions:
    """The options of the processes of a `ProcessVectorEnv`."""

    workers: int
    timeout: float = 60.0
    """The time in seconds after which a process that does not answer counts as hung."""
    restart: bool = False
    start_method: str | None = None
    """`fork`, `forkserver` or `spawn`; None: the default of the platform."""


LEAVE_RUNNING = ("get", "set", "call", "wrappers", "reset_infos")
"""Requests whose errors end no training: the environments stand where they stood."""


class ProcessVectorEnv(SpreadRequests, SteppedVector):
    """B environments in W processes.

    With `restart=True`, a process that dies or hangs is replaced. Its environments begin new episodes, and their rows of the
    interrupted step are marked by `valid = False`. `restarts` is the number of replaced processes.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Environment]],
        observation_space: Space,
        action_space: Space,
        options: ProcessOptions,
        *,
        name: str,
        seed: int | None = None,
    ) -> None:
        super().__init__(observation_space, action_space, name, seed)
        self.num_envs, self.options = len(makers), options
        self.has_masks = self._closed = False
        self._base = 0
        """The seed of the last reset. Seeds for replaced processes are derived from it."""
        self._ahead: set[str] = set()
        """Labels of processes that were replaced between two steps. Their environments have begun new episodes."""
        context = multiprocessing.get_context(options.start_method)
        pair, count = (observation_space, action_space), self.num_envs
        block = context.RawArray("B", bytes_for(*pair, count))
        self._decode, self._records = ActionDecoder(action_space), StepRecords(arrays_in(block, *pair, count))
        self.rows = even_ranges(count, min(options.workers, count))
        owns = [ByValue([makers[i] for i in rows]) for rows in self.rows]
        parts = [Assignment(own, *pair, name, r, count, block) for own, r in zip(owns, self.rows, strict=True)]
        labels = [numbers_in(rows) for rows in self.rows]
        self._pool = StatefulProcesses(parts, context, labels, options.timeout, apart=False)
        self._workers, self._shared = self._pool.workers, self._pool.shared
        self.has_masks = self._have_masks()

    def _have_masks(self) -> bool:
        """Whether all environments have masks; raises EnvironmentFault where only those of some processes have."""
        have = self._ask("has_masks", [()] * len(self._workers))
        if any(have) and not all(have):
            with_one, without = (self._workers[have.index(kind)].label for kind in (True, False))
            self._fail(
                EnvironmentFault,
                f"environment {self.name!r}: {with_one} have a method action_masks, {without} have none; give one to all"
                " environments that are stepped together",
            )
        return all(have)

    @property
    def processes(self) -> list[BaseProcess]:
        """The processes, in the order of the environments they step."""
        return [worker.process for worker in self._workers]

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        pending = self.seeds.first_pending()
        chosen = pending if seed is None else seed
        self._base = fresh_seed() if chosen is None else chosen
        self.reset_seeds = seeds = self.seeds.of(chosen, self.num_envs)
        self._ahead.clear()  # all episodes begin now, so no environment is ahead of the others
        options = self.reset_options.take()
        parts = [worker.argument.part for worker in self._workers]
        self.has_masks = all(self._ask("reset", [(seeds[part], options[part]) for part in parts]))
        return self._records.first(self.has_masks)

    def step(self, action: Tensor) -> EnvStep:
        actions = self._decode(action)
        before, ahead = self.restarts - len(self._ahead), self._ahead
        extra = (self.keeps_infos, self.info_names) if self.keeps_infos or self.info_names else ()
        # environments that are already in their new episode are not stepped: the policy has not seen it yet
        requests = [None if w.label in ahead else (actions[w.argument.part], *extra) for w in self._workers]
        answers = self._ask("step", requests)
        ahead.clear()
        valid = None
        if self.restarts > before:
            valid = torch.ones(self.num_envs, dtype=torch.bool)
            for worker, answer in zip(self._workers, answers, strict=True):
                if answer is _RESTARTED:
                    valid[worker.argument.part] = False
        if not extra:
            return self._records.step(_joined(self._workers, answers), self.has_masks, valid)
        ends = [answer.ended if isinstance(answer, WithInfos) else None for answer in answers]
        step = self._records.step(_joined(self._workers, ends), self.has_masks, valid)
        infos = _infos(self._workers, answers) if self.keeps_infos else None
        return replace(step, infos=infos, info=self._entries(answers))

    def _entries(self, answers: Sequence[object]) -> dict[str, Tensor]:
        """The declared entries of all environments, float32 [B] each; 0 for those in a process that was replaced."""
        values = np.zeros((len(self.info_names), self.num_envs), np.float32)
        for worker, answer in zip(self._workers, answers, strict=True):
            if isinstance(answer, WithInfos):
                values[:, worker.argument.part] = answer.entries
        return as_tensors(self.info_names, values)

    def _ask(self, request: str, arguments: Sequence[tuple[object, ...] | None]) -> list[Any]:
        """Send a request to every process, and return the answers in order; `_RESTARTED` for arguments that are None."""
        if self._closed:
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        self._settle()
        requests = {i: (request, *own) for i, own in enumerate(arguments) if own is not None}
        answers: list[Any] = [_RESTARTED] * len(self._workers)
        for index, sent, answer in self._send(requests):
            answers[index] = self._checked(index, sent, answer)
        for answer in answers:
            if isinstance(answer, Failure):
                raise self._error(answer)
        return answers

    def _settle(self) -> None:
        """Receive the answers that were not waited for, so that later answers belong to later requests."""
        for index, request, answer in self._pool.late():
            if self._checked(index, request, answer) is _RESTARTED:
                self._ahead.add(self._workers[index].label)

    def _send(self, requests: Mapping[int, tuple[Any, ...]]) -> Answers:
        try:
            return self._pool.exchange(requests)
        except WorkError as error:
            name, what, *_ = next(iter(requests.values()))
            if name not in LEAVE_RUNNING:
                raise
            # all processes get the same value, so the first one was not sent either, and nothing has changed
            raise EnvironmentFault(
                f"environment {self.name!r}: the values given for {what!r} cannot be sent to its processes: it"
                f" {raised(error.__cause__ or error, 'pickling')}; give plain values, or a function that a module holds, or"
                " use vectorization='sync'"
            ) from None

    def _checked(self, index: int, request: tuple[Any, ...], answer: object) -> object:
        """An answer of a process, or of the process that replaced it. Raises the error that ends the training."""
        worker = self._workers[index]
        if isinstance(answer, WorkerDied):
            worker.failures += 1
            if self.options.restart and worker.failures <= MAX_RESTARTS_IN_A_ROW:
                return self._replace(index, request)
            how = str(answer) if "exit" in str(answer) else f"did not answer for {self.options.timeout} s; it hangs"
            self._fail(EnvironmentFault, f"environment {self.name!r}: the process of {worker.label} {how}")
        if isinstance(answer, Failure):
            if request[0] not in LEAVE_RUNNING:  # the other environments made the step, so the copies are apart
                self._end()
                raise self._error(answer)
            return answer
        ended = answer.ended if isinstance(answer, WithInfos) else answer
        worker.failures = 0 if isinstance(ended, Ended) else worker.failures
        return answer

    def _answer(self, index: int, request: tuple[Any, ...]) -> object:
        ((_, _, answer),) = self._send({index: request})
        return self._checked(index, request, answer)

    def _replace(self, index: int, request: tuple[Any, ...]) -> object:
        """Replace a dead process, and repeat the request. A step is not repeated: its answer is `_RESTARTED`."""
        self.restarts += 1
        self._pool.replace(index)
        if request[0] != "reset":
            self._begin_episodes(index)
        if request[0] == "step":
            return _RESTARTED
        answer = self._answer(index, request)
        if request[0] != "reset":
            self._ahead.add(self._workers[index].label)
        return answer

    def _begin_episodes(self, index: int) -> None:
        """Reset the environments of a new process, with seeds of their own."""
        assignment = self._workers[index].argument
        seeds = [seed_of(self._base, i + self.restarts * self.num_envs) for i in assignment.rows]
        self._answer(index, ("reset", seeds))
        part = assignment.arrays()
        # the process may have died in the middle of writing a step, and its rows are part of the next record
        part.reward[:], part.terminated[:], part.truncated[:] = 0.0, False, False

    def _error(self, failure: Failure) -> Exception:
        """What a process answered with instead, as an error that names the environment."""
        text = failure.message
        named = text if "environment " in text else f"environment {self.name!r} {text}"
        return traced((failure.kind or EnvironmentFault)(named), failure.trace)

    def _fail(self, kind: type[Exception], message: str, trace: str = "") -> NoReturn:
        self._end()
        raise traced(kind(message), trace)

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, in order. Each group of items goes to the next free process.

        A group has one item for each environment of a process, or fewer towards the end. A process that dies or hangs (for
        `timeout` seconds per group) is replaced, and its group is repeated. A second failure of the same group raises
        EnvironmentFault.
        """
        shipped, workers = ByValue(work), len(self._workers)
        packed = groups(self._shared.pack(items), -(-self.num_envs // workers), workers)
        requests = [("apply", shipped, group) for group in packed]
        timeout, accept, replaced = self.options.timeout, self._accept, self._count_restart
        self._settle()
        try:
            answers = spread(self._workers, requests, timeout=timeout, accept=accept, replaced=replaced)
            return list(chain.from_iterable(answers))
        except RepeatedFailure as error:
            self._fail(EnvironmentFault, f"environment {self.name!r}: {error}")

    def _accept(self, answer: object) -> None:
        if isinstance(answer, Failure):
            self._fail(answer.kind or EnvironmentFault, answer.message, answer.trace)

    def _count_restart(self) -> None:
        self.restarts += 1

    def close(self) -> None:
        """Close the environments, and end the processes."""
        if not self._closed:
            self._closed = True
            self._pool.close(self.options.timeout)

    def _end(self) -> None:
        self._closed = True
        self._pool.end()


_RESTARTED = object()
"""The answer of a process that was replaced during a step."""


def _infos(workers: Sequence[Worker], answers: Sequence[object]) -> list[dict[str, object]]:
    """The infos of all environments; empty for environments in a process that was replaced."""
    empty: list[list[dict[str, object]]] = [[{} for _ in worker.argument.rows] for worker in workers]
    rows = [a.infos if isinstance(a, WithInfos) else none for a, none in zip(answers, empty, strict=True)]
    return list(chain.from_iterable(rows))


def _joined(workers: Sequence[Worker], answers: Sequence[object]) -> Ended | None:
    """The episodes that ended in all processes, in the order of environments; None if none ended."""
    some = [(w.argument.rows[0], a) for w, a in zip(workers, answers, strict=True) if isinstance(a, Ended)]
    if not some:
        return None
    masks = [ended.mask for _, ended in some if ended.mask is not None]
    return Ended(
        [first + row for first, ended in some for row in ended.rows],
        concatenated([ended.observation for _, ended in some]),
        np.concatenate(masks) if masks else None,
        [value for _, ended in some for value in ended.returns],
        [value for _, ended in some for value in ended.lengths],
        [value for _, ended in some for value in ended.successes],
    )


_GROUPS: dict[tuple[str, int], EnvironmentGroup] = {}
"""The environments made in this process of an executor: (token of the vector environment, thread) -> group."""


@attrs.frozen
class GroupWork(Generic[ItemT, ResultT]):
    """`work(environments, items)` as a function of `items`. The environments are made at the first call in a process."""

    token: str
    make: ByValue[Callable[[], Environment]]
    copies: int
    """The number of environments to make."""
    spaces: tuple[Space, Space]
    name: str
    work: ByValue[Work[ItemT, ResultT]]

    def __call__(self, items: Sequence[ItemT]) -> list[ResultT]:
        place = self.token, threading.get_ident()
        if place not in _GROUPS:
            make = self.make()
            made = [make() for _ in range(self.copies)]
            arrays = StepArrays(*self.spaces, len(made), np.zeros)
            _GROUPS[place] = EnvironmentGroup(made, arrays, self.name)
        return _GROUPS[place].apply(self.work(), items)


class ExecutorVectorEnv(SteppedVector):
    """A vector environment whose `map` plays episodes on `num_envs` copies, distributed over the workers of an executor.

    One copy in this process, `here`, gives spaces and attributes.
    """

    def __init__(
        self, make: Callable[[], Environment], here: SyncVectorEnv, executor: Executor, num_envs: int, workers: int
    ) -> None:
        self.here, self.executor, self.num_envs, self.workers = here, executor, num_envs, workers
        self.copies = -(-num_envs // workers)  # number of copies in each worker, rounded up
        super().__init__(here.observation_space, here.action_space, here.name)
        self.seeds, self.has_masks = here.seeds, here.has_masks
        self._make, self._token = ByValue(make), uuid.uuid4().hex
        # what can be answered without an episode is answered by the copy in this process
        self.reset, self.reset_infos, self.fingerprint = here.reset, here.reset_infos, here.fingerprint
        self.get_attr, self.env_method, self.wrappers = here.get_attr, here.env_method, here.wrappers

    def set_options(self, options: object = None) -> None:
        """Raises UsageError, because the copies are reset in the workers of the executor, with a seed only."""
        if options:
            no_separate(self.name, "set_options")

    def step(self, action: Tensor) -> EnvStep:
        """Raises UsageError; see `require_steps`."""
        self.require_steps()

    def require_steps(self) -> NoReturn:
        """Raises UsageError, because an executor plays whole episodes only. The message names other vectorisations."""
        raise UsageError(
            f"environment {self.name!r} is played by an executor, which plays whole episodes, for population methods such"
            " as ARS; other algorithms step their environments: use vectorization='sync' or 'async'"
        )

    def set_attr(self, name: str, value: object, indices: Indices = None) -> NoReturn:
        """Raises UsageError, because the copies are made in the workers of the executor."""
        no_separate(self.name, "set_attr")

    def get_state(self) -> NoReturn:
        """Raises OpaqueValue, because only whole episodes are played and none is unfinished."""
        raise OpaqueValue("an executor has no environments between episodes")

    def set_state(self, state: object, /) -> NoReturn:
        """Raises OpaqueValue; see `get_state`."""
        self.get_state()

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, which the executor's workers do for groups of items, in order."""
        pair, shipped = (self.observation_space, self.action_space), ByValue(work)
        played = GroupWork(self._token, self._make, self.copies, pair, self.name, shipped)
        return list(chain.from_iterable(self.executor.map(played, groups(items, self.copies, self.workers))))

    def close(self) -> None:
        """Close the copy in this process and the executor."""
        self.here.close()
        self.executor.close()
