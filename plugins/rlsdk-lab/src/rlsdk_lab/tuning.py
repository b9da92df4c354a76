"""A search for hyper-parameters. Each worker runs one trial at a time. A stopped search can be continued."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError, WorkError, shown, suggest
from rlsdk.interfaces import Executor
from rlsdk.registry import load
from rlsdk.runs import named_sinks
from rlsdk.runtime import counted, is_quiet, pip_install, print_line, sealed
from rlsdk.settings import commented_toml, structure, unstructure
from rlsdk_lab.curves import write_beside_edits
from rlsdk_lab.many_runs import open_workers
from rlsdk_lab.study_identity import differences
from rlsdk_lab.study_journal import faults_of_journal, require_sound, study_storage
from rlsdk_lab.trial_logs import worker_folder
from rlsdk_lab.trials import EVALUATIONS, PRUNERS, Begun, Outcome, Tuning, derived_seed, run_trial, with_values

if TYPE_CHECKING:
    import optuna

BEST, REASON, STOPPED = "best.toml", "reason", "stopped"
"""The file with the best settings, and names of attributes of trials in the study.

`reason` stores why a trial failed. `stopped` marks trials that ran when the search was stopped.
"""
STARTING, WARMUP = 5, 4
"""Parameters of the median pruner.

It prunes nothing before `STARTING` trials have ended, and no trial in the first 1 / `WARMUP` of its steps.
"""
REDUCTION = 3
"""Parameter of successive halving: one in this many trials continues."""
LOOK = 1.0
"""Longest wait in seconds. On some systems, Ctrl-C has no effect during a wait."""


@attrs.frozen(kw_only=True)
class Best:
    """The result of a search: the best score, its values, the settings file, and the number of trials."""

    score: float
    values: dict[str, Any]
    file: Path
    trials: int
    given_up: int
    failed: int


def tune(plan: Tuning) -> Best:
    """Search until the study has `plan.trials` trials, including those of earlier calls. Write the best settings.

    Raises:
        SettingsError: Optuna is not installed, there is nothing to search, there is no such pruner, the folder contains another
            study, or every trial failed.
        EnvironmentFault: there is no such environment.
        KeyboardInterrupt: the search was stopped. Finished trials are saved.
    """
    if not plan.space():
        raise SettingsError(
            f"nothing to search: no hyper-parameter of {plan.algorithm!r} that is not fixed has tune=(low, high)"
        )
    if plan.pruner not in PRUNERS:
        raise SettingsError(f"unknown pruner {plan.pruner!r}; {suggest(plan.pruner, PRUNERS)}")
    # raise errors that every trial would raise now, before the search writes into the folder
    structure({**plan.base(), "env": plan.env}, load(plan.algorithm).config_type)
    make_vec_env(plan.env).close()
    named_sinks(plan.sinks)
    study = _open(plan)
    workers = {f"worker {number}": worker_folder(plan.out, number) for number in range(plan.jobs)}
    executor = "in-process" if plan.jobs == 1 and plan.executor == "processes" else plan.executor
    with open_workers(executor, plan.jobs, workers) as made:
        _Search(plan, study, made).run()
    return _summary(plan, study)


def _open(plan: Tuning) -> optuna.Study:
    """Return the study in the folder. Create it if there is none."""
    try:
        import optuna
    except ImportError:
        raise SettingsError(f"the search needs Optuna: {pip_install('rlsdk-lab[tune]')}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with faults_of_journal(plan.out):
        storage = study_storage(plan.out)
        if others := [name for name in optuna.get_all_study_names(storage) if name != plan.algorithm]:
            raise SettingsError(
                f"{plan.out} holds a search of {shown(others[0], 50)}, not of {plan.algorithm!r}; choose another --out"
            )
        study = optuna.create_study(
            storage=storage,
            study_name=plan.algorithm,
            pruner=_pruner(plan),
            direction="maximize",
            load_if_exists=True,
        )
        require_sound(study.get_trials(deepcopy=False))
        known = study.user_attrs.get("plan")
        if known is None:
            study.set_user_attr("plan", plan.identity())
        elif differing := differences(known, plan.identity()):
            raise SettingsError(f"{plan.out} holds a search with {differing}; give the same, or choose another --out")
        return study


def _pruner(plan: Tuning) -> optuna.pruners.BasePruner:
    import optuna

    if plan.pruner == "halving":
        first = max(1, plan.steps // EVALUATIONS)
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=REDUCTION)
    return optuna.pruners.MedianPruner(n_startup_trials=STARTING, n_warmup_steps=plan.steps // WARMUP)


def _counted(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Return the trials that have ended, except those that ran when a search was stopped."""
    trials = study.get_trials(deepcopy=False)
    return [trial for trial in trials if trial.state.is_finished() and not trial.user_attrs.get(STOPPED)]


