"""A run of the command line: environment, agent, evaluations, checkpoints and files."""

from __future__ import annotations

import contextlib
import shlex
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from rlsdk.agent import Agent, agent_class
from rlsdk.agent.agent_file import system_info
from rlsdk.agent.learning import chosen_sinks
from rlsdk.agent.persistence import NOT_NETWORKS, SHARED
from rlsdk.callbacks import Callback, CheckpointCallback, EvalCallback, ProgressBar, RestoreOnDivergence
from rlsdk.callbacks.callback import steps_of_round
from rlsdk.callbacks.periodic import StopOnInterrupt
from rlsdk.environments import ConnectedEnv, make_vec_env
from rlsdk.environments.gymnasium_adapter import refusal
from rlsdk.environments.vectorize import require_vectorization
from rlsdk.errors import ArtifactError, EnvironmentFault, PluginError, RlsdkError, SettingsError, raised, suggest
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.registry import AlgorithmSpec, Preset, extension, extensions, load, preset
from rlsdk.registry.loading import is_offered, naming_plugins, plugin_of
from rlsdk.runs.directory import (
    RunDirectory,
    find_agent,
    folder_name,
)
from rlsdk.runs.recorded_run import dataset_of, environment_of, require_same_dataset
from rlsdk.runs.request import (
    FinalEvaluation,
    RunRecord,
    RunRequest,
    chosen_preset,
    places_in,
)
from rlsdk.runtime.output import print_line, wrapped
from rlsdk.runtime.packages import pip_install
from rlsdk.runtime.process import fresh_seed
from rlsdk.settings import data_settings, flat_scalars, merge, unstructure
from rlsdk.settings.constructor import bind
from rlsdk.sinks import ConsoleSink, CsvSink, JsonlSink, Logger, MetricSink, TensorBoardSink
from rlsdk.sinks.sink import Scalar
from rlsdk.training.train import require_exact, rounded_up

COLLECTING = ("collectors", "executor", "max_lag")
ROUNDS = ("eval_every", "eval_episodes", "stop_at", "checkpoint_every", "max_restores", "schedule_until", "exact_steps")
REPEATED = ("n_envs", "vectorization", *COLLECTING, "threads", *ROUNDS)
"""Options that may change the result of a run: the command that repeats it has them, unless they are the default."""
NEED_ENVIRONMENT = ("eval_every", "stop_at", *COLLECTING)
"""Options that have no meaning if the run only has a data set."""


@attrs.frozen
class RunResult:
    """The result of a run."""

    directory: RunDirectory
    seed: int
    evaluation: Evaluation | None
    """The final evaluation; None without an environment, and if the run was interrupted."""
    env_steps: int
    seconds: float
    interrupted: bool
    unit: str = "steps"
    """The unit of `env_steps`: steps of the environment, or updates if the run only has a data set."""
    needs_trust: bool = False
    """Whether the run can be resumed only with `--trust`."""


@attrs.frozen(kw_only=True)
class Prepared:
    """A run that is ready to train."""

    agent: Agent
    directory: RunDirectory
    record: RunRecord
    sinks: list[Maker]
    resumed: bool


def run(request: RunRequest) -> RunResult:
    """Train an agent as the request describes, and write the run directory.

    Raises:
        RlsdkError: the request, the environment or a file has an error. Files that were written remain.
    """
    spec = load(request.algorithm)
    profilers = _profilers() if request.profile else []
    prepare = _resumed if request.resume else _started
    with naming_plugins(), prepare(request, spec) as prepared:
        began, interrupt = time.perf_counter(), StopOnInterrupt()
        _train(prepared, interrupt, profilers)
        return _finish(prepared, time.perf_counter() - began, interrupt)


