"""The kinds of bugs that outside authors make, and the groups of clauses that look for each kind."""

from __future__ import annotations

KINDS: dict[str, tuple[str, ...]] = {
    "targets": ("batch.", "rollout.", "learns."),
    "settings": ("settings.",),
    "training": ("training.", "batch."),
    "resume": ("resume.", "algorithm.state"),
    "fillers": ("batch.", "rollout.", "buffer."),
    "masks": ("policy.", "batch.next-masks", "learns."),
    "starts": ("policy.", "rollout.", "resume.", "learns."),
    "rows": ("batch.", "rollout.", "buffer.", "learns."),
    "seeds": ("agent.seed", "policy.", "population.", "resume.", "training.samples"),
    "spaces": ("policy.", "plugin.claims", "distribution.", "population.plays", "learns."),
    "declarations": ("plugin.", "settings."),
    "memory": ("buffer.", "batch.", "resume."),
    "metrics": ("algorithm.", "training.counts", "resume."),
    "distributions": ("distribution.", "policy.", "learns."),
    "population": ("population.", "learns."),
    "data": ("buffer.", "batch.", "rollout.", "learns."),
}
"""Kind -> beginnings of the ids of the clauses that are tried first."""
TITLES = {
    "targets": "wrong signs, targets and losses",
    "settings": "settings that are accepted but not used, or used wrongly",
    "training": "networks that are not trained, or only partly",
    "resume": "state that is not stored, or not restored",
    "fillers": "filler rows and weights of rows that are ignored",
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
