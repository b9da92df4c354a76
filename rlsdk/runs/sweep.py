"""The same run with several seeds at the same time, and evaluations of stored agents."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from attrs.validators import and_, deep_iterable, max_len, min_len
from numpy.typing import NDArray

from rlsdk.agent import Agent
from rlsdk.agent import load as load_file
from rlsdk.environments import make_vec_env
from rlsdk.environments.vectorize import require_vectorization
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.evaluation.statistics import Statistics
from rlsdk.executors import Executor, SerialExecutor, capacity, make_executor
from rlsdk.executors.choice import EXECUTORS
from rlsdk.registry import load
from rlsdk.runs.directory import (
    SEEDS,
    RunDirectory,
    asks_for_trust,
    places_in,
    record_made_here,
    require_own_choices,
    require_own_environment,
    require_own_executor,
    require_same_environment,
    sealed,
    without_places,
)
from rlsdk.runs.recorded_run import environment_of, place_of
from rlsdk.runs.request import COUNT, NOT_STORED, Limits, RunRequest, from_table, read_table, require_enough_steps
from rlsdk.runs.runner import preset_of, run, starting_settings, write_reports
from rlsdk.runtime.files import write_json
from rlsdk.runtime.output import counted, is_quiet, print_line, quietly
from rlsdk.settings import merge
from rlsdk.settings.constructor import bind
from rlsdk.settings.load import applied, data_in, data_settings, nested

MAX_SEEDS, LISTED = 10_000, 5
"""The largest number of seeds of a sweep, and the number of seeds that a message lists."""
REQUEST, SUMMARY = SEEDS, "summary.json"


@attrs.frozen(kw_only=True)
class Sweep:
    """The plan of a sweep: run `request` once for each seed, at most `jobs` at the same time, with the named executor."""

    request: RunRequest
    seeds: tuple[int, ...] = attrs.field(validator=deep_iterable(Limits(0), and_(min_len(1), max_len(MAX_SEEDS))))
    jobs: int = attrs.field(default=1, validator=COUNT)
    executor: str = "processes"


@attrs.frozen(kw_only=True)
class SeedResult:
    """The result of one seed. `error` is None if the run finished; `mean` is None if it failed or had no environment."""

    seed: int
    folder: Path
    mean: float | None = None
    std: float | None = None
    error: str | None = None
    interrupted: bool = False
    """Whether Ctrl-C or a signal ended the run early. The run is saved."""


def seeds_from(first: int | None, count: int) -> tuple[int, ...]:
    """Return `count` consecutive seeds, beginning with `first` (default 0).

    Raises:
        SettingsError: count < 1, or count > MAX_SEEDS.
    """
    if not 1 <= count <= MAX_SEEDS:
        most = f", up to {MAX_SEEDS}" if count > MAX_SEEDS else ""
        raise SettingsError(f"--seeds {count} must be a positive whole number{most}")
    start = first or 0
    return tuple(range(start, start + count))


def jobs_for(wanted: int | None, count: int, threads: int | None, executor: str = "processes") -> int:
    """Return the number of runs at the same time: `wanted`, limited by the number of seeds and by the available cores.

    Every run needs `threads` cores. For executors of plugins, the executor counts the cores and refuses a number that is too
    large.

    Raises:
        SettingsError: `wanted` is less than one, or there is no such executor.
    """
    if wanted is not None and wanted < 1:
        raise SettingsError(f"--jobs {wanted} must be a positive whole number")
    if executor not in EXECUTORS:
        return min(wanted or max(1, capacity(executor) // (threads or 1)), count)
    room = max(1, (os.cpu_count() or 1) // (threads or 1))
    if wanted is not None and wanted > room:
        reason = f"{os.cpu_count()} cores, {threads or 1} torch thread(s) per run"
        print_line(f"--jobs {wanted} reduced to {room}: {reason}", sys.stderr)
    return min(wanted or room, room, count)


def sweep(plan: Sweep) -> list[SeedResult]:
    """Run every seed that is not finished yet. A seed that fails does not stop the others.

    Raises:
        PluginError: there is no such algorithm.
        EnvironmentFault: there is no such environment.
        SettingsError: the settings are wrong, or the folder is missing, in use, or contains something else.
        KeyboardInterrupt: runs were stopped and saved.
    """
    # Before the folder is made and processes start: with a mistake, every seed would fail.
    _require_possible(plan.request)
    folder = folder_of(plan)
    requests = {f"seed {seed}": _of_seed(plan, folder, seed) for seed in plan.seeds}
    folders = {f"seed {seed}": folder / f"seed-{seed}" for seed in plan.seeds}
    with open_workers(plan.executor, plan.jobs, folders) as executor, _claimed(plan, folder):
        results = run_all(requests, executor, folder / REQUEST)
        _summarise(folder, results)
    return results


def _require_possible(request: RunRequest) -> None:
    """Raise the errors that would occur with every seed, before any run begins."""
    require_vectorization(request.vectorization or "auto")
    spec, env = load(request.algorithm), request.env or request.settings.get("env")
    if env is None:
        env = environment_of(spec, request.settings)
    known = preset_of(request, spec, env if isinstance(env, str) else None)
    bind(spec.config_type, (), {**starting_settings(spec, known, request.settings), "env": env, "seed": 0})
    if isinstance(env, str):
        make_vec_env(env).close()


def folder_of(plan: Sweep) -> Path:
    """Return the folder of a sweep: that of the request, or a new one under runs/."""
    if plan.request.out is not None:
        return plan.request.out
    return RunDirectory.choose(None, plan.request.algorithm, place_of(plan.request), plan.seeds[0]).path


@contextlib.contextmanager
def _claimed(plan: Sweep, folder: Path) -> Iterator[None]:
    """Lock the folder of the sweep inside the block, and store the plan there."""
    written = folder / REQUEST
    if written.exists() and not plan.request.resume and any(folder.rglob("*.rlsdk")):
        raise SettingsError(f"{folder} already holds runs; add --resume to continue them, or choose another --out")
    with RunDirectory(folder).created(SEEDS):
        request: Any = _found_anywhere(plan.request).as_table()
        record: dict[str, object] = {
            "request": request,
            "seeds": plan.seeds,
            "jobs": plan.jobs,
            "executor": plan.executor,
        }
        executors, env = (
            (plan.executor, plan.request.vectorization or ""),
            plan.request.env or request["settings"].get("env"),
        )
        if asks_for_trust(env, places_in(plan.request.settings), folder, executors):
            record = sealed(written, record)
        write_json(written, record)
        yield


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
    request = from_table(RunRequest, {**inner, **dict.fromkeys(NOT_STORED)}, f"{source}, request")
    known = from_table(Sweep, {**table, "request": request}, str(source))
    if request.algorithm != asked.algorithm:
        raise SettingsError(f"{folder} holds runs of {request.algorithm!r}, not of {asked.algorithm!r}")
    require_same_environment(asked.env, request.env, f"{folder} holds runs on")
    data = data_settings(load(asked.algorithm).config_type)
    if without_places({name: value for name, value in asked.settings.items() if name not in data}) or asked.n_envs:
        raise SettingsError(
            "--resume continues with the settings of the runs; leave out --set, --config, --seed, --n-envs, --device"
        )
    env, files = request.env or request.settings.get("env"), [*folder.iterdir(), *folder.glob("seed-*/*")]
    require_own_choices(asked, source, env, places_in(request.settings), files)
    trust = asked.trust or record_made_here(source) is not None
    executor = asked.executor or known.executor
    require_own_executor(executor, str(source), trust=trust or asked.executor is not None)
    stepped = request.vectorization or "auto"
    require_own_executor(stepped, str(source), trust=trust or asked.vectorization is not None)
    _require_enough_steps(asked.steps, folder, known.seeds)
    settings = merge(request.settings, asked.settings)
    given = {**asked.explicit(), "settings": settings, "executor": None}  # the executor of a run is for its collectors
    laid_over = attrs.evolve(request, out=folder, resume=True, trust=asked.trust, **given)
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
    """Check `asked` steps with `require_enough_steps` for every seed that has a checkpoint. Raises as that function."""
    for directory in [] if asked is None else [RunDirectory(folder / f"seed-{seed}") for seed in seeds]:
        if directory.checkpointed:
            require_enough_steps(asked, directory.read_record().steps, directory.trained_steps, directory.path)


def _of_seed(plan: Sweep, folder: Path, seed: int) -> RunRequest:
    settings = {**plan.request.settings, "seed": seed}
    vectorization = plan.request.vectorization or ("sync" if plan.jobs > 1 else None)  # other seeds use the cores
    out = folder / f"seed-{seed}"
    return attrs.evolve(plan.request, settings=settings, out=out, vectorization=vectorization)


def run_all(requests: Mapping[str, RunRequest], executor: Executor, shared: Path | None = None) -> list[SeedResult]:
    """Run every request that is not finished yet, and print a line about each. A run that fails does not stop the others.

    Args:
        requests: name in messages -> request, with a run directory `out` and a seed in its settings.
        executor: what runs them. A run writes its output to `log.txt` in its run directory.
        shared: a file of this program which every machine of the executor must see; None: no check.

    Returns:
        The results, in the order of the requests.

    Raises:
        KeyboardInterrupt: a run was interrupted in this process. No other run begins.
        SettingsError: a machine does not see `shared`.
    """
    here = isinstance(executor, SerialExecutor)  # there Ctrl-C ends a run, and `_reported` raises it again afterwards
    work = partial(_run_named, quiet=is_quiet(), shared=shared, here=here)
    return executor.map(work, list(requests.items()))


def _run_named(named: tuple[str, RunRequest], *, quiet: bool, shared: Path | None, here: bool) -> SeedResult:
    if shared is not None:
        require_shared(shared)
    with quietly(quiet):
        return _reported(*named, here=here)


def require_shared(file: Path) -> None:
    """Check that the machine that does the work sees a file of the program.

    Raises:
        SettingsError: it does not, so results would be lost.
    """
    if not file.exists():
        raise SettingsError(
            f"machine {socket.gethostname()} does not see {file}, so its results would be lost; give the full path of a"
            " folder that all machines share with --out"
        )


def _reported(name: str, request: RunRequest, *, here: bool) -> SeedResult:
    """Return `finished(request)`, and print a line about it that begins with `name`. RlsdkErrors become part of the result.

    Raises as `run_all`.
    """
    assert request.out is not None
    try:
        result = finished(request)
        came = result.error or "finished" if result.mean is None else f"return {result.mean:.2f} +- {result.std:.2f}"
        if not is_quiet():
            # standard output may be JSON
            print_line(f"{name}: {came}", sys.stderr)
    except RlsdkError as error:
        print_line(f"{name} failed: {error}", sys.stderr)
        return SeedResult(seed=request.settings["seed"], folder=request.out, error=str(error))
    if result.interrupted and here:
        raise KeyboardInterrupt
    return result


def finished(request: RunRequest) -> SeedResult:
    """Return the result of a run. If it is not finished, resume it or start it first.

    Raises:
        RlsdkError: as `run`.
    """
    assert request.out is not None
    directory = RunDirectory(request.out)
    done = directory.read_record() if directory.record.exists() else None
    # the last round of a run may exceed its steps
    trained = 0 if done is None else max(done.steps, directory.trained_steps)
    if done is None or done.status != "finished" or trained < (request.steps or 0):
        if done is not None and not directory.checkpointed:
            with directory.taken_up():
                directory.start_over()  # the run was stopped before its first checkpoint
        run_quietly(_resumed(request) if directory.checkpointed else attrs.evolve(request, resume=False))
        done = directory.read_record()
        if done.status == "interrupted":
            why = f"interrupted at step {directory.trained_steps:,}, and saved"
            return SeedResult(seed=request.settings["seed"], folder=request.out, error=why, interrupted=True)
    if (score := done.final_evaluation) is None:
        if done.env is None:
            return SeedResult(seed=request.settings["seed"], folder=request.out)
        raise SettingsError(f"{directory.record} is damaged: it has no final_evaluation")
    return SeedResult(seed=request.settings["seed"], folder=request.out, mean=score.mean, std=score.std)


def _resumed(request: RunRequest) -> RunRequest:
    """Return the request to resume a run. Only paths and the environment are given again; the folder has the other settings."""
    settings: dict[str, Any] = {}
    for name, place in places_in(request.settings).items():
        settings = merge(settings, nested(name.split("."), place))
    for name in data_settings(load(request.algorithm).config_type):  # agent files do not store paths
        settings |= {name: request.settings[name]} if request.settings.get(name) is not None else {}
    return attrs.evolve(request, resume=True, n_envs=None, settings=settings)


def run_quietly(request: RunRequest) -> None:
    """Call `run` with standard output and standard error in `log.txt` of its folder."""
    assert request.out is not None
    request.out.mkdir(parents=True, exist_ok=True)
    with (
        # Appended: a resumed run continues the log.
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
    write_json(folder / SUMMARY, summary)
    write_reports(folder)


@contextlib.contextmanager
def open_workers(executor: str, jobs: int, folders: Mapping[str, Path]) -> Iterator[Executor]:
    """Yield the executor of that name with `jobs` workers, and close it after the block.

    Inside the block, SIGTERM and SIGHUP act like Ctrl-C. The progress of the work is printed from time to time: the newest line
    of `log.txt` in each of the `folders`, name in messages -> folder.

    Raises:
        SettingsError: there is no such executor.
    """
    made = make_executor(executor, jobs)
    before = {number: signal.signal(number, signal.default_int_handler) for number in _ending()}
    try:
        with watching(folders):
            yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        made.close()
        if repeated := getattr(made, "repeated", 0):
            print_line(f"{repeated} times work was begun again because a process or a machine died", sys.stderr)


def _ending() -> list[signal.Signals]:
    """Return the signals that stop work, without those that are ignored: `nohup` ignores the hang-up of a terminal.

    There are none outside the main thread, because Python changes handlers in the main thread only.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for number in known if signal.getsignal(number) != signal.SIG_IGN]


