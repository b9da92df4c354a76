"""A callback that evaluates the agent during training, and the file of its evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlsdk.callbacks.callback import Callback, StepCounter, as_callbacks, steps_of_round
from rlsdk.callbacks.checkpoint import belongs, set_aside
from rlsdk.environments import connect
from rlsdk.errors import one_line
from rlsdk.evaluation.evaluate import Evaluation, require_display, require_episodes, run_episodes
from rlsdk.records import Report
from rlsdk.runtime.files import write_atomically
from rlsdk.runtime.output import print_line
from rlsdk.training.run import Run, says_stop


class EvalCallback(Callback):
    """Evaluates the agent for `n_eval_episodes` episodes in a separate environment every `eval_freq` environment steps.

    It saves the best agent to `best_model_save_path`/best.rlsdk and all results to `log_path`/evaluations.npz. It logs
    `eval/mean_reward`, `eval/std_reward` and `eval/mean_ep_length`, and `eval/success_rate` if episodes report success. Then it
    calls `on_evaluation` of every callback of the run. With `stop_at`, training ends once the mean return reaches that value.

    A continued training adds to the results in `log_path`, and replaces the best agent only by a better one. The files of
    another training move to the subfolder `earlier_1`, with a warning. So does a best agent whose mean return is not known,
    because there is no `log_path`.

    Evaluation does not change training in any bit: it uses the agent's normalizer without updating it. `callback_after_eval` is
    called after every evaluation, and `callback_on_new_best` only after one with a new best mean return. `render`, `warn` and
    `use_masking` are those of `evaluate_policy`. `rlsdk_sb3.EvalCallback` calls the methods of a `BaseCallback` too.
    """

    def __init__(  # noqa: PLR0913  # the signature of stable-baselines3
        self,
        eval_env: object,
        callback_on_new_best: object = None,
        callback_after_eval: object = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
        log_path: str | Path | None = None,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
        use_masking: bool = True,
        *,
        stop_at: float | None = None,
    ) -> None:
        # not only at the first evaluation
        require_episodes(n_eval_episodes)
        self.eval_env, self.deterministic = connect(eval_env), deterministic
        self.n_eval_episodes = n_eval_episodes
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.verbose, self.warn, self.use_masking, self.stop_at = verbose, warn, use_masking, stop_at
        if render:
            require_display(self.eval_env)
        self.counter = StepCounter(eval_freq, "eval_freq")
        self.log = None if log_path is None else EvaluationLog(log_path)
        self.on_new_best = as_callbacks(callback_on_new_best, self)
        self.after = as_callbacks(callback_after_eval, self)
        self.best = float("-inf")
        self.owns_best = False
        """Whether the file of the best agent, if there is one, is this training's."""
        self.cut_short: Callable[[Callable[[], Evaluation]], Evaluation | None] = lambda play: play()
        """Plays the episodes. The command line replaces it: a signal that ends the run does not wait for their end."""
        self.logged_at: int | None = None
        """The number of environment steps at the last log of the training."""
        self.history: list[tuple[int, Evaluation]] = []

    @property
    def best_mean_reward(self) -> float:
        """The highest mean return so far; minus infinity before the first evaluation."""
        return self.best

    @property
    def last_mean_reward(self) -> float:
        """The mean return of the last evaluation; minus infinity before the first."""
        return self.history[-1][1].mean if self.history else float("-inf")

    @property
    def eval_freq(self) -> int:
        """The number of environment steps between two evaluations."""
        return self.counter.every

    @eval_freq.setter
    def eval_freq(self, value: int) -> None:
        self.counter = self.counter.changed(value)

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps, steps_of_round(run.driven))
        # In a second call of `learn` this object knows the results already.
        if not self.history:
            self._read_earlier_results(run)
        # A list, not a generator in `any`: every callback must be called, also after one that stops the training.
        answers = [child.on_training_start(run) for child in (*self.on_new_best, *self.after)]
        return not any(map(says_stop, answers))

    def _read_earlier_results(self, run: Run) -> None:
        """Take up the results that an earlier callback of the same training left in the folders."""
        # First: `self.log.best` below is known once the file was read.
        if self.log is not None:
            self.log.start(run.num_timesteps)
        best = self._best_file
        if best is not None and best.exists() and belongs(best, run.agent):
            self.best = max(self.best, float("-inf") if self.log is None else self.log.best)
            # A best agent of unknown return may be better than the next one, so it is moved aside instead of replaced.
            self.owns_best = self.best > float("-inf")

    @property
    def _best_file(self) -> Path | None:
        return None if self.best_model_save_path is None else Path(self.best_model_save_path) / "best.rlsdk"

    def on_log(self, run: Run, values: dict[str, float]) -> None:
        self.logged_at = run.num_timesteps

    def on_report(self, run: Run, report: Report) -> bool | None:
        return not self.counter.due(run.num_timesteps) or self.evaluate(run)

    def on_training_end(self, run: Run) -> bool | None:
        for child in (*self.on_new_best, *self.after):
            child.on_training_end(run)
        return None

    def evaluate(self, run: Run) -> bool:
        """Evaluate now. Return False if the mean return has reached `stop_at` or another callback stops the training."""
        how: dict[str, Any] = {"deterministic": self.deterministic, "use_masking": self.use_masking}
        # The same seed each time: all evaluations of a training begin in the same states.
        how["seed"] = run.agent.derived_seed("evaluation")
        result = self.cut_short(lambda: run_episodes(run.agent, self.eval_env, self.n_eval_episodes, **how))
        # A signal ended the evaluation, so the training ends too.
        if result is None:
            return False
        self.history.append((run.num_timesteps, result))
        best = self._best_file
        foreign = [best] if best is not None and not self.owns_best else []
        # Not when training starts: one that ends before its first evaluation writes nothing, so nothing has to move.
        set_aside([*foreign, *(self.log.outdated(len(result.returns)) if self.log is not None else ())])
        self.owns_best = True
        if self.log is not None:
            self.log.write(self.history)
        self._write(run, _metrics(result))
        listeners, better = list(self.after), result.mean > self.best
        if self.verbose:
            print_line(_summary_line(run.num_timesteps, result, better))
        if better:
            self.best = result.mean
            listeners = [*self.on_new_best, *listeners]
            if best is not None:
                run.agent.save(best)
        # A list, for the same reason as in `on_training_start`.
        answers = [child.on_evaluation(run, result) for child in listeners]
        run.notify("on_evaluation", result)
        return not any(map(says_stop, answers)) and (self.stop_at is None or result.mean < self.stop_at)

    def _write(self, run: Run, metrics: dict[str, float]) -> None:
        """Write the metrics of an evaluation. If this step was logged already, do not write the other metrics again."""
        # A second row of a step would repeat its other metrics, and smoothed curves would jump there.
        if self.logged_at != run.num_timesteps:
            run.log(metrics)
            return
        values = {**metrics, **run.logger.name_to_value}
        run.notify("on_log", values)
        run.logger.write(run.num_timesteps, values)


