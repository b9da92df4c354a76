"""Checks of the arguments for collectors: their number, their executor, and how far they may be ahead of the learner."""

from __future__ import annotations

import os
import warnings

from rlsdk import executors
from rlsdk.errors import SettingsError

HERE = "in-process"
"""The name of the executor that works in this process."""


def require_lag(max_lag: object, collectors: int | None) -> None:
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
    """Check the number of collectors that share `num_envs` environments, and their executor.

    Warns when there are more collectors than cores.

    Raises:
        SettingsError: `count` is not a positive divisor of the number of environments, or there is no such executor.
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
    if not executors.is_executor(executor):
        executors.make_executor(executor, 1)
    cores = os.cpu_count() or count
    if executor == "processes" and count > cores:
        warnings.warn(
            f"{count} collectors on a machine with {cores} cores: more than {cores} pay only where environments wait, as for a"
            " simulator in another program",
            RuntimeWarning,
            stacklevel=4,
        )
