"""Evaluations of saved agents, in parts that an executor plays at the same time."""

from __future__ import annotations

import io
from itertools import chain
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from rlsdk.agent import Agent
from rlsdk.agent.agent import load as load_file
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.executors import capacity, make_executor
from rlsdk.runs.directory import require_own_environment
from rlsdk.runtime.output import counted
from rlsdk.settings.load import applied


@attrs.frozen
class EvaluationRequest:
    """The number of episodes, and how they are run. The result depends on all fields, but not on the executor."""

    episodes: int = 20
    n_envs: int = 1
    """Number of environments of each part that are stepped together."""
    deterministic: bool = True
    seed: int = 0
    """Seed of the first environment. The other environments, through all parts, have the seeds that follow."""
    parts: int = 1
    """Number of parts into which the episodes are split. Parts can run at the same time."""

    def of_part(self, index: int) -> EvaluationRequest:
        """Return the request of one part: its number of episodes and its seed."""
        episodes = (self.episodes + index) // self.parts
        return attrs.evolve(self, episodes=episodes, seed=self.seed + index * self.n_envs, parts=1)


@attrs.frozen
class Part:
    """Work for an executor: episodes with the agent of a file."""

    file: NDArray[np.uint8]
    """The bytes of the agent file. Executors send a large array only once if several items contain it."""
    env: str
    request: EvaluationRequest

    def play(self) -> Evaluation:
        """Run the episodes of this part."""
        return _played(load_file(io.BytesIO(self.file.tobytes())), self.env, self.request)


def evaluate_stored(
    file: Path, env: str | None, request: EvaluationRequest, executor: str = "processes", *, trust: bool = False
) -> tuple[str, Evaluation]:
    """(id of the environment, evaluation) of the agent of a file. `executor` runs several parts at the same time.

    `env` and `trust` are those of `load_agent`.

    Raises:
        SettingsError: there are more parts than episodes, there is no such executor, or as `load_agent`.
    """
    agent, name = load_agent(file, env, trust=trust)
    if not 1 <= request.parts <= max(1, request.episodes):
        episodes = counted(request.episodes, "episode")
        raise SettingsError(f"{request.parts} parts of {episodes}: give 1 to {request.episodes} parts")
    # Also for one part, an unknown executor is an error. The default one is in a package that one part does not need.
    most = 1 if request.parts == 1 and executor == "processes" else capacity(executor)
    if request.parts == 1:
        return name, _played(agent, name, request)
    agent.save(data := io.BytesIO())
    shared = np.frombuffer(data.getvalue(), np.uint8)
    parts = [Part(shared, name, request.of_part(index)) for index in range(request.parts)]
    # More processes than cores would only take memory. Other executors count their cores themselves.
    workers = make_executor(executor, min(request.parts, most) if executor == "processes" else request.parts)
    try:
        played = workers.map(Part.play, parts)
    finally:
        workers.close()
    return name, Evaluation(tuple(chain.from_iterable(part.episodes for part in played)), request.deterministic)


def _played(agent: Agent, env: str, request: EvaluationRequest) -> Evaluation:
    envs = make_vec_env(env, request.n_envs)
    try:
        return run_episodes(agent, envs, request.episodes, deterministic=request.deterministic, seed=request.seed)
    finally:
        envs.close()


def load_agent(file: Path, env: str | None, *, trust: bool = False) -> tuple[Agent, str]:
    """Return the agent of a file, and the id of the environment to use.

    This is `env`, if given. If `env` is None, it is the environment of the training. If `env` begins with `?`, its arguments
    and wrappers are added to that of the training. With `trust`, the file may name a module to import. So may a file in a run
    directory that this user made on this machine.

    Raises:
        SettingsError: the file names no environment, or one that needs `trust`.
        ArtifactError: as `rlsdk.load`.
    """
    agent = load_file(file)
    if env is not None and not env.startswith("?"):
        return agent, env
    if agent.env_name is None:
        raise SettingsError(f"{file} names no environment; add --env ID")
    return agent, applied(env, require_own_environment(agent.env_name, file, trust=trust))