def _summary_line(step: int, result: Evaluation, better: bool) -> str:
    """One line of text with the result of an evaluation."""
    length = sum(result.lengths) / len(result.lengths)
    text = f"evaluation at step {step:,}: mean return {result.mean:.2f} +/- {result.std:.2f}, mean length {length:.1f}"
    if result.success_rate is not None:
        text += f", success rate {result.success_rate:.0%}"
    return f"{text}, the best so far" if better else text


def _metrics(result: Evaluation) -> dict[str, float]:
    """The metrics of an evaluation, by the names in docs/metrics.md."""
    length = sum(result.lengths) / len(result.lengths)
    values = {"eval/mean_reward": result.mean, "eval/std_reward": result.std, "eval/mean_ep_length": length}
    rate = result.success_rate
    return values if rate is None else {**values, "eval/success_rate": rate}


Arrays = dict[str, Any]
"""Name -> numpy array."""
NAMES = ("timesteps", "results", "ep_lengths")


class EvaluationLog:
    """Writes `folder`/evaluations.npz with E evaluations of n episodes each.

    The arrays are `timesteps` int64 [E], `results` (returns) float64 [E, n] and `ep_lengths` int64 [E, n]. If every episode
    reported success or failure, `successes` bool [E, n] is added.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "evaluations.npz"
        self.before: Arrays = {}
        """The arrays that an earlier call of `learn` of the same training wrote."""
        self._replaces = False
        """Whether the file holds evaluations that the next `write` would remove."""

    def start(self, steps: int) -> None:
        """Prepare the log for a training that continues at `steps` environment steps: evaluations up to there stay in the file,
        and new ones are appended. A training that begins at step 0 begins a new file."""
        self.before, self._replaces = {}, self.path.exists()
        if not steps or not self._replaces:
            return
        try:
            # A pickle in the file would run code.
            with np.load(self.path, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            earlier = arrays["timesteps"] <= steps
            self.before = {name: arrays[name][earlier] for name in (*NAMES, "successes") if name in arrays}
            if set(NAMES) - set(self.before):
                raise ValueError("arrays are missing")
            _require_evaluations(self.before, int(earlier.sum()))
            self._replaces = not earlier.all()
        except Exception as error:
            # numpy and zipfile raise any error for a damaged file
            self.before = {}
            warnings.warn(f"{self.path} cannot be continued and is begun again: {one_line(error, 300)}", stacklevel=3)

    @property
    def best(self) -> float:
        """The highest mean return of the earlier evaluations of the training; minus infinity without any."""
        results = self.before.get("results")
        return float("-inf") if results is None or not results.size else float(results.mean(1).max())

    def outdated(self, n_episodes: int) -> list[Path]:
        """The file, if it holds evaluations that evaluations of `n_episodes` episodes would replace: those of another training,
        later ones, or ones with another number of episodes. The caller moves it aside; `write` begins a new file."""
        fits = not self.before or self.before["results"].shape[1] == n_episodes
        if not fits:
            self.before = {}
        found = [self.path] if self._replaces or not fits else []
        self._replaces = False
        return found

    def write(self, history: Sequence[tuple[int, Evaluation]]) -> None:
        """Replace the file atomically with the earlier evaluations and those in `history`, as (environment steps, result).

        Raises:
            ArtifactError: the file cannot be written.
        """
        arrays: Arrays = {
            "timesteps": np.array([step for step, _ in history], np.int64),
            "results": np.array([result.returns for _, result in history], np.float64),
            "ep_lengths": np.array([result.lengths for _, result in history], np.int64),
        }
        successes = [[episode.success for episode in result.episodes] for _, result in history]
        # An array of bool cannot hold None.
        if not any(None in row for row in successes):
            arrays["successes"] = np.array(successes, np.bool_)
        if self.before:
            # All arrays of the file have the same E: one that earlier evaluations lack is left out.
            names = [name for name in arrays if name in self.before]
            arrays = {name: np.concatenate([self.before[name], arrays[name]]) for name in names}
        write_atomically(self.path, lambda stream: np.savez(stream, **arrays))


def _require_evaluations(arrays: Arrays, count: int) -> None:
    """Check the arrays of `count` evaluations from a file, to which more are appended. Raises ValueError for others."""
    shape = count, *arrays["results"].shape[1:]
    for name, kinds, wanted in (
        *(("timesteps", "i", (count,)), ("results", "fi", shape), ("ep_lengths", "i", shape)),
        *((("successes", "b", shape),) if "successes" in arrays else ()),
    ):
        array = arrays[name]
        if array.dtype.kind not in kinds or array.shape != wanted or len(shape) != 2 or not np.isfinite(array).all():
            raise ValueError(f"{name} of shape {array.shape} and dtype {array.dtype} are not of evaluations")
