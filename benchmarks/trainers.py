"""Trainers whose speed and share of updates are measured."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Trainer:
    """Trains by calling `learn(steps)`. `updating` is the processor time of `method` of `owner` so far, which makes updates."""

    def __init__(self, learn: Callable[[int], object], owner: object, method: str) -> None:
        self.learn, self.updating = learn, 0.0
        inner = getattr(owner, method, None)
        self.knows_updates = inner is not None
        if inner is not None:
            setattr(owner, method, self._timed(inner))

    def _timed(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return inner(*args, **kwargs)
            finally:
                self.updating += time.process_time() - began

        return timed

    def __call__(self, steps: int) -> Timing:
        """Train, and return the time it took."""
        cpu, wall, before = processor_seconds(), time.perf_counter(), self.updating
        self.learn(steps)
        spent = processor_seconds() - cpu
        share = (self.updating - before) / spent if self.knows_updates else None
        return Timing(steps / spent, steps / (time.perf_counter() - wall), share)


def processor_seconds() -> float:
    """The processor time of this process and of its running children, in seconds."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # utime and stime
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Timing:
    """Environment steps per second of processor time (`cpu`) and of wall-clock time (`wall`), and the share of updates in the
    processor time."""

    cpu: float
    wall: float
    update: float | None


JAX_THREADS = "NPROC"
"""The environment variable that limits the threads of JAX. `XLA_FLAGS` does not limit them in jax 0.10."""


class Elsewhere:
    """A trainer in a separate process, so that a library with its own threads does not disturb the others."""

    def __init__(self, make: Callable[[], Trainer], threads: int = 1) -> None:
        """Start the process. The call returns after the warm-up.

        Args:
            make: makes the trainer, and can be pickled.
            threads: threads of JAX.
        """
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(make, threads, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def __call__(self, steps: int) -> Timing:
        """Train, and return the time it took."""
        self.pipe.send(steps)
        timing: Timing = self.pipe.recv()
        return timing

    def close(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.join()


def _serve(make: Callable[[], Trainer], threads: int, pipe: Any) -> None:
    os.environ[JAX_THREADS] = str(threads)  # JAX reads it when `make` imports it
    trainer = make()
    pipe.send("warm")
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(trainer(pipe.recv()))
