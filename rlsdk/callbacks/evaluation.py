"""Evaluation during training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsdk.callbacks.callback import Callback, StepCounter
from rlsdk.evaluate import Evaluation, run_episodes
from rlsdk.records import Report

if TYPE_CHECKING:
    from rlsdk.train import Run


class EvalCallback(Callback):
    """Plays `n_eval_episodes` on an environment of its own every `eval_freq` environment steps.

    Keeps the best agent in `best_model_save_path`/best.rlsdk, logs `eval/mean_reward`, `eval/std_reward` and
    `eval/mean_ep_length`, and with `stop_at` ends training once the mean return reaches it. Training is the same,
    to the bit, with and without it.
    """

    def __init__(
        self,
        eval_env: Any,
        *,
        n_eval_episodes: int = 10,
        eval_freq: int = 10_000,
        best_model_save_path: str | Path | None = None,
        deterministic: bool = True,
        stop_at: float | None = None,
    ) -> None:
        self.eval_env, self.episodes, self.deterministic = eval_env, n_eval_episodes, deterministic
        self.counter = StepCounter(eval_freq, "eval_freq")
        self.folder = None if best_model_save_path is None else Path(best_model_save_path)
        self.stop_at = stop_at
        self.best = float("-inf")
        self.history: list[tuple[int, Evaluation]] = []

    def on_training_start(self, run: Run) -> None:
        self.counter.start(run.num_timesteps)

    def on_report(self, run: Run, report: Report) -> bool | None:
        if not self.counter.due(run.num_timesteps):
            return True
        return self.evaluate(run)

    def evaluate(self, run: Run) -> bool:
        """Evaluate now; False once `stop_at` is reached."""
        seed = run.agent.derived_seed("evaluation")
        result = run_episodes(run.agent, self.eval_env, self.episodes, deterministic=self.deterministic, seed=seed)
        self.history.append((run.num_timesteps, result))
        length = sum(result.lengths) / len(result.lengths)
        run.log({"eval/mean_reward": result.mean, "eval/std_reward": result.std, "eval/mean_ep_length": length})
        if result.mean > self.best:
            self.best = result.mean
            if self.folder is not None:
                run.agent.save(self.folder / "best.rlsdk")
        return self.stop_at is None or result.mean < self.stop_at
