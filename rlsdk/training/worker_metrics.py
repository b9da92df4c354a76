"""Metrics of the worker processes of environments."""

from __future__ import annotations

from rlsdk.environments import ConnectedEnv


def of_workers(env: ConnectedEnv | None) -> dict[str, float]:
    """Return `rollout/worker_restarts`, the number of replaced workers, and `rollout/lag`, the rounds that collectors
    are ahead.

    A metric without a value is left out.
    """
    if env is None:
        return {}
    restarts = {"rollout/worker_restarts": float(env.restarts)} if env.restarts else {}
    return {**restarts, "rollout/lag": float(env.lag)} if env.max_lag else restarts
