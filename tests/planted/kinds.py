"""The kinds of bugs that outside authors make, and the groups of clauses that look for each kind."""

from __future__ import annotations

CHEAP = ("formula.", "dose.", "count.", "batch.rows-averaged", "batch.duplicates")
"""Clauses that take a second together and find bugs of many kinds."""
KINDS: dict[str, tuple[str, ...]] = {
    "targets": (*CHEAP, "batch.", "rollout.", "learns."),
    "settings": (
        *CHEAP,
        "settings.",
    ),
    "training": (*CHEAP, "training.", "batch."),
    "resume": (*CHEAP, "resume.", "algorithm.state"),
    "fillers": (*CHEAP, "batch.", "rollout.", "buffer."),
    "masks": (*CHEAP, "policy.", "batch.next-masks", "learns."),
    "starts": (*CHEAP, "policy.", "rollout.", "resume.", "learns."),
    "rows": (*CHEAP, "batch.", "rollout.", "buffer.", "learns."),
    "seeds": (*CHEAP, "agent.seed", "policy.", "population.", "resume.", "training.samples"),
    "spaces": (*CHEAP, "policy.", "plugin.claims", "distribution.", "population.plays", "learns."),
    "declarations": (*CHEAP, "plugin.", "settings."),
    "memory": (*CHEAP, "buffer.", "batch.", "resume."),
    "metrics": (*CHEAP, "algorithm.", "training.counts", "resume."),
    "distributions": (*CHEAP, "distribution.", "policy.", "learns."),
    "population": (*CHEAP, "population.", "learns."),
    "data": (*CHEAP, "buffer.", "batch.", "rollout.", "learns."),
}
"""Kind -> beginnings of the ids of the clauses that are tried first."""
TITLES = {
    "targets": "wrong signs, targets and losses",
    "settings": "settings that are accepted but not used, or used wrongly",
    "training": "networks that are not trained, or only partly",
    "resume": "state that is not stored, or not restored",
    "fillers": "padding rows and weights of rows that are ignored",
    "masks": "action masks that are ignored in acting, in exploration or in the bootstrap value",
    "starts": "starts of episodes, and recurrent states of policies",
    "rows": "rows that are shifted, mixed up or lost",
    "seeds": "seeds and determinism",
    "spaces": "bounds, start values, shapes and dtypes of spaces",
    "declarations": "manifests and declarations of settings",
    "memory": "replay buffers",
    "metrics": "metrics",
    "distributions": "distributions of actions",
    "population": "population methods",
    "data": "data sets, custom records and entries of `info`",
}
