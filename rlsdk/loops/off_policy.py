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
from rlsdk.loops.reporting_env import ReportingEnv
from rlsdk.parts import OffPolicyPlan, Parts
from rlsdk.records import Episode, Metrics, Report
from rlsdk.seeding import Streams


def off_policy(
    env: VectorEnv, parts: Parts, cursor: Cursor, streams: Streams, *, start: int, end: int
) -> Iterator[tuple[Cursor, Report]]:
    """Train until `end` environment steps in total; `start` is where progress counts from (for schedules).

    Rounds of `plan.train_every` vector steps or episodes are always whole, so the last one may pass `end`; one that a callback
    cut short is remembered, without updates. Yields after every round and its updates. `collected(env_steps, progress)` is
    called after every vector step where the algorithm has this method, and after every round where the memory has it, for
    what counts in environment steps.
    """
    plan, buffer = parts.plan, parts.buffer
    round_ended = getattr(env, "rollout_ended", None)
    assert isinstance(plan, OffPolicyPlan)
    assert buffer is not None
    begin, remember = getattr(parts.collector, "begin_rollout", None), getattr(buffer, "collected", None)

    def progress_at(steps: int) -> float:
        return min(1.0, (steps - start) / max(1, end - start))

    while cursor.env_steps < end:
        before = cursor.env_steps
        if begin is not None:
            cursor = replace(cursor, carry=begin(cursor.carry))
        cursor, episodes, whole = _collect_round(env, parts, cursor, streams, progress_at)
        steps = cursor.env_steps
        progress = progress_at(steps)
        if remember is not None:
            remember(steps, progress)
        if round_ended is not None:
            round_ended()
        metrics = None
        count = steps - before if plan.gradient_steps < 0 else plan.gradient_steps
        if whole and steps > plan.learning_starts and count:
            metrics = learn_from_buffer(parts, streams, count, progress)
            cursor = replace(cursor, updates=cursor.updates + count)
        yield cursor, Report(steps, cursor.updates, episodes, metrics)


def _collect_round(
    env: VectorEnv, parts: Parts, cursor: Cursor, streams: Streams, progress_at: Callable[[int], float]
) -> tuple[Cursor, tuple[Episode, ...], bool]:
    """Collect one round into the memory: (the cursor after it, the episodes that ended in it, whether it is whole)."""
    plan, buffer, listener = parts.plan, parts.buffer, getattr(parts.algorithm, "collected", None)
    assert isinstance(plan, OffPolicyPlan)
    assert buffer is not None
    length = 1 if plan.episodes else plan.train_every
    episodes: tuple[Episode, ...] = ()
    if listener is not None:
        env = ReportingEnv(env, cursor.env_steps, listener, progress_at)
    while True:
        rollout = collect(env, parts.collector, cursor.observation, cursor.carry, length, generator=streams["action"])
        buffer.extend(rollout)
        episodes += rollout.episodes
        done = len(rollout.steps.reward)
        steps = cursor.env_steps + done * env.num_envs
        cursor = replace(cursor, observation=rollout.last_observation, carry=rollout.last_carry, env_steps=steps)
        whole = done == length and (not plan.episodes or len(episodes) >= plan.train_every)
        if whole or rollout.stopped:
            return cursor, episodes, whole


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