SECONDS = 10.0
"""Seconds between two reads of the logs."""
LAST_BYTES = 400


@contextlib.contextmanager
def watching(folders: Mapping[str, Path], seconds: float = SECONDS) -> Iterator[None]:
    """Inside the block, print a line for each run that has made progress since the last read. `folders`: name -> run directory.

    Logs that this machine does not see, such as those of an executor on other machines, are left out.
    """
    if is_quiet():
        yield
        return
    stop, shown = threading.Event(), {name: _progress(folder / "log.txt") for name, folder in folders.items()}
    # A daemon, because a thread that waits must not delay the end of the process.
    watcher = threading.Thread(target=_watch, args=(dict(folders), shown, stop, seconds), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()


def _watch(folders: Mapping[str, Path], shown: dict[str, str], stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        for name, folder in folders.items():
            line = _progress(folder / "log.txt")
            if line and line != shown[name]:
                shown[name] = line
                print_line(f"{name}: {line}", sys.stderr)


def _progress(log: Path) -> str:
    """Return the newest line about steps in a log; "" if there is none."""
    try:
        with log.open("rb") as stream:
            # Only the end: a log may be large, and it is read every ten seconds.
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST_BYTES))
            # The first byte that is read may be inside a character.
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((" ".join(line.split()) for line in reversed(lines) if " steps " in line and " left" in line), "")


