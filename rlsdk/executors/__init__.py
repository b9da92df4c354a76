"""Executors run independent items of work: in this process, in processes on this machine, in a pool from
`concurrent.futures`, or in an executor of a plugin."""

from rlsdk.executors.choice import SerialExecutor, capacity, make_executor, names
from rlsdk.executors.futures import FuturesExecutor, attempt, result_of, unsendable
from rlsdk.executors.processes import Processes
from rlsdk.executors.workers import WorkerDied
from rlsdk.interfaces import Executor

__all__ = [
    "Executor",
    "FuturesExecutor",
    "Processes",
    "SerialExecutor",
    "WorkerDied",
    "attempt",
    "capacity",
    "make_executor",
    "names",
    "result_of",
    "unsendable",
]
