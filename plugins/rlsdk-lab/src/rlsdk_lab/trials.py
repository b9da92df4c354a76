"""One trial of a search, as work for any executor."""

from __future__ import annotations

import gc
import json
import shlex
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rlsdk.agent import agent_class
from rlsdk.agent.loggers import chosen_sinks
from rlsdk.callbacks import Callback, EvalCallback, ProgressBar
from rlsdk.environments import make_vec_env
from rlsdk.environments.named_in_files import refusal
from rlsdk.errors import RlsdkError, SettingsError
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.experiments.folder_kinds import SEARCH
from rlsdk.experiments.recorded_run import with_digests
from rlsdk.experiments.runner import starting_settings, width
from rlsdk.experiments.sweep import require_shared
from rlsdk.registry import load, preset
from rlsdk.runtime.output import quietly
from rlsdk.runtime.seeding import derive
from rlsdk.settings import flat_scalars, merge
from rlsdk.settings.dataset import as_dataset, dataset_names
from rlsdk.settings.load import nested
from rlsdk.sinks import MetricSink, several
from rlsdk.sinks.sink import Scalar
from rlsdk_lab.ranges import Range, search_space
from rlsdk_lab.trial_logs import SinkRefused, trial_progress, trial_sinks

if TYPE_CHECKING:
    import optuna

JOURNAL = SEARCH
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
        """Return the settings before the search: those of the plugin's preset and the fixed ones."""
        return starting_settings(load(self.algorithm), preset(self.algorithm, self.env), self.settings)

    def width(self) -> int:
        """Return the number of environments that are stepped together."""
        return width(load(self.algorithm), preset(self.algorithm, self.env), self.n_envs)

    def space(self) -> tuple[Range, ...]:
        """Return the ranges that are searched."""
        return search_space(load(self.algorithm).config_type, flat_scalars(self.settings))

    def identity(self) -> str:
        """Return as JSON the values that all trials of a study share, see `rlsdk_lab.study_identity`."""
        shared = {
            "algorithm": self.algorithm,
            "env": self.env,
            "steps": self.steps,
            "settings": with_digests(load(self.algorithm), self.settings),
            "n-envs": self.width(),
            "eval-episodes": self.episodes,
            "pruner": self.pruner if self.prune else "none",
        }
        return json.dumps(shared, sort_keys=True, default=str)

    def command(self, file: Path) -> str:
        """Return the command that trains with the settings in `file`. It names data sets, because the file has no paths of
        them."""
        words = ["rlsdk", "run", self.algorithm, "--config", str(file), "--steps", str(self.steps)]
        words += ["--n-envs", str(self.width())]
        names = [
            name for name in dataset_names(load(self.algorithm).config_type) if self.settings.get(name) is not None
        ]
        paths = {name: str(as_dataset(self.settings[name]).path) for name in names}
        options = (
            ["--dataset", path] if len(paths) == 1 else ["--set", f"{name}={path}"] for name, path in paths.items()
        )
        trust = ["--trust"] if refusal(self.env) is not None else []
        return shlex.join([*words, *(word for option in options for word in option), *trust])


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
    seed = derive(plan.seed, "trial", number) % 2**31
    details: dict[str, Scalar] = {
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
            agent.set_logger(several([*chosen_sinks(agent.config, f"trial-{trial.number}", fresh=True), *sinks]))
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
        settings = merge(settings, nested(name.split("."), value))
    return settings