def _train(prepared: Prepared, interrupt: StopOnInterrupt, profilers: Sequence[Callable[..., Any]]) -> None:
    """Train to the end, write the last checkpoint and the final agent, and close the environments."""
    agent, directory, record = prepared.agent, prepared.directory, prepared.record
    checkpoints = CheckpointCallback(record.checkpoint_every, directory.checkpoints)
    # Warnings then name the option instead of the argument.
    checkpoints.counter.name = "--checkpoint-every"
    logger = Logger()
    try:
        with naming_plugins(), _evaluator(record, directory, interrupt) as evaluator:
            logger.use(_sinks(prepared))
            logger.begin_run(described_run(record), resumed=prepared.resumed)
            agent.set_logger(logger)
            # the order matters: evaluations run before checkpoints
            restoring = [RestoreOnDivergence(at_most=record.max_restores)] if record.max_restores else []
            watchers: list[Callback] = [ProgressBar(), interrupt, *restoring, *evaluator, checkpoints]
            left = record.steps - agent.num_timesteps
            if left > 0:
                _say_rounding(agent, record, left)
                with contextlib.ExitStack() as measured:
                    for profiler in profilers:
                        measured.enter_context(profiler(agent, record.place))
                    agent.learn(
                        left,
                        watchers,
                        reset_num_timesteps=False,
                        threads=record.threads,
                        schedule_until=record.schedule_until,
                        exact_steps=record.exact_steps,
                    )
        # Training rarely ends with an interval; `--resume` with more steps continues here.
        checkpoints.save(agent)
        agent.save(directory.final)  # before the environments close: the file includes running episodes
        logger.take_files(directory.worth_storing())
    # Ctrl-C too: the record must not stay `running`.
    except BaseException as error:
        # What went wrong matters more than a failure to record it.
        with contextlib.suppress(OSError, ArtifactError):
            if agent.num_timesteps and _is_intact(agent, error):
                checkpoints.save(agent)
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            steps, why = agent.num_timesteps, str(error) or None
            directory.write_record(attrs.evolve(record, status=status, error=why, env_steps=steps))
        raise
    finally:
        if agent.env is not None:
            _close(agent.env, "training")
        logger.close()


def _is_intact(agent: Agent, error: BaseException) -> bool:
    """Whether an error left the agent as it was: an environment or a package raised it, outside of updates."""
    if isinstance(error, EnvironmentFault):
        return True
    if not isinstance(error, PluginError) or error.__cause__ is None:
        return False
    calls = traceback.walk_tb(error.__cause__.__traceback__)
    return all(frame.f_locals.get("self") is not agent.parts.algorithm for frame, _ in calls)


def _profilers() -> list[Callable[..., Any]]:
    """Return the profilers of all packages.

    Raises:
        SettingsError: there are none.
    """
    names = extensions("profilers")
    if not names:
        raise SettingsError(f"--profile is in rlsdk-lab, which is not installed: {pip_install('rlsdk-lab')}")
    return [extension("profilers", name) for name in names]


def _say_rounding(agent: Agent, record: RunRecord, left: int) -> None:
    """Print how many steps the training will have, if rounds are whole. `learn` then does not warn about the same."""
    line = rounded_up(agent.parts.plan, agent.context.num_envs, left)
    if line and not record.exact_steps:
        agent._assembled.notices.add(line)
        print_line(line)


def _require_exact(agent: Agent, record: RunRecord) -> None:
    if record.exact_steps:
        left = max(0, record.steps - agent.num_timesteps)
        require_exact(agent.parts.plan, agent.context.num_envs, left, agent.spec.id)


def _close(env: ConnectedEnv, use: str) -> None:
    """Close an environment. A failure is only printed, because the results do not depend on it."""
    try:
        env.close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: it would leave a complete run without its record
        print_line(f"warning: closing the {use} environment failed: {raised(error).removeprefix('raised ')}")


def _sinks(prepared: Prepared) -> list[MetricSink]:
    directory, agent = prepared.directory, prepared.agent
    made: list[MetricSink] = [CsvSink(directory.csv), JsonlSink(directory.jsonl)]
    name = f"{agent.spec.id.upper()}-{folder_name(directory.path.resolve().name)}"  # unique: no other run appends to it
    made += chosen_sinks(agent.config, name, fresh=not prepared.resumed)
    return made + [make(directory.path, prepared.resumed) for make in prepared.sinks]


