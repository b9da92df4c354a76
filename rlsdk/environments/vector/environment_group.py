"""A group of environments: stepped together, with infos on request, and with states that can be taken out and put back.

The same code runs in this process (`sync_vector.py`) and in the processes of `process_vector.py`, so both behave alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from rlsdk.environments.states import capture, restore, running_episode
from rlsdk.environments.vector.fingerprints import count_reset, fingerprint
from rlsdk.environments.vector.info_entries import InfoEntries
from rlsdk.environments.vector.item_groups import ItemT, ResultT, Work
from rlsdk.environments.vector.stepping import SteppedEnvironments, StepResult
from rlsdk.errors import EnvironmentFault, RlsdkError, fitting, raised


class EnvironmentGroup(SteppedEnvironments):
    """B gymnasium environments with the same spaces; an episode that ends is followed by a reset in the same step."""

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Start an episode everywhere.

        Raises:
            EnvironmentFault: an environment raised, or broke its declaration. MaskError: a mask is wrong.
        """
        if self.renews:
            self.arrays.observation = self._allocate()
        for i, seed in enumerate(seeds):
            count_reset(self.environments[i])
            self._reset(i, seed)
        self._check("reset")
        if not self._bounds_checked:
            self._bounds_checked = True
            self._faults.warn_outside(self.stacker, self.arrays.observation)

    @property
    def keeps_infos(self) -> bool:
        """Whether `infos` are noted at every step."""
        return bool(self.infos)

    def keep_infos(self, keep: bool) -> None:
        """Note `infos` at every step from now on, or no longer; what is not noted costs nothing."""
        self.infos = [{} for _ in self.environments] if keep else []
        self._choose_steps()

    def select_info(self, names: Sequence[str]) -> None:
        """Note the entries `names` of infos at every step from now on; none costs nothing."""
        self.entries = InfoEntries(names, len(self.environments))
        self._choose_steps()

    def _choose_steps(self) -> None:
        """Step environments directly, or through a function that notes the declared entries of `info`."""
        notes = bool(self.infos or self.entries.names)
        steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._steps = [self._noting(i, step) for i, step in enumerate(steps)] if notes else steps

    def _noting(self, i: int, step: Callable[[object], StepResult]) -> Callable[[object], StepResult]:
        def noting(action: object) -> StepResult:
            result = step(action)
            info = result[-1] if isinstance(result, tuple) and len(result) == 5 else None
            if not isinstance(info, Mapping):
                return result  # `step` refuses it
            if self.infos:
                self.infos[i] = dict(info)
            if self.entries.names:
                self._faults.named(i, self.episode_step(i), self.entries.write, i, info)
            return result

        return noting

    def fingerprint(self) -> tuple[Hashable, ...]:
        """What changes when the environments are moved, by this or by others; see `fingerprint_of`."""
        return self._clock, *map(fingerprint, self.environments)

    def get_state(self) -> list[dict[str, object]]:
        """The state of every environment.

        Raises:
            OpaqueValue: one holds something whose state cannot be read.
        """
        context = zip(self.environments, self._returns, self._began, strict=True)
        return [
            {"environment": capture(environment), "return": total, "length": self._clock - began}
            for environment, total, began in context
        ]

    def set_state(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Put back what `get_state` gave, into environments made the same way; no episode begins.

        Raises:
            ArtifactError: the state is damaged, or of other environments.
        """
        self.reset([0] * len(self.environments))
        self.has_masks, self._clock = has_masks, 0
        for i, state in enumerate(states):
            with fitting("the file's environments cannot be taken up"):
                restore(self.environments[i], state["environment"])
                self._returns[i], self._began[i] = running_episode(state)

    def apply(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """`work(environments, items)`; its errors name the environment."""
        try:
            return work(self.environments, items)
        except RlsdkError:
            raise
        except Exception as error:
            raise EnvironmentFault(f"environment {self.name!r} {raised(error)}") from error

    def close(self) -> None:
        """Close every environment, then raise EnvironmentFault if one of them could not be closed."""
        failed: Exception | None = None
        for environment in self.environments:
            try:
                environment.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise EnvironmentFault(f"environment {self.name!r} {raised(failed, 'close()')}") from failed
