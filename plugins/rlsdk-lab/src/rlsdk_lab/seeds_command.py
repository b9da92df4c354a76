"""The part of `rlsdk run` that trains with several seeds: `--seeds`, and `--resume` in a folder of such runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import attrs

from rlsdk.errors import SettingsError
from rlsdk.runs import RunRequest
from rlsdk.runtime import counted, print_line
from rlsdk_lab.many_runs import SeedResult, interrupted, jobs_for
from rlsdk_lab.sweep import SUMMARY, Sweep, folder_of, place_of, require_same_seeds, seeds_from, stored, sweep


def run_seeds(request: RunRequest, count: int | None, jobs: int | None) -> list[dict[str, object]]:
    """Run `request` with several seeds, or continue those in its folder, and print the results.

    Args:
        request: the options of each run, and the executor of the seeds. A seed in its settings is the first one.
        count: the number of seeds; None: that of the runs to continue.
        jobs: how many run at the same time; None: one on each core.

    Returns:
        A row for each seed: seed, folder, mean and std of the final evaluation, and the error if the run failed.

    Raises:
        SettingsError: options contradict each other, or as `sweep`.
        typer.Exit: Ctrl-C stopped the runs.
    """
    results = _run(_plan(request, count, jobs))
    if failed := sum(result.error is not None for result in results):
        print_line(f"{failed} of {counted(len(results), 'seed')} failed; the causes are in {SUMMARY}", sys.stderr)
    return [_as_dict(result) for result in results]


def _plan(request: RunRequest, count: int | None, jobs: int | None) -> Sweep:
    if request.resume:
        known = stored(request, jobs)
        require_same_seeds(request, known, count)
        if known is not None:
            return known
    assert count is not None  # only a folder of such runs is continued without a number of seeds
    if request.collectors is not None:
        raise SettingsError(
            "--collectors and --seeds both share out the cores; give one of them, and start runs one by one for both"
        )
    chosen, executor = seeds_from(request.settings.get("seed"), count), request.executor or "processes"
    at_a_time = jobs_for(jobs, count, request.threads, executor)
    of_seed = attrs.evolve(request, executor=None)  # the executor of a run is for its collectors
    return Sweep(request=of_seed, seeds=chosen, jobs=at_a_time, executor=executor)


def _run(plan: Sweep) -> list[SeedResult]:
    """Run the seeds and print a summary."""
    # Chosen now, so that the command for continuing can name it.
    plan = attrs.evolve(plan, request=attrs.evolve(plan.request, out=folder_of(plan)))
    name = f"{plan.request.algorithm} on {place_of(plan.request)}"
    print_line(f"{name}: {_listed(plan.seeds)}, {plan.jobs} at a time")
    again = shlex.join(["rlsdk", "run", plan.request.algorithm, "--resume", "--out", str(plan.request.out)])
    with interrupted(f"what ran is saved, continue with: {again}"):
        results = sweep(plan)
    means = [result.mean for result in results if result.mean is not None]
    if means:
        spread = f" (from {min(means):.2f} to {max(means):.2f})" if len(means) > 1 else ""
        print_line(f"{counted(len(means), 'seed')}: mean return {sum(means) / len(means):.2f}{spread}")
    folder = results[0].folder.parent
    pictures = sorted(path.name for path in folder.glob("*.png"))  # of reports of installed packages
    print_line(f"files: {folder}/ ({', '.join([SUMMARY, *pictures])}, seed-*/)")
    return results


def _listed(seeds: Sequence[int]) -> str:
    """Return `seed 3` or `seeds 0 to 4`, for consecutive seeds."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _as_dict(result: SeedResult) -> dict[str, object]:
    names = ("mean", "std", "error")
    return {"seed": result.seed, "folder": str(result.folder), **{name: getattr(result, name) for name in names}}