def _finish(prepared: Prepared, seconds: float, interrupt: StopOnInterrupt) -> RunResult:
    """Evaluate the final agent, write the record and the reports, and return the result.

    A run that was interrupted, also in this evaluation, has none: it is evaluated when it is resumed.
    """
    agent, directory, record = prepared.agent, prepared.directory, prepared.record
    began, evaluation = time.perf_counter(), None
    if record.env is not None and not interrupt.interrupted:
        name, episodes = record.env, record.eval_episodes
        evaluation = interrupt.cut_short(lambda: _evaluated(agent, name, episodes))
    interrupted, seconds = interrupt.interrupted, seconds + time.perf_counter() - began
    summary = (
        None
        if evaluation is None
        else FinalEvaluation(mean=evaluation.mean, std=evaluation.std, episodes=len(evaluation.returns))
    )
    done = attrs.evolve(
        record,
        status="interrupted" if interrupted else "finished",
        error=None,
        env_steps=agent.num_timesteps,
        seconds=record.seconds + seconds,
        final_evaluation=summary,
    )
    directory.write_record(done)
    write_reports(directory.path)
    unit, needs_trust = agent.parts.plan.unit, directory.needs_trust()
    return RunResult(
        directory, record.seed, evaluation, agent.num_timesteps, seconds, interrupted, unit, needs_trust=needs_trust
    )


def _evaluated(agent: Agent, name: str, episodes: int) -> Evaluation:
    """Evaluate the final agent."""
    env = make_vec_env(name)
    try:
        return run_episodes(agent, env, episodes, seed=agent.derived_seed("final evaluation"))
    finally:
        _close(env, "evaluation")


@contextmanager
def _evaluator(record: RunRecord, directory: RunDirectory, interrupt: StopOnInterrupt) -> Iterator[list[EvalCallback]]:
    if not record.eval_every or record.env is None:
        yield []
        return
    env = make_vec_env(record.env)
    try:
        callback = EvalCallback(
            env,
            n_eval_episodes=record.eval_episodes,
            eval_freq=record.eval_every,
            verbose=0,
            best_model_save_path=directory.path,
            stop_at=record.stop_at,
        )
        # A resumed run replaces the best agent by a better one only.
        callback.best = directory.best_evaluation()
        callback.counter.name = "--eval-every"
        callback.cut_short = interrupt.cut_short
        yield [callback]
    finally:
        _close(env, "evaluation")


@contextmanager
def _started(request: RunRequest, spec: AlgorithmSpec) -> Iterator[Prepared]:
    """Prepare a new run in a new folder."""
    given = request.env or request.settings.get("env")
    env = given if isinstance(given, str) else environment_of(spec, request.settings)
    makers = named_sinks(request.sinks or ())
    known = preset_of(request, spec, env)
    options = _options(request, known, env)
    settings = starting_settings(spec, known, request.settings)
    # Chosen here, so that the name of the folder and the record have it.
    settings |= {"env": env, "seed": fresh_seed() if settings.get("seed") is None else settings["seed"]}
    config = bind(spec.config_type, (), settings)
    data = dataset_of(spec, settings)
    directory = RunDirectory.choose(request.out, spec.id, env or ("" if data is None else data.name), config.seed)
    with contextlib.ExitStack() as unused:
        count = ((known and known.n_envs) or spec.default_envs) if request.n_envs is None else request.n_envs
        envs = None if env is None else _environments(request, env, count, unused)
        agent = made(spec, request.policy_from, known, {**settings, "env": envs}, request.settings)
        if (request.n_envs or 1) > 1 and not agent.parts.plan.needs_environment:
            raise SettingsError(
                f"--n-envs {request.n_envs} has no effect: {spec.id} learns from a data set and steps no environment; leave"
                " it out"
            )
        agent.env_name = env
        options |= _whole_rounds(options, request, steps_of_round(agent))
        record = RunRecord(
            algorithm=spec.id,
            env=env,
            dataset=None if data is None else data.name,
            n_envs=1 if envs is None else count,
            preset=known is not None,
            seed=agent.seed,
            device=agent.device,
            places=places_in(settings),
            policy_from=None if request.policy_from is None else str(request.policy_from),
            system=_versions(spec),
            **options,
        )
        _require_exact(agent, record)
        # After the agent was made: a wrong setting must not leave a folder behind.
        with directory.created():
            # of the agent: it set `env_groups`, one per collector
            _write_down(directory, record, attrs.evolve(agent.config, env=env))
            _announce(agent, record, known, chosen=request.preset is not None)
            # From here on `_train` closes the environments.
            unused.pop_all()
            yield Prepared(agent=agent, directory=directory, record=record, sinks=makers, resumed=False)


