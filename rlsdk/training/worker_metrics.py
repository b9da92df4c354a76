"""Metrics of processes that environments are in."""

from __future__ import annotations

from rlsdk.environments import ConnectedEnv


def of_workers(env: ConnectedEnv | None) -> dict[str, float]:
    """Workers that were replaced, and rounds that collectors are ahead; names without a value are left out."""
    if env is None:
        return {}
    restarts = {"rollout/worker_restarts": float(env.restarts)} if env.restarts else {}
    return {**restarts, "rollout/lag": float(env.lag)} if env.max_lag else restarts
