"""Bugs in the output of a plugin, and in the claims of its manifest."""

from __future__ import annotations

import os
from typing import Any

from rlsdk.updates import SoftActorCritic
from tests.mutants.catalog import Patch, mutant
from tests.mutants.packages import say_in_the_manifest


def with_update(patch: Patch, work: Any) -> None:
    update = SoftActorCritic.update

    def broken(self: Any, batch: Any, *, progress: float) -> Any:
        work()
        return update(self, batch, progress=progress)

    patch.setattr(SoftActorCritic, "update", broken)


@mutant("plugin.prints-nothing", alone=True)
def every_update_prints_its_loss(patch: Patch) -> None:
    with_update(patch, lambda: print("loss 0.3"))


@mutant("plugin.prints-nothing")
def a_library_writes_below_python(patch: Patch) -> None:
    with_update(patch, lambda: os.write(2, b"warning: slow\n"))


@mutant("plugin.claims-backed")
def the_manifest_claims_a_trait_that_is_not_known(patch: Patch) -> None:
    say_in_the_manifest(patch, traits=("replay", "teleports"))