class _Search:
    """Submits trials to the executor, one per free slot. A trial that is pruned frees its slot immediately."""

    def __init__(self, plan: Tuning, study: optuna.Study, executor: Executor) -> None:
        self.plan, self.study, self.executor = plan, study, executor
        self.free = list(range(plan.jobs))[::-1]
        self.trials = dict[int, "optuna.Trial"]()
        """Slot -> the trial that runs there."""
        self.running = dict[Future[Outcome], int]()

    def run(self) -> None:
        """Run trials until the study has enough.

        Raises:
            SettingsError: a sink cannot begin, or a machine does not see the study.
        """
        try:
            while self.trials or self._missing():
                while self.free and self._missing():
                    self._begin()
                    self._collect(0.0)  # an in-process trial has ended; the next one learns from it
                self._collect(LOOK)
        finally:
            self._stop()

    def _missing(self) -> bool:
        return len(_counted(self.study)) + len(self.trials) < self.plan.trials

    def _begin(self) -> None:
        import optuna

        with faults_of_journal(self.plan.out):
            number = len(self.study.get_trials(deepcopy=False))
            seed = derived_seed(self.plan.seed, "sampler", number)  # differs by trial: a continued search repeats none
            self.study.sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
            place, trial = self.free.pop(), self.study.ask()
            self.trials[place] = trial
            values = {found.name: found.suggest(trial) for found in self.plan.space()}
        work = partial(run_trial, self.plan, is_quiet())
        self.running[self.executor.submit(work, Begun(place, trial, values))] = place

    def _collect(self, seconds: float) -> None:
        """Record the outcomes of the trials that have ended. Wait for one at most `seconds`."""
        for future in wait(self.running, timeout=seconds, return_when=FIRST_COMPLETED).done:
            try:
                outcome = future.result()
            except WorkError as error:  # the trial ended its process every time
                outcome = Outcome(reason=str(error))
            place = self.running.pop(future)
            with faults_of_journal(self.plan.out):
                self._record(self.trials.pop(place), outcome)
            self.free.append(place)

    def _record(self, trial: optuna.Trial, outcome: Outcome) -> None:
        """Write the outcome to the study, and print it."""
        from optuna.trial import TrialState

        if outcome.reason is not None:
            trial.set_user_attr(REASON, outcome.reason)
            self._end(trial, TrialState.FAIL)
            came = f"failed: {outcome.reason}"
        elif outcome.score is None:
            last = self._end(trial, TrialState.PRUNED).value
            came = f"{'' if last is None else f'{last:.2f} '}(pruned)"
        else:
            self._end(trial, TrialState.COMPLETE, outcome.score)
            came = f"{outcome.score:.2f}"
        print_line(f"trial {trial.number}: {came}")

    def _end(
        self, trial: optuna.Trial, state: optuna.trial.TrialState, score: float | None = None
    ) -> optuna.trial.FrozenTrial:
        return self.study.tell(trial, score, None if score is not None else state)

    def _stop(self) -> None:
        """Cancel the running trials, and mark them so that they do not count."""
        from optuna.trial import TrialState

        for future in self.running:
            future.cancel()
        with faults_of_journal(self.plan.out):
            for trial in self.trials.values():
                trial.set_user_attr(STOPPED, True)
                self._end(trial, TrialState.FAIL)


def _summary(plan: Tuning, study: optuna.Study) -> Best:
    trials = _counted(study)
    count: Callable[[str], int] = lambda name: sum(t.state.name == name for t in trials)  # noqa: E731
    if not count("COMPLETE"):
        reasons = [reason for trial in trials if (reason := trial.user_attrs.get(REASON))]
        raise SettingsError(f"no trial of {len(trials)} was finished{f'; the last: {reasons[-1]}' if reasons else ''}")
    with faults_of_journal(plan.out):
        best = study.best_trial
        values = {found.name: found.suggest(_Fixed(best.params)) for found in plan.space()}
    spec = load(plan.algorithm)
    config = structure({**with_values(plan.base(), values), "env": plan.env}, spec.config_type)
    header = (
        f"best of {counted(len(trials), 'trial')} of {plan.algorithm} on {plan.env}, {plan.steps} steps:"
        f" return {best.value:.2f}\n"
        f"searched: {', '.join(values)}\nrepeat: {plan.command(Path(BEST))}"
    )
    text = commented_toml(spec.config_type, unstructure(config), header=header)
    path = write_beside_edits(plan.out / BEST, sealed(text, "# {}"))
    return Best(
        score=float(best.values[0]),
        values=values,
        file=path,
        trials=len(trials),
        given_up=count("PRUNED"),
        failed=count("FAIL"),
    )


class _Fixed:
    """A stand-in for a finished trial that suggests its values."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def _value(self, name: str, *_: object, **__: object) -> Any:
        return self.values[name]

    suggest_float = suggest_int = suggest_categorical = _value
