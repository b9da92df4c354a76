"""Bugs that outside authors could make, planted into copies of the sources. `python -m tests.planted` runs the kit on
each.

`tests.mutants` shows that each clause is needed. These bugs show how many mistakes the kit finds although no clause was
written for them.
"""

from __future__ import annotations

from tests.planted import (
    ars,
    cloning,
    contrib,
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
    *(ars, maskable_ppo, recurrent_ppo, qrdqn, tqc, trpo, contrib),
    *(cloning, cross_entropy, dyna, ppo_lagrangian, reinforce, rnd, v_trace, scaffolds),
)
BUGS: tuple[Bug, ...] = tuple(bug for part in PARTS for bug in part.BUGS)
