"""Learning from what is remembered, without collecting."""

from __future__ import annotations

from torch import Tensor

from rlsdk.loops.off_policy import learn_from_buffer
from rlsdk.parts import OffPolicyPlan, Parts
from rlsdk.records import Metrics
from rlsdk.seeding import Streams


def learn_offline(parts: Parts, streams: Streams, count: int, env_steps: int) -> Metrics:
    """`count` updates without collecting. What an algorithm counts in environment steps goes on as if the plan's share of
    them had been made for every update."""
    plan, algorithm = parts.plan, parts.algorithm
    assert isinstance(plan, OffPolicyPlan)
    if not hasattr(algorithm, "collected"):
        return learn_from_buffer(parts, streams, count, 0.0)
    each = plan.train_every / plan.gradient_steps if plan.gradient_steps > 0 else 1.0
    totals: dict[str, Tensor] = {}
    for i in range(count):
        for name, value in learn_from_buffer(parts, streams, 1, 0.0).items():
            totals[name] = totals[name] + value if name in totals else value
        algorithm.collected(env_steps + int(each * (i + 1)), 1.0)  # as at the end: nothing is left to explore
    algorithm.collected(env_steps, 1.0)
    return {name: value / count for name, value in totals.items()}
