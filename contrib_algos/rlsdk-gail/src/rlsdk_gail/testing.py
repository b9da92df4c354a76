"""The settings of the small agents that the contract kit makes, and the clauses that do not hold.

Their discriminator learns within a few hundred updates.
"""

SETTINGS: dict[str, object] = {
    "g_step": 1,
    "d_step": 4,
    "d_stepsize": 1e-2,
    "hidden_size_adversary": 16,
    "n_epochs": 4,
}
EXCEPTIONS: dict[str, str] = {
    "batch.normalized": "the discriminator's own statistics include the first rollout, which start values normalized",
}
