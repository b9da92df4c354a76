"""One trial of a search, as work for any executor."""

from __future__ import annotations

import gc
import json
import shlex
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import numpy as np

from rlsdk.agent import Agent, agent_class
from rlsdk.callbacks import Callback, EvalCallback, ProgressBar
from rlsdk.environments import make_vec_env
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.evaluation import Evaluation, run_episodes
from rlsdk.registry import load, preset
from rlsdk.runtime import quietly
from rlsdk.settings import DataReference, data_in, flat_scalars, merge
from rlsdk.sinks import ConsoleSink, Logger, MetricSink, TensorBoardSink
from rlsdk_lab.many_runs import require_shared
from rlsdk_lab.ranges import Range, search_space
from rlsdk_lab.study_journal import JOURNAL
from rlsdk_lab.trial_logs import SinkRefused, trial_progress, trial_sinks

if TYPE_CHECKING:
    import optuna

EVALUATIONS = 10
"""Number of evaluations of one trial. A trial may be pruned after each of them except the last."""
PRUNERS = ("median", "halving")


@attrs.frozen(kw_only=True)
class Tuning:
    """The plan of a search: find the settings with the highest return of `algorithm` on `env` after `steps`, in `trials`
    trials."""

    algorithm: str
    env: str
    steps: int
    trials: int
    out: Path
    settings: dict[str, Any] = attrs.field(factory=dict)
    """Settings that are fixed, not searched."""
    n_envs: int | None = None
    episodes: int = 10
    jobs: int = 1
    seed: int = 0
    prune: bool = True
    pruner: str = "median"
    """One of `PRUNERS`: the rule by which trials are pruned."""
    sinks: tuple[str, ...] = ()
    """Names of further metric sinks of every trial."""
    executor: str = "processes"
    """Name of the executor that runs the trials. With `processes` and one job, trials run in this process instead."""

    def base(self) -> dict[str, Any]:
        """Return the settings before the search: the first policy, those of the plugin's preset and the fixed ones."""
        known = preset(self.algorithm, self.env)
        policy = load(self.algorithm).policies[0]
        return merge({"policy": policy, **(known.settings if known else {})}, self.settings)

    def width(self) -> int:
        """Return the number of environments that are stepped together: the given one, or as a run of the command line has."""
        known = preset(self.algorithm, self.env)
        return self.n_envs or (known and known.n_envs) or load(self.algorithm).default_envs

    def space(self) -> tuple[Range, ...]:
        """Return the ranges that are searched."""
        return search_space(load(self.algorithm).config_type, flat_scalars(self.settings))

    def datasets(self) -> dict[str, DataReference]:
        """Return setting -> data set, for the fixed settings that name one.

        Raises:
            SettingsError, ArtifactError: as `data_in`.
        """
        return data_in(load(self.algorithm).config_type, self.settings)

    def identity(self) -> str:
        """Return as JSON the values that all trials of a study share, see `rlsdk_lab.study_identity`."""
        shared = {
            "algorithm": self.algorithm,
            "env": self.env,
            "steps": self.steps,
            "settings": {**self.settings, **{name: data.to_setting() for name, data in self.datasets().items()}},
            "n-envs": self.width(),
            "eval-episodes": self.episodes,
            "pruner": self.pruner if self.prune else "none",
        }
        return json.dumps(shared, sort_keys=True, default=str)

    def command(self, file: Path) -> str:
        """Return the command that trains with the settings in `file`. It names data sets, because the file has no paths of
        them."""
        words = ["rlsdk", "run", self.algorithm, "--config", str(file), "--steps", str(self.steps)]
        # the environment is named, because a file may not choose one that imports a module
        words += ["--n-envs", str(self.width()), "--env", self.env]
        found = self.datasets()
        for name, data in found.items():
            words += ["--dataset", str(data.path)] if len(found) == 1 else ["--set", f"{name}={data.path}"]
        return shlex.join(words)


@attrs.frozen
class Begun:
    """A trial to run, with its values."""

    worker: int
    """Number of the slot in which the trial runs. There is one slot per job, and its log shows the progress."""
    trial: optuna.Trial
    values: dict[str, Any]
    """The searched settings: dotted name -> value."""


