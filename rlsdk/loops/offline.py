"""Learning from what is remembered, without collecting."""

from __future__ import annotations

from typing import Any, cast

from rlsdk.loops.off_policy import learn_from_buffer
from rlsdk.parts import OffPolicyPlan, Parts
from rlsdk.records import Metrics
from rlsdk.seeding import Streams


def learn_offline(parts: Parts, streams: Streams, count: int, env_steps: int) -> Metrics:
    """`count` updates without collecting. What an algorithm counts in environment steps goes on as if the plan's share of
    them had been made for every update."""
    plan, algorithm = parts.plan, cast("Any", parts.algorithm)
    assert isinstance(plan, OffPolicyPlan)
    if not hasattr(algorithm, "collected"):
        return learn_from_buffer(parts, streams, count, 0.0)
    share = plan.train_every / plan.gradient_steps if plan.gradient_steps > 0 else 1.0

    def tell(done: int) -> None:
        algorithm.collected(env_steps + int(share * done), 1.0)  # as at the end: nothing is left to explore

    metrics = learn_from_buffer(parts, streams, count, 0.0, tell)
    algorithm.collected(env_steps, 1.0)
    return metrics
