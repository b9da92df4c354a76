"""Clauses about the rows of a batch: each row has its own term in the loss, which is the mean of these terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rlsdk.kernels import kernels_off
from rlsdk.records import FinalObservations, Rollout, Sequences
from rlsdk.training import OnPolicyPlan
from rlsdk.tree import map_tensors
from rlsdk_testing.batches import ENVS, EPISODE, PATIENCE, AnyRollout, Batch, is_scored, rows_in_batch, small_agent
from rlsdk_testing.kit import clause, require
from rlsdk_testing.networks import Found
from rlsdk_testing.not_applicable import NotApplicable
from rlsdk_testing.subject import Subject
from rlsdk_testing.watched import LOOSE, TINY, Effect, Ledger, Observed, apart, of_weights

WHOLE: dict[str, Any] = {"batch_size": 10_000, "n_epochs": 1}
"""Settings with which an update of a rollout is one step with all its rows."""
ERROR = 0.01
"""The largest difference of gradients that should be equal, as a share of them."""
BIASED = 0.08
"""The same for gradients of rollouts, which may be normalized by a standard deviation that depends on the number of rows."""
MOST_ROWS = 16
UPDATES = 6
"""The updates in which gradients and steps are followed."""


def in_one_step(subject: Subject, **changes: Any) -> Observed:
    """Return a watched learner; if it learns from rollouts, one that makes a step with all rows (`WHOLE` and `changes`)."""
    # the loop is known before the training, which is the larger part of the time of a clause
    known = isinstance(small_agent(subject, **changes).parts.plan, OnPolicyPlan)
    observed = Observed(subject, **{**(WHOLE if known else {}), **changes})
    return Observed(subject, **{**WHOLE, **changes}) if isinstance(observed.batch, Rollout) and not known else observed


@clause(
    "batch.rows-averaged",
    "The gradient of a batch is the mean of the gradients of its rows.",
    "update(): compute the loss of each row, [N], from that row only, and take its mean. Look for sums, medians, softmax or"
    " normalization over the batch, and for shapes [N, 1] that broadcast with [N]. A method that normalizes over the batch"
    " declares this clause in testing_exceptions.",
)
def rows_averaged(subject: Subject) -> None:
    observed = Observed(subject, ent_coef=0.1)
    batch = _cut(observed)
    count = rows_in_batch(batch)
    whole = _gradients(observed, batch)
    if not whole:
        raise NotApplicable("no optimizer makes a step in its update")
    _require_no_batch_norm(observed)
    single = [_gradients(observed, _row(batch, row)) for row in range(count)]
    for name, gradient in whole.items():
        parts = [each[name] for each in single if name in each]
        mean = torch.stack(parts).sum(0) / count if parts else torch.zeros_like(gradient)
        size = max(float(mean.norm()), float(gradient.norm()))
        if size < TINY:
            continue
        difference = float((gradient - mean).norm()) / size
        ratio = float(gradient @ mean / (mean @ mean)) if bool(mean.any()) else 0.0
        require(
            difference < ERROR,
            f"{name}: the gradient of {count} rows differs by {difference:.1%} from the mean of those of single rows; it"
            f" is {ratio:.3g} times as large in their direction",
        )


def _cut(observed: Observed) -> Batch:
    """Return the first rows of the last batch of a training from a buffer, without weights.

    Raises:
        NotApplicable: it learns from rollouts or scores, whose rows depend on each other.
    """
    batch = observed.batch
    if isinstance(batch, Rollout | Sequences) or is_scored(batch):
        raise NotApplicable("the rows of a rollout depend on each other; batch.duplicates is about them")
    count = min(rows_in_batch(batch), MOST_ROWS)
    return map_tensors(lambda leaf: leaf[:count], batch)


def _row(batch: Batch, row: int) -> Batch:
    return map_tensors(lambda leaf: leaf[row : row + 1], batch)


def _gradients(observed: Observed, batch: Batch) -> dict[str, Tensor]:
    """Return path of an optimizer -> the mean gradient [P] of its steps in an update, with equal noise for all rows."""
    steps = observed.update(batch, where=torch.arange(_rows_with_noise(batch)))
    paths = dict.fromkeys(step.optimizer for step in steps)
    return {path: torch.stack([step.gradient for step in steps if step.optimizer == path]).mean(0) for path in paths}


def _rows_with_noise(batch: Batch) -> int:
    return batch.steps.valid.numel() if isinstance(batch, Rollout | Sequences) else rows_in_batch(batch)


def _require_no_batch_norm(observed: Observed) -> None:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    if any(isinstance(m, kinds) for root in Found(observed.agent).modules.values() for m in root.modules()):
        raise NotApplicable("its networks normalize over the batch")


@clause(
    "batch.duplicates",
    "A batch in which every row, sequence or environment is there twice gives the update of the batch itself.",
    "update(): take means over rows, never sums.",
)
def duplicates(subject: Subject) -> None:
    observed = in_one_step(subject, ent_coef=0.1)
    batch = observed.batch
    if is_scored(batch):
        raise NotApplicable("the rows of a population method are its candidates, whose number is a setting")
    once = _effect(observed, batch)
    if not observed.steps:
        # A table may learn from each row by itself: two equal rows are then two steps, and no mean is due.
        raise NotApplicable("its update takes no step of an optimizer")
    try:
        twice = _effect(observed, _twice(batch))
    except NotApplicable:
        raise
    except Exception:
        raise NotApplicable("its update accepts no other number of rows") from None
    bound = BIASED if isinstance(batch, Rollout) else ERROR
    difference, name = apart(once, twice)
    require(
        difference < bound,
        f"the same rows twice change {name} otherwise, by {difference:.1%}; it becomes {_ratio(once, twice, name):.3g} times as"
        " large",
    )


def _effect(observed: Observed, batch: Batch) -> Effect:
    """Return what an update does to weights. Running statistics may depend on the number of rows, so they are left out: a
    variance that is estimated from n rows is n / (n - 1) times theirs."""
    found = of_weights(
        observed.effect(batch, where=torch.arange(_rows_with_noise(batch))), {step.optimizer for step in observed.steps}
    )
    policy = observed.agent.parts.policy
    buffers = dict(policy.named_buffers()) if isinstance(policy, nn.Module) else {}
    return {name: change for name, change in found.items() if name.removeprefix("policy/") not in buffers}


def _ratio(one: Effect, two: Effect, name: str) -> float:
    a, b = one.get(name), two.get(name)
    return float("nan") if a is None or b is None or a.shape != b.shape else float(b.norm() / a.norm().clamp(min=TINY))


def _twice(batch: Batch) -> Batch:
    if isinstance(batch, Rollout):
        return twice_as_wide(batch)
    if isinstance(batch, Sequences):
        steps = map_tensors(lambda leaf: torch.cat([leaf, leaf], 1), batch.steps)
        following = map_tensors(lambda leaf: torch.cat([leaf, leaf], 1), batch.next_observation)
        rest = {name: torch.cat([getattr(batch, name)] * 2, 1) for name in ("discount", "loss_mask")}
        carry = map_tensors(lambda leaf: torch.cat([leaf, leaf]), batch.initial_carry)
        return replace(
            batch, steps=steps, next_observation=following, initial_carry=carry, index=batch.index.repeat(2), **rest
        )
    return map_tensors(lambda leaf: torch.cat([leaf, leaf]), batch)


def twice_as_wide(batch: AnyRollout) -> AnyRollout:
    """Return a rollout [T, 2 B] in which every environment is there twice."""
    finals, width = batch.final_observations, batch.steps.reward.shape[1]
    if finals is not None:
        order = torch.cat(
            [finals.time * 2 * width + finals.env, finals.time * 2 * width + finals.env + width]
        ).argsort()
        both = map_tensors(lambda leaf: torch.cat([leaf, leaf])[order], finals.observation)
        env = torch.cat([finals.env, finals.env + width])[order]
        finals = FinalObservations(finals.time.repeat(2)[order], env, both)
    last: Callable[[Tensor], Tensor] = lambda leaf: torch.cat([leaf, leaf])  # noqa: E731
    return replace(
        batch,
        steps=map_tensors(lambda leaf: torch.cat([leaf, leaf], 1), batch.steps),
        initial_carry=map_tensors(last, batch.initial_carry),
        last_observation=map_tensors(last, batch.last_observation),
        last_carry=map_tensors(last, batch.last_carry),
        final_observations=finals,
        episodes=(),
    )


@clause(
    "training.gradients-fresh",
    "Every step has the gradient of its own rows: at equal weights the same rows give the same gradient, in the next minibatch"
    " and in the next update.",
    "update(): call zero_grad() before every backward(), inside the loop over minibatches.",
)
def gradients_fresh(subject: Subject) -> None:
    observed = in_one_step(subject, n_epochs=2)
    first = list(observed.update(observed.batch))
    again = list(observed.update(observed.batch))
    if not first:
        raise NotApplicable("no optimizer makes a step in its update")
    for path in dict.fromkeys(step.optimizer for step in first):
        own = [step.gradient for step in first if step.optimizer == path]
        _require_no_sum(path, own[:2], "two steps with the same rows")
        _require_no_sum(
            path, [own[0], *[s.gradient for s in again if s.optimizer == path][:1]], "two updates of one batch"
        )


def _require_no_sum(path: str, gradients: list[Tensor], what: str) -> None:
    """Check that the second gradient [P] is not the double of the first one, which is what stays if nothing is set to zero."""
    if len(gradients) < 2 or float(gradients[0].norm()) < TINY:
        return
    one, two = gradients
    require(
        float((two - 2.0 * one).norm()) > ERROR * float(two.norm()),
        f"{path}: in {what}, at the same weights, the second gradient is twice the first: they pile up",
    )


@clause(
    "training.steps-of-gradients",
    "Every step of an optimizer has a gradient that was computed after its last step. Every gradient that an update computes is"
    " followed by a step, or stays for a later one.",
    "update(): call zero_grad(), backward() and step() once each for a minibatch, in this order.",
)
def steps_of_gradients(subject: Subject) -> None:
    with kernels_off():  # kernels make steps of optimizers in compiled code
        agent = small_agent(subject, None, **LOOSE)
        ledger, learned, steps = Ledger(agent), 0, 2 * EPISODE * ENVS
        with ledger.following():
            while learned < UPDATES and steps < PATIENCE:
                agent.learn(steps, reset_num_timesteps=False)
                learned, steps = ledger.updates, steps * 2
    if not ledger.steps:
        raise NotApplicable("no optimizer makes a step in its training")
    require(not ledger.faults, "\n".join(ledger.faults[:2]))
