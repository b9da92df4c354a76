"""What runs in a process of `ProcessEnvs`: a few copies of an environment, and a loop that answers requests."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

import attrs

from rlsdk.environments.attributes import call_of, read, wrappers_of, write
from rlsdk.environments.copies import Copies, Ended, StepArrays
from rlsdk.environments.shared_arrays import arrays_in
from rlsdk.environments.states import OpaqueValue
from rlsdk.errors import EnvironmentFault
from rlsdk.spaces import Space
from rlsdk.workers import Failure, clean_up_undisturbed, end_with_parent, obey_parent_only

END = "end"
"""The request after the last. The pipe does not end when the parent closes it: processes forked later have copies of it."""


@attrs.frozen
class WithInfos:
    """What a step gave, and the `info` of each environment, which a callback asked for."""

    ended: Ended | None
    infos: list[dict[str, Any]]


@attrs.frozen
class Assignment:
    """Which copies a process steps: rows `first` to `end` of `total`, and the memory it writes them to."""

    makers: Any
    """A callable (pickled by value) that gives the functions which make the environments."""
    observation_space: Space
    action_space: Space
    name: str
    first: int
    end: int
    total: int
    block: Any

    @property
    def rows(self) -> range:
        """The numbers of the copies."""
        return range(self.first, self.end)

    @property
    def part(self) -> slice:
        """Where they stand among all copies."""
        return slice(self.first, self.end)

    @property
    def label(self) -> str:
        """Which environments live here, for messages."""
        return f"number {self.first}" if len(self.rows) == 1 else f"numbers {self.first} to {self.end - 1}"

    def arrays(self) -> StepArrays:
        """The rows of this process."""
        whole = arrays_in(self.block, self.observation_space, self.action_space, self.total)
        return whole.part(self.first, self.end)


def serve(pipe: Connection, assignment: Assignment) -> None:
    """Answer requests (name, arguments) until the pipe closes."""
    copies: Copies | None = None
    obey_parent_only()
    end_with_parent()
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):  # the parent is gone, or ends this process
        while True:
            name, arguments = pipe.recv()
            if name == END:
                break
            try:
                copies = copies or _made(assignment)
                answer = REQUESTS[name](copies, *arguments)
            except Exception as error:
                answer = Failure.of(error)
            pipe.send(answer)
    clean_up_undisturbed()
    if copies is not None:
        try:
            copies.close()
        except EnvironmentFault as fault:  # the other side does not listen any more
            warnings.warn(str(fault), RuntimeWarning, stacklevel=2)


def _made(assignment: Assignment) -> Copies:
    environments = [make() for make in assignment.makers()]
    return Copies(
        environments,
        assignment.observation_space,
        assignment.action_space,
        assignment.name,
        assignment.arrays(),
        numbers=range(assignment.first, assignment.end) if assignment.total > 1 else (),
    )


def _reset(copies: Copies, seeds: Sequence[int | None]) -> Any:
    copies.reset(seeds)
    return copies.has_masks


def _step(copies: Copies, actions: Sequence[Any], keep_infos: bool = False) -> Any:
    if keep_infos != copies.keeps_infos:
        copies.keep_infos(keep_infos)
    ended = copies.step(actions)
    return WithInfos(ended, [_sendable(copies.name, info) for info in copies.infos]) if keep_infos else ended


def _sendable(name: str, info: dict[str, Any]) -> dict[str, Any]:
    """An `info`, if it can be sent to another process.

    Raises:
        EnvironmentFault: an entry cannot.
    """
    try:
        ForkingPickler.dumps(info)
    except Exception:
        bad = next((key for key, value in info.items() if not _can_be_sent(value)), "?")
        raise EnvironmentFault(
            f"environment {name!r}: info[{bad!r}], a {type(info.get(bad)).__name__}, cannot be sent from its process"
            " to a callback that asks for infos; use vectorization='sync', or leave it out of info"
        ) from None
    return info


def _can_be_sent(value: Any) -> bool:
    try:
        ForkingPickler.dumps(value)
    except Exception:  # whatever a value raises when it is to be sent
        return False
    return True


def _read(copies: Copies, name: str, rows: Sequence[int]) -> Any:
    return [read(copies.environments[i], name) for i in rows]


def _write(copies: Copies, name: str, value: Any, rows: Sequence[int]) -> None:
    for i in rows:
        write(copies.environments[i], name, value)


def _call(copies: Copies, name: str, args: Sequence[Any], kwargs: Any, rows: Sequence[int]) -> Any:
    return [call_of(copies.environments[i], name, args, kwargs) for i in rows]


def _wrappers(copies: Copies, rows: Sequence[int]) -> Any:
    return [wrappers_of(copies.environments[i]) for i in rows]


def _reset_infos(copies: Copies) -> Any:
    return [_sendable(copies.name, dict(info)) for info in copies.reset_infos]


def _apply(copies: Copies, work: Any, items: Sequence[Any]) -> Any:
    return copies.apply(work(), items)


def _get_state(copies: Copies) -> Any:
    try:
        return copies.get_state()
    except OpaqueValue as opaque:
        return opaque


def _set_state(copies: Copies, states: Sequence[Any], has_masks: bool) -> None:
    copies.set_state(states, has_masks)


def _standing(copies: Copies) -> Any:
    return copies.standing()


def _has_masks(copies: Copies) -> bool:
    return copies.has_masks


REQUESTS: dict[str, Callable[..., Any]] = {
    "reset": _reset,
    "step": _step,
    "get": _read,
    "set": _write,
    "call": _call,
    "wrappers": _wrappers,
    "reset_infos": _reset_infos,
    "apply": _apply,
    "has_masks": _has_masks,
    "standing": _standing,
    "get_state": _get_state,
    "set_state": _set_state,
}
