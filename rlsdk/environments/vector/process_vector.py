"""A vector environment whose environments are stepped in several processes. Observations are sent through shared memory.

An error in a process is raised in this process, too. A process that dies or hangs raises an EnvironmentFault with its cause, or
is replaced with `restart=True`. So training never hangs.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import attrs
import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.adapters.actions import ActionDecoder
from rlsdk.environments.adapters.attributes import Environment
from rlsdk.environments.adapters.nested import concatenated
from rlsdk.environments.vector.by_value import ByValue
from rlsdk.environments.vector.connected import SteppedVector
from rlsdk.environments.vector.info_entries import as_tensors
from rlsdk.environments.vector.item_groups import ItemT, ResultT, Work, groups
from rlsdk.environments.vector.seeds import seed_of
from rlsdk.environments.vector.shared_arrays import arrays_in, bytes_for
from rlsdk.environments.vector.spread_requests import SpreadRequests
from rlsdk.environments.vector.step_arrays import Ended
from rlsdk.environments.vector.step_records import StepRecords
from rlsdk.environments.vector.worker import END, Assignment, WithInfos, serve
from rlsdk.errors import EnvironmentFault, raised
from rlsdk.executors.pieces import traced
from rlsdk.executors.shared_memory import SharedArrays
from rlsdk.executors.workers import Failure, RepeatedFailure, Worker, WorkerDied, end_all, spread
from rlsdk.records import EnvStep, Observation
from rlsdk.runtime.seeding import fresh_seed
from rlsdk.spaces import Space

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
        self._owed = dict[Worker, tuple[Any, ...]]()
        """Processes whose answer was not received, as after Ctrl-C, and the request."""
        self._base = 0
        """The seed of the last reset. Seeds for replaced processes are derived from it."""
        self._ahead: set[str] = set()
        """Labels of processes that were replaced between two steps. Their environments have begun new episodes."""
        context = multiprocessing.get_context(options.start_method)
        pair, count = (observation_space, action_space), self.num_envs
        block = context.RawArray("B", bytes_for(*pair, count))
        self._decode, self._records = ActionDecoder(action_space), StepRecords(arrays_in(block, *pair, count))
        self._shared = SharedArrays()
        self._workers: list[Worker] = []
        for part in np.array_split(np.arange(self.num_envs), min(options.workers, self.num_envs)):
            rows = range(int(part[0]), int(part[-1]) + 1)
            own = ByValue([makers[i] for i in rows])
            assignment = Assignment(own, *pair, name, rows.start, rows.stop, count, block)
            self._workers.append(Worker(context, serve, assignment, assignment.label))
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
        self._ahead.clear()
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

    @property
    def rows(self) -> list[range]:
        return [worker.argument.rows for worker in self._workers]

    def _ask(self, request: str, arguments: Sequence[tuple[object, ...] | None]) -> list[Any]:
        """Send a request to every process, and return the answers in order; `_RESTARTED` for arguments that are None."""
        if self._closed:
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        self._settle()
        deadline = time.monotonic() + self.options.timeout
        asked = [None if own is None else (request, *own) for own in arguments]
        self._send_all(asked)
        pairs = zip(self._workers, asked, strict=True)
        answers = [_RESTARTED if own is None else self._answer(worker, own, deadline) for worker, own in pairs]
        for answer in answers:
            if isinstance(answer, Failure):
                raise self._error(answer)
        return answers

    def _settle(self) -> None:
        """Receive the answers that were not waited for, so that later answers belong to later requests."""
        deadline = time.monotonic() + self.options.timeout
        for worker, request in list(self._owed.items()):
            if self._answer(worker, request, deadline) is _RESTARTED:
                self._ahead.add(worker.label)

    def _send(self, worker: Worker, request: tuple[Any, ...]) -> None:
        self._owed[worker] = request
        worker.send(*request)

    def _send_all(self, requests: Sequence[tuple[Any, ...] | None]) -> None:
        try:
            for worker, request in zip(self._workers, requests, strict=True):
                if request is not None:
                    self._send(worker, request)
        except Exception as error:
            name, what, *_ = requests[0] or ("", "")
            if name not in LEAVE_RUNNING:
                raise
            # the value of an attribute or a call, which all processes get: the first one could not be pickled
            self._owed.clear()
            raise EnvironmentFault(
                f"environment {self.name!r}: the values given for {what!r} cannot be sent to its processes: it"
                f" {raised(error, 'pickling')}; give plain values, or a function that a module holds, or use"
                " vectorization='sync'"
            ) from None

    def _answer(self, worker: Worker, request: tuple[Any, ...], deadline: float) -> object:
        try:
            answer = worker.receive(deadline, self.options.timeout)
            self._owed.pop(worker, None)
        except WorkerDied as reason:
            self._owed.pop(worker, None)
            worker.failures += 1
            if self.options.restart and worker.failures <= MAX_RESTARTS_IN_A_ROW:
                return self._replace(worker, request)
            how = str(reason) if "exit" in str(reason) else f"did not answer for {self.options.timeout} s; it hangs"
            self._fail(EnvironmentFault, f"environment {self.name!r}: the process of {worker.label} {how}")
        if isinstance(answer, Failure):
            if request[0] not in LEAVE_RUNNING:
                self._end()
                raise self._error(answer)
            return answer
        ended = answer.ended if isinstance(answer, WithInfos) else answer
        worker.failures = 0 if isinstance(ended, Ended) else worker.failures
        return answer

    def _replace(self, worker: Worker, request: tuple[Any, ...]) -> object:
        """Replace a dead process, and repeat the request. A step is not repeated: its answer is `_RESTARTED`."""
        self.restarts += 1
        worker.kill()
        worker.start()
        if request[0] != "reset":
            self._begin_episodes(worker)
        if request[0] == "step":
            return _RESTARTED
        self._send(worker, request)
        answer = self._answer(worker, request, time.monotonic() + self.options.timeout)
        if request[0] != "reset":
            self._ahead.add(worker.label)
        return answer

    def _begin_episodes(self, worker: Worker) -> None:
        """Reset the environments of a new process, with seeds of their own."""
        seeds = [seed_of(self._base, i + self.restarts * self.num_envs) for i in worker.argument.rows]
        self._send(worker, ("reset", seeds))
        self._answer(worker, ("reset", seeds), time.monotonic() + self.options.timeout)
        part = worker.argument.arrays()
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
            answers = spread(
                self._workers, requests, timeout=timeout, accept=accept, replaced=replaced, owed=self._owed
            )
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
            for worker in self._workers:
                worker.send(END)
            self._closed = True
            end_all(self._workers, self.options.timeout, owed=bool(self._owed))
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._shared.close()
        for worker in self._workers:
            worker.kill()


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
