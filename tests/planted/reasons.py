"""The known reasons why the kit does not find some bugs."""

from __future__ import annotations

REASONS = {
    "few-recorded-steps-are-sampled": "all samples are recorded steps, and few rows are enough to learn the tasks",
    "the-worst-directions-are-followed": "the algorithm chooses directions, and it learns with the worst ones too",
    "quantiles-are-upside-down": "values are means over quantiles; only documentation defines which quantile an output is",
    "steps-that-failed-stay": "the size of an update is a choice of the algorithm",
    "the-divergence-is-measured-to-itself": "the size of an update is a choice of the algorithm",
    "importance-weights-are-upside-down": "the algorithm chooses the weights of older samples, and it still learns",
    "the-baseline-is-added": "a baseline changes the variance of gradients, not their mean, so training still learns",
    "cloned-actions-are-flat": "not a violation: `Policy.act` may return [B, A], and the adapter reshapes it",
    "deviations-are-frozen": "a parameter without gradients can be intended",
    "costs-are-rewarded": "only documentation defines whether an entry of `info` should be large or small",
    "the-held-out-loss-is-of-what-is-learnt-from": "only documentation defines what a metric means",
    "gru-policies-have-an-lstm": "only documentation defines what the name of a policy means",
    "explained-variance-of-the-prediction": "only documentation defines what a metric means",
    "the-largest-atoms-stay": "which atoms are dropped is a choice of the algorithm",
}
"""Id of a bug that the kit does not find -> the reason. For bugs without an entry the page shows the result of the search."""
