"""Environments stepped in processes: several copies to a process, observations through shared memory.

A process that dies, hangs or raises is an error that says so, or is replaced when that was asked for; never a hang.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NoReturn

import attrs
import numpy as np
import torch
from torch import Tensor

from rlsdk.environments.actions import ActionDecoder
from rlsdk.environments.attributes import Indices, chosen
from rlsdk.environments.by_value import ByValue
from rlsdk.environments.copies import Ended, Work, groups
from rlsdk.environments.seeds import Seeds, seed_of
from rlsdk.environments.shared_arrays import arrays_in, bytes_for
from rlsdk.environments.states import OpaqueValue, masks_in, state_of, states_in
from rlsdk.environments.step_records import StepRecords
from rlsdk.environments.worker import END, Assignment, WithInfos, serve
from rlsdk.errors import EnvironmentFault
from rlsdk.parcels import Outbox
from rlsdk.records import EnvStep, Observation
from rlsdk.seeding import fresh_seed
from rlsdk.spaces import Space
from rlsdk.workers import Dead, Failure, Twice, Worker, spread

MAX_RESTARTS_IN_A_ROW = 3
"""A process that dies more often than this without completing an episode in between is given up."""


@attrs.frozen
class ProcessOptions:
    """How many processes, how long they may think, and what becomes of one that dies."""

    workers: int
    timeout: float = 60.0
    """seconds"""
    restart: bool = False
    start_method: str | None = None
    """`fork`, `forkserver`, `spawn`; None is the platform's own."""


