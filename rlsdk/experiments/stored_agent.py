"""Saved agents, and episodes played with them."""

from __future__ import annotations

from pathlib import Path

import attrs

from rlsdk.agent import Agent, load
from rlsdk.environments import make_vec_env
from rlsdk.errors import SettingsError
from rlsdk.evaluation.evaluate import Evaluation, run_episodes
from rlsdk.evaluation.statistics import Statistics
from rlsdk.settings.environment_id import applied, environment_id


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
    file: Path, env: str | None, episodes: int, *, n_envs: int, deterministic: bool, seed: int
) -> StoredEvaluation:
    """Play `episodes` episodes with the agent of a file; see `stored_agent`."""
    agent, name = stored_agent(file, env)
    result = run_episodes(agent, make_vec_env(name, n_envs), episodes, deterministic=deterministic, seed=seed)
    return StoredEvaluation(name, result)


def stored_agent(file: Path, env: str | None) -> tuple[Agent, str]:
    """The agent of a file, and the id of its environment: `env`, or the one it was trained on where that is None or begins
    with `?`, which adds arguments and wrappers.

    Raises:
        SettingsError: neither can be used.
    """
    agent = load(file)
    if env is not None and not env.startswith("?"):
        return agent, env
    name = agent.env_name
    if name is None or environment_id(name).reads_more:
        # an id such as "package:Env-v0" imports that package; a file must not choose what is imported here
        raise SettingsError(f"the file names no environment that can be used safely ({name!r}); add --env ID")
    return agent, applied(env, name)
