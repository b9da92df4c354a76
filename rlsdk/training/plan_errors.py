"""Errors for plans, policies and algorithms that break the rules of a round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torch import Tensor

from rlsdk.errors import DivergenceError, PluginError
from rlsdk.interfaces import Plan, Training
from rlsdk.records import Act, Cursor, Metrics, Report

YIELDS = "rounds(training, cursor) yields (rlsdk.training.Cursor, rlsdk.records.Report) after every round"


def rounds_of(plan: Plan[Training], training: Training, cursor: Cursor, algorithm: str) -> Iterator[object]:
    """Return the iterator of a plan's rounds, without checking what it yields.

    Raises:
        PluginError: `rounds` does not return an iterator.
    """
    rounds: object = plan.rounds(training, cursor)
    if not isinstance(rounds, Iterator):
        raise PluginError(
            f"{algorithm!r}: rounds of {type(plan).__name__} returned {type(rounds).__name__}, no iterator; write it with"
            f" `yield`: {YIELDS}"
        )
    return rounds


def wrong_round(yielded: object, before: Cursor, algorithm: str) -> PluginError:
    """The error for a yielded value that is not `(Cursor, Report)`, or whose counts are below those `before` the round."""
    if isinstance(yielded, tuple) and tuple(map(type, yielded)) == (Cursor, Report):
        return PluginError(
            f"{algorithm!r}: counts of its plan fell from {before} to {yielded[0]}; add to the counts of the cursor that rounds"
            " was given"
        )
    found = f"({', '.join(type(part).__name__ for part in yielded)})" if isinstance(yielded, tuple) else repr(yielded)
    return PluginError(f"{algorithm!r}: its plan yielded {found[:200]}; {YIELDS}")


def of_algorithm(error: PluginError, algorithm: str) -> PluginError:
    """The same error with the id of the algorithm at its beginning."""
    text = str(error)
    return error if text.startswith(repr(algorithm)) else PluginError(f"{algorithm!r}: {text}")


def wrong_act(act: object, policy: object, num_envs: int) -> PluginError | None:
    """The error for an invalid result of `policy.act` for `num_envs` observations; None if the result is valid."""
    kind, wanted = type(policy).__name__, "return rlsdk.records.Act(action, carry, extras)"
    if not isinstance(act, Act):
        return PluginError(f"act of its policy, {kind}, returned {type(act).__name__}; {wanted}")
    for leaf in leaves_of(act.action):
        if not isinstance(leaf, Tensor) or not leaf.dim() or len(leaf) != num_envs:
            found = f"of shape {list(leaf.shape)}" if isinstance(leaf, Tensor) else type(leaf).__name__
            return PluginError(
                f"act of its policy, {kind}, returned an action {found} for {num_envs} environments; give tensors [B] or"
                f" [B, A] with B = {num_envs}, nested as the action space is"
            )
    return None


def leaves_of(action: object) -> list[object]:
    """The leaves of nested actions, of any type."""
    if isinstance(action, Mapping):
        return [leaf for value in action.values() for leaf in leaves_of(value)]
    return [leaf for value in action for leaf in leaves_of(value)] if isinstance(action, tuple) else [action]


def wrong_length(length: object) -> PluginError:
    """The error for a number of steps that cannot be collected."""
    return PluginError(f"its plan called collect(policy, {length!r}); the length is a whole number of at least 1")


def diverged(metrics: Metrics, report: Report) -> DivergenceError:
    """The error for metrics, each float [], of which at least one is NaN or infinite."""
    wrong = {name: float(value) for name, value in metrics.items() if not math.isfinite(float(value))}
    return DivergenceError(
        f"training diverged at update {report.updates} (environment step {report.env_steps}): {wrong};"
        " the environment's own numbers were finite, so lower learning_rate, scale the rewards, or check custom networks"
    )


def unlike_metrics(metrics: object) -> PluginError:
    """The error for a result of `update` that is not a mapping of metrics."""
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
