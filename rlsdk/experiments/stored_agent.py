"""Saved agents, and episodes played with them, here or wherever an executor does its work."""

from __future__ import annotations

import io
from itertools import chain
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.agent import Agent, load
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.evaluation.statistics import Statistics
from rlsdk.executors import make_executor
from rlsdk.experiments.sweep import jobs_for
from rlsdk.experiments.trust import require_own_environment
from rlsdk.runtime.output import counted
from rlsdk.settings.environment_id import applied


@attrs.frozen
class EvaluationRequest:
    """How many episodes are played, and how. The result depends on all of these, not on where the parts are played."""

    episodes: int = 20
    n_envs: int = 1
    """Environments of each part that are stepped together."""
    deterministic: bool = True
    seed: int = 0
    """Of the first environment; the others have the following ones, through all parts."""
    parts: int = 1
    """Shares of the episodes that can be played at the same time."""

    def of_part(self, index: int) -> EvaluationRequest:
        """What one part plays."""
        episodes = (self.episodes + index) // self.parts
        return attrs.evolve(self, episodes=episodes, seed=self.seed + index * self.n_envs, parts=1)


@attrs.frozen
class Part:
    """An item of work: episodes played with the agent of a file."""

    file: NDArray[np.uint8]
    """Its bytes: executors send large arrays that items have in common once."""
    env: str
    request: EvaluationRequest

    def play(self) -> Evaluation:
        """The episodes of this part."""
        return _played(load(io.BytesIO(self.file.tobytes())), self.env, self.request)


@attrs.frozen
class StoredEvaluation:
    """The episodes, and the id of the environment."""

    env: str
    result: Evaluation

    def statistics(self) -> Statistics | None:
        """Interquartile mean and interval; None without scipy."""
        try:
            return self.result.statistics()
        except SettingsError:
            return None


def evaluate_stored(
    file: Path, env: str | None, request: EvaluationRequest, executor: str = "processes", *, trust: bool = False
) -> StoredEvaluation:
    """Play episodes with the agent of a file, several parts side by side with `executor`; for `env` and `trust` see
    `stored_agent`.

    Raises:
        SettingsError: there are more parts than episodes, no such executor, or what `stored_agent` raises.
    """
    agent, name = stored_agent(file, env, trust=trust)
    if not 1 <= request.parts <= max(1, request.episodes):
        episodes = counted(request.episodes, "episode")
        raise SettingsError(f"{request.parts} parts of {episodes}: give 1 to {request.episodes} parts")
    if request.parts == 1:
        jobs_for(None, 1, 1, executor)  # refuses an unknown executor
        return StoredEvaluation(name, _played(agent, name, request))
    agent.save(data := io.BytesIO())
    shared = np.frombuffer(data.getvalue(), np.uint8)
    parts = [Part(shared, name, request.of_part(index)) for index in range(request.parts)]
    workers = make_executor(executor, jobs_for(request.parts, request.parts, 1, executor))
    try:
        played = workers.map(Part.play, parts)
    finally:
        workers.close()
    return StoredEvaluation(
        name, Evaluation(tuple(chain.from_iterable(part.episodes for part in played)), request.deterministic)
    )


def _played(agent: Agent, env: str, request: EvaluationRequest) -> Evaluation:
    envs = make_vec_env(env, request.n_envs)
    try:
        return run_episodes(agent, envs, request.episodes, deterministic=request.deterministic, seed=request.seed)
    finally:
        envs.close()


def stored_agent(file: Path, env: str | None, *, trust: bool = False) -> tuple[Agent, str]:
    """The agent of a file, and the id of its environment: `env`, or the one it was trained on where that is None or begins
    with `?`, which adds arguments and wrappers. With `trust` the file may name a module to import.

    Raises:
        SettingsError: neither can be used.
    """
    agent = load(file)
    if env is not None and not env.startswith("?"):
        return agent, env
    if agent.env_name is None:
        raise SettingsError(f"{file} names no environment; add --env ID")
    return agent, applied(env, require_own_environment(agent.env_name, str(file), trust=trust))
