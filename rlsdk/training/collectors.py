"""Chooses the collector of a training."""

from __future__ import annotations

import warnings

from rlsdk.environments import CollectorsVectorEnv
from rlsdk.errors import SettingsError
from rlsdk.interfaces import Collector, VectorEnv
from rlsdk.training.collector import LocalCollector
from rlsdk.training.groups import group_generators
from rlsdk.training.length import ExactCollector
from rlsdk.training.no_collector import NoCollector
from rlsdk.training.remote_collector import RemoteCollector, left
from rlsdk.training.run_record import RunRecord

__all__ = ["collector_after", "collector_of", "left"]


def collector_after(before: Collector, run: RunRecord, env: VectorEnv | None) -> Collector:
    """Replace the collector `before`; see `collector_of` for errors.

    New episodes begin if `before` was ahead of the learner and the environments cannot be restored.
    """
    if not left(before):
        run.restart_episodes()
    return collector_of(run, env)


def collector_of(run: RunRecord, env: VectorEnv | None) -> Collector:
    """Create the collector of the plan, with the agent's acting state. `env`: the environment that callbacks watch.

    Raises:
        SettingsError: a callback watches every step, but collectors ahead of the learner do not report single steps.
    """
    plan = run.driven.parts.plan
    if env is None or not plan.needs_environment:
        return NoCollector()
    collector = _collector_of(run, env)
    if not run.exact or plan.unit != "steps":
        return collector
    return ExactCollector(collector, (run.end - run.cursor.env_steps) // env.num_envs)


def _collector_of(run: RunRecord, env: VectorEnv) -> Collector:
    agent = run.driven
    if isinstance(agent.env, CollectorsVectorEnv):
        following = [type(callback).__name__ for callback in run.callbacks if callback.watches_steps]
        if not following:
            return RemoteCollector(agent.env, env, run)
        if agent.env.max_lag:
            raise SettingsError(
                f"{following[0]} follows every step, which collectors that are ahead of the learner (max_lag ="
                f" {agent.env.max_lag}) do not report; leave out max_lag, or the callback's on_step (_on_step)"
            )
        warnings.warn(
            f"{following[0]} follows every step, so the environments in collectors are stepped from here, one step at a time;"
            " a callback without on_step (_on_step) lets them collect on their own",
            RuntimeWarning,
            stacklevel=2,
        )
    agent.ahead = ()
    generators = group_generators(agent.streams, len(agent.acting))
    normalizer = agent.preprocessing.rollouts(agent.parts)
    return LocalCollector(env, agent.acting, generators, normalizer, agent.context.observation_space)
