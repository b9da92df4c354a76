"""The known reasons why the kit does not find some bugs."""

from __future__ import annotations

REASONS = {
    "few-recorded-steps-are-sampled": "all samples are recorded steps, and few rows are enough to learn the tasks",
    "steps-that-failed-stay": "the size of an update is a choice of the algorithm",
    "the-divergence-is-measured-to-itself": "the size of an update is a choice of the algorithm",
    "cloned-actions-are-flat": "not a violation: `Policy.act` may return [B, A], and the adapter reshapes it",
    "deviations-are-frozen": "a parameter without gradients can be intended",
    "the-held-out-loss-is-of-what-is-learned-from": "only documentation defines what a metric means",
    "gru-policies-have-an-lstm": "only documentation defines what the name of a policy means",
    "explained-variance-of-the-prediction": "only documentation defines what a metric means",
    "the-extrinsic-weight-multiplies-both": "advantages are normalized, so that all that remains of the weight is rounding; the"
    " clause about that compares whole gradients, in which other losses are larger",
    "the-warm-up-counts-vector-steps": "counts are made with one environment, where vector steps and environment steps agree",
    "errors-of-rows-are-squared": "the clauses ask whether errors of rows are their own and not negative, not for their size",
    "rows-are-never-shuffled": "an order that is not random still learns the toys, and may be intended",
    "the-target-moves-one-step-late": "moves of a target are seen only when its source has changed, which is every few steps",
}
"""Id of a bug that the kit does not find -> the reason. For bugs without an entry the page shows the result of the search."""
