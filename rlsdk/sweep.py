"""The same run with several seeds, side by side: one run directory per seed, one summary, one picture."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.executors import make_executor
from rlsdk.interfaces import Executor
from rlsdk.plotting import plot_runs
from rlsdk.run_directory import RunDirectory
from rlsdk.runner import RunRequest, run

REQUEST, SUMMARY, CURVES = "sweep.json", "summary.json", "learning_curves.png"


@attrs.frozen(kw_only=True)
class Sweep:
    """What is run: `request`, once for each of the seeds, at most `jobs` at a time on the executor of that name."""

    request: RunRequest
    seeds: tuple[int, ...]
    jobs: int
    executor: str = "processes"


@attrs.frozen(kw_only=True)
class SeedResult:
    """What came of one seed; `error` is None where it finished."""

    seed: int
    folder: Path
    mean: float | None = None
    std: float | None = None
    error: str | None = None


def seeds_from(first: int | None, count: int) -> tuple[int, ...]:
    """`count` seeds, from `first` (0 when not said) upwards.

    Raises:
        SettingsError: count < 1.
    """
    if count < 1:
        raise SettingsError(f"--seeds {count} must be a positive whole number")
    start = first or 0
    return tuple(range(start, start + count))


def jobs_for(wanted: int | None, count: int, threads: int) -> int:
    """Processes at a time: as many as were asked for, but no more than there are seeds, or cores for their threads.

    Raises:
        SettingsError: fewer than one was asked for.
    """
    if wanted is not None and wanted < 1:
        raise SettingsError(f"--jobs {wanted} must be a positive whole number")
    room = max(1, (os.cpu_count() or 1) // threads)
    if wanted is not None and wanted > room:
        print(f"--jobs {wanted} reduced to {room}: {os.cpu_count()} cores, {threads} torch thread(s) per run")
    return min(wanted or room, room, count)


def sweep(plan: Sweep) -> list[SeedResult]:
    """Run every seed that is not finished yet; a seed that fails does not stop the others.

    Raises:
        SettingsError: no folder, or one that holds something else. KeyboardInterrupt: runs were stopped and saved.
    """
    with stoppable(plan.executor, plan.jobs) as executor:
        folder = _folder(plan)
        results = executor.map(run_seed, [_of_seed(plan, folder, seed) for seed in plan.seeds])
    _summarise(folder, results)
    return results


def _folder(plan: Sweep) -> Path:
    """The folder of the sweep, with what it runs written down."""
    folder = plan.request.out
    if folder is None:
        folder = RunDirectory.choose(None, plan.request.algorithm, str(plan.request.env), plan.seeds[0]).path
    written = folder / REQUEST
    if written.exists() and not plan.request.resume:
        raise SettingsError(f"{folder} already holds runs; add --resume to go on with them, or choose another --out")
    if not written.exists():
        RunDirectory(folder).create()
        record = attrs.asdict(attrs.evolve(plan, request=attrs.evolve(plan.request, out=None)))
        written.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return folder


def stored(folder: Path) -> Sweep | None:
    """The sweep a folder holds, to go on with; None where it holds none.

    Raises:
        SettingsError: its record is damaged.
    """
    if not (folder / REQUEST).exists():
        return None
    try:
        record = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        request = {**record["request"], "sinks": tuple(record["request"]["sinks"]), "out": folder, "resume": True}
        return Sweep(**{**record, "seeds": tuple(record["seeds"]), "request": RunRequest(**request)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{folder / REQUEST} is damaged: {error}") from None


def _of_seed(plan: Sweep, folder: Path, seed: int) -> RunRequest:
    settings = {**plan.request.settings, "seed": seed}
    vectorization = "sync" if plan.jobs > 1 else plan.request.vectorization  # the cores are taken by other seeds
    out = folder / f"seed-{seed}"
    return attrs.evolve(plan.request, settings=settings, out=out, vectorization=vectorization)


def run_seed(request: RunRequest) -> SeedResult:
    """One seed, in a process of its own; what it prints goes to `log.txt` in its folder."""
    return reported(request, f"seed {request.settings['seed']}")


def reported(request: RunRequest, name: str) -> SeedResult:
    """`finished`, and a line under `name` about it; what goes wrong is in the result."""
    assert request.out is not None
    try:
        result = finished(request)
        print(f"{name}: return {result.mean:.2f} +- {result.std:.2f}", flush=True)
    except RlsdkError as error:
        print(f"{name} failed: {error}", flush=True)
        return SeedResult(seed=request.settings["seed"], folder=request.out, error=str(error))
    return result


def finished(request: RunRequest) -> SeedResult:
    """What came of a run: of one that is there and finished, or of going on with it, or of beginning it.

    Raises:
        RlsdkError: as `run`.
    """
    assert request.out is not None
    directory = RunDirectory(request.out)
    done = directory.read_record() if directory.record.exists() else {}
    if done.get("status") != "finished":
        if not directory.checkpointed:
            directory.start_over()  # a run that was stopped before its first checkpoint
        run_quietly(_resumed(request) if directory.checkpointed else attrs.evolve(request, resume=False))
        done = directory.read_record()
    score = done["final_evaluation"]
    return SeedResult(seed=request.settings["seed"], folder=request.out, mean=score["mean"], std=score["std"])


def _resumed(request: RunRequest) -> RunRequest:
    """To go on with a run takes its settings from its folder."""
    return attrs.evolve(request, resume=True, env=None, n_envs=None, settings={})


def run_quietly(request: RunRequest) -> None:
    """`run`, with standard output and error in a file."""
    assert request.out is not None
    request.out.mkdir(parents=True, exist_ok=True)
    with (
        open(request.out / "log.txt", "a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        run(request)


def _summarise(folder: Path, results: list[SeedResult]) -> None:
    means = [result.mean for result in results if result.mean is not None]
    summary: dict[str, Any] = {
        "seeds": {str(r.seed): {"mean": r.mean, "std": r.std, "error": r.error} for r in results}
    }
    if means:
        summary |= {"mean": float(np.mean(means)), "std": float(np.std(means)), "median": float(np.median(means))}
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    with contextlib.suppress(SettingsError):  # no matplotlib, or nothing to draw
        plot_runs([r.folder for r in results if r.error is None], folder / CURVES)


@contextlib.contextmanager
def stoppable(executor: str, jobs: int) -> Iterator[Executor]:
    """The executor of that name, closed afterwards; SIGTERM stops its work as Ctrl-C does, instead of leaving it behind."""
    made = make_executor(executor, jobs)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield made
    finally:
        signal.signal(signal.SIGTERM, before)
        made.close()
