"""Bugs as outside authors make them, planted into copies of the sources; `python -m tests.planted` has the kit look for each.

`tests.mutants` shows that each clause is needed; these bugs show what the kit finds of mistakes that no clause was written for.
"""

from __future__ import annotations

from tests.planted import (
    ars,
    cloning,
    cross_entropy,
    dyna,
    maskable_ppo,
    ppo_lagrangian,
    qrdqn,
    recurrent_ppo,
    reinforce,
    rnd,
    scaffolds,
    tqc,
    trpo,
    v_trace,
)
from tests.planted.bug import Bug

PARTS = (
    *(ars, maskable_ppo, recurrent_ppo, qrdqn, tqc, trpo),
    *(cloning, cross_entropy, dyna, ppo_lagrangian, reinforce, rnd, v_trace, scaffolds),
)
BUGS: tuple[Bug, ...] = tuple(bug for part in PARTS for bug in part.BUGS)
