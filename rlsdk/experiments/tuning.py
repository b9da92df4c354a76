"""A search that several processes share through a file, and that continues where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rlsdk.agent import agent_class
from rlsdk.agent.loggers import chosen_sinks
from rlsdk.callbacks import Callback, EvalCallback, ProgressBar
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.experiments.ranges import Range, search_space
from rlsdk.experiments.run_sinks import named_sinks
from rlsdk.experiments.runner import starting_settings, width
from rlsdk.experiments.sweep import require_shared, stoppable
from rlsdk.experiments.trial_logs import SinkRefused, trial_progress, trial_sinks, worker_folder
from rlsdk.experiments.watching import watching
from rlsdk.registry import load, preset
from rlsdk.runtime.output import is_quiet, print_line, quietly
from rlsdk.runtime.seeding import derive
from rlsdk.settings import commented_toml, flat_scalars, merge, unstructure
from rlsdk.settings.constructor import bind
from rlsdk.settings.load import nested
from rlsdk.sinks import MetricSink, several
from rlsdk.sinks.sink import Scalar

if TYPE_CHECKING:
    import optuna

JOURNAL, BEST = "journal.log", "best.toml"
REASON = "reason"
EVALUATIONS = 10
"""Of one trial; after each but the last it may be given up."""


@attrs.frozen(kw_only=True)
class Tuning:
    """What is searched for: the highest return of `algorithm` on `env` after `steps`, in `trials` trials."""

    algorithm: str
    env: str
    steps: int
    trials: int
    out: Path
    settings: dict[str, Any] = attrs.field(factory=dict)
    """Fixed: not searched."""
    n_envs: int | None = None
    episodes: int = 10
    jobs: int = 1
    seed: int = 0
    prune: bool = True
    sinks: tuple[str, ...] = ()
    """Names of further metric sinks of every trial."""
    executor: str = "processes"
    """Where trials run; one at a time runs in this process instead of in `processes`."""

    def base(self) -> dict[str, Any]:
        """Settings before the search, from the plugin's preset and what is fixed."""
        return starting_settings(load(self.algorithm), preset(self.algorithm, self.env), self.settings)

    def width(self) -> int:
        """Environments stepped together."""
        return width(load(self.algorithm), preset(self.algorithm, self.env), self.n_envs)

    def space(self) -> tuple[Range, ...]:
        """What is searched."""
        return search_space(load(self.algorithm).config_type, flat_scalars(self.settings))

    def identity(self) -> str:
        """What trials of one study have in common."""
        return json.dumps(
            [self.algorithm, self.env, self.steps, self.settings, self.width()], sort_keys=True, default=str
        )


@attrs.frozen(kw_only=True)
class Best:
    """What a search found."""

    score: float
    values: dict[str, Any]
    file: Path
    trials: int
    given_up: int
    failed: int


def tune(plan: Tuning) -> Best:
    """Search until the study has `plan.trials` trials, those of earlier calls counted, and write the best settings.

    Raises:
        SettingsError: Optuna is not installed, nothing can be searched, the folder holds another study, or every trial failed.
        EnvironmentFault: no such environment. KeyboardInterrupt: it was stopped; finished trials are kept.
    """
    if not plan.space():
        raise SettingsError(
            f"nothing to search: no hyper-parameter of {plan.algorithm!r} that is not fixed has tune=(low, high)"
        )
    study = _open(plan)
    # errors that every trial would raise are raised now
    bind(load(plan.algorithm).config_type, (), {**plan.base(), "env": plan.env})
    make_vec_env(plan.env).close()
    named_sinks(plan.sinks)
    workers = {f"worker {number}": worker_folder(plan.out, number) for number in range(plan.jobs)}
    executor = "in-process" if plan.jobs == 1 and plan.executor == "processes" else plan.executor
    with stoppable(executor, plan.jobs) as made, watching(workers):
        made.map(partial(_work, plan, is_quiet()), range(plan.jobs))
    return _summary(plan, study)


def _open(plan: Tuning, worker: int = 0) -> optuna.Study:
    """The study in the folder, made where there is none."""
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        raise SettingsError("the search needs Optuna: pip install rlsdk[tune]") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        storage = JournalStorage(JournalFileBackend(str(plan.out / JOURNAL)))
    except OSError as error:
        raise SettingsError(f"cannot write into {plan.out}: {error.strerror}; choose another --out") from None
    seed = derive(plan.seed, "sampler", worker) % 2**31
    study = optuna.create_study(
        storage=storage,
        study_name=plan.algorithm,
        sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=plan.steps // 4),
        direction="maximize",
        load_if_exists=True,
    )
    known = study.user_attrs.get("plan")
    if known is None:
        study.set_user_attr("plan", plan.identity())
    elif known != plan.identity():
        raise SettingsError(f"{plan.out} holds a search of {known}, not of {plan.identity()}; choose another --out")
    return study


