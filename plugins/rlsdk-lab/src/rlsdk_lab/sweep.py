"""The same run with several seeds: the plan, its folder, and how it is continued."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from attrs.validators import and_, deep_iterable, ge, le, max_len, min_len

from rlsdk.cli import MOST_SEED
from rlsdk.errors import SettingsError, shown
from rlsdk.registry import load
from rlsdk.runs import (
    RunDirectory,
    RunRequest,
    from_table,
    read_table,
    require_possible,
    write_reports,
)
from rlsdk.runtime import write_json
from rlsdk.settings import data_in, merge
from rlsdk_lab.many_runs import SeedResult, jobs_for, open_workers, run_all

MAX_SEEDS, LISTED = 10_000, 5
"""The largest number of seeds of a sweep, and the number of seeds that a message lists."""
REQUEST, SUMMARY = "sweep.json", "summary.json"


@attrs.frozen(kw_only=True)
class Sweep:
    """The plan of a sweep: run `request` once for each seed, at most `jobs` at the same time, with the named executor."""

    request: RunRequest
    seeds: tuple[int, ...] = attrs.field(
        validator=deep_iterable(and_(ge(0), le(MOST_SEED)), and_(min_len(1), max_len(MAX_SEEDS)))
    )
    jobs: int = attrs.field(default=1, validator=and_(ge(1), le(MAX_SEEDS)))
    executor: str = "processes"


def seeds_from(first: int | None, count: int) -> tuple[int, ...]:
    """Return `count` consecutive seeds, beginning with `first` (default 0).

    Raises:
        SettingsError: count < 1, count > MAX_SEEDS, or one of them cannot be a seed.
    """
    if not 1 <= count <= MAX_SEEDS:
        most = f", up to {MAX_SEEDS}" if count > MAX_SEEDS else ""
        raise SettingsError(f"--seeds {count} must be a positive whole number{most}")
    start: object = first or 0
    if not isinstance(start, int) or not 0 <= start <= MOST_SEED + 1 - count:
        raise SettingsError(f"seed = {shown(first, 40)} must be a whole number from 0 to {MOST_SEED + 1 - count:,}")
    return tuple(range(start, start + count))


def sweep(plan: Sweep) -> list[SeedResult]:
    """Run every seed that is not finished yet. A seed that fails does not stop the others.

    Raises:
        PluginError: there is no such algorithm.
        EnvironmentFault: there is no such environment.
        SettingsError: the settings are wrong, or the folder is missing, in use, or contains something else.
        KeyboardInterrupt: runs were stopped and saved.
    """
    # Before the folder is made and processes start: with a mistake, every seed would fail.
    require_possible(plan.request)
    folder = folder_of(plan)
    requests = {f"seed {seed}": _of_seed(plan, folder, seed) for seed in plan.seeds}
    folders = {f"seed {seed}": folder / f"seed-{seed}" for seed in plan.seeds}
    with open_workers(plan.executor, plan.jobs, folders) as executor, _claimed(plan, folder):
        results = run_all(requests, executor, folder / REQUEST)
        _summarize(folder, results)
    return results


def folder_of(plan: Sweep) -> Path:
    """Return the folder of a sweep: that of the request, or a new one under runs/."""
    if plan.request.out is not None:
        return plan.request.out
    return RunDirectory.choose(None, plan.request.algorithm, place_of(plan.request), plan.seeds[0]).path


def place_of(request: RunRequest) -> str:
    """Return the environment of a request, or the name of its data set if it has no environment."""
    if env := request.env or request.settings.get("env"):
        return str(env)
    given = data_in(load(request.algorithm).config_type, request.settings).values()
    return next((dataset.name for dataset in given if dataset.path is not None), "")


@contextlib.contextmanager
def _claimed(plan: Sweep, folder: Path) -> Iterator[None]:
    """Lock the folder of the sweep inside the block, and store the plan there."""
    written = folder / REQUEST
    if written.exists() and not plan.request.resume and any(folder.rglob("*.rlsdk")):
        raise SettingsError(f"{folder} already holds runs; add --resume to continue them, or choose another --out")
    directory = RunDirectory(folder)
    with directory.created(REQUEST):
        request = _found_anywhere(plan.request).as_table()
        record = {"request": request, "seeds": plan.seeds, "jobs": plan.jobs, "executor": plan.executor}
        directory.write_sealed(REQUEST, record, _choices(plan))
        yield


def _choices(plan: Sweep) -> RunRequest:
    """Return the request of a plan, with what its record decides: the executor, and the environment of the settings too."""
    env = plan.request.env or plan.request.settings.get("env")
    return attrs.evolve(plan.request, env=env, executor=plan.executor)


def _found_anywhere(request: RunRequest) -> RunRequest:
    """Return `request` with absolute paths of the files it reads, because it may be continued from another folder."""
    settings = dict(request.settings)
    for name, found in data_in(load(request.algorithm).config_type, settings).items():
        if found.path is not None:
            settings[name] = {"path": str(Path(found.path).absolute()), "digest": found.digest}
    begun = request.policy_from and request.policy_from.absolute()
    return attrs.evolve(request, settings=settings, policy_from=begun)


def stored(asked: RunRequest, jobs: int | None = None) -> Sweep | None:
    """Return the sweep in the folder `asked.out` to continue it, with the options of `asked`; None if there is none.

    Raises:
        SettingsError: the record is damaged, belongs to another algorithm, or names modules or paths that are not trusted. It
            is also raised if a seed has been trained for more steps than `asked` has, or `asked` has settings.
    """
    folder = asked.out
    if folder is None or not (folder / REQUEST).exists():
        return None
    source = folder / REQUEST
    table = read_table(source)
    inner = table.get("request")
    if not isinstance(inner, Mapping):
        raise SettingsError(f"{source} is damaged: it has no table request")
    request = RunRequest.of_table(inner, f"{source}, request")
    known = from_table(Sweep, {**table, "request": request}, str(source))
    files = [*folder.iterdir(), *folder.glob("seed-*/*")]
    RunDirectory(folder).require_resumable(asked, _choices(known), REQUEST, files, "runs")
    if asked.fixed_settings() or asked.n_envs:
        raise SettingsError(
            "--resume continues with the settings of the runs; leave out --set, --config, --seed, --n-envs, --device"
        )
    _require_enough_steps(asked.steps, folder, known.seeds)
    settings = merge(request.settings, asked.settings)
    given = {**asked.explicit(), "settings": settings, "executor": None}  # the executor of a run is for its collectors
    laid_over = attrs.evolve(request, out=folder, resume=True, trust=asked.trust, **given)
    executor = asked.executor or known.executor
    at_a_time = jobs_for(jobs or known.jobs, len(known.seeds), asked.threads or request.threads, executor)
    return attrs.evolve(known, request=laid_over, jobs=at_a_time, executor=executor)


def require_same_seeds(asked: RunRequest, known: Sweep | None, count: int | None) -> None:
    """Check `--seeds` of a command that continues the runs in `asked.out`: their number must be that of the sweep `known`.

    Raises:
        SettingsError: the folder contains another number of seeds, or no sweep.
    """
    if count is None:
        return
    if asked.out is None:
        raise SettingsError("--resume needs --out DIR, the directory of the runs to continue")
    if known is None:
        single = RunDirectory(asked.out).record.exists()
        held = "a single run; leave out --seeds to continue it" if single else "no run to resume; leave out --resume"
        raise SettingsError(f"{asked.out} holds {held}, or choose another --out")
    if count != len(known.seeds):
        seeds = ", ".join(map(str, known.seeds[:LISTED])) + (", ..." if len(known.seeds) > LISTED else "")
        raise SettingsError(
            f"{asked.out} holds runs with {len(known.seeds)} seeds ({seeds}); leave out --seeds {count} to continue them, or"
            " begin others without --resume in another --out"
        )


def _require_enough_steps(asked: int | None, folder: Path, seeds: tuple[int, ...]) -> None:
    """Check `asked` steps with `RunDirectory.require_enough_steps` for every seed with a checkpoint. Raises as that does."""
    for directory in [] if asked is None else [RunDirectory(folder / f"seed-{seed}") for seed in seeds]:
        if directory.checkpointed:
            directory.require_enough_steps(asked, directory.read_record().steps, directory.trained_steps)


def _of_seed(plan: Sweep, folder: Path, seed: int) -> RunRequest:
    settings = {**plan.request.settings, "seed": seed}
    vectorization = plan.request.vectorization or ("sync" if plan.jobs > 1 else None)  # other seeds use the cores
    out = folder / f"seed-{seed}"
    return attrs.evolve(plan.request, settings=settings, out=out, vectorization=vectorization)


def _summarize(folder: Path, results: list[SeedResult]) -> None:
    means = [result.mean for result in results if result.mean is not None]
    summary: dict[str, Any] = {
        "seeds": {str(r.seed): {"mean": r.mean, "std": r.std, "error": r.error} for r in results}
    }
    if means:
        summary |= {"mean": float(np.mean(means)), "std": float(np.std(means)), "median": float(np.median(means))}
    write_json(folder / SUMMARY, summary)
    write_reports(folder)
