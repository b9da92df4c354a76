"""The `EvalCallback` of stable-baselines3, and the file of its evaluations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlsdk.callbacks import EvalCallback as Evaluating
from rlsdk.errors import one_line
from rlsdk.evaluation import Evaluation
from rlsdk.records import EnvStep, Report
from rlsdk.runtime import write_whole
from rlsdk_sb3.callbacks import HOOK_VALUES, AdaptedCallback, Hooks

if TYPE_CHECKING:
    from rlsdk.callbacks import Run


# two levels below `Callback`, as users of stable-baselines3 derive from this class, and both need what the first one does
class EvalCallback(Evaluating):
    """`rlsdk.callbacks.EvalCallback` with the values and methods that stable-baselines3 documents.

    It writes all results to `log_path`/evaluations.npz. A continued training adds to them, and replaces the best agent only by
    a better one. The file of another training moves to the subfolder `earlier_1`, with a warning.

    A subclass may override the methods of `BaseCallback` and read its values. A subclass with `_on_step` evaluates only in
    `super()._on_step()`, after every `eval_freq` calls of it: the interval then counts vector steps, as in stable-baselines3.
    """

    calls_hooks = True
    own_step: ClassVar[bool] = False
    """Whether the class overrides `_on_step`, which then decides when to evaluate."""

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
        super().__init__(
            eval_env,
            callback_on_new_best,
            callback_after_eval,
            n_eval_episodes,
            eval_freq,
            best_model_save_path,
            deterministic,
            render,
            verbose,
            warn,
            use_masking,
            stop_at=stop_at,
        )
        self.log = None if log_path is None else EvaluationLog(log_path)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.own_step = cls._on_step is not EvalCallback._on_step
        cls.needs_infos = cls.needs_infos or cls.own_step

    @property
    def best_mean_reward(self) -> float:
        """The highest mean return so far; minus infinity before the first evaluation."""
        return self.best

    @property
    def last_mean_reward(self) -> float:
        """The mean return of the last evaluation; minus infinity before the first."""
        return self.history[-1][1].mean if self.history else float("-inf")

    def store_results(self, foreign: Sequence[Path]) -> None:
        outdated = [] if self.log is None else self.log.outdated(len(self.history[-1][1].returns))
        super().store_results([*foreign, *outdated])
        if self.log is not None:
            self.log.write(self.history)

    @property
    def evaluations_timesteps(self) -> list[int]:
        """The number of environment steps at each evaluation of this callback."""
        return [steps for steps, _ in self.history]

    @property
    def evaluations_results(self) -> list[list[float]]:
        """The returns of the episodes of each evaluation."""
        return [list(result.returns) for _, result in self.history]

    @property
    def evaluations_length(self) -> list[list[int]]:
        """The lengths of the episodes of each evaluation."""
        return [list(result.lengths) for _, result in self.history]

    @property
    def evaluations_successes(self) -> list[list[bool | None]]:
        """Whether each episode of each evaluation was a success; None for episodes that did not report it."""
        return [[episode.success for episode in result.episodes] for _, result in self.history]

    @property
    def log_path(self) -> Path | None:
        """The file with the results of all evaluations; None if they are not written."""
        return None if self.log is None else self.log.path

    @cached_property
    def hooks(self) -> Hooks:
        """The values that the methods of a `BaseCallback` read."""
        return Hooks(self)

    @cached_property
    def documented(self) -> AdaptedCallback:
        """What calls the methods of a `BaseCallback`."""
        return AdaptedCallback(self.hooks)

    @property
    def watches_steps(self) -> bool:
        return self.own_step or type(self).on_step is not EvalCallback.on_step

    @property
    def watches_rollouts(self) -> bool:
        names = ("on_rollout_end", "_on_rollout_end")
        return any(getattr(type(self), name) is not getattr(EvalCallback, name) for name in names)

    def __getattr__(self, name: str) -> Any:
        known = name in HOOK_VALUES
        if known and (name not in ("model", "logger", "training_env") or hasattr(self.hooks, "model")):
            return getattr(self.hooks, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{' before training' if known else ''}")

    def on_training_start(self, run: Run) -> bool | None:
        self.documented.on_training_start(run)
        # in a second call of `learn` this object knows the results already
        if self.log is not None and not self.history:
            self.log.start(run.num_timesteps)
            self.earlier_best = self.log.best
        return super().on_training_start(run)

    def on_rollout_start(self, run: Run) -> None:
        self.documented.on_rollout_start(run)

    def on_step(self, run: Run, step: EnvStep) -> bool | None:
        return self.documented.on_step(run, step) if self.own_step else None

    def on_rollout_end(self, run: Run) -> None:
        self.documented.on_rollout_end(run)

    def on_report(self, run: Run, report: Report) -> bool | None:
        self.documented.on_report(run, report)
        self._count(run)
        return True if self.own_step else super().on_report(run, report)

    def on_training_end(self, run: Run) -> bool | None:
        answer = super().on_training_end(run)
        self._count(run)
        self.documented.on_training_end(run)
        return answer

    def _count(self, run: Run) -> None:
        """Update `n_calls` and `num_timesteps` once per round instead of at each step, which would cost time."""
        if not self.own_step:
            self.hooks.n_calls += (run.num_timesteps - self.hooks.num_timesteps) // run.agent.context.num_envs
            self.hooks.num_timesteps = run.num_timesteps

    def _init_callback(self) -> None: ...

    def _on_training_start(self) -> None: ...

    def _on_rollout_start(self) -> None: ...

    def _on_step(self) -> bool:
        return self.hooks.n_calls % self.eval_freq != 0 or self.evaluate(self.hooks.locals["run"])

    def _on_rollout_end(self) -> None: ...

    def _on_training_end(self) -> None: ...


MaskableEvalCallback = EvalCallback


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
            warnings.warn(f"{self.path} cannot be continued and is started again: {one_line(error, 300)}", stacklevel=3)

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
        np.savez(content := BytesIO(), **arrays)
        write_whole(self.path, content.getvalue())


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
