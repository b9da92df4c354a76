"""What a plan or an algorithm may not do in a round, and the errors for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torch import Tensor

from rlsdk.errors import DivergenceError, PluginError
from rlsdk.interfaces import Plan
from rlsdk.records import Cursor, Metrics, Report
from rlsdk.registry.parts import Training

YIELDS = "rounds(training, cursor) yields (rlsdk.training.Cursor, rlsdk.records.Report) after every round"


def rounds_of(plan: Plan[Training], training: Training, cursor: Cursor, algorithm: str) -> Iterator[object]:
    """The rounds of a plan, unchecked.

    Raises:
        PluginError: `rounds` is no generator.
    """
    rounds: object = plan.rounds(training, cursor)
    if not isinstance(rounds, Iterator):
        raise PluginError(
            f"{algorithm!r}: rounds of {type(plan).__name__} returned {type(rounds).__name__}, no iterator; write it with"
            f" `yield`: {YIELDS}"
        )
    return rounds


def wrong_round(yielded: object, before: Cursor, algorithm: str) -> PluginError:
    """For what is no `(Cursor, Report)`, or counts less than `before` the round."""
    if isinstance(yielded, tuple) and tuple(map(type, yielded)) == (Cursor, Report):
        return PluginError(
            f"{algorithm!r}: counts of its plan fell from {before} to {yielded[0]}; add to the counts of the cursor that rounds"
            " was given"
        )
    found = f"({', '.join(type(part).__name__ for part in yielded)})" if isinstance(yielded, tuple) else repr(yielded)
    return PluginError(f"{algorithm!r}: its plan yielded {found[:200]}; {YIELDS}")


def diverged(metrics: Metrics, report: Report) -> DivergenceError:
    """For metrics, each float [], of which one is NaN or infinite."""
    wrong = {name: float(value) for name, value in metrics.items() if not math.isfinite(float(value))}
    return DivergenceError(
        f"training diverged at update {report.updates} (environment step {report.env_steps}): {wrong};"
        " the environment's own numbers were finite, so lower learning_rate, scale the rewards, or check custom networks"
    )


def unlike_metrics(metrics: object) -> PluginError:
    """For what `update` returned instead of metrics."""
    wanted = "update() must return metrics: a mapping from names to 0-d tensors, such as {'train/loss': loss.detach()}"
    if not isinstance(metrics, Mapping):
        return PluginError(f"{wanted}; it returned {type(metrics).__name__}")
    if not metrics:
        return PluginError(f"{wanted}; it returned none, so divergence would go unnoticed")
    wrong = {n: v for n, v in metrics.items() if not isinstance(v, Tensor) or v.dim()}
    kinds = [
        f"{n} is a {type(v).__name__}" + (f" {list(v.shape)}" if isinstance(v, Tensor) else "")
        for n, v in wrong.items()
    ]
    return PluginError(f"{wanted}; {', '.join(kinds) or 'they lie on several devices or have several dtypes'}")
