"""Trains in this process until the task is solved: `python -m benchmarks.solving_run '{...}'` prints a line of JSON.

rlsdk is imported for its own side only, so that peers can run with an interpreter that lacks it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from benchmarks.peers import normalized, translated
from benchmarks.trainers import processor_seconds

PACKAGES = ("rlsdk", "stable-baselines3", "sb3-contrib", "sbx-rl", "torch", "jax", "gymnasium")
FIRST_SEED = 1_000_000
"""The first seed of the evaluation episodes, the same for every side and training seed."""


@dataclass
class Clock:
    """Measures processor seconds and wall-clock seconds, without the time inside `paused`."""

    now: Callable[[], tuple[float, float]] = lambda: (processor_seconds(), time.perf_counter())
    skipped: tuple[float, float] = (0.0, 0.0)
    began: tuple[float, float] = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.now()

    def read(self) -> tuple[float, float]:
        """Return (processor seconds, wall-clock seconds) so far."""
        (cpu, wall), (cpu_0, wall_0), (cpu_out, wall_out) = self.now(), self.began, self.skipped
        return cpu - cpu_0 - cpu_out, wall - wall_0 - wall_out

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context manager whose block is not timed."""
        before = self.now()
        yield
        after = self.now()
        self.skipped = (self.skipped[0] + after[0] - before[0], self.skipped[1] + after[1] - before[1])


class EndedError(Exception):
    """Ends a training immediately, from inside a callback of any side."""


@dataclass
class Criterion:
    """Evaluates every `every` environment steps. A task is solved if two consecutive evaluations reach `threshold`. The first
    of them gives the time. A training that did not reach it after `limit` processor seconds ends."""

    threshold: float
    every: int
    evaluate: Callable[[], float]
    clock: Clock
    limit: float = float("inf")
    due: int = 0
    first: dict[str, float] | None = None
    """The steps, seconds and return of the last evaluation, if it reached the threshold; else None."""
    solved: bool = False
    last: float = float("nan")

    def __post_init__(self) -> None:
        self.due = self.every

    def at(self, steps: int) -> None:
        """Evaluate if an evaluation is due after `steps` environment steps. Called between two rounds.

        Raises:
            EndedError: the task is solved, or the limit is reached.
        """
        # the first good evaluation needs the second one, also after the limit
        ends = self.first is None and self.limit < float("inf") and self.clock.read()[0] > self.limit
        if steps < self.due and not ends:
            return
        cpu, wall = self.clock.read()
        with self.clock.paused():
            self.last = self.evaluate()
        if ends:
            raise EndedError
        self.due = (steps // self.every + 1) * self.every
        if self.last < self.threshold:
            self.first = None
        elif self.first is None:
            self.first = {"cpu": round(cpu, 3), "wall": round(wall, 3), "steps": steps, "return": round(self.last, 1)}
        else:
            self.solved = True
            raise EndedError

    def outcome(self, train: Callable[[], object], steps: Callable[[], int]) -> dict[str, Any]:
        """Train to the end or until the task is solved, and return the result."""
        try:
            train()
            self.due = 0  # all steps are used: one more evaluation
            self.at(steps())
        except EndedError:
            pass
        if self.solved and self.first is not None:
            return {"solved": True, **self.first}
        cpu, wall = self.clock.read()
        spent = {"cpu": round(cpu, 3), "wall": round(wall, 3), "steps": steps(), "return": round(self.last, 1)}
        return {"solved": False, "stopped": cpu > self.limit, **spent}


def mean_return(predict: Callable[..., Any], envs: list[Any]) -> float:
    """The mean return of one deterministic episode in each environment. All sides use this code."""
    observations = np.stack([env.reset(seed=FIRST_SEED + i)[0] for i, env in enumerate(envs)])
    returns, playing = np.zeros(len(envs)), np.ones(len(envs), bool)
    masked = hasattr(envs[0].unwrapped, "action_masks")
    state, starts = None, np.ones(len(envs), bool)
    while playing.any():
        masks = {"action_masks": np.stack([env.unwrapped.action_masks() for env in envs])} if masked else {}
        actions, state = predict(observations, state=state, episode_start=starts, deterministic=True, **masks)
        starts = np.zeros(len(envs), bool)
        for i in np.flatnonzero(playing):
            observations[i], reward, terminated, truncated, _ = envs[i].step(actions[i])
            returns[i] += float(reward)
            playing[i] = not (terminated or truncated)
    return float(returns.mean())


def _criterion(spec: Mapping[str, Any], predict: Callable[..., Any], clock: Clock) -> Criterion:
    import gymnasium

    envs = [gymnasium.make(spec["env"]) for _ in range(spec["episodes"])]
    limit = spec.get("limit", float("inf"))
    return Criterion(spec["threshold"], spec["every"], lambda: mean_return(predict, envs), clock, limit)


def ours(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Train an agent of rlsdk and return the result."""
    import rlsdk
    from rlsdk.callbacks import LambdaCallback
    from rlsdk.environments import make_vec_env

    def made() -> Any:
        envs = make_vec_env(spec["env"], spec["n_envs"], vectorization=spec["vectorization"])
        return rlsdk.make(spec["algorithm"], env=envs, seed=spec["seed"], device="cpu", **spec["settings"])

    made()  # imports the remaining modules before the timing
    clock = Clock()
    agent = made()
    with clock.paused():
        criterion = _criterion(spec, agent.predict, clock)
    watch = LambdaCallback(on_rollout_start=lambda run: criterion.at(run.num_timesteps))
    return criterion.outcome(
        lambda: agent.learn(spec["steps"], callback=watch, threads=spec["threads"]), lambda: agent.num_timesteps
    )


def theirs(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Train an agent of stable-baselines3, sb3-contrib or SBX and return the result."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    if spec["env"].startswith("rlsdk/"):
        import_module("rlsdk.environments")  # registers the environments
    library, _, name = spec["algorithm"].rpartition(".")
    settings = dict(spec["settings"])
    policy, normalize = settings.pop("policy", "MlpPolicy"), settings.pop("normalize", False)

    def made() -> tuple[Any, Any]:
        envs = make_vec_env(spec["env"], spec["n_envs"], seed=spec["seed"])
        envs = normalized(envs, normalize, settings.get("gamma", 0.99)) if normalize else envs
        given = translated(settings, envs.action_space, library)
        kind = getattr(import_module(library), name)
        return kind(policy, envs, seed=spec["seed"], device="cpu", **given), envs

    torch.set_num_threads(spec["threads"])
    made()  # imports the remaining modules before the timing
    clock = Clock()
    model, envs = made()

    def predict(observations: Any, **arguments: Any) -> Any:
        return model.predict(envs.normalize_obs(observations) if normalize else observations, **arguments)

    with clock.paused():
        criterion = _criterion(spec, predict, clock)

    class Watch(BaseCallback):
        def _on_rollout_start(self) -> None:
            criterion.at(self.num_timesteps)

        def _on_step(self) -> bool:
            return True

    return criterion.outcome(lambda: model.learn(spec["steps"], callback=Watch()), lambda: int(model.num_timesteps))


def versions() -> dict[str, str]:
    """The versions of the installed packages."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Train as the argument describes, and print the result."""
    spec = json.loads(sys.argv[1])
    outcome = (ours if spec["side"] == "ours" else theirs)(spec)
    print(json.dumps({**outcome, "date": time.strftime("%Y-%m-%d"), "versions": versions()}))


if __name__ == "__main__":
    main()
