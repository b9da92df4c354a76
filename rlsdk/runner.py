"""A run from start to end: environment, agent, evaluation, checkpoints and the files it leaves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import attrs

from rlsdk.agent import Agent, agent_class
from rlsdk.callbacks import Callback, CheckpointCallback, EvalCallback, ProgressBar, StopOnInterrupt
from rlsdk.compilation import require_mode
from rlsdk.constructor import bind
from rlsdk.environments import make_vec_env
from rlsdk.errors import EnvironmentFault, RlsdkError, SettingsError
from rlsdk.evaluate import Evaluation, run_episodes
from rlsdk.plotting import plot_run
from rlsdk.profiling import profiled
from rlsdk.registry import AlgorithmSpec, Preset, extension, load, preset
from rlsdk.run_directory import RunDirectory
from rlsdk.seeding import fresh_seed
from rlsdk.settings import flat_scalars, merge, unstructure
from rlsdk.sinks import CsvSink, JsonlSink, several
from rlsdk.spaces import Box, leaf_spaces
from rlsdk.storage.agent_file import system_info


@attrs.frozen(kw_only=True)
class RunRequest:
    """What a user asked for on the command line; None means not said."""

    algorithm: str
    env: str | None = None
    steps: int | None = None
    settings: dict[str, Any] = attrs.field(factory=dict)
    n_envs: int | None = None
    out: Path | None = None
    eval_every: int | None = None
    eval_episodes: int = 10
    checkpoint_every: int | None = None
    stop_at: float | None = None
    resume: bool = False
    threads: int = 1
    use_preset: bool = True
    """Start from the plugin's tuned settings for the environment, where it ships some."""
    vectorization: str = "auto"
    """How the training environments are stepped; see `make_vec_env`."""
    sinks: tuple[str, ...] = ()
    """Names of further metric sinks, from plugins."""
    profile: bool = False
    """Say where the time went."""
    compile: str = attrs.field(default="off", validator=lambda *given: require_mode(given[-1]))
    """How hot functions are compiled; see `rlsdk.compilation`."""


@attrs.frozen
class RunResult:
    """What came of it."""

    directory: RunDirectory
    evaluation: Evaluation
    env_steps: int
    seconds: float
    interrupted: bool


def run(request: RunRequest) -> RunResult:
    """Train as asked.

    Raises:
        RlsdkError: whatever is wrong with the request, the environment or the files; what was written stays.
    """
    spec, extra = load(request.algorithm), [extension("sinks", name) for name in request.sinks]
    agent, directory, record = _resume(request, spec) if request.resume else _start(request, spec)
    interrupt, began = StopOnInterrupt(), time.perf_counter()
    checkpoints = CheckpointCallback(record["checkpoint_every"], directory.checkpoints)
    evaluator = _evaluator(record, directory, request.eval_episodes, request.stop_at)
    watchers: list[Callback] = [ProgressBar(), interrupt, *evaluator, checkpoints]  # evaluated before a checkpoint
    sinks = [CsvSink(directory.csv), JsonlSink(directory.jsonl), *(make(directory.path) for make in extra)]
    agent.set_logger(several(sinks))
    try:
        left = record["steps"] - agent.num_timesteps
        if left > 0:
            with _measured(agent, record["env"]) if request.profile else nullcontext():
                how: dict[str, Any] = {"threads": request.threads, "compile": request.compile}
                agent.learn(left, callback=watchers, reset_num_timesteps=False, **how)
            checkpoints.save(agent)
    except RlsdkError as error:
        if isinstance(error, EnvironmentFault):  # the agent itself is sound: keep what it learnt
            checkpoints.save(agent)
        directory.write_record({**record, "status": "failed", "error": str(error), "env_steps": agent.num_timesteps})
        raise
    finally:
        several(sinks).close()
        if agent.env is not None:
            agent.env.close()
    agent.save(directory.final)
    finished = not interrupt.interrupted
    evaluation = run_episodes(
        agent, make_vec_env(record["env"]), request.eval_episodes, seed=agent.derived_seed("final evaluation")
    )
    summary = {"mean": evaluation.mean, "std": evaluation.std, "episodes": len(evaluation.returns)}
    status = "finished" if finished else "interrupted"
    seconds = time.perf_counter() - began
    facts = {"status": status, "env_steps": agent.num_timesteps, "seconds": record.get("seconds", 0.0) + seconds}
    directory.write_record({**record, **facts, "final_evaluation": summary})
    plot_run(directory.path, directory.curve, f"{spec.id} on {record['env']}")
    return RunResult(directory, evaluation, agent.num_timesteps, seconds, not finished)


@contextmanager
def _measured(agent: Agent, env: str) -> Iterator[None]:
    """Print where the time of the block went."""
    with profiled(agent) as profile:
        yield
    images = any(isinstance(leaf, Box) and leaf.is_image for _, leaf in leaf_spaces(agent.facts.observation_space))
    print(f"where the time went, {agent.spec.id} on {env}:\n{profile.table()}")
    print(f"advice: {profile.advice(agent.facts.num_envs, images=images, device=agent.device)}")


