"""The on-policy loop: collect a rollout, learn from it, forget it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlsdk.collect import collect
from rlsdk.interfaces import VectorEnv
from rlsdk.loops.cursor import Cursor
from rlsdk.parts import OnPolicyPlan, Parts
from rlsdk.records import Report
from rlsdk.seeding import Streams


def on_policy(
    env: VectorEnv, parts: Parts, cursor: Cursor, streams: Streams, *, start: int, end: int
) -> Iterator[tuple[Cursor, Report]]:
    """Train until `end` environment steps in total; `start` is where progress counts from (for schedules).

    Rollouts are always whole, so the last one may pass `end`. Yields after every update; a rollout that a callback cut
    short is counted and not learnt from. Algorithms that count their own updates (an attribute `updates`) are believed.
    """
    plan, collected = parts.plan, getattr(env, "rollout_ended", None)
    assert isinstance(plan, OnPolicyPlan)
    begin = getattr(parts.collector, "begin_rollout", None)
    while cursor.env_steps < end:
        carry = cursor.carry if begin is None else begin(cursor.carry)
        rollout = collect(env, parts.collector, cursor.observation, carry, plan.n_steps, generator=streams["action"])
        length = len(rollout.steps.reward)
        steps = cursor.env_steps + length * env.num_envs
        cursor = replace(cursor, observation=rollout.last_observation, carry=rollout.last_carry, env_steps=steps)
        if collected is not None:
            collected()
        metrics = None
        if length == plan.n_steps and bool(rollout.steps.valid.any()):  # a short one may hold nothing but resets
            metrics = parts.algorithm.update(rollout, progress=min(1.0, (steps - start) / max(1, end - start)))
            cursor = replace(cursor, updates=getattr(parts.algorithm, "updates", cursor.updates + 1))
        elif rollout.stopped and (discarded := getattr(parts.algorithm, "discarded", None)) is not None:
            discarded(rollout)
        yield cursor, Report(steps, cursor.updates, rollout.episodes, metrics)