def require_possible(request: RunRequest) -> None:
    """Check a request for new runs without making an agent or a folder: with a mistake, each of several runs would fail.

    Raises:
        RlsdkError: the algorithm, the environment, the preset or a setting has an error.
    """
    require_vectorization(request.vectorization or "auto")
    spec, env = load(request.algorithm), request.env or request.settings.get("env")
    if env is None:
        env = environment_of(spec, request.settings)
    known = preset_of(request, spec, env if isinstance(env, str) else None)
    bind(spec.config_type, (), {**starting_settings(spec, known, request.settings), "env": env, "seed": 0})
    if isinstance(env, str):
        make_vec_env(env).close()


def preset_of(request: RunRequest, spec: AlgorithmSpec, env: str | None) -> Preset | None:
    """Return the preset to start from; None if there is none."""
    if request.preset is not None:
        return chosen_preset(request.preset, spec, env)
    return preset(spec.id, env) if request.use_preset and env is not None else None


def _environments(request: RunRequest, env: str, count: int, unused: contextlib.ExitStack) -> ConnectedEnv:
    """Return the training environments of a run. The stack `unused` closes them."""
    where: dict[str, Any] = {"vectorization": request.vectorization or "auto", "max_lag": request.max_lag or 0}
    if request.collectors is not None:
        where |= {"collectors": request.collectors, "executor": request.executor or "processes"}
    envs = make_vec_env(env, count, **where)
    unused.callback(_close, envs, "training")
    return envs


def _versions(spec: AlgorithmSpec) -> dict[str, str]:
    """Return the versions of Python, the platform, the packages of the core, and the package of the algorithm."""
    plugin = plugin_of(spec)
    own = {} if plugin is None or not plugin.version else {plugin.distribution: plugin.version}
    return {**system_info(), **own}


