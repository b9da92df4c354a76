"""The training environment of a run whose callbacks follow its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import attrs
from torch import Tensor

from rlsdk.environments.trial_steps import steps_of
from rlsdk.environments.trials import Outcome, Trial
from rlsdk.interfaces import VectorEnv
from rlsdk.records import EnvStep, Observation

if TYPE_CHECKING:
    from rlsdk.train import Run


@contextmanager
def gathered_infos(env: Any, wanted: bool) -> Iterator[None]:
    """Have the steps of `env` carry infos inside the block, where it can."""
    keep = getattr(env, "keep_infos", None) if wanted else None
    if keep is None:
        yield
        return
    keep(True)
    try:
        yield
    finally:
        keep(False)


class Watched:
    """Notifies callbacks of every step and of the end of collecting; all else is passed to the environment."""

    def __init__(self, env: VectorEnv, run: Run, *, infos: bool) -> None:
        self.env, self.run, self.infos = env, run, infos

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    @property
    def num_envs(self) -> int:
        return self.env.num_envs

    def reset(self, seed: int | None = None) -> Observation:
        return self.env.reset(seed)

    def step(self, action: Tensor) -> EnvStep:
        step = replace(self.env.step(action), action=action)
        self._notify(step, self.env.num_envs)
        return replace(step, stops=True) if self.run.stopping else step

    def map(self, work: Callable[[Any, Any], list[Outcome]], trials: Sequence[Trial]) -> list[Outcome]:
        """Play trials, as many at a time as there are environments, and notify callbacks of their steps afterwards, in the
        order of trials: the same wherever they are played. Once a callback stops the training no further ones are played.
        """
        env: Any = self.env
        outcomes: list[Outcome] = []
        for start in range(0, len(trials), self.num_envs):
            noted = [attrs.evolve(t, steps=True, infos=self.infos) for t in trials[start : start + self.num_envs]]
            for outcome in env.map(work, noted):
                for step in steps_of(outcome, env.observation_space):
                    if self.run.stopping:
                        break
                    self._notify(step, 1)
                outcomes.append(attrs.evolve(outcome, steps=()))
            if self.run.stopping:
                break
        return outcomes

    def rollout_ended(self) -> None:
        """Collecting is over, the update comes next."""
        self.run.tell("on_rollout_end")

    def _notify(self, step: EnvStep, count: int) -> None:
        self.run.steps_in_round += count
        self.run.tell("on_step", step)

    def close(self) -> None:
        self.env.close()