@attrs.frozen
class Outcome:
    """The result of a trial."""

    score: float | None = None
    """The mean return; None if the trial was pruned or failed."""
    reason: str | None = None
    """The reason of a failure."""


def run_trial(plan: Tuning, quiet: bool, begun: Begun) -> Outcome:
    """Train with the settings of a trial. The score is the mean return of the last evaluation.

    Raises:
        SettingsError: a sink cannot begin, or this machine does not see the folder of the study.
    """
    require_shared(plan.out / JOURNAL)
    number, worker = begun.trial.number, begun.worker
    seed = derived_seed(plan.seed, "trial", number)
    details: dict[str, str | int] = {
        "algorithm": plan.algorithm,
        "env": plan.env,
        "seed": seed,
        "steps": plan.steps,
        "trial": number,
    }
    try:
        with (
            quietly(quiet),
            trial_sinks(plan.sinks, plan.out / f"trial-{number:04d}", details) as sinks,
            trial_progress(plan.out, worker, number) as progress,
        ):
            return Outcome(_score(plan, begun, seed, sinks, progress))
    except SinkRefused as error:
        raise SettingsError(str(error)) from None
    except RlsdkError as error:
        return Outcome(reason=str(error))
    finally:
        gc.collect()


def _score(plan: Tuning, begun: Begun, seed: int, sinks: list[MetricSink], progress: ProgressBar) -> float | None:
    """Return the mean return of the last evaluation; None if the trial was pruned."""
    settings, trial = with_values(plan.base(), begun.values), begun.trial
    envs, eval_env = make_vec_env(plan.env, plan.width(), vectorization="sync"), make_vec_env(plan.env)
    try:
        agent = agent_class(load(plan.algorithm))(**{**settings, "env": envs, "seed": seed})
        if sinks:
            own = _own_sinks(agent, f"trial-{trial.number}")
            agent.set_logger(Logger(output_formats=[*own, *sinks]))
        every = max(1, plan.steps // EVALUATIONS)
        reports = _Reports(trial, plan.prune)
        evaluations = EvalCallback(
            eval_env, callback_after_eval=reports, n_eval_episodes=plan.episodes, eval_freq=every, verbose=0
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "learn: .* steps")  # every trial has another length of rounds
            agent.learn(plan.steps, callback=[progress, evaluations])
        if plan.prune and agent.num_timesteps < plan.steps:
            return None
        if not evaluations.history or evaluations.history[-1][0] < agent.num_timesteps:
            seed = agent.derived_seed("final evaluation")
            return float(run_episodes(agent, eval_env, plan.episodes, seed=seed).mean)
        return float(evaluations.history[-1][1].mean)
    finally:
        envs.close()
        eval_env.close()


def _own_sinks(agent: Agent, name: str) -> list[MetricSink]:
    """Return the sinks that the agent's settings choose: `set_logger` replaces them."""
    sinks: list[MetricSink] = [ConsoleSink()] if agent.config.verbose else []
    if agent.config.tensorboard_log:
        sinks.append(TensorBoardSink(Path(agent.config.tensorboard_log), name))
    return sinks


class _Reports(Callback):
    """Callback that reports evaluations to the study, and stops the trial if the pruner decides so."""

    def __init__(self, trial: optuna.Trial, prune: bool) -> None:
        self.trial, self.prune = trial, prune

    def on_evaluation(self, run: Any, evaluation: Evaluation) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # if a worker died, the trial runs again and repeats its reports
            self.trial.report(evaluation.mean, run.num_timesteps)
        return not (self.prune and self.trial.should_prune())


def with_values(settings: dict[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """Return `settings` with `values` added. Their names are dotted."""
    for name, value in values.items():
        table: object = value
        for key in reversed(name.split(".")):
            table = {key: table}
        settings = merge(settings, cast("dict[str, Any]", table))
    return settings


def derived_seed(seed: int, stream: str, number: int) -> int:
    """Return the seed of one trial, from 0 to 2**31 - 1. Streams are independent of one another and of the order of trials."""
    sequence = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(stream.encode()), number))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1)) % 2**31
