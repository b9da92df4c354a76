"""The off-policy loop: collect a little, remember it, learn from what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from torch import Tensor

from rlsdk.collect import collect
from rlsdk.errors import SettingsError
from rlsdk.interfaces import VectorEnv
from rlsdk.loops.cursor import Cursor
from rlsdk.parts import OffPolicyPlan, Parts
from rlsdk.records import Episode, Metrics, Report
from rlsdk.seeding import Streams


def off_policy(
    env: VectorEnv, parts: Parts, cursor: Cursor, streams: Streams, *, start: int, end: int
) -> Iterator[tuple[Cursor, Report]]:
    """Train until `end` environment steps in total; `start` is where progress counts from (for schedules).

    Yields after every round of `plan.train_every` steps or episodes and its updates; a round that a callback cut short is
    remembered, without updates. Algorithms with a method
    `collected(env_steps, progress)`, and memories with one, are told after each round of collecting, for what counts in
    environment steps.
    """
    plan, buffer, before = parts.plan, parts.buffer, cursor.env_steps
    collected = getattr(env, "rollout_ended", None)
    assert isinstance(plan, OffPolicyPlan)
    assert buffer is not None
    listeners = [part.collected for part in (parts.algorithm, buffer) if hasattr(part, "collected")]
    episodes: tuple[Episode, ...] = ()
    while cursor.env_steps < end:
        left = -(-(end - cursor.env_steps) // env.num_envs)
        length = 1 if plan.episodes else min(plan.train_every, left)
        rollout = collect(env, parts.collector, cursor.observation, cursor.carry, length, generator=streams["action"])
        buffer.extend(rollout)
        episodes += rollout.episodes
        done = len(rollout.steps.reward)
        steps = cursor.env_steps + done * env.num_envs
        cursor = replace(cursor, observation=rollout.last_observation, carry=rollout.last_carry, env_steps=steps)
        progress = min(1.0, (steps - start) / max(1, end - start))
        for tell in listeners:
            tell(steps, progress)
        whole = done == length and (not plan.episodes or len(episodes) >= plan.train_every or steps >= end)
        if not whole and not rollout.stopped:
            continue
        if collected is not None:
            collected()
        metrics = None
        count = steps - before if plan.gradient_steps < 0 else plan.gradient_steps
        if whole and steps > plan.learning_starts and count:
            metrics = learn_from_buffer(parts, streams, count, progress)
            cursor = replace(cursor, updates=cursor.updates + count)
        yield cursor, Report(cursor.env_steps, cursor.updates, episodes, metrics)
        episodes, before = (), cursor.env_steps


def learn_from_buffer(
    parts: Parts, streams: Streams, count: int, progress: float, each: Callable[[int], None] | None = None
) -> Metrics:
    """`count` updates from fresh samples, `each` called with their number so far; the mean of each metric over them.

    A memory with a method `prioritize(index, error)` is told the algorithm's `td_error` [N] after each update.

    Raises:
        SettingsError: the algorithm has none.
    """
    assert isinstance(parts.plan, OffPolicyPlan)
    assert parts.buffer is not None
    prioritize = getattr(parts.buffer, "prioritize", None)
    if prioritize is not None and not hasattr(parts.algorithm, "td_error"):
        raise SettingsError("prioritised replay needs an algorithm that tells its errors (td_error); this one does not")
    totals: dict[str, Tensor] = {}
    for done in range(1, count + 1):
        batch = parts.buffer.sample(parts.plan.batch_size, streams["replay"])
        for name, value in parts.algorithm.update(batch, progress=progress).items():
            totals[name] = totals[name] + value if name in totals else value
        if prioritize is not None:
            prioritize(batch.index, cast("Any", parts.algorithm).td_error)
        if each is not None:
            each(done)
    return {name: value / count for name, value in totals.items()}
