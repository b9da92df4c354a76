"""Evaluation during training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsdk.callbacks.accepted import as_callbacks
from rlsdk.callbacks.callback import Callback, StepCounter, says_stop
from rlsdk.evaluate import Evaluation, run_episodes
from rlsdk.records import Report

if TYPE_CHECKING:
    from rlsdk.train import Run


class EvalCallback(Callback):
    """Plays `n_eval_episodes` on an environment of its own every `eval_freq` environment steps.

    Keeps the best agent in `best_model_save_path`/best.rlsdk, logs `eval/mean_reward`, `eval/std_reward` and
    `eval/mean_ep_length` (and `eval/success_rate`), tells every callback of the run, and with `stop_at` ends training once
    the mean return reaches it. Training is the same, to the bit, with and without it: the agent's normaliser is used and
    not changed. `callback_after_eval` and `callback_on_new_best` hear of evaluations (of new best ones) only.
    """

    def __init__(  # noqa: PLR0913  # the documented signature
        self,
        eval_env: Any,
        *,
        n_eval_episodes: int = 10,
        eval_freq: int = 10_000,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        stop_at: float | None = None,
        callback_on_new_best: Any = None,
        callback_after_eval: Any = None,
    ) -> None:
        self.eval_env, self.episodes, self.deterministic = eval_env, n_eval_episodes, deterministic
        self.counter = StepCounter(eval_freq, "eval_freq")
        self.folder = None if best_model_save_path is None else Path(best_model_save_path)
        self.stop_at = stop_at
        self.on_new_best = as_callbacks(callback_on_new_best, self)
        self.after = as_callbacks(callback_after_eval, self)
        self.best = float("-inf")
        self.history: list[tuple[int, Evaluation]] = []

    def on_training_start(self, run: Run) -> bool | None:
        self.counter.start(run.num_timesteps)
        answers = [child.on_training_start(run) for child in (*self.on_new_best, *self.after)]
        return not any(map(says_stop, answers))

    def on_report(self, run: Run, report: Report) -> bool | None:
        if not self.counter.due(run.num_timesteps):
            return True
        return self.evaluate(run)

    def on_training_end(self, run: Run) -> bool | None:
        for child in (*self.on_new_best, *self.after):
            child.on_training_end(run)
        return None

    def evaluate(self, run: Run) -> bool:
        """Evaluate now; False once `stop_at` is reached, or a listener wants to stop."""
        seed = run.agent.derived_seed("evaluation")
        result = run_episodes(run.agent, self.eval_env, self.episodes, deterministic=self.deterministic, seed=seed)
        self.history.append((run.num_timesteps, result))
        run.log(_metrics(result))
        listeners = list(self.after)
        if result.mean > self.best:
            self.best = result.mean
            listeners += self.on_new_best
            if self.folder is not None:
                run.agent.save(self.folder / "best.rlsdk")
        answers = [child.on_evaluation(run, result) for child in listeners]
        run.tell("on_evaluation", result)
        return not any(map(says_stop, answers)) and (self.stop_at is None or result.mean < self.stop_at)


def _metrics(result: Evaluation) -> dict[str, float]:
    """An evaluation under the names of docs/metrics.md."""
    length = sum(result.lengths) / len(result.lengths)
    values = {"eval/mean_reward": result.mean, "eval/std_reward": result.std, "eval/mean_ep_length": length}
    rate = result.success_rate
    return values if rate is None else {**values, "eval/success_rate": rate}
