"""Reasons why the kit cannot find some bugs, where they are known."""

from __future__ import annotations

REASONS = {
    "few-recorded-steps-are-sampled": "what is sampled is recorded, and few rows teach the same",
    "the-worst-directions-are-followed": "which directions are followed is the choice of a paper, and these learn too",
    "quantiles-are-upside-down": "values are means over quantiles; which quantile an output stands for is in words only",
    "steps-that-failed-stay": "how far a step may go is the choice of a paper",
    "the-divergence-is-measured-to-itself": "how far a step may go is the choice of a paper",
    "importance-weights-are-upside-down": "weights of older samples are the choice of a paper; it learns too",
    "the-baseline-is-added": "a baseline changes the variance of gradients, not their mean: it learns too",
    "cloned-actions-are-flat": "no violation: `Policy.act` may return [B, A], and the adapter shapes it as the space",
    "deviations-are-frozen": "a parameter without gradients may be meant so",
    "costs-are-rewarded": "whether an entry of `info` is good or bad is in words only",
    "the-held-out-loss-is-of-what-is-learnt-from": "what a number of the log means is in words only",
    "gru-policies-have-an-lstm": "what the name of a policy promises is in words only",
    "explained-variance-of-the-prediction": "what a number of the log means is in words only",
    "the-largest-atoms-stay": "which atoms are dropped is the choice of a paper",
}
"""Id of a bug that the kit does not find -> the reason. For other bugs, the page shows the detail of the stored result."""
