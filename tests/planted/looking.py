"""Looking for one bug: a process of its own runs the kit on a copy of the sources, which it imports."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.planted.copies import SCAFFOLDS, install

LOADING = "(loading)"
"""Takes the place of a clause's id if the plugin did not load."""
LATE = ("learns.",)
"""Beginnings of the ids of clauses that take seconds; these are tried last."""


@dataclass(frozen=True)
class Task:
    """The task of one process."""

    algorithm: str
    paths: Sequence[str]
    """The first entries of `sys.path`; the first one is a copy of the sources."""
    first: Sequence[str]
    """Beginnings of the ids of clauses that are tried before all others."""
    passed_over: Collection[str]
    """Ids of clauses that are not tried."""
    groups: Sequence[str]
    """Beginnings of the ids of the clauses that are tried; if empty, all are."""


def look(task: Task, to: Connection) -> None:
    """Send (id of a clause, None) before each clause, and (id, message) for the first clause that fails."""
    os.setsid()
    os.chdir(task.paths[0])
    os.environ |= {"PYTHONPATH": os.pathsep.join(task.paths), "RLSDK_KERNELS": "off"}
    sys.path[:0] = task.paths
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # until the process ends
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        try:
            if task.algorithm in SCAFFOLDS:
                _scaffold(task.algorithm, Path(folder))
            _check(task, to)
        except BaseException as error:  # the plugin does not load
            to.send((LOADING, f"{type(error).__name__}: {error}"))


def _scaffold(identity: str, folder: Path) -> None:
    from rlsdk.registry import plugins
    from rlsdk_testing.scaffold.package import new_package

    site = folder / "site"
    site.mkdir()
    family, actions = SCAFFOLDS[identity]
    install(new_package(identity, family, folder, actions=actions), site)
    sys.path.insert(0, str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(site), os.environ["PYTHONPATH"]])
    plugins(rescan=True)


def _check(task: Task, to: Connection) -> None:
    from rlsdk_testing import kit
    from rlsdk_testing.kit import clauses, outcome_of

    if not Path(kit.__file__).is_relative_to(task.paths[0]):
        raise RuntimeError(f"the kit is {kit.__file__}, not the copy in which bugs are planted")

    def place(identity: str) -> tuple[bool, int]:
        found = [k for k, beginning in enumerate(task.first) if identity.startswith(beginning)]
        return identity.startswith(LATE) and min(found, default=1) > 0, min(found, default=len(task.first))

    for clause in sorted(clauses(), key=lambda each: place(each.id)):
        if clause.id in task.passed_over or (task.groups and not clause.id.startswith(tuple(task.groups))):
            continue
        to.send((clause.id, None))
        outcome = outcome_of(clause, task.algorithm)
        if outcome.status == "failed":
            to.send((clause.id, outcome.detail))
            return
