"""Environments in collectors: which executors can have them, and how many."""

from __future__ import annotations

import os
import warnings

from rlsdk import executors
from rlsdk.errors import SettingsError

HERE = "in-process"
"""The executor whose work is done in this process."""


def require_collectors(count: object, num_envs: int, executor: str) -> None:
    """Check how many collectors share `num_envs` environments.

    Raises:
        SettingsError: more than environments, or a number that does not divide theirs; no such executor.
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
