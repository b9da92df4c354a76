"""A group of environments that are stepped together. Their infos can be recorded and their states read and restored.

The same code runs in this process (`sync_vector.py`) and in the processes of `process_vector.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import numpy as np

from rlsdk.environments.adapters.step_checks import mended_by
from rlsdk.environments.states import capture, restore, running_episode
from rlsdk.environments.vector.fingerprints import count_reset, fingerprint
from rlsdk.environments.vector.info_entries import InfoEntries
from rlsdk.environments.vector.item_groups import ItemT, ResultT, Work
from rlsdk.environments.vector.seeds import Options
from rlsdk.environments.vector.stepping import SteppedEnvironments, StepResult
from rlsdk.errors import EnvironmentFault, RlsdkError, fitting, raised


class EnvironmentGroup(SteppedEnvironments):
    """B gymnasium environments with the same spaces. A step that ends an episode also resets its environment."""

    def reset(self, seeds: Sequence[int | None], options: Sequence[Options] = ()) -> None:
        """Start an episode in every environment. `options`: those of each environment's `reset`, or empty for none.

        Raises:
            EnvironmentFault: an environment raised an error, or returned invalid values. MaskError: a mask is invalid.
        """
        self.arrays.observation = self._allocate()
        for i, seed in enumerate(seeds):
            count_reset(self.environments[i])
            self._reset(i, seed, options[i] if options else None)
        self._check("reset")
        if not self._bounds_checked:
            self._bounds_checked = True
            self._faults.warn_outside(self.stacker, self.arrays.observation)

    def renew(self) -> None:
        """Let every step and reset write observations to new arrays from now on. By default the same arrays are reused."""
        (shape, dtype), count = self.stacker.plain, len(self.environments)
        self._allocate = partial(self.stacker.allocate, count)
        if shape is not None:
            self._allocate = partial(np.empty, (count, *shape), dtype)

    @property
    def keeps_infos(self) -> bool:
        """Whether `infos` are recorded at every step."""
        return bool(self.infos)

    def keep_infos(self, keep: bool) -> None:
        """Set whether `infos` are recorded at every step. By default they are not, which saves time."""
        self.infos = [{} for _ in self.environments] if keep else []
        self._choose_steps()

    def select_info(self, names: Sequence[str]) -> None:
        """Record the entries `names` of infos at every step from now on. Without names, steps take no extra time."""
        self.entries = InfoEntries(names, len(self.environments))
        self._choose_steps()

    def _choose_steps(self) -> None:
        """Choose the functions that step the environments: `step` itself, or a function that also records infos."""
        notes = bool(self.infos or self.entries.names)
        steps: list[Callable[[object], StepResult]] = [environment.step for environment in self.environments]
        self._steps = [self._noting(i, step) for i, step in enumerate(steps)] if notes else steps

    def _noting(self, i: int, step: Callable[[object], StepResult]) -> Callable[[object], StepResult]:
        def noting(action: object) -> StepResult:
            result = step(action)
            info = result[-1] if isinstance(result, tuple) and len(result) == 5 else None
            if not isinstance(info, Mapping):
                return result  # `SteppedEnvironments.step` raises the error
            if self.infos:
                self.infos[i] = dict(info)
            if self.entries.names:
                self._faults.named(i, self.episode_step(i), self.entries.write, i, info)
            return result

        return noting

    def fingerprint(self) -> tuple[Hashable, ...]:
        """A value that changes when the environments are stepped or reset, by this object or by other code."""
        return self._clock, *map(fingerprint, self.environments)

    def get_state(self) -> list[dict[str, object]]:
        """The state of every environment.

        Raises:
            OpaqueValue: an environment has a value whose state cannot be read.
        """
        context = zip(self.environments, self._returns, self._began, strict=True)
        return [
            {"environment": capture(environment), "return": total, "length": self._clock - began}
            for environment, total, began in context
        ]

    def set_state(self, states: Sequence[Mapping[str, object]], has_masks: bool) -> None:
        """Restore a state from `get_state` in environments that were made in the same way. Their episodes continue.

        Raises:
            ArtifactError: the state is damaged, or belongs to other environments.
        """
        self.reset([0] * len(self.environments))
        self.has_masks, self._clock = has_masks, 0
        for i, state in enumerate(states):
            with fitting("the file's environments cannot be taken up"):
                restore(self.environments[i], state["environment"])
                self._returns[i], self._began[i] = running_episode(state)

    def apply(self, work: Work[ItemT, ResultT], items: Sequence[ItemT]) -> list[ResultT]:
        """The result of `work(environments, items)`. Its errors become an EnvironmentFault with the environment's name."""
        try:
            return work(self.environments, items)
        except RlsdkError:
            raise
        except Exception as error:
            raise EnvironmentFault(f"environment {self.name!r} {raised(error)}{mended_by(error)}") from error

    def close(self) -> None:
        """Close every environment, and then raise EnvironmentFault if the `close` of one of them raised an error."""
        failed: Exception | None = None
        for environment in self.environments:
            try:
                environment.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise EnvironmentFault(f"environment {self.name!r} {raised(failed, 'close()')}") from failed
