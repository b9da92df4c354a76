"""Evaluation per role: the returns and lengths of the agents of each kind."""

from __future__ import annotations

from typing import Any

from rlsdk.environments import connect
from rlsdk.errors import SettingsError, shown
from rlsdk.evaluation import Evaluation, run_episodes
from rlsdk_pettingzoo.agents import AgentsVector
from rlsdk_pettingzoo.tasks import role_of


def evaluate_roles(
    agent: Any,
    env: object,
    episodes: int = 10,
    *,
    by: str = "role",
    deterministic: bool = True,
    seed: int | None = None,
) -> dict[str, Evaluation]:
    """Play episodes in which one policy acts for all agents, and return role -> evaluation.

    Args:
        agent: the agent that plays.
        env: an id such as `pettingzoo/simple_spread_v3`, or what `make_vec_env` returned for one.
        episodes: the number of episodes of each row, that is of each agent of each copy.
        by: `role` or `agent`: what the result is divided by.
        deterministic: play the mode of the policy instead of samples.
        seed: seed of the environments' reset and of sampled actions.

    Raises:
        SettingsError: `env` has no rows of agents, `by` is unknown, or `episodes` is not positive. Others as
            `rlsdk.evaluation.run_episodes`.
    """
    if by not in ("role", "agent"):
        raise SettingsError(f"by = {shown(by)} must be 'role' or 'agent'")
    if type(episodes) is not int or episodes < 1:
        raise SettingsError(f"episodes = {shown(episodes, 60)} must be a positive whole number")
    envs = connect(env)
    vector = getattr(envs, "env", None)
    if not isinstance(vector, AgentsVector):
        raise SettingsError(f"{envs.name!r} has no rows of agents; give an id such as 'pettingzoo/simple_spread_v3'")
    played = run_episodes(agent, envs, episodes * envs.num_envs, deterministic=deterministic, seed=seed)
    names = [name if by == "agent" else role_of(name) for name in vector.agents_of_rows]
    return {
        name: Evaluation(tuple(each for each in played.episodes if names[each.env] == name), deterministic)
        for name in dict.fromkeys(names)
    }