@attrs.frozen
class EvaluationRequest:
    """The number of episodes, and how they are run. The result depends on all fields, but not on the executor."""

    episodes: int = 20
    n_envs: int = 1
    """Number of environments of each part that are stepped together."""
    deterministic: bool = True
    seed: int = 0
    """Seed of the first environment. The other environments, through all parts, have the seeds that follow."""
    parts: int = 1
    """Number of parts into which the episodes are split. Parts can run at the same time."""

    def of_part(self, index: int) -> EvaluationRequest:
        """Return the request of one part: its number of episodes and its seed."""
        episodes = (self.episodes + index) // self.parts
        return attrs.evolve(self, episodes=episodes, seed=self.seed + index * self.n_envs, parts=1)


@attrs.frozen
class Part:
    """Work for an executor: episodes with the agent of a file."""

    file: NDArray[np.uint8]
    """The bytes of the agent file. Executors send a large array only once if several items contain it."""
    env: str
    request: EvaluationRequest

    def play(self) -> Evaluation:
        """Run the episodes of this part."""
        return _played(load_file(io.BytesIO(self.file.tobytes())), self.env, self.request)


@attrs.frozen
class StoredEvaluation:
    """The evaluation of a saved agent, and the id of the environment."""

    env: str
    result: Evaluation

    def statistics(self) -> Statistics | None:
        """Return the interquartile mean and its interval; None if scipy is not installed."""
        try:
            return self.result.statistics()
        except SettingsError:
            return None