def _options(request: RunRequest, known: Preset | None, env: str | None) -> dict[str, Any]:
    """Return the options of a new run.

    Raises:
        SettingsError: an option is out of range or needs an environment, or there is no number of steps.
    """
    explicit = request.explicit()
    if env is None and (playing := [name for name in NEED_ENVIRONMENT if explicit.get(name)]):
        raise SettingsError(f"--{playing[0].replace('_', '-')} needs an environment: add --env ID, or leave it out")
    steps: int | None = explicit.get("steps", known.steps if known else None)
    if steps is None:
        raise SettingsError("the number of steps is missing: add --steps N, for example --steps 10_000")
    rounds = {"eval_every": 0 if env is None else max(1, steps // 10), "checkpoint_every": max(1, steps // 5)}
    return {**rounds, **explicit, "steps": steps}


def _whole_rounds(options: Mapping[str, Any], request: RunRequest, round_steps: int) -> dict[str, int]:
    """Return the default intervals, no shorter than a round: they take effect at its end."""
    names = [name for name in ("eval_every", "checkpoint_every") if name not in request.explicit() and options[name]]
    return {name: max(options[name], round_steps) for name in names}


def _write_down(directory: RunDirectory, record: RunRecord, config: object) -> None:
    trust = " --trust" if record.env is not None and refusal(record.env) is not None else ""
    more = "" if record.dataset is None else " --dataset FILE"
    known = attrs.fields_dict(RunRecord)
    chosen = {name: getattr(record, name) for name in REPEATED if getattr(record, name) != known[name].default}
    more += "".join(f" --{name.replace('_', '-')}{f' {value}' * (value is not True)}" for name, value in chosen.items())
    more += "" if record.policy_from is None else f" --from {shlex.quote(record.policy_from)}"
    repeat = f"rlsdk run {record.algorithm} --config {directory.config.name} --steps {record.steps}{more}{trust}"
    header = f"{record.algorithm} on {record.place}, {record.steps} steps\nrepeat: {repeat}"
    directory.write_config(type(config), unstructure(config), header)
    directory.write_record(record)


def _announce(agent: Agent, record: RunRecord, known: Preset | None, *, chosen: bool) -> None:
    print_line(
        f"training {record.algorithm} on {record.place}: {record.steps:,} {agent.parts.plan.unit}, seed {record.seed},"
        f" device {agent.device} ({agent.device_reason})"
    )
    if known is not None:
        remark = "" if chosen else " (--no-preset turns it off)"
        print_line(wrapped(f"preset for {known.env}: {_described(known, agent.parts.plan.unit)}{remark}", 2))


def starting_settings(spec: AlgorithmSpec, known: Preset | None, settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of a new run. `settings` have priority over the preset, and the preset over the first policy."""
    return merge({"policy": spec.policies[0], **(known.settings if known else {})}, settings)


def _described(known: Preset, unit: str) -> str:
    """Return the settings of a preset on one line. `unit` is the unit of its steps."""
    values = ", ".join(f"{name}={value}" for name, value in flat_scalars(known.settings).items())
    width = f" with n_envs={known.n_envs}" if known.n_envs else ""
    return f"{values or 'the defaults'}; made for {known.steps:,} {unit}{width}"


@contextmanager
def _resumed(request: RunRequest, spec: AlgorithmSpec) -> Iterator[Prepared]:
    """Prepare the run in a folder, with the state of its newest undamaged checkpoint."""
    if request.out is None:
        raise SettingsError("--resume needs --out DIR, the directory of the run to continue")
    names = data_settings(spec.config_type)
    data = {name: value for name, value in request.settings.items() if name in names}
    # The device may differ on the machine where the run continues.
    if request.fixed_settings() - {"device"} or request.n_envs:
        raise SettingsError(
            "--resume continues with the settings of the run; leave out --n-envs, --set, --config and --seed"
        )
    directory = RunDirectory(request.out)
    with directory.taken_up(), contextlib.ExitStack() as unused:
        # `planned` first: `_checked` replaces the number of steps by that of the command.
        planned, record = directory.read_record().steps, _checked(request, directory)
        require_same_dataset(spec, directory.config, data)
        makers = named_sinks(record.sinks)
        again = attrs.evolve(request, **{name: getattr(record, name) for name in ("vectorization", *COLLECTING)})
        envs = None if record.env is None else _environments(again, record.env, record.n_envs, unused)
        given_again, kind = {**record.places, **data}, agent_class(spec)
        agent = directory.newest(
            # `force_reset=False` continues the running episodes, so that the run equals one without interruption.
            lambda path: kind.load(path, env=envs, force_reset=False, device=record.device, custom_objects=given_again)
        )
        directory.require_enough_steps(request.steps, planned, agent.num_timesteps)
        _require_exact(agent, record)
        agent.env_name = record.env or None
        # After loading: the newest checkpoint may be damaged, and an older one be used.
        directory.forget_after(agent.num_timesteps)
        directory.write_record(record)
        print_line(f"resuming {spec.id} on {record.place} at step {agent.num_timesteps:,} of {record.steps:,}")
        unused.pop_all()
        yield Prepared(agent=agent, directory=directory, record=record, sinks=makers, resumed=True)


def _checked(request: RunRequest, directory: RunDirectory) -> RunRecord:
    """Return the record of a run to continue. The given options replace those of the record.

    Raises:
        SettingsError: the record is damaged, belongs to another run, or has entries that an untrusted file may not have.
    """
    stored = directory.read_record()
    directory.require_resumable(request, stored, files=directory.written())
    device, places = request.settings.get("device", stored.device), {**stored.places, **request.places}
    fresh = {"places": places, "device": device, "status": "running", "error": None}
    return attrs.evolve(stored, **request.explicit(), **fresh)


BUILT_IN = ("console", "tensorboard")
Maker = Callable[[Path, bool], MetricSink]
"""Function that makes a sink for a run directory. The second argument is True if the run is resumed."""


def named_sinks(names: Iterable[str]) -> list[Maker]:
    """Return the functions that make the sinks of these names.

    Raises:
        SettingsError: there is no sink of a name.
        PluginError: the plugin that offers it is broken.
    """
    return [_named(name) for name in names]


def _named(name: str) -> Maker:
    if name == "console":
        return lambda folder, resumed: ConsoleSink()
    if name == "tensorboard":
        return lambda folder, resumed: TensorBoardSink(folder, name, continue_last=resumed)
    if not is_offered("sinks", name):
        known = (*BUILT_IN, *extensions("sinks"))
        raise SettingsError(
            f"unknown logger {name!r}; {suggest(name, known)}; metrics.csv and metrics.jsonl are always written"
        )
    make = extension("sinks", name)

    def made(folder: Path, resumed: bool) -> MetricSink:
        with naming_plugins():
            sink: MetricSink = make(folder)
            return sink

    return made


def write_reports(folder: Path) -> None:
    """Call every report of an installed plugin with the folder of a run or sweep that ended. One that fails is printed."""
    for name in extensions("reports"):
        try:
            with naming_plugins():
                extension("reports", name)(folder)
        except RlsdkError as error:  # an installed package must not end a complete run
            print_line(f"no {name}: {error}")


def described_run(record: RunRecord) -> dict[str, Scalar]:
    """Return the metadata of a run that sinks show in addition to its settings."""
    names = ("algorithm", "env", "seed", "steps", "n_envs", "device", "preset")
    system = {f"versions.{name}": str(version) for name, version in record.system.items()}
    return {**{name: getattr(record, name) for name in names}, **system}


def made(
    spec: AlgorithmSpec,
    policy_from: Path | None,
    known: Preset | None,
    settings: Mapping[str, object],
    given: Mapping[str, object],
) -> Agent:
    """Return an agent with `settings`, which include the environment.

    With `policy_from`, an agent file or a run directory, the agent begins with the policy in that file. The file defines the
    networks, the normalization and the stacked frames: it has priority over the preset `known`, and `given` over both.

    Raises:
        SettingsError: as `Agent.load_policy`.
        ArtifactError: as `Agent.load_policy`.
    """
    if policy_from is None:
        return agent_class(spec)(**settings)
    preset: dict[str, Any] = dict(known.settings) if known else {}
    networks = preset.pop("policy_kwargs", {})
    others = {name: value for name, value in preset.items() if name not in SHARED}
    others["policy_kwargs"] = {name: value for name, value in networks.items() if name in NOT_NETWORKS}
    chosen = {**merge(others, given), "seed": settings["seed"]}
    chosen.pop("env", None)
    file = find_agent(policy_from)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="load_policy:")  # the warning below also names the file
        agent = agent_class(spec).load_policy(file, settings["env"], **chosen)
    taken = agent.policy_transfer
    if taken is not None and taken.partial:  # a warning is also shown with --quiet
        warnings.warn(f"policy from {file}: {taken}", stacklevel=2)
    else:
        print_line(f"policy from {file}: {taken}")
    return agent
