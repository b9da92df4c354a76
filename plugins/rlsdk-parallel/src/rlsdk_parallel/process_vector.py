"""Vector environments whose environments are in workers. Those in processes send observations through shared memory.

An error in a process is raised in this process, too. A process that dies or hangs raises an EnvironmentFault with its cause, or
is replaced with `restart=True`. So training never hangs.
"""

from __future__ import annotations

import multiprocessing
import secrets
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from multiprocessing.process import BaseProcess
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from rlsdk.environments import SteppedVector, StepRecords
from rlsdk.errors import EnvironmentFault, WorkError, raised
from rlsdk.records import EnvStep, Features, Observation
from rlsdk_parallel.environment_worker import (
    Assignment,
    Block,
    ByValue,
    EnvRequest,
    ItemT,
    Maker,
    Rest,
    ResultT,
    Spaces,
    StepArrays,
    Work,
    arrays_in,
    bytes_for,
    groups,
)
from rlsdk_parallel.processes import StatefulProcesses, StatefulWorkers
from rlsdk_parallel.workers import WORK, RepeatedFailure, WorkerDied

Indices = int | Sequence[int] | None


class InWorkers:
    """B environments in several workers, which answer requests for methods of `VectorWorker` and `SyncVectorEnv`.

    A subclass calls `assign` and starts the workers, before anything else. It decides what happens when one dies.
    """

    # what SteppedVector gives the subclass
    num_envs: int
    name: str
    seeds: Any
    decode: Any
    reset_options: Any
    reset_seeds: Sequence[int | None]
    keeps_infos: bool
    info_names: tuple[str, ...]
    restarts: int
    has_masks: bool
    chosen: Callable[[Indices], list[int]]

    closed = False
    _base = 0
    """The seed of the last reset. Seeds for replaced workers are derived from it."""
    workers: StatefulWorkers

    def assign(
        self,
        makers: Sequence[Maker],
        spaces: Spaces,
        workers: int,
        block: Block | None = None,
    ) -> list[Assignment]:
        """Distribute the environments evenly over the workers, and return what each of them makes its `VectorWorker` from.

        Observations, rewards and flags are written to `block`, shared memory. Without it, `accept` of a subclass writes those
        in answers to `arrays`.
        """
        self.num_envs = count = len(makers)
        self.records = StepRecords(count)
        self.arrays = StepArrays(spaces, count) if block is None else arrays_in(block, spaces, count)
        self.rows = [range(int(own[0]), int(own[-1]) + 1) for own in np.array_split(np.arange(count), workers)]
        """The numbers of the environments in each worker."""
        self._parts = [slice(rows.start, rows.stop) for rows in self.rows]
        self.deaths = Counter[int]()
        """Worker -> the number of its deaths without the end of an episode in between."""
        owns = [ByValue([makers[i] for i in rows]) for rows in self.rows]
        return [Assignment(own, spaces, self.name, r, count, block) for own, r in zip(owns, self.rows, strict=True)]

    def numbers(self, index: int) -> str:
        """The numbers of the environments of a worker, for messages."""
        rows = self.rows[index]
        return f"number {rows.start}" if len(rows) == 1 else f"numbers {rows.start} to {rows.stop - 1}"

    # --- requests ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Close the environments and end the workers."""

    def answer_again(self, index: int, request: EnvRequest, death: WorkerDied) -> object:
        """Replace a worker that died, and return the answer of the new one to its request."""
        self.restarts += 1
        self.workers.replace(index)
        self.restore(index)
        # through `exchange` again, as the new worker may die, too
        return self.exchange({index: request})[index]

    def restore(self, index: int) -> None:
        """Begin new episodes in a new worker, with seeds of their own. It does not make the first step after them."""
        seeds = [self.seeds.derived(self._base, i + self.restarts * self.num_envs) for i in self.rows[index]]
        self.exchange({index: self.request("begin", seeds)})

    def request(self, name: str, *arguments: object) -> EnvRequest:
        """The request to call a method of a worker or of its environments."""
        return EnvRequest(name, arguments, self.keeps_infos, self.info_names)

    def exchange(self, requests: Mapping[int, EnvRequest]) -> dict[int, object]:
        """Send each worker its request, and return worker -> answer."""
        if self.closed:
            raise EnvironmentFault(f"environment {self.name!r} is closed")
        answers, found = self.workers.ask(requests), dict[int, object]()
        for index, request in requests.items():
            if isinstance(answer := answers[index], WorkerDied):
                found[index] = self.answer_again(index, request, answer)
            else:
                found[index] = self.accept(index, request, answer)
        return found

    def accept(self, index: int, request: EnvRequest, answer: Any) -> object:
        """What `exchange` returns for the answer of a worker; workers of a subclass may answer with more than the result."""
        return answer

    def ask(self, name: str, arguments: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send a request to every worker, with its own arguments, and return the answers in order."""
        return list(self.exchange({i: self.request(name, *own) for i, own in enumerate(arguments)}).values())

    def ask_all(self, name: str) -> list[Any]:
        """Send a request without arguments to every worker, and return the answers in order."""
        return self.ask(name, [()] * len(self.rows))

    def require_masks_alike(self) -> None:
        """Note whether the environments have masks; raises EnvironmentFault where only those of some workers have."""
        have = self.ask_all("has_masks")
        if any(have) and not all(have):
            self.close()
            with_one, without = (self.numbers(have.index(kind)) for kind in (True, False))
            raise EnvironmentFault(
                f"environment {self.name!r}: {with_one} have a method action_masks, {without} have none; give one to all"
                " environments that are stepped together"
            )
        self.has_masks = all(have)

    # --- stepping ----------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode in every environment. With a seed, each environment gets its own seed, derived from it."""
        pending = self.seeds.first_pending()
        chosen = pending if seed is None else seed
        # a number also without a seed: the environments of replaced workers need seeds that differ from each other
        self._base = secrets.randbelow(2**32) if chosen is None else chosen
        self.reset_seeds = seeds = self.seeds.of(chosen, self.num_envs)
        options = self.reset_options.take()
        self.has_masks = all(self.ask("reset", [(seeds[part], options[part]) for part in self._parts]))
        return self._observation(self.records.all)

    def step(self, action: Features) -> EnvStep:
        actions, valid = self.decode(action), None
        rests: list[Rest | None] = self.ask("step", [(actions[part],) for part in self._parts])
        some = [(index, rest) for index, rest in enumerate(rests) if rest is not None]
        parts = [(self.rows[index].start, rest.ended) for index, rest in some if rest.ended is not None]
        for index, rest in some:
            if rest.ended is not None:
                self.deaths.pop(index, None)
            elif rest.lost:
                valid = self.records.all.clone() if valid is None else valid
                valid[self._parts[index]] = False
        step = self.records.step(self._observation, self.arrays.reward.copy(), parts, valid)
        return self._with_infos(step, [rest for _, rest in some]) if self.keeps_infos or self.info_names else step

    def _observation(self, is_first: Tensor) -> Observation:
        """The observation after the last step or reset, with `is_first` bool [B]."""
        return self.arrays.observation(is_first, self.has_masks)

    def _with_infos(self, step: EnvStep, rests: Sequence[Rest]) -> EnvStep:
        """The step with its infos and declared entries; empty, and 0, for environments that were not stepped."""
        if self.keeps_infos:
            step = replace(step, infos=list(chain.from_iterable(rest.infos for rest in rests)))
        if not self.info_names:
            return step
        entries = np.concatenate([rest.entries for rest in rests if rest.entries is not None], axis=1)
        return replace(step, info=dict(zip(self.info_names, torch.from_numpy(entries), strict=True)))

    # --- states, attributes, methods ---------------------------------------------------------------------------------

    def fingerprint(self) -> Hashable:
        """A value that changes when the environments are stepped or reset; None if they are closed."""
        return None if self.closed else tuple(self.ask_all("fingerprint"))

    def read_states(self) -> list[dict[str, object]]:
        """The state of every environment. Raises as `SyncVectorEnv.read_states`."""
        return list(chain.from_iterable(self.ask_all("read_states")))

    def write_states(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore states from `read_states`. Raises as `SyncVectorEnv.write_states`."""
        self.has_masks = has_masks
        self.ask("write_states", [((states[part], has_masks),) for part in self._parts])

    def reset_infos(self) -> list[dict[str, object]]:
        """The `info` of each environment's last reset."""
        return list(chain.from_iterable(self.ask_all("reset_infos")))

    def wrappers(self, indices: Indices = None) -> list[list[str]]:
        """The class names of the wrappers of each environment; see `wrappers_of`."""
        return self._of("wrappers", (), indices)

    def get_attr(self, name: str, indices: Indices = None) -> list[object]:
        """The values of the attribute `name` of the environments or of their wrappers."""
        return self._of("get_attr", (name,), indices)

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the wrapper that has it, or of the environment."""
        self._of("set_attr", (name, value), indices)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[object]:
        """Call a method of the environments, and return the results in the order of `indices`."""
        return self._of("env_method", (name, args, kwargs), indices)

    def _of(self, request: str, arguments: tuple[object, ...], indices: Indices) -> list[Any]:
        wanted, places, found = self.chosen(indices), self.rows, dict[int, object]()
        own = [[i for i in wanted if i in place] for place in places]
        sent = [(*arguments, [i - place.start for i in rows]) for place, rows in zip(places, own, strict=True)]
        for rows, answer in zip(own, self.ask(request, sent), strict=True):
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


LEAVE_RUNNING = ("get_attr", "set_attr", "env_method", "wrappers", "reset_infos", "read_states")
"""Requests whose errors end no training: the environments stand where they stood."""


class ProcessVectorEnv(InWorkers, SteppedVector):
    """B environments in W processes.

    With `restart=True`, a process that dies or hangs is replaced. Its environments begin new episodes, and their rows of the
    interrupted step are marked by `valid = False`. `restarts` is the number of replaced processes.
    """

    workers: StatefulProcesses

    def __init__(
        self,
        makers: Sequence[Maker],
        spaces: Spaces,
        options: ProcessOptions,
        *,
        name: str,
        seed: int | None = None,
    ) -> None:
        super().__init__(*spaces, name, seed)
        self.options, count = options, len(makers)
        context = multiprocessing.get_context(options.start_method)
        # observations go through memory that all processes share: a pipe would copy them twice
        block = context.RawArray("B", bytes_for(spaces, count))
        parts = self.assign(makers, spaces, min(options.workers, count), block)
        labels = [self.numbers(index) for index in range(len(parts))]
        # in the session of this process: apart, Linux shares the cores among sessions, and the short waits of a step take
        # up to five times as long on a busy machine
        self.workers = StatefulProcesses(parts, context, labels, options.timeout, apart=False)
        self._started = self.workers.workers
        self.require_masks_alike()

    @property
    def processes(self) -> list[BaseProcess]:
        """The processes, in the order of the environments they step."""
        return [worker.process for worker in self._started]

    def exchange(self, requests: Mapping[int, EnvRequest]) -> dict[int, object]:
        try:
            return super().exchange(requests)
        except Exception as error:
            raise self._failed(error, next(iter(requests.values()))) from error.__cause__

    def _failed(self, error: Exception, request: EnvRequest) -> Exception:
        """The error to raise when a request failed. Ends the processes if their environments may be at different steps."""
        unsent = error.__cause__ if isinstance(error, WorkError) else None
        if request.name not in LEAVE_RUNNING and unsent is None:
            self._end()
        if unsent is not None and request.name in LEAVE_RUNNING:
            # all processes get the same value, so the first one was not sent either, and nothing has changed
            return EnvironmentFault(
                f"environment {self.name!r}: the values given for {request.arguments[0]!r} cannot be sent to its processes: it"
                f" {raised(unsent, 'pickling')}; give plain values, or a function that a module holds, or use"
                " vectorization='sync'"
            )
        if isinstance(error, WorkError) and str(error).startswith(WORK):
            return EnvironmentFault(f"environment {self.name!r}{str(error).removeprefix(WORK)}")
        return error

    def answer_again(self, index: int, request: EnvRequest, death: WorkerDied) -> object:
        self.deaths[index] += 1
        if self.options.restart and self.deaths[index] <= MAX_RESTARTS_IN_A_ROW:
            return super().answer_again(index, request, death)
        self._end()
        where = f"environment {self.name!r}: the process of {self.numbers(index)}"
        how = str(death) if "exit" in str(death) else f"did not answer for {self.options.timeout} s; it hangs"
        raise EnvironmentFault(f"{where} {how}")

    def map(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The results of `work(environments, items)`, in order. Each group of items goes to the next free process.

        A group has one item for each environment of a process, or fewer towards the end. A process that dies or hangs (for
        `timeout` seconds per group) is replaced, and its group is repeated. A second failure of the same group raises
        EnvironmentFault.
        """
        # arrays are packed before items are grouped, so that one that several groups share is stored once
        shipped, workers, pool = ByValue(work), len(self.rows), self.workers
        packed = groups(pool.pack(items), -(-self.num_envs // workers), workers)
        requests = [self.request("apply", shipped, group) for group in packed]
        try:
            return list(chain.from_iterable(pool.spread(requests, self._count_restart)))
        except RepeatedFailure as error:
            self._end()
            raise EnvironmentFault(f"environment {self.name!r}: {error}") from None
        except Exception as error:
            raise self._failed(error, self.request("apply")) from error.__cause__

    def _count_restart(self) -> None:
        self.restarts += 1

    def close(self) -> None:
        """Close the environments, and end the processes."""
        if not self.closed:
            self.closed = True
            self.workers.close(self.options.timeout)

    def _end(self) -> None:
        self.closed = True
        self.workers.end()
