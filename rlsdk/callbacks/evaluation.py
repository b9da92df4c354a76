"""A callback that evaluates the agent during training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlsdk.callbacks.callback import Callback, StepCounter, as_callbacks
from rlsdk.callbacks.checkpoint import belongs, set_aside
from rlsdk.environments import connect
from rlsdk.errors import require_file_name
from rlsdk.evaluation.evaluate import Evaluation, require_display, require_episodes, run_episodes
from rlsdk.records import Report
from rlsdk.runtime.output import print_line
from rlsdk.training.run import Run, says_stop


class EvalCallback(Callback):
    """Evaluates the agent for `n_eval_episodes` episodes in a separate environment every `eval_freq` environment steps.

    It saves the best agent to `best_model_save_path`/best.rlsdk. It logs `eval/mean_reward`, `eval/std_reward` and
    `eval/mean_ep_length`, and `eval/success_rate` if episodes report success. Then it calls `on_evaluation` of every callback
    of the run. With `stop_at`, training ends once the mean return reaches that value.

    The best agent of another training moves to the subfolder `earlier_1`, with a warning. So does one of this training that an
    earlier callback wrote, as its mean return is not known. `rlsdk_sb3.EvalCallback` with a `log_path` knows it: it stores all
    results in `log_path`/evaluations.npz.

    Evaluation does not change the result of the training: it uses the agent's normalizer without updating it.
    `callback_after_eval` is called after every evaluation, and `callback_on_new_best` only after one with a new best mean
    return. `render`, `warn` and `use_masking` are those of `evaluate_policy`. `rlsdk_sb3.EvalCallback` calls the methods of a
    `BaseCallback` too.
    """

    def __init__(  # noqa: PLR0913  # the signature of stable-baselines3
        self,
        eval_env: object,
        callback_on_new_best: object = None,
        callback_after_eval: object = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
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
        require_file_name(best_model_save_path)
        self.best_model_save_path = None if best_model_save_path is None else Path(best_model_save_path)
        self.verbose, self.warn, self.use_masking, self.stop_at = verbose, warn, use_masking, stop_at
        if render:
            require_display(self.eval_env)
        self.counter = StepCounter(eval_freq, "eval_freq")
        self.on_new_best = as_callbacks(callback_on_new_best, self)
        self.after = as_callbacks(callback_after_eval, self)
        self.best = float("-inf")
        self.earlier_best = float("-inf")
        """The highest mean return of the evaluations that an earlier callback of this training stored, if it is known."""
        self.owns_best = False
        """Whether the file of the best agent, if there is one, is this training's."""
        self.cut_short: Callable[[Callable[[], Evaluation]], Evaluation | None] = lambda play: play()
        """Plays the episodes. The command line replaces it: a signal that ends the run does not wait for their end."""
        self.logged_at: int | None = None
        """The number of environment steps at the last log of the training."""
        self.history: list[tuple[int, Evaluation]] = []

    @property
    def eval_freq(self) -> int:
        """The number of environment steps between two evaluations."""
        return self.counter.every

    @eval_freq.setter
    def eval_freq(self, value: int) -> None:
        self.counter = self.counter.changed(value)

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.begin(run)
        # In a second call of `learn` this object knows the results already.
        if not self.history:
            self._read_earlier_results(run)
        # A list, not a generator in `any`: every callback must be called, also after one that stops the training.
        answers = [child.on_training_start(run) for child in (*self.on_new_best, *self.after)]
        return not any(map(says_stop, answers))

    def _read_earlier_results(self, run: Run) -> None:
        """Take up the results that an earlier callback of the same training left in the folders."""
        best = self._best_file
        if best is not None and best.exists() and belongs(best, run.agent):
            self.best = max(self.best, self.earlier_best)
            # A best agent of unknown return may be better than the next one, so it is moved aside instead of replaced.
            self.owns_best = self.best > float("-inf")

    def store_results(self, foreign: Sequence[Path]) -> None:
        """Move the files of another training aside. A subclass that stores `history` does so here."""
        set_aside(foreign)

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
        self.store_results(foreign)
        self.owns_best = True
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
