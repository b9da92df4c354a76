"""The evaluator: one function for users, callbacks and the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from rlsdk.agent.resumption import leave_episodes
from rlsdk.environments import connect
from rlsdk.errors import SettingsError, UsageError
from rlsdk.records import Episode
from rlsdk.statistics import Statistics, summarise
from rlsdk.threads import limited_threads

if TYPE_CHECKING:
    from rlsdk.agent import Agent


@attrs.frozen
class Evaluation:
    """Episodes of one evaluation, in the order they ended."""

    episodes: tuple[Episode, ...]
    deterministic: bool

    @property
    def returns(self) -> list[float]:
        return [episode.episode_return for episode in self.episodes]

    @property
    def lengths(self) -> list[int]:
        return [episode.length for episode in self.episodes]

    @property
    def success_rate(self) -> float | None:
        """Share of episodes that reported success; None where the environment does not report it."""
        known = [episode.success for episode in self.episodes if episode.success is not None]
        return sum(known) / len(known) if known else None

    def statistics(self, confidence: float = 0.95) -> Statistics:
        """Mean, deviation, interquartile mean and a bootstrap confidence interval of the mean (extra `stats`)."""
        return summarise(self.returns, confidence)

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation over episodes (population formula)."""
        return float(np.std(self.returns))


def run_episodes(
    agent: Agent, env: Any, episodes: int, *, deterministic: bool = True, seed: int | None = None
) -> Evaluation:
    """Play `episodes` episodes and return them.

    Every environment plays its share, so short episodes do not crowd out long ones. The agent's own random streams are
    not touched: training goes on as if nothing had happened.

    Raises:
        SettingsError: `episodes` is not positive.
        EnvironmentFault: the environment's spaces are not the agent's.
        UsageError: it is the one the agent is being trained in.
    """
    if not isinstance(episodes, int) or episodes < 1:
        raise SettingsError(f"n_eval_episodes = {episodes!r} must be a positive whole number")
    envs = connect(env)
    if _shared(envs, agent.env):
        if agent.run is not None:
            raise UsageError("an evaluation during training needs an environment of its own, not the one trained in")
        leave_episodes(agent)
    agent.require_same_spaces(envs, "the evaluation environment")
    agent.masks.check_environment(envs)
    quota = [(episodes + i) // envs.num_envs for i in range(envs.num_envs)]
    session = agent.session(envs.num_envs, deterministic=deterministic, seed=seed)
    observation = envs.reset(seed)
    finished: list[Episode] = []
    with limited_threads(1):
        while any(quota):
            step = envs.step(session.action_on(observation))
            for episode in step.episodes:
                if quota[episode.env]:
                    quota[episode.env] -= 1
                    finished.append(episode)
            observation = step.observation
    return Evaluation(tuple(finished), deterministic)


def _shared(envs: Any, others: Any) -> bool:
    """Whether playing in one moves the other."""
    mine, theirs = (getattr(vector, "environments", [vector]) for vector in (envs, others))
    return any(a is b for a in mine for b in theirs)


def evaluate_policy(  # noqa: PLR0913  # the documented signature
    model: Agent,
    env: Any,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: Callable[[Episode], None] | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
) -> Any:
    """(mean, standard deviation) of the true episode returns; with `return_episode_rewards` (returns, lengths).

    Args:
        model: the agent.
        env: anything `learn` accepts; use another one than the training environment.
        n_eval_episodes: episodes, spread evenly over the environments.
        deterministic: play the policy's mode.
        render: accepted for compatibility; make the environment with `render_mode="human"` instead.
        callback: called with each finished episode.
        reward_threshold: the mean return that must be reached.
        return_episode_rewards: return lists instead of mean and deviation.
        warn: accepted for compatibility; the evaluator itself sees true rewards, there is nothing to warn of.

    Raises:
        SettingsError: the threshold is missed, or an argument makes no sense.
    """
    if render:
        raise SettingsError('render=True: make the environment with render_mode="human" and pass it as env')
    evaluation = run_episodes(model, env, n_eval_episodes, deterministic=deterministic)
    for episode in evaluation.episodes:
        if callback is not None:
            callback(episode)
    if reward_threshold is not None and evaluation.mean < reward_threshold:
        raise SettingsError(f"mean return {evaluation.mean:.2f} is below reward_threshold = {reward_threshold}")
    if return_episode_rewards:
        return evaluation.returns, evaluation.lengths
    return evaluation.mean, evaluation.std
