"""Executors run independent items of work: in this process, or in an executor of a package.

rlsdk-parallel has `processes` and pools, rlsdk-ray has `ray`. Here are also the processes that environments are stepped in.
"""

from rlsdk.executors.choice import SerialExecutor, capacity, make_executor, names
from rlsdk.executors.processes import StatefulProcesses
from rlsdk.executors.workers import Raised, Worker, WorkerDied, attempt, result_of, unsendable
from rlsdk.interfaces import Executor

__all__ = [
    "Executor",
    "Raised",
    "SerialExecutor",
    "StatefulProcesses",
    "Worker",
    "WorkerDied",
    "attempt",
    "capacity",
    "make_executor",
    "names",
    "result_of",
    "unsendable",
]