def _evaluator(
    record: dict[str, Any], directory: RunDirectory, episodes: int, stop_at: float | None
) -> list[EvalCallback]:
    if not record["eval_every"]:
        return []
    env = make_vec_env(record["env"])
    callback = EvalCallback(
        env,
        n_eval_episodes=episodes,
        eval_freq=record["eval_every"],
        best_model_save_path=directory.path,
        stop_at=stop_at,
    )
    callback.best = directory.best_evaluation()
    return [callback]


def _start(request: RunRequest, spec: AlgorithmSpec) -> tuple[Agent, RunDirectory, dict[str, Any]]:
    env = request.env or request.settings.get("env")
    if not isinstance(env, str):
        raise SettingsError("no environment: add --env ID, for example --env Pendulum-v1")
    known = preset(spec.id, env) if request.use_preset else None
    settings = starting_settings(spec, known, request.settings)
    steps = _required_steps(known.steps if known and request.steps is None else request.steps)
    settings |= {"env": env, "seed": fresh_seed() if settings.get("seed") is None else settings["seed"]}
    config = bind(spec.config_type, (), settings)
    directory = RunDirectory.choose(request.out, spec.id, env, config.seed)
    envs = make_vec_env(env, width(spec, known, request.n_envs), vectorization=request.vectorization)
    agent = agent_class(spec)(**{**settings, "env": envs})
    agent.env_name = env
    record = {
        "algorithm": spec.id,
        "env": env,
        "steps": steps,
        "n_envs": envs.num_envs,
        "vectorization": request.vectorization,
        "preset": known is not None,
        "seed": config.seed,
        "device": agent.device,
        "eval_every": max(1, steps // 10) if request.eval_every is None else request.eval_every,
        "checkpoint_every": request.checkpoint_every or max(1, steps // 5),
        "status": "running",
        "system": system_info(),
    }
    directory.create()
    repeat = f"rlsdk run {spec.id} --config {directory.config.name} --steps {steps} --n-envs {envs.num_envs}"
    header = f"{spec.id} on {env}, {steps} steps\nrepeat: {repeat}"
    directory.write_config(spec.config_type, unstructure(config), header)
    directory.write_record(record)
    print(
        f"training {spec.id} on {env}: {steps:,} steps, seed {config.seed}, device {agent.device} ({agent.device_reason})"
    )
    if known is not None:
        print(f"preset for {env}: {_described(known)} (--no-preset for the defaults)")
    return agent, directory, record


def starting_settings(spec: AlgorithmSpec, known: Preset | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` over those of a preset, over the first policy."""
    return merge({"policy": spec.policies[0], **(known.settings if known else {})}, settings)


def width(spec: AlgorithmSpec, known: Preset | None, n_envs: int | None) -> int:
    """Environments stepped together: what was asked for, else the preset's, else the algorithm's."""
    return ((known and known.n_envs) or spec.default_envs) if n_envs is None else n_envs


def _described(known: Preset) -> str:
    """The settings of a preset on one line."""
    values = ", ".join(f"{name}={value}" for name, value in flat_scalars(known.settings).items())
    width = f" with n_envs={known.n_envs}" if known.n_envs else ""
    return f"{values or 'the defaults'}; made for {known.steps:,} steps{width}"


def _required_steps(steps: int | None) -> int:
    if steps is None:
        raise SettingsError("no length: add --steps N, for example --steps 10_000")
    if steps < 1:
        raise SettingsError(f"--steps {steps} must be a positive whole number")
    return steps


def _resume(request: RunRequest, spec: AlgorithmSpec) -> tuple[Agent, RunDirectory, dict[str, Any]]:
    if request.out is None:
        raise SettingsError("--resume needs --out DIR, the directory of the run to go on with")
    if request.settings or request.env or request.n_envs:
        raise SettingsError(
            "--resume goes on with the settings of the run; leave out --env, --n-envs, --set, --config and --seed"
        )
    directory = RunDirectory(request.out)
    record = directory.read_record()
    if record.get("algorithm") != spec.id:
        raise SettingsError(f"{directory.path} holds a run of {record.get('algorithm')!r}, not of {spec.id!r}")
    if request.steps is not None:
        record["steps"] = _required_steps(request.steps)
    envs = make_vec_env(record["env"], record["n_envs"], vectorization=record.get("vectorization", "auto"))
    agent = directory.newest(lambda path: agent_class(spec).load(path, env=envs, force_reset=False))
    agent.env_name = record["env"]
    directory.forget_after(agent.num_timesteps)
    print(f"resuming {spec.id} on {record['env']} at step {agent.num_timesteps:,} of {record['steps']:,}")
    return agent, directory, record
