"""The methods of vector environments whose environments are in several workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any

from rlsdk.environments.adapters.attributes import Indices, chosen
from rlsdk.environments.states import OpaqueValue, masks_in, state_of, states_in


class SpreadRequests:
    """B environments in several workers, which answer the requests in `rlsdk.environments.vector.worker.REQUESTS`."""

    num_envs: int
    has_masks: bool
    _closed: bool

    @property
    @abstractmethod
    def rows(self) -> list[range]:
        """The numbers of the environments in each worker."""

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
