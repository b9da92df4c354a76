"""A callback that restores earlier parameters when training diverges."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from rlsdk.callbacks.callback import Callback, StepCounter
from rlsdk.errors import ArtifactError, DivergenceError, SettingsError
from rlsdk.records import Report
from rlsdk.training.recovery import copied_parameters

if TYPE_CHECKING:
    from rlsdk.training.run import Run


class RestoreOnDivergence(Callback):
    """Restores all networks, optimisers and running statistics when a metric or an action becomes NaN or infinite.

    Training continues with a copy in memory, which is renewed every `every` environment steps at the end of a round. Step
    counts, random numbers and the replay buffer are not restored, so the next update learns from other samples. A warning names
    the metric or action. The `DivergenceError` is raised after `at_most` restorations in one call of `learn`, or if the copy
    does not fit networks that were changed.
    """

    def __init__(self, every: int = 10_000, *, at_most: int = 3) -> None:
        """Raises SettingsError if `every` or `at_most` is not a positive whole number."""
        if not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 1:
            raise SettingsError(f"RestoreOnDivergence at_most = {at_most!r} must be a positive whole number")
        self.counter, self.at_most = StepCounter(every, "RestoreOnDivergence every"), at_most
        self.restored = 0
        """The number of restorations in this call of `learn`."""
        self._copy: tuple[int, dict[str, object]] | None = None

    def on_training_start(self, run: Run) -> None:
        self.counter.start(run.num_timesteps)
        self.restored, self._copy = 0, None
        self._keep(run)

    def on_report(self, run: Run, report: Report) -> None:
        if self.counter.due(run.num_timesteps):
            self._keep(run)

    def on_divergence(self, run: Run, error: DivergenceError) -> bool | None:
        if self._copy is None or self.restored >= self.at_most:
            return None
        step, parameters = self._copy
        try:
            run.agent.set_parameters(parameters)
        except ArtifactError as reason:
            error.add_note(f"the parameters of step {step} could not be restored: {reason}")
            return None
        self.restored += 1
        warnings.warn(
            f"{error}; the parameters of step {step} were restored ({self.restored} of at most {self.at_most} times)",
            RuntimeWarning,
            stacklevel=2,
        )
        return True

    def _keep(self, run: Run) -> None:
        parameters = copied_parameters(run.agent)
        if parameters is not None:
            self._copy = run.num_timesteps, parameters
