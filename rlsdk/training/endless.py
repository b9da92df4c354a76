"""A warning for those who play whole episodes of environments whose episodes perhaps never end."""

from __future__ import annotations

import warnings

LONG = 100_000
"""Steps in which no episode ended, after which there is a warning."""


def warn_endless(environment: str, steps: int) -> None:
    """Warn those who wait for the end of an episode."""
    warnings.warn(
        f"environment {environment}: no episode ended in {steps} steps, and whole episodes are played; give it a time limit,"
        " such as gymnasium.wrappers.TimeLimit(env, 1000)",
        stacklevel=2,
    )
