"""The kinds of bugs that outside authors make, and the groups of clauses that should find each kind."""

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
    "settings": "settings that are accepted and not used, or used wrongly",
    "training": "networks that are not trained, or only in part",
    "resume": "state that is not stored, or not restored",
    "fillers": "filler rows and weights of rows ignored",
    "masks": "action masks ignored: while acting, exploring, or in the bootstrap",
    "starts": "starts of episodes, and memories of policies",
    "rows": "rows that are shifted, mixed or lost",
    "seeds": "seeds and determinism",
    "spaces": "bounds, first values, shapes and dtypes of spaces",
    "declarations": "manifests and declared settings",
    "memory": "replay memories",
    "metrics": "metrics",
    "distributions": "distributions of actions",
    "population": "population methods",
    "data": "recorded data and other information of steps",
}