class ProcessEnvs:
    """B environments in W processes. With `restart`, a process that dies or hangs is replaced: its environments begin
    new episodes, the interrupted rows are marked `valid = False`, and `restarts` counts it."""

    def __init__(
        self,
        makers: Sequence[Callable[[], Any]],
        observation_space: Space,
        action_space: Space,
        options: ProcessOptions,
        *,
        name: str,
        seed: int | None = None,
    ) -> None:
        self.observation_space, self.action_space, self.name = observation_space, action_space, name
        self.num_envs, self.seeds, self.options = len(makers), Seeds(seed), options
        self.restarts, self.has_masks, self._closed = 0, False, False
        self.recipe: str | None = None
        context: Any = multiprocessing.get_context(options.start_method)
        pair, count = (observation_space, action_space), self.num_envs
        block = context.RawArray("B", bytes_for(*pair, count))
        self._decode, self._records = (
            ActionDecoder(action_space),
            StepRecords(observation_space, arrays_in(block, *pair, count)),
        )
        self._outbox = Outbox()
        self._extra: tuple[bool, ...] = ()
        """What a request to step says besides the actions."""
        self._workers = []
        for part in np.array_split(np.arange(self.num_envs), min(options.workers, self.num_envs)):
            rows = range(int(part[0]), int(part[-1]) + 1)
            own = ByValue([makers[i] for i in rows])
            assignment = Assignment(own, *pair, name, rows.start, rows.stop, count, block)
            self._workers.append(Worker(context, serve, assignment, assignment.label))
        self.has_masks = all(self._ask("has_masks", [()] * len(self._workers)))

    @property
    def processes(self) -> list[Any]:
        """The processes, in the order of the environments they step."""
        return [worker.process for worker in self._workers]

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode everywhere; with a seed, environment i gets a stream of its own derived from it."""
        seeds = self.seeds.of(seed, self.num_envs)
        self._base = fresh_seed() if seed is None else seed
        self.has_masks = all(self._ask("reset", [(seeds[w.argument.part],) for w in self._workers]))
        return self._records.first(self.has_masks)

    def step(self, action: Tensor) -> EnvStep:
        actions = self._decode(action)
        before = self.restarts
        answers = self._ask("step", [(actions[w.argument.part], *self._extra) for w in self._workers])
        valid = None
        if self.restarts > before:
            valid = torch.ones(self.num_envs, dtype=torch.bool)
            for worker, answer in zip(self._workers, answers, strict=True):
                if answer is _RESTARTED:
                    valid[worker.argument.part] = False
        if not self._extra:
            return self._records.step(_joined(self._workers, answers), self.has_masks, valid)
        ends = [answer.ended if isinstance(answer, WithInfos) else None for answer in answers]
        step = self._records.step(_joined(self._workers, ends), self.has_masks, valid)
        return replace(step, infos=_infos(self._workers, answers))

    def keep_infos(self, keep: bool) -> None:
        """Whether steps carry `infos` from now on; they are sent from process to process."""
        self._extra = (True,) if keep else ()

    def _ask(self, request: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """One answer from every process."""
        if self._closed:
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        deadline = time.monotonic() + self.options.timeout
        for worker, own in zip(self._workers, arguments, strict=True):
            worker.send(request, *own)
        return [self._answer(worker, request, deadline) for worker in self._workers]

    def _answer(self, worker: Worker, request: str, deadline: float) -> Any:
        try:
            answer = worker.receive(deadline, self.options.timeout)
        except Dead as reason:
            worker.failures += 1
            if self.options.restart and worker.failures <= MAX_RESTARTS_IN_A_ROW:
                return self._replace(worker, request)
            how = str(reason) if "exit" in str(reason) else f"did not answer for {self.options.timeout} s; it hangs"
            self._fail(EnvironmentFault, f"environment {self.name!r}: the process of {worker.label} {how}")
        if isinstance(answer, Failure):
            text = f"{answer.message}\n--- in its process ---\n{answer.trace}"
            named = text if self.name in answer.message else f"environment {self.name!r} {text}"
            self._fail(answer.kind or EnvironmentFault, named)
        ended = answer.ended if isinstance(answer, WithInfos) else answer
        worker.failures = 0 if isinstance(ended, Ended) else worker.failures
        return answer

    def _replace(self, worker: Worker, request: str) -> Any:
        """A new process in place of a dead one, at the start of new episodes."""
        self.restarts += 1
        failures = worker.failures
        worker.kill()
        worker.start()
        base = getattr(self, "_base", 0)
        seeds = [seed_of(base, i + self.restarts * self.num_envs) for i in worker.argument.rows]
        worker.send("reset", seeds)
        answer = self._answer(worker, "reset", time.monotonic() + self.options.timeout)
        worker.failures = failures
        if request == "step":
            part = worker.argument.arrays()
            part.reward[:], part.terminated[:], part.truncated[:] = 0.0, False, False
            return _RESTARTED
        return answer

    def _fail(self, kind: type[Exception], message: str) -> NoReturn:
        self._end()
        raise kind(message)

    def standing(self) -> Any:
        """What changes when the environments are moved; see `standing_of`."""
        return None if self._closed else self._ask("standing", [()] * len(self._workers))

    def get_state(self) -> dict[str, Any]:
        """Where the environments stand, as tensors and JSON scalars; raises as `Copies.get_state`."""
        answers = self._ask("get_state", [()] * len(self._workers))
        for answer in answers:
            if isinstance(answer, OpaqueValue):
                raise answer
        return state_of([state for answer in answers for state in answer], self.has_masks)

    def set_state(self, state: Any) -> None:
        """Put back what `get_state` gave; raises as `Copies.set_state`."""
        states, self.has_masks = states_in(state, self.num_envs), masks_in(state)
        self._ask("set_state", [(states[worker.argument.part], self.has_masks) for worker in self._workers])

    def reset_infos(self) -> list[dict[str, Any]]:
        """What each environment said in its last reset."""
        return list(chain.from_iterable(self._ask("reset_infos", [()] * len(self._workers))))

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The classes of the wrappers of each environment; see `wrappers_of`."""
        return self._of("wrappers", (), indices)

    def get_attr(self, name: str, indices: Indices = None) -> list[Any]:
        """The attribute `name` of the environments, looked up through their wrappers."""
        return self._of("get", (name,), indices)

    def set_attr(self, name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute where it is defined, through the wrappers."""
        self._of("set", (name, value), indices)

    def env_method(self, name: str, *args: Any, indices: Indices = None, **kwargs: Any) -> list[Any]:
        """Call a method of the environments; the answers in the order of `indices`."""
        return self._of("call", (name, args, kwargs), indices)

    def _of(self, request: str, arguments: tuple[Any, ...], indices: Indices) -> list[Any]:
        wanted, found = chosen(indices, self.num_envs), dict[int, Any]()
        own = [[i for i in wanted if i in worker.argument.rows] for worker in self._workers]
        sent = [
            (*arguments, [i - w.argument.rows[0] for i in rows]) for w, rows in zip(self._workers, own, strict=True)
        ]
        for rows, answer in zip(own, self._ask(request, sent), strict=True):
            found |= dict(zip(rows, answer or [None] * len(rows), strict=True))
        return [found[i] for i in wanted]

    def map(self, work: Work, items: Sequence[Any]) -> list[Any]:
        """`work(environments, items)` of groups of items, each given to the next process that is free; answers in order.

        A group has as many items as a process has environments, or fewer towards the end. A process that dies or hangs
        (`timeout` per group) is replaced and its group tried once more; a second failure of the same group raises.
        """
        shipped, workers = ByValue(work), len(self._workers)
        parcels = groups(self._outbox.pack(items), -(-self.num_envs // workers), workers)
        requests = [("apply", shipped, group) for group in parcels]
        timeout = self.options.timeout
        try:
            answers = spread(
                self._workers, requests, timeout=timeout, accept=self._accept, replaced=self._count_restart
            )
            return list(chain.from_iterable(answers))
        except Twice as error:
            self._fail(EnvironmentFault, f"environment {self.name!r}: {error}")

    def _accept(self, answer: Any) -> None:
        if isinstance(answer, Failure):
            self._fail(answer.kind or EnvironmentFault, f"{answer.message}\n--- in its process ---\n{answer.trace}")

    def _count_restart(self) -> None:
        self.restarts += 1

    def close(self) -> None:
        """End the processes; they close their environments first."""
        if not self._closed:
            for worker in self._workers:
                worker.send(END)
            for worker in self._workers:
                worker.process.join(2.0)
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._outbox.close()
        for worker in self._workers:
            worker.kill()


_RESTARTED = object()
"""The answer of a process that was replaced during a step."""


def _infos(workers: Sequence[Worker], answers: Sequence[Any]) -> list[dict[str, Any]]:
    """The infos of all processes; environments of one that was replaced have none."""
    empty: list[list[dict[str, Any]]] = [[{} for _ in worker.argument.rows] for worker in workers]
    rows = [a.infos if isinstance(a, WithInfos) else none for a, none in zip(answers, empty, strict=True)]
    return list(chain.from_iterable(rows))


def _joined(workers: Sequence[Worker], answers: Sequence[Any]) -> Ended | None:
    """The episodes that ended in all processes together, in the order of environments."""
    some = [(w.argument.rows[0], a) for w, a in zip(workers, answers, strict=True) if isinstance(a, Ended)]
    if not some:
        return None
    return Ended(
        [first + row for first, ended in some for row in ended.rows],
        _concatenated([ended.observation for _, ended in some]),
        None if some[0][1].mask is None else np.concatenate([ended.mask for _, ended in some]),
        [value for _, ended in some for value in ended.returns],
        [value for _, ended in some for value in ended.lengths],
        [value for _, ended in some for value in ended.successes],
    )


def _concatenated(parts: list[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: _concatenated([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(_concatenated(list(column)) for column in zip(*parts, strict=True))
    return np.concatenate(parts)