def _work(plan: Tuning, quiet: bool, worker: int) -> None:
    """One worker: trials until there are enough.

    Raises:
        SettingsError: a sink cannot begin, or this machine does not see the study.
    """
    require_shared(plan.out / JOURNAL)
    import optuna

    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.FAIL)
    enough = optuna.study.MaxTrialsCallback(plan.trials, states=ended)
    study = _open(plan, worker)
    if len(study.get_trials(deepcopy=False, states=ended)) < plan.trials:
        try:
            with quietly(quiet):
                work = partial(_trial, plan, worker)
                study.optimize(work, callbacks=[enough, _say], catch=(RlsdkError,), gc_after_trial=True)
        except SinkRefused as error:
            raise SettingsError(str(error)) from None


def _say(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    score = f"failed: {trial.user_attrs.get(REASON)}" if trial.value is None else f"{trial.value:.2f}"
    state = " (given up early)" if trial.state.name == "PRUNED" else ""
    print_line(f"trial {trial.number}: {score}{state}")


def _trial(plan: Tuning, worker: int, trial: optuna.Trial) -> float:
    """Train with the settings of a trial; the mean return of its last evaluation."""
    import optuna

    number, seed = trial.number, derive(plan.seed, "trial", trial.number) % 2**31
    details: dict[str, Scalar] = {
        "algorithm": plan.algorithm,
        "env": plan.env,
        "seed": seed,
        "steps": plan.steps,
        "trial": number,
    }
    with (
        trial_sinks(plan.sinks, plan.out / f"trial-{number:04d}", details) as sinks,
        trial_progress(plan.out, worker, number) as progress,
    ):
        score = _score(plan, trial, seed, sinks, progress)
    if score is None:
        raise optuna.TrialPruned
    return score


def _score(
    plan: Tuning, trial: optuna.Trial, seed: int, sinks: list[MetricSink], progress: ProgressBar
) -> float | None:
    """The mean return of the last evaluation; None where the trial was given up."""
    settings = _with(plan.base(), {found.name: found.suggest(trial) for found in plan.space()})
    envs, eval_env = make_vec_env(plan.env, plan.width(), vectorization="sync"), make_vec_env(plan.env)
    try:
        agent = agent_class(load(plan.algorithm))(**{**settings, "env": envs, "seed": seed})
        if sinks:
            agent.set_logger(several([*chosen_sinks(agent.config, f"trial-{trial.number}", fresh=True), *sinks]))
        every = max(1, plan.steps // EVALUATIONS)
        reports = _Reports(trial, plan.prune)
        evaluations = EvalCallback(
            eval_env, callback_after_eval=reports, n_eval_episodes=plan.episodes, eval_freq=every, verbose=0
        )
        agent.learn(plan.steps, callback=[progress, evaluations])
        if plan.prune and agent.num_timesteps < plan.steps:
            return None
        if not evaluations.history or evaluations.history[-1][0] < agent.num_timesteps:
            seed = agent.derived_seed("final evaluation")
            return float(run_episodes(agent, eval_env, plan.episodes, seed=seed).mean)
        return float(evaluations.history[-1][1].mean)
    except RlsdkError as error:
        trial.set_user_attr(REASON, str(error))
        raise
    finally:
        envs.close()
        eval_env.close()


class _Reports(Callback):
    """Reports to the study how a trial does, and ends it where others did better."""

    def __init__(self, trial: optuna.Trial, prune: bool) -> None:
        self.trial, self.prune = trial, prune

    def on_evaluation(self, run: Any, evaluation: Evaluation) -> bool:
        self.trial.report(evaluation.mean, run.num_timesteps)
        return not (self.prune and self.trial.should_prune())


def _summary(plan: Tuning, study: Any) -> Best:
    trials = study.get_trials(deepcopy=False)
    count: Callable[[str], int] = lambda name: sum(t.state.name == name for t in trials)  # noqa: E731
    if not count("COMPLETE"):
        reasons = [reason for trial in trials if (reason := trial.user_attrs.get(REASON))]
        raise SettingsError(f"no trial of {len(trials)} was finished{f'; the last: {reasons[-1]}' if reasons else ''}")
    best = study.best_trial
    values = {found.name: found.suggest(_Fixed(best.params)) for found in plan.space()}
    spec = load(plan.algorithm)
    config = bind(spec.config_type, (), {**_with(plan.base(), values), "env": plan.env})
    command = f"rlsdk run {plan.algorithm} --config {BEST} --steps {plan.steps} --n-envs {plan.width()}"
    header = (
        f"best of {len(trials)} trials of {plan.algorithm} on {plan.env}, {plan.steps} steps: return {best.value:.2f}\n"
        f"searched: {', '.join(values)}\nrepeat: {command}"
    )
    path = plan.out / BEST
    path.write_text(commented_toml(spec.config_type, unstructure(config), header=header), encoding="utf-8")
    return Best(
        score=best.value,
        values=values,
        file=path,
        trials=len(trials),
        given_up=count("PRUNED"),
        failed=count("FAIL"),
    )


class _Fixed:
    """Answers as a trial that is over did."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def _value(self, name: str, *_: object, **__: object) -> Any:
        return self.values[name]

    suggest_float = suggest_int = suggest_categorical = _value


def _with(settings: dict[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """`settings` with values under dotted names laid over them."""
    for name, value in values.items():
        settings = merge(settings, nested(name.split("."), value))
    return settings
