"""Trains one agent of rlsdk or of a peer and records the return of every training episode, with the same code on both sides."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import normalized, translated

POINTS = 20
"""The number of points of a curve."""
Episode = tuple[int, float]
"""The length and the return of an episode. Its return is NaN if it did not end."""
PEER_SEEDS = 10_000
"""Added to the seeds of the peer, so that the runs of both sides are independent."""


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records the lengths and returns of the episodes of one environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], episodes: list[Episode]) -> None:
        """Wrap an environment. `episodes`: the list to which episodes are added."""
        super().__init__(env)
        self.episodes, self.length, self.total = episodes, 0, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.length:
            self._end(float("nan"))
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.length += 1
        self.total += float(reward)
        if terminated or truncated:
            self._end(self.total)
        return observation, reward, terminated, truncated, info

    def _end(self, total: float) -> None:
        self.episodes.append((self.length, total))
        self.length, self.total = 0, 0.0


def curve(episodes: Sequence[Sequence[Episode]], steps: int, points: int = POINTS) -> NDArray[np.float64]:
    """The training return over time. A point is the mean return of the episodes that ended in its part of the training.

    The parts have the same number of steps. A part in which no episode ended has the point of the part before it, or that of
    the first part with one.

    Args:
        episodes: the episodes of each environment, in their order.
        steps: environment steps of all environments together. Episodes that ended later are left out.
        points: the number of parts.

    Raises:
        ValueError: no episode ended.
    """
    each = steps // len(episodes)
    sums, counts = np.zeros(points), np.zeros(points)
    for lengths, returns in (np.array(row, np.float64).reshape(-1, 2).T for row in episodes):
        ends = np.cumsum(lengths).astype(int)
        ended = np.isfinite(returns) & (ends <= each)
        parts = (ends[ended] - 1) * points // each
        np.add.at(sums, parts, returns[ended])
        np.add.at(counts, parts, 1.0)
    known = np.flatnonzero(counts)
    if not known.size:
        raise ValueError(f"no episode ended in {steps} steps; give more steps")
    before = np.clip(np.searchsorted(known, np.arange(points), side="right") - 1, 0, None)
    found: NDArray[np.float64] = (sums[known] / counts[known])[before]
    return found


def makers(env: str, episodes: Sequence[list[Episode]]) -> list[Callable[[], Recorder]]:
    """Functions that make one recorded environment for each list of episodes."""
    if env.startswith("rlsdk/"):
        import_module("rlsdk_envs")  # registers the environments
    return [lambda each=each: Recorder(gymnasium.make(env), each) for each in episodes]  # type: ignore[misc]


def train(spec: Mapping[str, Any], side: str, seed: int) -> dict[str, Any]:
    """Train one agent.

    Args:
        spec: algorithm, peer, env, n_envs, steps and settings.
        side: "ours", "peer", or "coupled", see `benchmarks.equal_numbers`.
        seed: the number of the run. The peer gets another seed, see `PEER_SEEDS`.

    Returns:
        `curve`, rounded to four significant digits, and `cpu`, the processor seconds.
    """
    import torch

    torch.set_num_threads(1)
    episodes: list[list[Episode]] = [[] for _ in range(spec["n_envs"])]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if side == "ours":
            ours(spec, seed, makers(spec["env"], episodes))
        elif side == "peer":
            peer_agent(spec, seed, makers(spec["env"], episodes)).learn(spec["steps"])
        else:
            import_module("benchmarks.equal_numbers").coupled(spec, seed, makers(spec["env"], episodes))
    found = [float(f"{value:.4g}") for value in curve(episodes, spec["steps"])]
    return {"curve": found, "cpu": round(time.process_time() - began, 2)}


def ours(spec: Mapping[str, Any], seed: int, envs: list[Callable[[], Recorder]]) -> None:
    """Train an agent of rlsdk."""
    import rlsdk
    from rlsdk.environments import make_vec_env

    made = make_vec_env(envs, vectorization="sync")
    agent = rlsdk.make(spec["algorithm"], env=made, seed=seed, device="cpu", **spec["settings"])
    agent.learn(spec["steps"], threads=1)


def peer_agent(spec: Mapping[str, Any], seed: int, envs: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> Any:
    """Make an agent of stable-baselines3 or sb3-contrib."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    library, _, name = spec["peer"].rpartition(".")
    settings = dict(spec["settings"])
    policy, normalize = settings.pop("policy", "MlpPolicy"), settings.pop("normalize", False)
    made: Any = DummyVecEnv(list(envs))
    made.seed(PEER_SEEDS + seed)
    made = normalized(made, normalize, settings.get("gamma", 0.99)) if normalize else made
    given = translated(settings, made.action_space, library)
    kind: Any = getattr(import_module(library), name)
    return kind(policy, made, seed=PEER_SEEDS + seed, device="cpu", **given)
