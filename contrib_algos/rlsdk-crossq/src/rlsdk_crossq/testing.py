"""What the contract kit needs to know about CrossQ."""

SETTINGS = {"policy_delay": 1, "policy_kwargs": {"batch_norm_momentum": 0.2}}
"""Every update trains the actor, so that clauses about one update see its step. Running statistics follow within a
few of the kit's updates, of which there are 200 to 800. With 0.01, the default, they do not: clauses about entropy fail."""

EXCEPTIONS = {
    "batch.rows-averaged": "batch normalization: the value of a row depends on the other rows",
    "batch.duplicates": "the variance of a batch has N - 1 in the denominator, and 2 N - 1 if every row is there twice",
    "batch.ends-have-no-next": "the next observations of all rows are part of the critics' batch statistics",
    "batch.weights": "rows of weight 0 are part of the batch statistics too",
}
"""Clauses that do not hold for CrossQ, and why."""