def evaluate_stored(
    file: Path, env: str | None, request: EvaluationRequest, executor: str = "processes", *, trust: bool = False
) -> StoredEvaluation:
    """Run episodes with the agent of a file. `executor` runs several parts at the same time.

    `env` and `trust` are those of `load_agent`.

    Raises:
        SettingsError: there are more parts than episodes, there is no such executor, or as `load_agent`.
    """
    agent, name = load_agent(file, env, trust=trust)
    if not 1 <= request.parts <= max(1, request.episodes):
        episodes = counted(request.episodes, "episode")
        raise SettingsError(f"{request.parts} parts of {episodes}: give 1 to {request.episodes} parts")
    if request.parts == 1:
        jobs_for(None, 1, 1, executor)  # raises SettingsError for an unknown executor
        return StoredEvaluation(name, _played(agent, name, request))
    agent.save(data := io.BytesIO())
    shared = np.frombuffer(data.getvalue(), np.uint8)
    parts = [Part(shared, name, request.of_part(index)) for index in range(request.parts)]
    workers = make_executor(executor, jobs_for(request.parts, request.parts, 1, executor))
    try:
        played = workers.map(Part.play, parts)
    finally:
        workers.close()
    return StoredEvaluation(
        name, Evaluation(tuple(chain.from_iterable(part.episodes for part in played)), request.deterministic)
    )


def _played(agent: Agent, env: str, request: EvaluationRequest) -> Evaluation:
    envs = make_vec_env(env, request.n_envs)
    try:
        return run_episodes(agent, envs, request.episodes, deterministic=request.deterministic, seed=request.seed)
    finally:
        envs.close()


def load_agent(file: Path, env: str | None, *, trust: bool = False) -> tuple[Agent, str]:
    """Return the agent of a file, and the id of the environment to use.

    This is `env`, if given. If `env` is None, it is the environment of the training. If `env` begins with `?`, its arguments
    and wrappers are added to that of the training. With `trust`, the file may name a module to import. So may a file in a run
    directory that this user made on this machine.

    Raises:
        SettingsError: the file names no environment, or one that needs `trust`.
        ArtifactError: as `rlsdk.agent.load`.
    """
    agent = load_file(file)
    if env is not None and not env.startswith("?"):
        return agent, env
    if agent.env_name is None:
        raise SettingsError(f"{file} names no environment; add --env ID")
    return agent, applied(env, require_own_environment(agent.env_name, file, trust=trust))
